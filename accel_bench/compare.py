"""The command `compare`: prints runs side by side and writes what else was asked for."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from accel_bench import compare_numerics, comparison, derive, numerics, regression, units
from accel_bench.cases import XLA
from accel_bench.comparison import Cell, Comparison, Row, Source
from accel_bench.errors import RequestError
from accel_bench.program_diff import differences
from accel_bench.regression import Verdict
from accel_bench.tables import literal, make_console

# A terminal is no place for more; files have them all.
MAX_ROWS = 200
MAX_PROGRAMS = 8
LEGEND = (
    "times as fast as {reference}; ~1: the intervals overlap; ?: they are wide; *: the fastest "
    "measured; ~ before a value: the compiler's estimate, <= or >=: a bound, nothing was run"
)


@dataclass(frozen=True)
class Outputs:
    """Files to write beside the tables; None writes none."""

    html: Path | None = None
    csv: Path | None = None
    markdown: Path | None = None
    json: Path | None = None


def compare(
    paths: Sequence[Path],
    console: Console | None = None,
    reference: str | None = None,
    outputs: Outputs | None = None,
) -> Comparison:
    """Reads runs, pairs their rows, prints a table for each workload and writes files.

    Raises:
      RequestError: a path cannot be read, or no row of any two runs is about the same thing.
    """
    with _without_collector():
        found = comparison.compare(paths, reference)
        _write(found, outputs or Outputs())
        show(found, console or make_console())
    return found


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Of millions of objects that all stay, looking for garbage takes a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _write(found: Comparison, outputs: Outputs) -> None:
    from accel_bench import export

    if outputs.csv:
        export.write(outputs.csv, export.csv_text(found))
    if outputs.markdown:
        export.write(outputs.markdown, export.markdown_text(found))
    if outputs.json:
        export.write(outputs.json, export.json_text(found))
    if outputs.html:
        from accel_bench.report import html_text

        export.write(outputs.html, html_text(found))


def show(found: Comparison, console: Console) -> None:
    """Prints a comparison."""
    from accel_bench import compare_findings

    reference = found.sources[found.reference]
    for source in found.sources:
        console.print(literal(f"{source.name}  ({source.path})"), soft_wrap=True)
        if source is not reference:
            for line in comparison.environment_differences(reference, source):
                console.print(literal(f"  {line}", "yellow"), soft_wrap=True)
        for problem in source.problems:
            console.print(literal(f"  {problem}", "yellow"), soft_wrap=True)
    console.print(literal(LEGEND.format(reference=reference.letter), "dim"))
    for name in dict.fromkeys(row.workload for row in found.rows):
        rows = [row for row in found.rows if row.workload == name and _tells(row)]
        console.print(_fitting(name, rows[:MAX_ROWS], found, console))
        if len(rows) > MAX_ROWS:
            console.print(f"  and {len(rows) - MAX_ROWS} more rows: --csv=FILE has them all")
    if errors := compare_numerics.table(found):
        console.print(errors)
    for finding in compare_findings.of_comparison(found):
        console.print(literal(f"  {finding.text}", "red" if finding.error else ""), soft_wrap=True)
    for line in _program_differences(found):
        console.print(literal(line), soft_wrap=True)
    for line in found.unpaired:
        console.print(literal(f"not compared: {line}", "yellow"), soft_wrap=True)


def _tells(row: Row) -> bool:
    """Whether a row is worth a line: of a study of numerics what nobody could do is not."""
    statuses = {cell.record.status for cell in row.cells if cell}
    return row.workload != numerics.WORKLOAD or not statuses <= {"unsupported", "skipped"}


def _fitting(name: str, rows: Sequence[Row], found: Comparison, console: Console) -> Table:
    """Sources as columns, or below each other where that is too wide."""
    table = _table(name, rows, found)
    unbounded = console.options.update(max_width=10_000)
    wide = Measurement.get(console, unbounded, table).maximum > console.width
    return _long_table(name, rows, found) if wide and len(found.sources) > 2 else table


def _title(name: str, found: Comparison) -> Text:
    kinds = dict.fromkeys("compiled" if source.target else "measured" for source in found.sources)
    return literal(f"{name} ({' and '.join(kinds)})")


def _long_table(name: str, rows: Sequence[Row], found: Comparison) -> Table:
    table = Table(title=_title(name, found), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("case", overflow="fold")
    table.add_column("precision", overflow="fold")
    table.add_column("on", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column(f"/ {found.sources[found.reference].letter}", justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for row in rows:
        library = "" if row.implementation == XLA else f" {row.implementation}"
        names = [row.label + library, row.precision]
        for source, cell in zip(found.sources, row.cells, strict=True):
            if cell is None:
                continue
            note = _note(cell)
            cells = [*names, source.letter, value_text(cell), ratio_text(cell), note]
            table.add_row(*(literal(text) for text in cells))
            names = ["", ""]  # said once
    return table


def _table(name: str, rows: Sequence[Row], found: Comparison) -> Table:
    table = Table(title=_title(name, found), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("case", overflow="fold")
    table.add_column("precision", no_wrap=True)
    letters = [source.letter for source in found.sources]
    reference = letters[found.reference]
    others = [n for n in range(len(letters)) if any(ratio_text(row.cells[n]) for row in rows)]
    for letter in letters:
        table.add_column(letter, justify="right", overflow="fold")
    for number in others:
        table.add_column(f"{letters[number]} / {reference}", justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for row in rows:
        library = "" if row.implementation == XLA else f" {row.implementation}"
        cells = [row.label + library, row.precision]
        cells += [value_text(cell) for cell in row.cells]
        cells += [ratio_text(row.cells[number]) for number in others]
        cells.append(notes(letters, row))
        table.add_row(*(literal(cell) for cell in cells))
    return table


def value_text(cell: Cell | None) -> str:
    """A cell's value with its interval, the mark of its origin and its share of the peak."""
    if cell is None:
        return "-"
    if cell.seconds is None:
        return numerics.value_text(cell.record) or cell.record.status
    shown = units.seconds(cell.seconds.value)
    if cell.rate:
        shown = units.quantity(cell.rate.value, cell.rate.unit)
    # That a bound reaches the peak says nothing: it was made from it.
    known = cell.fraction and cell.origin != "bound"
    share = f" ({units.percent(cell.fraction.value)})" if cell.fraction and known else ""
    if cell.origin == "measured":
        spread = f" ±{units.percent(cell.seconds.half_width)}"
        return f"{'* ' if cell.fastest else ''}{shown}{spread}{share}"
    # A time is at least so long, a rate at most so high.
    bound = "<= " if cell.rate else ">= "
    return f"{'~' if cell.origin == 'estimate' else bound}{shown}{share}"


