import json
import resource

import pytest

from accel_bench import record
from accel_bench.record import Journal, Record


def make(**fields) -> Record:
    plain = {
        "run_id": "r",
        "config_hash": "h",
        "workload": "matmul",
        "params": {"shape": "64"},
        "precision": "fp32",
        "mesh": {},
        "target": {"kind": "measured", "platform": "cpu", "device_kind": "Some CPU"},
        "status": "ok",
        "env": {"python": "3"},
        "samples_s": [1.0, 2.0],
    }
    return Record(**(plain | fields))


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / record.FILE_NAME
    journal = Journal(path)
    rows = [make(), make(status="oom", reason="needs 256 GiB", samples_s=[])]
    for row in rows:
        journal.append(row)
    journal.close()
    found = record.read(path)
    assert found.records == rows
    assert found.problems == []
    assert found.good_bytes == path.stat().st_size


def test_lines_are_strict_json():
    row = make(facts={"error": float("nan"), "deep": [{"x": float("inf")}]})
    plain = json.loads(record.to_line(row), parse_constant=pytest.fail)
    assert plain["facts"] == {"error": None, "deep": [{"x": None}]}


def test_a_torn_last_line_is_named_cut_off_and_written_again(tmp_path):
    path = tmp_path / record.FILE_NAME
    whole = record.to_line(make()) + "\n"
    path.write_text(whole + whole[:50])
    found = record.read(path)
    assert found.records == [make()]
    assert found.problems == [
        f"{path}: the last line is torn: the run was stopped while writing it"
    ]
    journal = Journal(path, found.good_bytes)
    journal.append(make(run_id="again"))
    journal.close()
    assert [row.run_id for row in record.read(path).records] == ["r", "again"]


def test_a_line_that_is_no_record_does_not_stop_the_rest(tmp_path):
    path = tmp_path / record.FILE_NAME
    good = record.to_line(make())
    bad = ["", "null", "{}", "\x00\xff", '{"status": "ok"}', json.dumps({"run_id": 1} | {"x": 2})]
    path.write_bytes("\n".join([good, *bad, good, ""]).encode("latin-1"))
    found = record.read(path)
    assert len(found.records) == 2
    assert [p.split(":")[1] for p in found.problems] == ["2", "3", "4", "5", "6", "7"]


def test_fields_of_later_versions_are_left_out():
    plain = json.loads(record.to_line(make())) | {"new_field": 1, "schema_version": 99}
    assert record.from_dict(plain).schema_version == 99


def test_a_full_disk_leaves_the_records_before_it_whole(tmp_path):
    """A limit on the size of files stops a write half-way, as a full disk does."""
    path = tmp_path / record.FILE_NAME
    journal = Journal(path)
    journal.append(make())
    size = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, before[1]))
    try:
        with pytest.raises(OSError):
            journal.append(make(reason="x" * 10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.stat().st_size == size
    journal.append(make(run_id="later"))
    journal.close()
    assert [row.run_id for row in record.read(path).records] == ["r", "later"]


@pytest.mark.parametrize(
    "fields",
    [
        {"samples_s": ["x"]}, {"samples_s": [0.0]}, {"samples_s": None}, {"samples_s": []},
        {"facts": None}, {"facts": {"flags": 3}}, {"facts": {"work": {"flops": "many"}}},
        {"facts": {"error": "x"}}, {"facts": {"companions_s": {"serial": [None]}}},
        {"params": None}, {"params": [1]}, {"target": None}, {"target": {"device_kind": 3}},
        {"mesh": None}, {"mesh": {"data": "x"}}, {"precision": None}, {"workload": 3},
        {"facts": {"work": None}}, {"facts": {"flags": None}}, {"facts": {"companions_s": None}},
        {"env": {"cpu": None}}, {"target": {"device_kind": None}}, {"samples_s": [10**400]},
        {"schema_version": "x"},
        {"env": {"cpu": 3}}, {"env": {"cpu": {"caches": {"L1": "big"}}}}, {"implementation": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_record_whose_fields_hold_something_else_is_none(fields):
    plain = json.loads(record.to_line(make())) | fields
    with pytest.raises(ValueError):
        record.from_dict(plain)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "fine"}, "status 'fine' is none of"),
        ({"status": "failed"}, "status failed needs a reason"),
        ({"env": {}}, "needs the environment"),
    ],
)
def test_a_record_without_what_it_needs_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        make(**fields)
