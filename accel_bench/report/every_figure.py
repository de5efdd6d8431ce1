"""The table of every figure: a row for each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accel_bench import energy_findings, units
from accel_bench.cases import XLA
from accel_bench.comparison import Cell, Comparison, Row, Source
from accel_bench.report import cells
from accel_bench.report.cells import Shown
from accel_bench.report.markup import escape
from accel_bench.report.style import ORIGINS

_CLAIMS = {"different": "differs", "alike": "intervals overlap", "unclear": "cannot be told"}


@dataclass(frozen=True)
class Entry:
    """A record in the table of all figures."""

    row: Row
    source: Source
    cell: Cell


@dataclass(frozen=True)
class Column:
    """A column of the table of all figures; dropped where no row has anything in it."""

    title: str
    cell: Callable[[Entry], Shown]


def _number(value: float | None, unit: str = "") -> Shown:
    return Shown("") if value is None else Shown(units.quantity(value, unit), value, classes="n")


def _interval(entry: Entry) -> Shown:
    seconds = entry.cell.seconds
    if seconds is None or entry.cell.origin != "measured":
        return Shown("")
    ends = f"{units.seconds(seconds.low)} to {units.seconds(seconds.high)}"
    return Shown(ends, seconds.high - seconds.low, classes="n")


def _time(entry: Entry) -> Shown:
    cell = entry.cell
    if cell.seconds is None:
        return Shown("")
    mark = {"estimate": "~", "bound": ">= "}.get(cell.origin, "")
    text = f"{mark}{units.seconds(cell.seconds.value)}"
    return Shown(text, cell.seconds.value, classes=f"n {cells.ORIGIN_CLASS[cell.origin]}")


def _marked(value: Callable[[Cell], float | None]) -> Callable[[Entry], Shown]:
    """A rate of a cell, with the mark of its origin."""

    def cell(entry: Entry) -> Shown:
        number, rate = value(entry.cell), entry.cell.rate
        if number is None or rate is None:
            return Shown("")
        mark = {"estimate": "~", "bound": "<= "}.get(entry.cell.origin, "")
        classes = f"n {cells.ORIGIN_CLASS[entry.cell.origin]}"
        return Shown(f"{mark}{units.quantity(number, rate.unit)}", number, classes=classes)

    return cell


def _share(entry: Entry) -> Shown:
    share = entry.cell.fraction
    if share is None:
        return Shown("")
    mark = {"estimate": "~", "bound": "<= "}.get(entry.cell.origin, "")
    return Shown(f"{mark}{units.percent(share.value)} of {share.of}", share.value)


def _error(entry: Entry) -> Shown:
    error = entry.cell.record.facts.get("error")
    return Shown("") if error is None else Shown(f"{error:.1e}", float(error), classes="n")


def _needed(entry: Entry) -> Shown:
    return _number((entry.cell.record.facts.get("memory") or {}).get("needed"), "B")


def _energy(what: str) -> Callable[[Entry], Shown]:
    def cell(entry: Entry) -> Shown:
        value = energy_findings.joules(entry.cell.record, what)
        return Shown("") if value is None else Shown(units.energy(value), value, classes="n")

    return cell


def _part(name: str) -> Callable[[Entry], Shown]:
    """Seconds that a part of a compiled program takes at least."""

    def cell(entry: Entry) -> Shown:
        seconds = (entry.cell.record.facts.get("estimate") or {}).get(name)
        if not isinstance(seconds, int | float):
            return Shown("")
        return Shown(f">= {units.seconds(seconds)}", float(seconds), classes="n b")

    return cell


_COLUMNS = (
    Column("precision", lambda e: Shown(e.row.precision)),
    Column("library", lambda e: Shown("" if e.row.implementation == XLA else e.row.implementation)),
    Column("source", lambda e: Shown(e.source.letter)),
    Column("status", lambda e: Shown(e.cell.record.status)),
    Column("origin", lambda e: Shown(ORIGINS[e.cell.origin])),
    Column("time of a step", _time),
    Column("95 % interval", _interval),
    Column("rate", _marked(lambda c: c.rate.value if c.rate else None)),
    Column("ratio", lambda e: cells.ratio(e.cell)),
    Column("claim", lambda e: Shown(_CLAIMS.get(e.cell.claim, ""))),
    Column("share of the peak", _share),
    Column("rate per device", _marked(lambda c: c.per_device)),
    Column("rate per chip", _marked(lambda c: c.per_chip)),
    Column("energy of a step", _energy("joules_per_step")),
    Column("energy above idle", _energy("joules_per_step_above_idle")),
    Column("energy of a token", _energy("joules_per_token")),
    Column("relative error", _error),
    Column("memory needed", _needed),
    Column("arithmetic", _part("compute_s")),
    Column("memory traffic", _part("memory_s")),
    Column("network", _part("network_s")),
    Column("flags or reason", lambda e: Shown(cells.said(e.cell), classes="w")),
)


def table(found: Comparison, workload: str, rows: Sequence[Row], budget: int) -> str:
    """A row for each record."""
    entries = [
        (number, Entry(row, source, cell))
        for row in rows
        for number, (source, cell) in enumerate(zip(found.sources, row.cells, strict=True))
        if cell
    ]
    grid = [[column.cell(entry) for column in _COLUMNS] for _, entry in entries]
    filled = [n for n in range(len(_COLUMNS)) if any(line[n].text for line in grid)]
    body = [
        f'<tr class="s{number}"><th scope="row">{escape(entry.row.label)}</th>'
        + "".join(line[n].html() for n in filled)
        + "</tr>"
        for (number, entry), line in zip(entries, grid, strict=True)
    ]
    kept = cells.fill(body, budget)
    head = [cells.header("case"), *(cells.header(_COLUMNS[n].title) for n in filled)]
    count = cells.count(len(kept), len(entries), "record")
    return cells.table(f"{workload}, every figure: {count}", head, kept)
