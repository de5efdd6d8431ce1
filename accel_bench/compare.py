"""Records of several runs side by side; rows pair only where they are about the same thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from accel_bench import config as configs
from accel_bench import derive, mesh, units, workdir
from accel_bench.cases import XLA
from accel_bench.compiled_tables import one_time
from accel_bench.errors import RequestError
from accel_bench.program_diff import differences
from accel_bench.record import Record
from accel_bench.tables import literal, make_console
from accel_bench.workloads import WORKLOADS


@dataclass(frozen=True)
class Source:
    """What takes part in a comparison: a run's measurements, or what it compiled for one target.

    Attributes:
      path: where its records were read.
      target: what they were compiled for; empty for measurements.
      records: the last record of each case.
      problems: what could not be read.
      config: its plain config; None where it is not there.
    """

    path: Path
    target: str
    records: list[Record]
    problems: list[str]
    config: dict[str, Any] | None

    def name(self, number: int) -> str:
        """`A: device, mesh` for the first."""
        letter = chr(ord("A") + number) if number < 26 else f"run {number + 1}"
        devices = list(dict.fromkeys(derive.machine(r) for r in self.records))
        if self.target:
            devices = [f"compiled for {self.target}, not run"]
        meshes = {mesh.text(r.mesh) for r in self.records}
        over = f", mesh {' and '.join(sorted(meshes))}" if meshes - {""} else ""
        return f"{letter}: {', '.join(devices[:2])}{over}"


@dataclass(frozen=True)
class Comparison:
    """What pairs and what does not.

    Attributes:
      sources: in the order given; the first is the reference.
      rows: pair key -> one record or None per source; keys that at least two sources share.
      unpaired: sentences on what did not pair, each with the field that differs.
    """

    sources: list[Source]
    rows: dict[tuple, list[Record | None]]
    unpaired: list[str]


def read_sources(path: Path) -> list[Source]:
    """Reads a workdir or a records file: its measurements, and what it compiled for each target.

    Raises:
      RequestError: there is nothing to read.
    """
    found = workdir.read_records(path)
    if not found.records:
        raise RequestError(
            f"no records in {path}: give the workdir of a run that has finished cases"
        )
    groups: dict[str, list[Record]] = {}
    for record in found.records:
        groups.setdefault(derive.target_name(record), []).append(record)
    config, problems = workdir.plain_config(path), list(found.problems)
    sources = []
    for target, records in groups.items():
        last = {pair_key(record): record for record in records}
        if len({str(record.mesh) for record in records}) > 1:
            problems.append(f"{path} holds several meshes: the last record of each case counts")
        sources.append(Source(path, target, list(last.values()), problems, config))
        problems = []
    return sources


def pair_key(record: Record) -> tuple:
    """Equal for records that may stand side by side: experiment, workload, parameters, precision.

    The mesh and the device are what a comparison is about, so they are not part of it.
    """
    params = tuple(sorted((key, str(value)) for key, value in record.params.items()))
    return (
        record.config_hash,
        record.workload,
        params,
        record.precision,
        record.implementation,
    )


def pair(sources: Sequence[Source]) -> Comparison:
    """Pairs the records of at least two sources."""
    tables = [{pair_key(record): record for record in source.records} for source in sources]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = {key: [table.get(key) for table in tables] for key in keys}
    shared = {key: row for key, row in rows.items() if sum(r is not None for r in row) > 1}
    return Comparison(list(sources), shared, list(_unpaired(sources, shared)))


def _unpaired(sources: Sequence[Source], shared: Mapping[tuple, Any]) -> list[str]:
    first = sources[0]
    lines = []
    for number, source in enumerate(sources):
        alone = [r for r in source.records if pair_key(r) not in shared]
        # Where nothing pairs, the others say why they differ from the first.
        if not alone or (not number and not shared):
            continue
        name = f"{source.path}: {len(alone)} of {len(source.records)} rows pair with nothing"
        hashes = {r.config_hash for r in first.records}
        if number and not hashes & {r.config_hash for r in alone}:
            lines.append(f"{name}: another experiment ({_config_difference(first, source)})")
        else:
            others = [r for other in sources if other is not source for r in other.records]
            lines.append(f"{name}: {_field_difference(alone, others)}")
    return lines


def _config_difference(one: Source, other: Source) -> str:
    if one.config is None or other.config is None:
        return "config_hash differs; there is no config.json to say in which field"
    found = configs.differing_fields(
        configs.experiment(one.config), configs.experiment(other.config)
    )
    return "; ".join(found[:3]) or "config_hash differs"


def _environment_difference(one: Source, other: Source) -> Iterator[str]:
    """Versions and settings in which two runs differ: they may be what a ratio is of."""
    first, second = one.records[0].env, other.records[0].env
    for group in ("packages", "settings"):
        held, now = first.get(group) or {}, second.get(group) or {}
        names = [name for name in {**held, **now} if held.get(name) != now.get(name)]
        if names:
            found = ", ".join(f"{n} {held.get(n)} / {now.get(n)}" for n in names)
            yield f"{group} differ: {found}"
    if first.get("isolation") != second.get("isolation"):
        yield "one ran in its caller's process, with that process's settings"


def _field_difference(alone: Sequence[Record], others: Sequence[Record]) -> str:
    """Which of precision, implementation and parameters no other source has."""
    reasons: dict[str, None] = {}
    for record in alone:
        related = [r for r in others if r.workload == record.workload]
        for field in ("precision", "implementation"):
            value = getattr(record, field)
            if related and value not in {getattr(r, field) for r in related}:
                reasons[f"{field} {value} is only here"] = None
                break
        else:
            reasons[f"{record.workload} {derive.label(record)} is only here"] = None
    shown = list(reasons)
    more = f", and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(shown[:3]) + more


def compare(paths: Sequence[Path], console: Console | None = None) -> None:
    """Reads runs, pairs their rows and prints a table for each workload.

    Raises:
      RequestError: a path cannot be read, or no row of any two runs is about the same thing.
    """
    sources = [source for path in paths for source in read_sources(path)]
    if len(sources) < 2:
        raise RequestError(
            "compare needs at least two workdirs, or one with several targets: python main.py "
            "compare DIR DIR"
        )
    comparison = pair(sources)
    if not comparison.rows:
        raise RequestError("nothing to compare: " + "; ".join(comparison.unpaired))
    console = console or make_console()
    for number, source in enumerate(sources):
        console.print(literal(f"{source.name(number)}  ({source.path})"), soft_wrap=True)
        if number:
            for line in _environment_difference(sources[0], source):
                console.print(literal(f"  {line}", "yellow"), soft_wrap=True)
        for problem in source.problems:
            console.print(literal(f"  {problem}", "yellow"), soft_wrap=True)
    reference = sources[0].name(0).split(":")[0]
    console.print(
        literal(
            f"/ {reference}: how many times as fast; ~1: the intervals overlap; ?: they are wide; "
            "~ before a time: the compiler's estimate, >=: a bound, nothing was run",
            "dim",
        )
    )
    for name in dict.fromkeys(key[1] for key in comparison.rows):
        rows = {key: row for key, row in comparison.rows.items() if key[1] == name}
        console.print(_table(name, rows, sources))
    for line in _program_differences(comparison):
        console.print(literal(line), soft_wrap=True)
    for line in comparison.unpaired:
        console.print(literal(f"not compared: {line}", "yellow"), soft_wrap=True)


def _program_differences(comparison: Comparison) -> Iterator[str]:
    """How the other targets' programs differ from those of the first that was compiled for."""
    compiled = [i for i, source in enumerate(comparison.sources) if source.target]
    letters = [source.name(i).split(":")[0] for i, source in enumerate(comparison.sources)]
    for row in comparison.rows.values():
        pair = [(letters[i], row[i]) for i in compiled]
        (first, one), others = pair[0] if pair else ("", None), pair[1:]
        for letter, other in others:
            if (
                one is None
                or other is None
                or not (one.facts.get("code") and other.facts.get("code"))
            ):
                continue
            yield f"{derive.label(one)} {one.precision}, programs {first} and {letter}:"
            yield from (f"  {line}" for line in differences(one, other, (first, letter)))