def ratio_text(cell: Cell | None) -> str:
    """How many times as fast as the reference; `~1` where the intervals overlap, `?` if wide."""
    if cell is None or cell.ratio is None:
        return ""
    if cell.claim != "different":
        return {"alike": "~1", "unclear": "?"}[cell.claim]
    return f"{'' if cell.origin == 'measured' else '~'}{units.digits(cell.ratio)}x"


def notes(letters: Sequence[str], row: Row) -> str:
    """Each source's flags, or why it has no value."""
    said = zip(letters, (_note(cell) for cell in row.cells), strict=True)
    return "; ".join(f"{letter}: {note}" for letter, note in said if note)


def _note(cell: Cell | None) -> str:
    """Flags or the reason, and the rate per device and chip where there are several."""
    if cell is None:
        return ""
    record = cell.record
    said = derive.flags(record) if record.status == "ok" else [record.reason or ""]
    if cell.rate and cell.per_device and (record.target.get("num_devices") or 1) > 1:
        said = [*said, f"{units.quantity(cell.per_device, cell.rate.unit)} a device"]
        if cell.per_chip and cell.per_chip != cell.per_device:
            said.append(f"{units.quantity(cell.per_chip, cell.rate.unit)} a chip")
    return ", ".join(said)


def _program_differences(found: Comparison) -> Iterator[str]:
    """How the other targets' programs differ from those of the first that was compiled for."""
    pairs = list(_program_pairs(found))
    for title, lines in pairs[:MAX_PROGRAMS]:
        yield title
        yield from (f"  {line}" for line in lines or ["no difference that was looked for"])
    if len(pairs) > MAX_PROGRAMS:
        yield (
            f"and {len(pairs) - MAX_PROGRAMS} more pairs of programs: runs for fewer targets or "
            "cases (--targets, --config.compile_cases) show theirs"
        )


