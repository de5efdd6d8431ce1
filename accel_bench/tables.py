"""Tables of a run for the terminal: one for each workload, and under it what matters most."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from accel_bench import (
    derive,
    energy_findings,
    findings,
    inference_findings,
    numerics,
    parallel,
    training_findings,
    units,
)
from accel_bench.cases import XLA, describe, shared
from accel_bench.derive import Ceilings
from accel_bench.record import FAILURES, Record
from accel_bench.workloads import WORKLOADS


def literal(text: str, style: str = "") -> Text:
    """Text to be shown as it is: a record may hold markup or control characters of a terminal."""
    return Text("".join(c if c.isprintable() or c == "\n" else "?" for c in text), style=style)


Cell: TypeAlias = Callable[[Record, Mapping[str, Ceilings]], str]


@dataclass(frozen=True)
class Column:
    """A column, shown where at least one row has something in it."""

    title: str
    cell: Cell
    right: bool = True


def _time(record: Record, best: Mapping[str, Ceilings]) -> str:
    step = derive.time(record)
    return units.seconds(step.value) if step else ""


def _interval(record: Record, best: Mapping[str, Ceilings]) -> str:
    step = derive.time(record)
    if step is None or "few-samples" in derive.flags(record):
        return ""
    return f"±{units.percent(step.half_width)}"


def _rate(record: Record, best: Mapping[str, Ceilings]) -> str:
    rate = derive.headline(record)
    # Of a collective there are two, and a name for each.
    return units.quantity(rate.value, rate.unit) if rate and not _is_collective(record) else ""


def _is_collective(record: Record) -> bool:
    return record.workload == "collective"


def _bandwidth(quantity: str) -> Cell:
    def cell(record: Record, best: Mapping[str, Ceilings]) -> str:
        rate = derive.rate(record, quantity) if _is_collective(record) else None
        return units.quantity(rate.value, rate.unit) if rate else ""

    return cell


def _part(name: str) -> Cell:
    def cell(record: Record, best: Mapping[str, Ceilings]) -> str:
        found = parallel.parts(record)
        value = getattr(found, name) if found else None
        return units.seconds(value) if value is not None else ""

    return cell


def _communication(record: Record, best: Mapping[str, Ceilings]) -> str:
    found = parallel.parts(record)
    return units.percent(found.communication) if found else ""


def _model_flops(record: Record, best: Mapping[str, Ceilings]) -> str:
    if WORKLOADS.get(record.workload) is None or WORKLOADS[record.workload].rate != "tokens":
        return ""
    rate = derive.rate(record, "flops")
    return units.quantity(rate.value, rate.unit) if rate else ""


def _fraction(record: Record, best: Mapping[str, Ceilings]) -> str:
    share = derive.fraction_of_peak(record, best)
    return units.percent(share.value) if share else ""


def _error(record: Record, best: Mapping[str, Ceilings]) -> str:
    error = record.facts.get("error")
    return f"{error:.1e}" if error is not None and record.status == "ok" else ""


def status(record: Record, best: Mapping[str, Ceilings]) -> str:
    """How it ended."""
    return record.status


def note(record: Record, best: Mapping[str, Ceilings]) -> str:
    """Flags, what a trace or an overlap shows, or why there is no value."""
    notes = derive.flags(record) if record.status == "ok" else [record.reason or ""]
    hidden = derive.hidden_fraction(record)
    if hidden is not None and "noisy" not in notes:
        notes.append(f"{units.percent(hidden)} hidden")
    if record.facts.get("host_and_device_share_memory") and record.status == "ok":
        notes.append("within main memory")
    cache = inference_findings.cache_note(record)
    if cache and record.status == "ok":
        notes.append(cache)
    trace = record.facts.get("device_trace")
    if trace:
        calls = trace.get("calls", 1) * record.facts.get("steps_per_call", 1)
        device = trace.get("device_s")
        notes.append(
            f"device {units.seconds(device / calls)}" if device else trace.get("reason", "")
        )
    return ", ".join(notes)


def _by(record: Record, best: Mapping[str, Ceilings]) -> str:
    return "" if record.implementation == XLA else record.implementation


def precision(record: Record, best: Mapping[str, Ceilings]) -> str:
    """The precision; empty for a workload that has none."""
    return derive.precision_shown(record)


def _delivered(record: Record, best: Mapping[str, Ceilings]) -> str:
    return derive.delivered(record) or ""


def _level(record: Record, best: Mapping[str, Ceilings]) -> str:
    return derive.cache_level(record) or ""


COLUMNS = (
    Column("case", lambda record, best: derive.label(record), right=False),
    Column("precision", precision, right=False),
    Column("delivered", _delivered, right=False),
    Column("library", _by, right=False),
    Column("level", _level, right=False),
    Column("time", _time),
    Column("95 %", _interval),
    Column("rate", _rate),
    Column("algorithm bandwidth", _bandwidth("bytes")),
    Column("bus bandwidth", _bandwidth("bus_bytes")),
    Column("model FLOP/s", _model_flops),
    Column("of peak", _fraction),
    *(Column(title, cell) for title, cell in inference_findings.CELLS.items()),
    *(Column(title, cell) for title, cell in energy_findings.CELLS.items()),
    Column("accuracy", training_findings.accuracy_cell),
    Column("held-out loss", training_findings.loss_cell),
    Column("without exchange", _part("without")),
    Column("communication", _communication),
    Column("compute", _part("compute")),
    Column("waiting", _part("waiting")),
    Column("exchange", _part("exchange")),
    Column("rel. error", _error),
    *(Column(title, cell) for title, cell in numerics.CELLS.items()),
    Column("status", status, right=False),
    Column("note", note, right=False),
)


def table(
    title: Text,
    columns: Sequence[Column],
    dropped_first: Sequence[str],
    records: Sequence[Record],
    best: Mapping[str, Ceilings],
    console: Console,
) -> Table:
    """A table with a row for each record.

    Args:
      title: stands above it.
      columns: those with something in them are shown.
      dropped_first: titles of columns that a table that is too wide can do without, least needed
        first. Notes (a column `note`) then stand under the table.
      records: the rows.
      best: what the machines showed at best.
      console: how wide it may be.
    """
    cells = {c.title: [c.cell(record, best) for record in records] for c in columns}
    if settings := shared([record.params for record in records]):  # once, and not in every row
        title = title + literal(f", {describe(settings)}")
        cells["case"] = [
            describe({k: v for k, v in record.params.items() if k not in settings})
            for record in records
        ]
    shown = [column for column in columns if any(cells[column.title])]
    droppable = list(dropped_first)
    while True:
        table = _build(title, records, shown, cells)
        unbounded = console.options.update(max_width=10_000)
        natural = Measurement.get(console, unbounded, table).maximum
        if natural <= console.width:
            return table
        if not droppable:  # a figure that is cut would be another one: names take several lines
            folded = _build(title, records, shown, cells, fold=True)
            narrow = Measurement.get(console, unbounded, folded).minimum > console.width
            return _one_column(title, records, shown, cells) if narrow else folded
        dropped = droppable.pop(0)
        shown = [column for column in shown if column.title != dropped]


def _build(
    title: Text,
    records: Sequence[Record],
    shown: Sequence[Column],
    cells: Mapping[str, Sequence[str]],
    fold: bool = False,
) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in shown:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not fold,
            overflow="fold",
            min_width=max(map(len, cells[column.title])) if fold and column.right else None,
        )
    for number, record in enumerate(records):
        style = "red" if record.status in FAILURES else "dim" if record.status != "ok" else ""
        table.add_row(*(literal(cells[column.title][number], style) for column in shown))
    if "note" not in (column.title for column in shown) and any(cells["note"]):
        cases: dict[str, list[str]] = {}
        for case, note in zip(_names(records), cells["note"], strict=True):
            if note:
                cases.setdefault(note, []).append(case)
        notes = [f"{_and_more(named)}: {note}" for note, named in cases.items()]
        table.caption = literal("\n".join(notes), "dim")
        table.caption_justify = "left"
    return table


def _one_column(
    title: Text,
    records: Sequence[Record],
    shown: Sequence[Column],
    cells: Mapping[str, Sequence[str]],
) -> Table:
    """Each record as a paragraph, for the narrowest screens."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    table.add_column(overflow="fold")
    for number in range(len(records)):
        said = [(column.title, cells[column.title][number]) for column in shown]
        table.add_row(literal(", ".join(f"{name} {text}" for name, text in said if text)))
    return table