def _table(
    name: str, rows: Mapping[tuple, list[Record | None]], sources: Sequence[Source]
) -> Table:
    kinds = dict.fromkeys("compiled" if source.target else "measured" for source in sources)
    title = f"{name} ({' and '.join(kinds)})"
    table = Table(title=literal(title), title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("case", overflow="fold")
    table.add_column("precision", no_wrap=True)
    letters = [source.name(i).split(":")[0] for i, source in enumerate(sources)]
    for letter in letters:
        table.add_column(letter, justify="right", no_wrap=True)
    for letter in letters[1:]:
        table.add_column(f"{letter} / {letters[0]}", justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    for row in rows.values():
        some = next(r for r in row if r)
        library = "" if some.implementation == XLA else f" {some.implementation}"
        spec = WORKLOADS.get(some.workload)
        precision = some.precision if spec is None or spec.uses_precision else ""
        cells = [derive.label(some) + library, precision]
        cells += [_value(record) for record in row]
        cells += [_ratio(row[0], record) for record in row[1:]]
        cells.append(_notes(letters, row))
        table.add_row(*(literal(cell) for cell in cells))
    return table


def _value(record: Record | None) -> str:
    if record is None:
        return "-"
    step, rate = derive.time(record), derive.headline(record)
    if derive.is_compiled(record):
        return one_time(record)
    if step is None:
        return record.status
    shown = units.quantity(rate.value, rate.unit) if rate else units.seconds(step.value)
    return f"{shown} ±{units.percent(step.half_width)}"


def _ratio(reference: Record | None, record: Record | None) -> str:
    """How many times as fast as the reference; `~1` where the intervals overlap, `?` if wide."""
    if reference is None or record is None:
        return ""
    one, other = derive.time(reference), derive.time(record)
    if one is None or other is None:
        return ""
    if "few-samples" in [*derive.flags(reference), *derive.flags(record)]:
        return "?"
    if derive.alike(reference, record):
        noisy = {"noisy", "few-samples"} & {*derive.flags(reference), *derive.flags(record)}
        return "?" if noisy else "~1"
    return f"{units.digits(one.value / other.value)}x"


def _notes(letters: Sequence[str], row: Sequence[Record | None]) -> str:
    notes = []
    for letter, record in zip(letters, row, strict=True):
        if record is None:
            continue
        said = derive.flags(record) if record.status == "ok" else [record.reason or ""]
        if said:
            notes.append(f"{letter}: {', '.join(said)}")
    return "; ".join(notes)
