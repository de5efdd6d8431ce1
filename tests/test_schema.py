"""The schema of a record: it says all that there is, in words, and it is strict about it."""

import json
import re
import subprocess
import sys
from importlib import resources

import pytest
from conftest import ROOT
from test_compiled_tables import compiled
from test_record import make

from accel_bench import record, schema


def resolved(node):
    """A node of the schema, or what it refers to."""
    if "$ref" in node:
        return schema.document()["definitions"][node["$ref"].rpartition("/")[2]]
    return node


def fields(node, path=""):
    """Path -> node of every field below a node of the schema that has a name there."""
    for name, below in resolved(node).get("properties", {}).items():
        yield f"{path}{name}", below
        yield from fields(below, f"{path}{name}.")


PROPERTIES = schema.document()["properties"]
FIELDS = dict(fields(schema.document()))


def test_it_holds_the_fields_of_a_record_and_no_others():
    assert set(PROPERTIES) == set(record.FIELDS) == set(schema.document()["required"])
    assert PROPERTIES["status"]["enum"] == list(record.STATUSES)


def test_it_is_installed_with_the_package():
    file = resources.files("accel_bench") / schema.FILE_NAME
    assert json.loads(file.read_text("utf-8"))["$schema"].startswith(
        "http://json-schema.org/draft-07"
    )


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_described(path):
    assert (FIELDS[path].get("description") or resolved(FIELDS[path])["description"]).endswith(".")


def test_the_document_and_the_schema_name_the_same_facts():
    text = (ROOT / "docs" / "records.md").read_text()
    tables = re.findall(r"^\| (`.*?) \|", text.split("\n## Facts", 1)[1], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(tables))) == sorted(
        PROPERTIES["facts"]["properties"]
    )


def put(plain, path, value):
    """A copy of plain data with a value put in at a path of names."""
    name, _, rest = path.partition(".")
    below = plain.get(name)
    return {
        **plain,
        name: put(below if isinstance(below, dict) else {}, rest, value) if rest else value,
    }


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_checked_and_named_where_it_holds_something_else(path):
    base = json.loads(record.to_line(make()))
    kinds = resolved(FIELDS[path]).get("type", "string")
    kinds = {kinds} if isinstance(kinds, str) else set(kinds)
    wrong = 3.5 if kinds & {"object", "string"} else "x"
    with pytest.raises(ValueError) as error:
        record.from_dict(put(base, path, wrong))
    assert str(error.value).startswith(f"{path} holds {json.dumps(wrong)}")
    if "null" not in kinds:
        with pytest.raises(ValueError) as error:
            record.from_dict(put(base, path, None))
        assert str(error.value).startswith(f"{path} holds null")


@pytest.mark.parametrize("name", record.FIELDS)
def test_no_field_may_be_missing(name):
    plain = json.loads(record.to_line(make()))
    del plain[name]
    with pytest.raises(ValueError, match=f"^{name} is missing$"):
        record.from_dict(plain)


ENTRY = {"kind": "all-gather", "axes": ["x"], "calls": 1, "bytes": None, "wire_bytes": 2.0}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"status": "fine"}, 'status holds "fine", none of ok, unsupported'),
        ({"status": "oom"}, "a record that is not ok needs a reason"),
        ({"status": "oom", "reason": ""}, "a record that is not ok needs a reason"),
        ({"env": {}}, "a record needs the environment it was made in"),
        ({"samples_s": []}, "status ok without samples"),
        ({"samples_s": [1.0, -1.0]}, "samples_s[1] holds -1.0"),
        ({"samples_s": [10**400]}, "samples_s[0] holds 1000"),
        ({"facts": {"error": 10**400}}, "facts.error holds 1000"),
        ({"facts": {"work": {"flops": True}}}, "facts.work.flops holds true"),
        ({"mesh": {"data": 0}}, "mesh.data holds 0"),
        ({"mesh": {"data": 1.5}}, "mesh.data holds 1.5"),
        ({"target": {}}, "target.kind, target.platform are missing"),
        ({"facts": {"companions_s": {"serial": [None]}}}, "facts.companions_s.serial[0] holds"),
        ({"facts": {"collectives": [{**ENTRY, "axes": "x"}]}}, "facts.collectives[0].axes holds"),
        ({"facts": {"collectives": [{"kind": "x"}]}}, "facts.collectives[0].axes, facts.coll"),
        ({"facts": {"code": {"kernels": {"triton": {"executed": "2"}}}}},
         'facts.code.kernels.triton.executed holds "2"'),
        ({"reason": "x" * 99}, ""),
        ({"facts": {"collectives": [ENTRY], "later": {"any": [None]}}}, ""),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_named_alike_by_all_checks(changed, message, tmp_path):
    plain = json.loads(record.to_line(make())) | changed
    path = tmp_path / record.FILE_NAME
    path.write_text(json.dumps(plain) + "\n")
    found = record.read(path)
    if not message:
        assert found.records == [record.from_dict(plain)]
        return
    with pytest.raises(ValueError) as error:
        record.from_dict(plain)
    assert str(error.value).startswith(message)
    assert found.problems == [f"{path}:1: not a record: {error.value}"]


def test_a_compiled_record_has_no_samples_and_names_its_target():
    plain = json.loads(record.to_line(compiled()))
    record.from_dict(plain)
    with pytest.raises(ValueError, match="^a compiled record with samples$"):
        record.from_dict(plain | {"samples_s": [1.0]})
    bare = {"kind": "compiled", "platform": "tpu"}
    with pytest.raises(ValueError, match=r"^target.chip, target.topology are missing$"):
        record.from_dict(plain | {"target": bare})


def test_who_reads_and_writes_no_record_does_not_load_what_checks_them():
    code = (
        "import sys, accel_bench.cli, accel_bench.worker, accel_bench.record\n"
        "print([name for name in ('fastjsonschema', 'orjson') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "[]\n"
