import io

import pytest
from rich.console import Console
from test_derive import matmul
from test_record import make

from accel_bench import tables


def printed(width, *records) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    tables.print_run(records, console)
    return console.export_text()


ROWS = [
    matmul(1.0, facts={"error": 1e-7, "flags": ["dispatch-bound", "cache-resident"]}),
    make(
        params={"shape": "96"}, status="oom", reason="needs 256 GiB, 20 GiB are free", samples_s=[]
    ),
]


@pytest.mark.parametrize("width", [200, 120, 80, 60])
def test_every_row_is_named_and_every_note_is_told_at_any_width(width):
    text = printed(width, *ROWS)
    for line, shape in (("1.00 s", "64"), ("oom", "96")):
        (row,) = [x for x in text.splitlines() if line in x and x.strip().startswith(shape)][:1]
        assert len(row) <= width
    flat = " ".join(text.split())
    assert "dispatch-bound, cache-resident" in flat
    assert "needs 256 GiB, 20 GiB are free" in flat


def test_a_wide_table_has_its_notes_in_the_row():
    (row,) = [line for line in printed(200, *ROWS).splitlines() if "oom" in line][:1]
    assert "needs 256 GiB" in row


def test_the_last_line_counts_the_statuses():
    assert printed(120, *ROWS).rstrip().endswith("1 ok, 1 oom")
