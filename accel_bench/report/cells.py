"""Cells and frames of sortable tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from accel_bench import derive
from accel_bench.compare import ratio_text, value_text
from accel_bench.comparison import Cell
from accel_bench.report.markup import escape, scrolling, tag

ORIGIN_CLASS = {"measured": "m", "estimate": "e", "bound": "b", "": "u"}


@dataclass(frozen=True)
class Shown:
    """A cell: its text, what it sorts by (None: unknown, last), a unit that sorts apart."""

    text: str
    key: float | str | None = None
    unit: str = ""
    classes: str = ""

    def html(self, extra: str = "") -> str:
        """The table cell."""
        classes = f"{self.classes} {extra}".strip()
        given = f' class="{classes}"' if classes else ""
        if isinstance(self.key, float | int):
            given += f' data-v="{self.key!r}"'
        if self.unit:
            given += f' data-u="{escape(self.unit)}"'
        return f"<td{given}>{escape(self.text)}</td>"


def headline(cell: Cell | None) -> Shown:
    """Value, interval, mark and share; sorts by the figure that is shown, unit by unit."""
    if cell is None:
        return Shown("-")
    classes = f"n {ORIGIN_CLASS[cell.origin]}"
    if cell.seconds is None:
        return Shown(value_text(cell), classes=classes)
    if cell.rate:
        return Shown(value_text(cell), cell.rate.value, classes=classes)
    return Shown(value_text(cell), cell.seconds.value, "s", classes)


def ratio(cell: Cell | None) -> Shown:
    """How many times as fast as the reference; sorts by it where the two differ for sure."""
    key = cell.ratio if cell and cell.claim == "different" else None
    return Shown(ratio_text(cell), key, classes="n")


def said(cell: Cell) -> str:
    """Flags of a row, or why it has no value."""
    record = cell.record
    flags = ", ".join(derive.flags(record))
    return flags if record.status == "ok" else ": ".join(filter(None, (record.reason, flags)))


def fill(parts: Sequence[str], budget: int) -> list[str]:
    """As many rows as have room; at least one, whatever it takes."""
    kept: list[str] = []
    for part in parts:
        budget -= len(part)
        if budget < 0 and kept:
            break
        kept.append(part)
    return kept


def header(title: str, classes: str = "") -> str:
    """A heading that sorts by its column when pressed."""
    button = f'<button type="button">{escape(title)}</button>'
    return tag("th", button, scope="col", class_=classes or None)


def table(caption: str, head: Sequence[str], body: Sequence[str]) -> str:
    """A table that sorts, in a box that scrolls."""
    inner = (
        f"<caption>{escape(caption)}</caption><thead><tr>{''.join(head)}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody>"
    )
    return scrolling(f'<table class="sortable">{inner}</table>', caption)


def count(kept: int, total: int, what: str) -> str:
    """`3 rows`, or `the first 3 of 7 rows`."""
    first = f"the first {kept} of " if kept < total else ""
    return f"{first}{total} {what}{'' if total == 1 else 's'}"
