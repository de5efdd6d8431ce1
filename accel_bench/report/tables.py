"""Tables of a workload: sources side by side, and every figure of every record."""

from __future__ import annotations

from collections.abc import Sequence

from accel_bench.cases import XLA
from accel_bench.comparison import Cell, Comparison, Row
from accel_bench.report import cells, every_figure
from accel_bench.report.cells import Shown
from accel_bench.report.markup import escape, tag

# Rows of one workload; a browser stays quick with so many.
MAX_ROWS = 2000
# Characters of all tables together, so that the file stays below 8 MB.
MAX_CHARACTERS = 3_600_000


def sections(found: Comparison, workload: str, rows: Sequence[Row], share: int) -> str:
    """Both tables of a workload.

    Args:
      found: the comparison.
      workload: its name.
      rows: its rows.
      share: characters that both together may take.
    """
    kept = rows[:MAX_ROWS]
    wide, shown = _wide(found, workload, kept, len(rows), share * 2 // 5)
    long = every_figure.table(found, workload, kept, share * 3 // 5)
    note = ""
    if shown < len(rows):
        note = tag(
            "p",
            f"The first {shown} of {len(rows)} rows are shown here; "
            "<code>compare --csv=FILE</code> writes all of them.",
            class_="note",
        )
    summary = tag("summary", "All figures of each record")
    return note + wide + tag("details", summary + long, class_="all")


def _wide(
    found: Comparison, workload: str, rows: Sequence[Row], total: int, budget: int
) -> tuple[str, int]:
    """A row for each case; the table and how many rows it has."""
    letters = [source.letter for source in found.sources]
    # Columns with nothing in them are left out.
    precision = any(row.precision for row in rows)
    library = any(row.implementation != XLA for row in rows)
    compared = {n for n in range(len(letters)) if any(c and c.ratio for c in _column(rows, n))}
    titles = ["case", *["precision"] * precision, *["library"] * library]
    head = [cells.header(title) for title in titles]
    for number, letter in enumerate(letters):
        head.append(cells.header(letter, f"s{number} k{number} n"))
        if number in compared:
            title = f"{letter} / {letters[found.reference]}"
            head.append(cells.header(title, f"s{number} s{found.reference} n"))
    head.append(cells.header("notes"))
    body = []
    for row in rows:
        parts = [f'<th scope="row">{escape(row.label)}</th>']
        parts += [Shown(row.precision).html()] * precision
        parts += [Shown(row.implementation).html()] * library
        for number, cell in enumerate(row.cells):
            parts.append(cells.headline(cell).html(f"s{number}"))
            if number in compared:
                parts.append(cells.ratio(cell).html(f"s{number} s{found.reference}"))
        parts.append(f'<td class="w">{_notes(letters, row)}</td>')
        body.append(f"<tr>{''.join(parts)}</tr>")
    kept = cells.fill(body, budget)
    caption = f"{workload}, side by side: {cells.count(len(kept), total, 'row')}"
    return cells.table(caption, head, kept), len(kept)


def _column(rows: Sequence[Row], number: int) -> list[Cell | None]:
    return [row.cells[number] for row in rows]


def _notes(letters: Sequence[str], row: Row) -> str:
    """Flags and reasons of a row's cells, as HTML; each hides with its source."""
    notes = []
    for number, (letter, cell) in enumerate(zip(letters, row.cells, strict=True)):
        said = cells.said(cell) if cell else ""
        if said:
            notes.append(f'<span class="s{number}">{escape(f"{letter}: {said}", 300)} </span>')
    return "".join(notes)
