"""Compiling from the command line: what is asked for, what is written, what a crash costs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, assert_refused
from test_compile import needs_gpu, needs_tpu
from test_main import children, rows

MATMUL = "--config.cases={'it': {'workload': 'matmul', 'shape': ('256', '512')}}"
ONLY = ("run", "--device=none", "--config=smoke", MATMUL)
BOTH = "--targets=tpu:v5e:2x2,gpu:h100_sxm:4"

WRONG = [
    ((*ONLY, "--targets=tpu:v5f:2x2"), "unknown tpu in --targets=tpu:v5f:2x2: 'v5f': did you mean"),
    ((*ONLY, "--targets=tpu:v5e:3x3"), "v5e has no topology '3x3': choose from 1x1, 2x2"),
    (
        (*ONLY, "--targets=gpu:h100_sxm:9"),
        "'9' is no number of GPUs: write 1 to 8, or hosts x GPUs",
    ),
    ((*ONLY, "--targets=h100"), "write tpu:GENERATION:TOPOLOGY, as in tpu:v5e:4x4"),
    (
        (*ONLY, "--targets=tpu:v5e:2x2", "--mesh=data:8"),
        "needs 8 devices, but there are 4 (tpu:v5e",
    ),
    ((*ONLY, "--targets=tpu:v5e:2x2", "--mesh=data:*,model:3"), "needs a multiple of 3 devices"),
    ((*ONLY, "--targets=tpu:v5e:2x2", "--mesh=seq:4"), "matmul knows no mesh axis 'seq'"),
    (ONLY, "--device=none measures nothing: name what to compile for, as in --targets=tpu:v5e:1x1"),
    ((*ONLY, BOTH, "--fake_devices=4"), "--fake_devices makes virtual CPU devices to measure on"),
    (("run", "--config=smoke", "--find_smallest_fit"), "--find_smallest_fit needs --targets"),
    (("run", "--config=transfer", "--device=none", BOTH), "no case of this config has a program"),
    ((*ONLY, BOTH, "--config.compile_cases=('that',)"), "unknown case in config.compile_cases"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_request_is_one_line_and_nothing_is_written(
    quick_main_py, tmp_path, arguments, message
):
    assert_refused(quick_main_py(*arguments), message, tmp_path)


@pytest.mark.alone
@needs_tpu
@needs_gpu
def test_one_command_compiles_for_both_and_the_second_time_takes_it_from_the_cache(
    main_py, tmp_path
):
    cache = f"--compile_cache={tmp_path / 'kept'}"
    started = time.monotonic()
    done = main_py(*ONLY, BOTH, "--workdir=w", cache)
    first = time.monotonic() - started
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path / "w")
    assert [row.target["kind"] for row in found] == ["compiled"] * 4
    assert [row.target["num_devices"] for row in found] == [4] * 4
    assert all(row.mesh == {"data": 4} and row.samples_s == [] and row.compile_s for row in found)
    assert {row.facts["program"]["flops"] for row in found} == {2 * 256**3 / 4, 2 * 512**3 / 4}
    assert "compiled, not run" in done.stdout
    assert "±" not in done.stdout

    started = time.monotonic()
    again = main_py(*ONLY, BOTH, "--workdir=v", cache)
    assert time.monotonic() - started < first / 2  # a few starts of Python beside nothing
    assert again.returncode == 0
    kept = rows(tmp_path / "v")
    assert all(row.facts["cache"]["hit"] and row.compile_s is None for row in kept)
    for row, other in zip(found, kept, strict=True):
        assert row.facts == {k: v for k, v in other.facts.items() if k != "cache"}

    resumed = main_py(*ONLY, BOTH, "--workdir=w", "--resume")
    assert "nothing to do: all 4 cases have a record in w" in resumed.stderr

    compared = main_py("compare", "w")
    assert compared.returncode == 0
    assert "A: compiled for tpu:v5e:2x2, not run, mesh data:4" in compared.stdout
    assert "products run as: A " in compared.stdout
    assert "x triton" in compared.stdout


@needs_tpu
@needs_gpu
def test_measured_and_compiled_stand_side_by_side_and_are_told_apart(main_py, tmp_path):
    fast = ("--config.measure.max_seconds=0.05", "--config.measure.target=0.5")
    targets = "--targets=tpu:v5e:1x1,gpu:h100_sxm:1"
    done = main_py("run", "--config=smoke", MATMUL, targets, *fast, "--workdir=w")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    found = rows(tmp_path / "w")
    assert [row.target["kind"] for row in found] == ["measured"] * 2 + ["compiled"] * 4
    assert {row.params["shape"] for row in found} == {"256", "512"}
    (title,) = [x for x in done.stdout.splitlines() if "one step; ~ the compiler's estimate" in x]
    assert title.startswith("matmul")
    line = next(x for x in done.stdout.split(title)[1].splitlines() if x.strip().startswith("512"))
    assert "~" in line
    assert ">= " in line

    compared = main_py("compare", "w")
    assert "matmul (measured and compiled)" in compared.stdout
    assert not any("x  " in x and "~" in x for x in compared.stdout.splitlines() if "ratio" in x)


@needs_gpu
def test_the_programs_text_is_kept_where_it_is_asked_for(main_py, tmp_path):
    done = main_py(*ONLY, "--targets=gpu:l4:1", "--workdir=w", "--dump_hlo")
    assert done.returncode == 0, done.stderr
    for row in rows(tmp_path / "w"):
        assert (tmp_path / "w" / "hlo" / row.facts["hlo_file"]).read_text().startswith("HloModule")


@needs_tpu
def test_two_runs_compile_at_the_same_time(tmp_path):
    environ = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    command = [sys.executable, str(ROOT / "main.py"), *ONLY, "--targets=tpu:v5e:1x1"]
    runs = [
        subprocess.Popen(
            [*command, f"--workdir={name}", "--compile_cache=off"],
            cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for name in "ab"
    ]  # fmt: skip
    for run in runs:
        output, _ = run.communicate(timeout=120)
        assert run.returncode == 0, output


@needs_gpu
def test_the_smallest_fit_is_searched_and_its_probes_are_no_failures(main_py, tmp_path):
    # 2 * 2^36 + 2^36 bytes: two H100 hold it in halves, one does not.
    wide = "--config.cases={'it': {'workload': 'matmul', 'shape': '131072'}}"
    done = main_py(
        "run", "--device=none", "--config=smoke", wide, "--precision=bf16",
        "--targets=gpu:h100_sxm:4", "--find_smallest_fit", "--workdir=w",
    )  # fmt: skip
    found = {row.target["topology"]: row for row in rows(tmp_path / "w")}
    assert {name: row.status for name, row in found.items()} == {
        "4": "ok", "2": "ok", "1": "oom_compile"
    }  # fmt: skip
    assert done.returncode == 0
    assert "Smallest h100_sxm that fits 131072 bf16: gpu:h100_sxm:2, 2 chips" in done.stdout
    alone = main_py(
        "run", "--device=none", "--config=smoke", wide, "--precision=bf16",
        "--targets=gpu:h100_sxm:1", "--workdir=v",
    )  # fmt: skip
    assert alone.returncode == 1
    assert [row.status for row in rows(tmp_path / "v")] == ["oom_compile"]


@needs_gpu
def test_a_compiler_that_dies_costs_its_row_only(tmp_path):
    environ = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    model = {"workload": "model", "phase": "train_step", "model": "llama2_7b", "batch": 1,
             "length": 512}  # fmt: skip
    some = {"a": {"workload": "matmul", "shape": "256"}, "b": model}
    run = subprocess.Popen(
        [sys.executable, str(ROOT / "main.py"), "run", "--device=none", "--config=smoke",
         f"--config.cases={some}", "--precision=bf16", "--workdir=w", "--compile_cache=off",
         "--targets=gpu:b200:1,gpu:h200:1"],
        cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    log: Path = tmp_path / "w" / "records.jsonl"
    while time.monotonic() < deadline and not (log.exists() and log.read_bytes().count(b"\n")):
        time.sleep(0.02)
    time.sleep(0.5)
    (worker,) = children(run.pid)
    os.kill(worker, signal.SIGKILL)
    run.communicate(timeout=120)
    assert run.returncode == 1
    found = rows(tmp_path / "w")
    assert [row.status for row in found] == ["ok", "crashed", "ok", "ok"]
    assert "signal SIGKILL" in (found[1].reason or "")
    assert found[1].target["chip"] == "b200"
