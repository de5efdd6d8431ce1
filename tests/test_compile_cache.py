import dataclasses
import json
from pathlib import Path

import pytest
from test_record import make

from accel_bench import compile_cache, compilers
from accel_bench.cases import Case
from accel_bench.compilers import Compiler
from accel_bench.plan import Job
from accel_bench.target import parse

CASE = Case("c", "matmul", {"shape": "64"}, "fp32")
JOB = Job(CASE, {}, parse("tpu:v5e:1x1"))
RECORD = make(
    target=parse("tpu:v5e:1x1").record(), samples_s=[], compile_s=2.0, facts={"work": {"flops": 1}}
)


@pytest.fixture(autouse=True)
def known_compiler(monkeypatch):
    monkeypatch.setattr(compilers, "find", lambda target: Compiler({"libtpu": "1"}))


def test_what_was_kept_comes_back_and_says_so(tmp_path):
    assert compile_cache.load(tmp_path, JOB, {}) is None
    compile_cache.save(tmp_path, JOB, {}, RECORD)
    kept = compile_cache.load(tmp_path, JOB, {})
    assert kept
    assert kept.compile_s is None  # nothing was compiled now
    assert kept.facts == {"work": {"flops": 1}, "cache": {"hit": True, "compile_s": 2.0}}
    assert kept.env == RECORD.env


def test_another_case_mesh_target_compiler_or_setting_is_another_key(monkeypatch):
    keys = [
        compile_cache.key(JOB, {}),
        compile_cache.key(Job(CASE, {"data": 1}, JOB.target), {}),
        compile_cache.key(Job(CASE, {}, parse("tpu:v6e:1x1")), {}),
        compile_cache.key(Job(Case("c", "matmul", {"shape": "64"}, "bf16"), {}, JOB.target), {}),
    ]
    keys.append(compile_cache.key(JOB, {"XLA_FLAGS": "--another"}))
    monkeypatch.setenv("XLA_FLAGS", "--xla_something=1")
    keys.append(compile_cache.key(JOB, {}))
    monkeypatch.setattr(compilers, "find", lambda target: Compiler({"libtpu": "2"}))
    keys.append(compile_cache.key(JOB, {}))
    monkeypatch.setattr(compile_cache, "_source_hash", lambda: "changed")
    keys.append(compile_cache.key(JOB, {}))
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("status", ["crashed", "timeout", "failed", "skipped"])
def test_what_says_nothing_of_the_program_is_not_kept(tmp_path, status):
    compile_cache.save(tmp_path, JOB, {}, dataclasses.replace(RECORD, status=status, reason="why"))
    assert compile_cache.load(tmp_path, JOB, {}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"status": "ok"}', '{"status": 1, "x": 2}'])
def test_a_torn_entry_is_passed_over(tmp_path, text):
    compile_cache.save(tmp_path, JOB, {}, RECORD)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert compile_cache.load(tmp_path, JOB, {}) is None


MEASURED = {"kind": "measured", "platform": "cpu", "device_kind": "x"}


@pytest.mark.parametrize(
    "change",
    [
        {"target": MEASURED, "samples_s": [1.0]},  # an estimate that would be a measurement
        {"target": {**RECORD.target, "topology": "4x4"}},
        {"status": "timeout", "reason": "why"},
        {"status": "fine"},
        {"samples_s": [1.0]},
        {"facts": []},
        {"facts": {"estimate": "x"}},
        {"env": {}},
        {"params": {"shape": "65"}},
    ],
)
def test_a_readable_entry_of_something_else_is_passed_over_and_replaced(tmp_path, change):
    compile_cache.save(tmp_path, JOB, {}, RECORD)
    (file,) = tmp_path.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert compile_cache.load(tmp_path, JOB, {}) is None
    compile_cache.save(tmp_path, JOB, {}, RECORD)
    assert compile_cache.load(tmp_path, JOB, {})


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    compile_cache.save(tmp_path / "file", JOB, {}, RECORD)
    assert compile_cache.load(tmp_path / "file", JOB, {}) is None


def test_the_place_is_the_users_or_none(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile_cache.directory("auto") == tmp_path / "accel_bench" / "compiled"
    assert compile_cache.directory("off") is None
    assert compile_cache.directory("here") == Path("here")
    assert compile_cache.directory("~/x") == Path.home() / "x"


def test_without_a_home_there_is_no_cache(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(compile_cache.Path, "home", nobody)
    assert compile_cache.directory("auto") is None


def test_the_source_that_makes_a_program_is_in_the_key():
    from accel_bench.compile_cache import _HERE, _SOURCES

    files = {path.name for pattern in _SOURCES for path in _HERE.glob(pattern)}
    assert {"transformer.py", "matmul.py", "compile.py", "base.py", "text.py"} <= files
    assert all(list(_HERE.glob(pattern)) for pattern in _SOURCES)