def _program_pairs(found: Comparison) -> Iterator[tuple[str, list[str]]]:
    """What each pair is, and in what its programs differ."""
    compiled = [number for number, source in enumerate(found.sources) if source.target]
    for row in found.rows:
        cells = [(found.sources[n].letter, row.cells[n]) for n in compiled]
        read = [(letter, c.record) for letter, c in cells if c and c.record.facts.get("code")]
        for letter, other in read[1:]:
            first, one = read[0]
            title = f"{row.label} {row.precision}".strip() + f", programs {first} and {letter}:"
            yield title, differences(one, other, (first, letter))


def check_baseline(
    baseline: Path, paths: Sequence[Path], threshold: float, console: Console | None = None
) -> int:
    """Prints a verdict for each case of a baseline; returns 1 where one got worse, else 0.

    Raises:
      RequestError: not exactly one run to check, or one of another experiment.
    """
    if len(paths) != 1:
        raise RequestError(
            "compare --baseline=DIR takes one run: python main.py compare --baseline=DIR NEW"
        )
    if not 0 <= threshold < float("inf"):
        raise RequestError(f"--threshold={threshold}: a number of per cent, 0 or above")
    found = comparison.compare([baseline, *paths])
    sources = {source.path: source for source in reversed(found.sources) if not source.target}
    if set(sources) != {baseline, *paths}:
        raise RequestError("--baseline compares measurements; one of the two has none")
    old, new = sources[baseline], sources[paths[0]]
    comparison.require_same_experiment(old, new)
    said = regression.verdicts(old, new, threshold)
    try:
        _show_verdicts(old, new, said, threshold, console or make_console())
    except BrokenPipeError:  # the reader has seen enough; the verdict stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(any(verdict.is_regression for verdict in said))


def _show_verdicts(
    old: Source, new: Source, said: Sequence[Verdict], threshold: float, console: Console
) -> None:
    console.print(literal(f"baseline {old.name}  ({old.path})\nnew      {new.name}  ({new.path})"))
    for line in comparison.environment_differences(old, new):
        console.print(literal(f"  {line}", "yellow"), soft_wrap=True)
    console.print(_verdict_table(said))
    counts: dict[str, int] = {}
    for verdict in said:
        counts[verdict.kind] = counts.get(verdict.kind, 0) + 1
    console.print(
        literal(
            f"{', '.join(f'{count} {kind}' for kind, count in counts.items())}; slower or faster: "
            f"by over {threshold:g} % with p < {regression.SIGNIFICANCE:g} (Mann-Whitney U)"
        ),
        soft_wrap=True,
    )


def _verdict_table(said: Sequence[Verdict]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("case", overflow="fold")
    for title in ("change", "slower than", "p"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("why", overflow="fold")
    # What got worse first.
    for verdict in sorted(said, key=lambda v: (not v.is_regression, -abs(v.change or 0.0))):
        change = "" if verdict.change is None else f"{100 * verdict.change:+.2g} %"
        effect = "" if verdict.effect is None else units.percent(verdict.effect)
        p = "" if verdict.p is None else f"{verdict.p:.1e}"
        style = "red" if verdict.is_regression else ""
        cells = (verdict.label, change, effect, p, verdict.kind, verdict.reason)
        table.add_row(*(literal(cell, style) for cell in cells))
    return table
