import gc
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
    other = record.to_line(make(run_id="other"))
    path.write_bytes("\n".join([good, *bad, other, ""]).encode("latin-1"))
    found = record.read(path)
    assert [row.run_id for row in found.records] == ["r", "other"]
    assert [p.split(":")[1] for p in found.problems] == ["2", "3", "4", "5", "6", "7"]


def written(tmp_path, *lines: str | bytes):
    """What is read from a file of these lines."""
    path = tmp_path / record.FILE_NAME
    path.write_bytes(b"".join(x.encode() if isinstance(x, str) else x for x in lines))
    found = record.read(path)
    assert found.good_bytes == path.read_bytes().rfind(b"\n") + 1
    return found, [problem.removeprefix(str(path)) for problem in found.problems]


def line(**fields) -> str:
    """A line as a run writes it, these fields put in whatever they hold."""
    return json.dumps(json.loads(record.to_line(make())) | fields) + "\n"


def test_a_later_version_is_read_as_far_as_it_is_understood_and_named_once(tmp_path):
    later = [line(schema_version=2, run_id=name, new=1, also=2) for name in "ab"]
    broken = line(schema_version=2, samples_s="packed")
    found, problems = written(tmp_path, line(), *later, broken)
    assert [row.schema_version for row in found.records] == [1, 2, 2]
    assert problems == [
        ':4: not a record: samples_s holds "packed"',
        ": 2 records of schema version 2: read as far as this version (1) understands them",
        ": unknown fields are left out: new, also",
    ]


def test_of_many_unknown_fields_the_first_are_named(tmp_path):
    _, problems = written(tmp_path, line(**{f"x{i}": i for i in range(20)}))
    assert problems == [": unknown fields are left out: x0, x1, x2, x3, x4, x5, x6, x7 and 12 more"]


@pytest.mark.parametrize("version", [0, -1, 1.5, "1", True, None, []])
def test_a_version_that_is_none_makes_no_record(tmp_path, version):
    found, problems = written(tmp_path, line(schema_version=version), line())
    assert len(found.records) == 1
    assert problems == [f":1: not a record: schema_version holds {json.dumps(version)}"]


def test_lines_written_twice_count_once_and_are_named_with_their_number(tmp_path):
    found, problems = written(
        tmp_path, line(), line(run_id="s"), line(), line(), line(precision="x")
    )
    assert [(row.run_id, row.precision) for row in found.records] == [
        ("r", "fp32"), ("s", "fp32"), ("r", "x"),
    ]  # fmt: skip
    assert problems == [": 2 lines repeat a line before them: counted once"]


def test_what_editors_and_copies_do_to_a_file_is_named_and_costs_no_record(tmp_path):
    crlf = [line(run_id=name).replace("\n", "\r\n") for name in "abc"]
    found, problems = written(tmp_path, b"\xef\xbb\xbf", crlf[0], "\n", " \t\n", *crlf[1:])
    assert [row.run_id for row in found.records] == ["a", "b", "c"]
    assert problems == [
        ":1: begins with a byte order mark: left out",
        ":2: not a record: a blank line",
        ":3: not a record: a blank line",
        ": 3 lines end as on Windows (CR LF): another program wrote here",
    ]


def test_a_file_in_another_encoding_is_no_file_of_records(tmp_path):
    found, problems = written(tmp_path, line().encode("utf-16"), b"\n", line())
    assert len(found.records) == 1
    assert problems[0].startswith(":1: not a record: ")


@pytest.mark.parametrize(
    "text",
    [
        '{"samples_s": [NaN]}', "[" * 100_000, '{"a": 1e999}', '"\\ud800"', "1" * 5000, "{}}",
        '{"samples_s": [1.0]} x', "\x00",
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_hostile_json_costs_its_own_line(tmp_path, text):
    found, problems = written(tmp_path, text + "\n", line())
    assert len(found.records) == 1
    assert len(problems) == 1
    assert problems[0].startswith(":1: not a record: ")


def test_numbers_without_a_value_are_refused_where_they_stand_in_a_record(tmp_path):
    for number in ("NaN", "Infinity", "1e999", "1" + "0" * 400):
        _, problems = written(tmp_path, line().replace("[1.0, 2.0]", f"[{number}]"))
        assert len(problems) == 1, number


def test_text_that_is_no_unicode_is_written_and_read_back(tmp_path):
    """Names of files and settings may hold bytes that are no text; Python keeps them as these."""
    row = make(env={"settings": {"XLA_FLAGS": "\udcff"}})
    found, problems = written(tmp_path, record.to_line(row) + "\n")
    assert found.records == [row]
    assert not problems


def test_equal_parts_of_records_are_kept_once(tmp_path):
    rows = [make(run_id=str(i), facts={"error": i / 10}) for i in range(3)]
    found, _ = written(tmp_path, *(record.to_line(row) + "\n" for row in rows))
    assert found.records == rows
    for name in ("env", "target", "params", "mesh"):
        assert len({id(getattr(row, name)) for row in found.records}) == 1
    assert len({id(row.facts) for row in found.records}) == 3


def test_true_and_1_are_no_equal_parts(tmp_path):
    rows = [make(params={"x": value}) for value in (1, True, 1.0)]
    found, _ = written(tmp_path, *(record.to_line(row) + "\n" for row in rows))
    assert [type(row.params["x"]) for row in found.records] == [int, bool, float]


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path):
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            written(tmp_path, line(), "no record\n")
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples_s": [0.0]}, "samples_s[0] holds 0.0"),
        ({"samples_s": [float("nan")]}, "samples_s[0] holds null"),
        ({"samples_s": []}, "status ok without samples"),
        ({"facts": {"flags": "noisy"}}, 'facts.flags holds "noisy"'),
        ({"facts": {"work": {"flops": float("inf")}}}, "facts.work.flops holds null"),
        ({"compile_s": "soon"}, 'compile_s holds "soon"'),
    ],
)
def test_a_record_of_ours_that_breaks_the_schema_is_an_error_and_not_written(
    tmp_path, fields, message
):
    path = tmp_path / record.FILE_NAME
    journal = Journal(path)
    journal.append(make())
    before = path.read_bytes()
    with pytest.raises(record.RecordError) as error:
        journal.append(make(**fields))
    assert str(error.value) == f"the record of matmul fp32 breaks the schema: {message}"
    assert path.read_bytes() == before
    journal.append(make(run_id="later"))
    journal.close()
    assert [row.run_id for row in record.read(path).records] == ["r", "later"]


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
