import io

import pytest
from rich.console import Console
from test_record import make

from accel_bench import compare, comparison, record, tables
from accel_bench.errors import RequestError


def write(path, rows):
    path.mkdir()
    (path / record.FILE_NAME).write_text("".join(record.to_line(row) + "\n" for row in rows))
    return path


def row(shape="64", seconds=1.0, **fields):
    samples = [seconds * (1 + 0.001 * i) for i in range(-5, 6)]
    return make(
        params={"shape": shape}, samples_s=samples, facts={"work": {"flops": 1e9}}, **fields
    )


def shown(*paths) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    compare.compare(list(paths), console)
    return console.export_text()


def test_equal_cases_stand_side_by_side_with_their_ratio(tmp_path):
    one = write(tmp_path / "one", [row(seconds=1.0)])
    other = write(tmp_path / "other", [row(seconds=0.5)])
    text = shown(one, other)
    assert "1.00 GFLOP/s" in text
    assert "2.00 GFLOP/s" in text
    assert "2.00x" in text


def test_no_ratio_is_claimed_where_the_intervals_overlap(tmp_path):
    one = write(tmp_path / "one", [row(seconds=1.0)])
    other = write(tmp_path / "other", [row(seconds=1.002)])
    assert "~1" in shown(one, other)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"precision": "bf16"}, "precision bf16 is only here"),
        ({"shape": "128"}, "matmul 128 is only here"),
        ({"implementation": "numpy"}, "implementation numpy is only here"),
    ],
)
def test_what_does_not_pair_is_listed_with_the_field_that_differs(tmp_path, fields, reason):
    one = write(tmp_path / "one", [row()])
    other = write(tmp_path / "other", [row(), row(**fields)])
    text = shown(one, other)
    assert f"not compared: {other}: 1 of 2 rows pair with nothing: {reason}" in text.replace(
        "\n", ""
    )


def test_a_run_in_more_precisions_names_them_and_not_the_sizes(tmp_path):
    shapes = ("64", "128")
    one = write(tmp_path / "one", [row(shape=s) for s in shapes])
    more = [row(shape=s, precision=p) for s in shapes for p in ("fp32", "bf16")]
    text = shown(one, write(tmp_path / "other", more)).replace("\n", "")
    assert "2 of 4 rows pair with nothing: precision bf16 is only here" in text
    assert "128 is only here" not in text


def test_two_experiments_are_refused_with_the_field_that_differs(tmp_path):
    one = write(tmp_path / "one", [row(config_hash="a")])
    other = write(tmp_path / "other", [row(config_hash="b")])
    (one / "config.json").write_text('{"seed": 0, "device": "cpu"}')
    (other / "config.json").write_text('{"seed": 1, "device": "gpu"}')
    with pytest.raises(RequestError) as error:
        shown(one, other)
    assert "seed: 0 against 1" in str(error.value)
    assert "device" not in str(error.value)


def test_what_differs_between_the_environments_is_said(tmp_path):
    env = {"packages": {"jax": "0.10.2"}, "settings": {"XLA_FLAGS": "--x"}}
    one = write(tmp_path / "one", [row(env=env)])
    other = write(tmp_path / "other", [row(env=env | {"packages": {"jax": "0.12.0"}})])
    text = shown(one, other)
    assert "packages differ: jax 0.10.2 / 0.12.0" in text
    assert "settings differ" not in text


def test_the_mesh_is_named(tmp_path):
    one = write(tmp_path / "one", [row()])
    other = write(tmp_path / "other", [row(mesh={"data": 2})])
    assert "B: Some CPU, mesh data:2" in shown(one, other)


def test_the_last_record_of_a_case_counts(tmp_path):
    one = write(tmp_path / "one", [row(seconds=9.0), row(seconds=1.0)])
    (source,) = comparison.read_all([one])
    assert [r.samples_s[5] for r in source.records] == [1.0]


def test_a_file_without_records_is_refused(tmp_path):
    with pytest.raises(RequestError, match="cannot read records"):
        comparison.read_all([tmp_path / "nowhere"])
    with pytest.raises(RequestError, match="no records in"):
        comparison.read_all([write(tmp_path / "empty", [])])
    with pytest.raises(RequestError, match="at least two"):
        comparison.compare([write(tmp_path / "alone", [row()])])


HOSTILE = "[bold]x[/] \x1b[31m [/nonsense] <script>"


def test_strings_of_records_are_shown_and_not_obeyed(tmp_path):
    target = {"kind": "measured", "platform": "cpu", "device_kind": HOSTILE}
    rows = [
        row(shape=HOSTILE, target=target),
        make(workload=HOSTILE, target=target),
        make(status="failed", reason=HOSTILE, samples_s=[], target=target),
    ]
    one, other = write(tmp_path / "one", rows), write(tmp_path / "other", rows)
    text = shown(one, other)
    assert "[bold]x[/]" in text
    assert "\x1b[31m" not in text
    console = Console(width=160, record=True, file=io.StringIO())
    tables.print_run(rows, console)
    assert "[bold]x[/]" in console.export_text()
