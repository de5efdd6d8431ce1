import csv
import io
import json

import pytest
from test_compare import HOSTILE, row, write
from test_compiled_tables import compiled

from accel_bench import comparison, export
from accel_bench.errors import RequestError


@pytest.fixture
def found(tmp_path):
    one = write(tmp_path / "one", [row(seconds=1.0), row(shape=HOSTILE)])
    other = write(tmp_path / "other", [row(seconds=0.5), row(shape=HOSTILE), compiled()])
    return comparison.compare([one, other])


def test_csv_holds_what_the_cells_hold(found):
    rows = list(csv.DictReader(io.StringIO(export.csv_text(found))))
    assert [r["source"] for r in rows] == ["A", "B", "C", "A", "B"]
    assert [r["origin"] for r in rows[:3]] == ["measured", "measured", "estimate"]
    assert float(rows[1]["seconds"]) == pytest.approx(0.5)
    assert float(rows[1]["ratio"]) == pytest.approx(2.0)
    assert rows[2]["ratio"] == ""
    assert rows[1]["fastest"] == "True"
    assert rows[3]["case"] == HOSTILE.replace("\x1b", " ")


@pytest.mark.parametrize("text", ["=1+1", "@cmd", "-2", "+x", " =1"])
def test_no_text_is_a_formula(tmp_path, text):
    paths = [write(tmp_path / name, [row(shape=text)]) for name in "ab"]
    rows = list(csv.DictReader(io.StringIO(export.csv_text(comparison.compare(paths)))))
    assert rows[0]["case"] == f"'{text}"


def test_json_is_strict_and_whole(found):
    plain = json.loads(export.json_text(found), parse_constant=pytest.fail)
    assert [source["letter"] for source in plain["sources"]] == ["A", "B", "C"]
    assert plain["rows"] == json.loads(json.dumps(list(export.entries(found))))
    assert plain["reference"] == "A"


def test_markdown_keeps_its_columns_and_obeys_no_record(found):
    text = export.markdown_text(found)
    tables = [line for line in text.splitlines() if line.startswith("|")]
    bars = {len(line.replace("\\|", "").split("|")) for line in tables}
    assert len(bars) == 1
    assert "<script>" not in text
    assert "[bold]" not in text.replace("\\[", "")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    export.write(tmp_path / "x.csv", "a\n")
    assert (tmp_path / "x.csv").read_text() == "a\n"
    with pytest.raises(RequestError, match="cannot write"):
        export.write(tmp_path / "nowhere" / "x.csv", "a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RequestError, match="cannot write"):
        export.write(tmp_path / "folder", "a")
    (tmp_path / "link").symlink_to("x.csv")
    export.write(tmp_path / "link", "b \ud800\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "x.csv").read_text() == "b \\ud800\n"
    assert {path.name for path in tmp_path.iterdir()} == {"x.csv", "folder", "link"}
