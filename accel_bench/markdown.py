"""Lines of Markdown tables, whatever stands in their cells."""

from __future__ import annotations

from collections.abc import Sequence


def line(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(cell, cells))} |"


def header(titles: Sequence[str]) -> list[str]:
    """The two lines that a table begins with."""
    return [line(titles), f"| {' | '.join('---' for _ in titles)} |"]


def cell(text: str) -> str:
    """Text that is shown as it is, in a table and elsewhere."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    for mark in "\\`*_[]|#~":
        plain = plain.replace(mark, f"\\{mark}")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