def _and_more(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _names(records: Sequence[Record]) -> list[str]:
    """What each row is, for a line that stands apart from it."""
    return [
        " ".join(
            filter(None, (derive.target_name(r), derive.label(r), precision(r, {}), _by(r, {})))
        )
        for r in records
    ]


# Where a table is too wide: what it can do without, least needed first. Notes go under the table.
DROPPED_FIRST = ("note", "above idle", "cache", "state", "needed", "weights", "p50", "95 %",
                 "delivered", "model FLOP/s", "rel. error", "energy a token", "energy", "level",
                 "library", "of peak")  # fmt: skip


def _title(name: str, records: Sequence[Record], best: Mapping[str, Ceilings]) -> Text:
    of = {share.of for r in records if (share := derive.fraction_of_peak(r, best))}
    peak = f"; peak: {', '.join(sorted(of))}" if of else ""
    return literal(f"{name} (measured{peak})", "bold")


def print_run(records: Sequence[Record], console: Console | None = None) -> None:
    """Prints a run's records: machine, a table for each workload, findings, and what went wrong."""
    console = console or make_console()
    best = derive.ceilings(records)
    measured = [r for r in records if not derive.is_compiled(r)]
    for name in dict.fromkeys(derive.machine(r) for r in measured if r.target.get("device_kind")):
        console.print(literal(name, "bold"))
    for name, group in derive.by_workload(measured).items():
        title = _title(name, group, best)
        console.print(table(title, COLUMNS, DROPPED_FIRST, group, best, console))
        for line in findings.of_workload(name, group, best):
            console.print(literal(f"  {line}"), soft_wrap=True)
    for line in energy_findings.unknown(measured):
        console.print(literal(f"  {line}"), soft_wrap=True)
    if len(measured) < len(records):
        from accel_bench import compiled_tables

        compiled_tables.print_compiled(records, console)
    counts: dict[str, int] = {}
    for record in records:
        counts[record.status] = counts.get(record.status, 0) + 1
    console.print()
    console.print(literal(", ".join(f"{count} {status}" for status, count in counts.items())))


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """A reader who has seen enough is no failure: the command line decides, not rich."""
        raise BrokenPipeError

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """A terminal folds a long sentence by itself; the output of a notebook's cell does not."""
        super().print(*objects, soft_wrap=soft_wrap and not self.is_jupyter, **options)


def make_console() -> Console:
    """Standard output; wide enough for a table where it is neither terminal nor notebook."""
    console = _Output(highlight=False)
    if console.is_terminal or console.is_jupyter or "COLUMNS" in os.environ:
        return console
    return _Output(highlight=False, width=200)


def in_one_piece(console: Console) -> AbstractContextManager[Any]:
    """In a notebook all that is printed within is one output of the cell, and not one each."""
    return console if console.is_jupyter else contextlib.nullcontext()
