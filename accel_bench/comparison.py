"""Records of several machines paired: what every table, file and report of a comparison is made of.

Rows pair only where they are about the same thing: experiment, workload, parameters, precision and
library. The device and the mesh are what a comparison is about, so they are not part of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accel_bench import config as configs
from accel_bench import derive, mesh, workdir
from accel_bench.derive import Fraction, Rate
from accel_bench.errors import RequestError, unknown
from accel_bench.record import Record
from accel_bench.stats import Median


@dataclass(frozen=True)
class Source:
    """What takes part in a comparison: a run's measurements, or what it compiled for one target.

    Attributes:
      letter: how the tables call it: `A` for the first.
      path: where its records were read.
      target: what they were compiled for; empty for measurements.
      records: the last record of each case.
      problems: what could not be read, or read only in part.
      config: its plain config; None where it is not there.
    """

    letter: str
    path: Path
    target: str
    records: list[Record]
    problems: list[str]
    config: dict[str, Any] | None

    @property
    def device(self) -> str:
        """The machine or the target, in words."""
        if self.target:
            return f"compiled for {self.target}, not run"
        return ", ".join(list(dict.fromkeys(derive.machine(r) for r in self.records))[:2])

    @property
    def name(self) -> str:
        """`A: device, mesh`."""
        meshes = sorted({mesh.text(r.mesh) for r in self.records} - {""})
        over = f", mesh {' and '.join(meshes)}" if meshes else ""
        return f"{self.letter}: {self.device}{over}"


@dataclass(frozen=True)
class Cell:
    """One record in a row, with what is derived from it.

    Attributes:
      record: the record.
      origin: `measured`, `estimate` (the vendor's compiler counted cycles), `bound` (at least so
        long), or empty where there is no time.
      seconds: one step; of an estimate and a bound the interval has no width.
      rate: the row's headline rate; None where that is the time itself, or is not known.
      fraction: the rate as a share of the hardware's ceiling.
      ratio: how many times as fast as the reference, where both are of the same origin.
      claim: `different` where the intervals allow the ratio, `alike` where they overlap, `unclear`
        where they are too wide or too few samples stand behind them; empty without a ratio.
      fastest: whether it is the fastest measured of its row, and the intervals allow to say so.
    """

    record: Record
    origin: str
    seconds: Median | None
    rate: Rate | None
    fraction: Fraction | None
    ratio: float | None = None
    claim: str = ""
    fastest: bool = False

    @property
    def per_device(self) -> float | None:
        """The rate over the number of jax devices; None where it is each device's already."""
        return self._over(self.record.target.get("num_devices"))

    @property
    def per_chip(self) -> float | None:
        """The rate over the number of chips; None for a CPU or an unknown chip."""
        return self._over(self.record.target.get("num_chips"))

    def _over(self, count: float | None) -> float | None:
        if not self.rate or not count or self.record.workload == "collective":
            return None
        return self.rate.value / count


@dataclass(frozen=True)
class Row:
    """The same case on every source that has it.

    Attributes:
      workload, label, precision, implementation: the case.
      cells: one for each source; None where it has no such record.
    """

    workload: str
    label: str
    precision: str
    implementation: str
    cells: list[Cell | None]


@dataclass(frozen=True)
class Comparison:
    """What pairs and what does not.

    Attributes:
      sources: in the order given.
      reference: number of the source that ratios are to.
      rows: those that at least two sources share, by workload; of one source alone all.
      unpaired: sentences on what did not pair, each with the field that differs.
    """

    sources: list[Source]
    reference: int
    rows: list[Row]
    unpaired: list[str]


def compare(paths: Sequence[Path], reference: str | None = None, alone: bool = False) -> Comparison:
    """Reads runs and pairs their rows.

    Args:
      paths: workdirs or records files.
      reference: letter, target or path of the source that ratios are to; None for the first.
      alone: whether one source by itself will do.

    Raises:
      RequestError: a path cannot be read, there is no such reference, or nothing pairs.
    """
    sources = read_all(paths)
    if len(sources) < 2 and not alone:
        raise RequestError(
            "compare needs at least two workdirs, or one with several targets: python main.py "
            "compare DIR DIR"
        )
    found = pair(sources, _reference(sources, reference))
    if not found.rows:
        raise RequestError("nothing to compare: " + "; ".join(found.unpaired))
    return found


def read_all(paths: Sequence[Path]) -> list[Source]:
    """Every source of these paths, in order and lettered; raises `RequestError`."""
    real = [path.resolve() for path in paths]
    for number, path in enumerate(paths):
        if real[number] in real[:number]:
            raise RequestError(f"{path} is given twice: a run is not compared with itself")
    found = [source for path in paths for source in _read(path)]
    return [dataclasses.replace(source, letter=_letter(n)) for n, source in enumerate(found)]


def _letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    letter = chr(ord("A") + number % 26)
    return letter if number < 26 else _letter(number // 26 - 1) + letter


def _read(path: Path) -> Iterator[Source]:
    """A path's measurements, and what it compiled for each target."""
    found = workdir.read_records(path)
    if not found.records:
        why = f" ({found.problems[0]})" if found.problems else ""
        raise RequestError(
            f"no records in {path}{why}: give the workdir of a run that has finished cases"
        )
    groups: dict[str, dict[tuple, Record]] = {}
    several: set[str] = set()
    for record in found.records:
        target, key = derive.target_name(record), pair_key(record)
        group = groups.setdefault(target, {})
        if key in group and group[key].mesh != record.mesh:
            several.add(target)
        group[key] = record
    config, problems = workdir.plain_config(path), list(found.problems)
    for target, last in groups.items():
        if target in several:
            problems.append(f"{path} holds several meshes: the last record of each case counts")
        yield Source("", path, target, list(last.values()), problems, config)
        problems = []


def pair_key(record: Record) -> tuple:
    """Equal for records that may stand side by side."""
    params = tuple(sorted((key, str(value)) for key, value in record.params.items()))
    return record.config_hash, record.workload, params, record.precision, record.implementation


def _reference(sources: Sequence[Source], wanted: str | None) -> int:
    if not wanted:
        return 0
    for number, source in enumerate(sources):
        if wanted in (source.letter, source.target, str(source.path)):
            return number
    names = [name for source in sources for name in (source.letter, source.target) if name]
    raise unknown("--reference", wanted, names)


def pair(sources: Sequence[Source], reference: int = 0) -> Comparison:
    """Pairs the records of several sources; those of one source alone stand by themselves."""
    tables = [{pair_key(record): record for record in source.records} for source in sources]
    ceilings = [derive.ceilings(source.records) for source in sources]
    keys = dict.fromkeys(key for table in tables for key in table)
    shared: dict[tuple, Row] = {}
    for key in keys:
        records = [table.get(key) for table in tables]
        if sum(record is not None for record in records) < min(2, len(sources)):
            continue
        cells = [
            make_cell(record, best) if record else None
            for record, best in zip(records, ceilings, strict=True)
        ]
        shared[key] = _row([_against(cells[reference], cell) for cell in cells])
    order = list(derive.by_workload([c.record for r in shared.values() for c in r.cells if c]))
    rows = sorted(shared.values(), key=lambda row: order.index(row.workload))
    return Comparison(list(sources), reference, rows, list(_unpaired(sources, shared)))


def _row(cells: list[Cell | None]) -> Row:
    some = next(cell.record for cell in cells if cell)
    winner = _fastest([cell for cell in cells if cell])
    marked = [
        dataclasses.replace(cell, fastest=True) if cell and cell is winner else cell
        for cell in cells
    ]
    return Row(
        some.workload, derive.label(some), derive.precision_shown(some), some.implementation, marked
    )


def make_cell(record: Record, best: Mapping[str, derive.Ceilings]) -> Cell:
    """A record with what is derived from it alone, and from what its machine showed at best."""
    step = derive.time(record)
    if step is not None:
        share = derive.fraction_of_peak(record, best)
        return Cell(record, "measured", step, derive.headline(record), share)
    estimate = derive.estimate(record)
    if estimate is None:
        return Cell(record, "", None, None, None)
    seconds = Median(estimate.seconds, estimate.seconds, estimate.seconds)
    return Cell(
        record,
        estimate.kind,
        seconds,
        derive.estimated_rate(record),
        derive.estimated_fraction(record),
    )


def _against(reference: Cell | None, cell: Cell | None) -> Cell | None:
    """The cell with its ratio to the reference's."""
    if reference is None or cell is None or cell is reference:
        return cell
    one, other = reference.seconds, cell.seconds
    if one is None or other is None or reference.origin != cell.origin:
        return cell
    flags = {*derive.flags(reference.record), *derive.flags(cell.record)}
    claim = "different"
    if cell.origin == "measured" and "few-samples" in flags:
        claim = "unclear"
    elif one.low <= other.high and other.low <= one.high:
        claim = "unclear" if "noisy" in flags else "alike"
    return dataclasses.replace(cell, ratio=one.value / other.value, claim=claim)


def _fastest(cells: Sequence[Cell]) -> Cell | None:
    """The one whose time is below all others', interval and all; None where none is."""
    timed = [
        (cell, cell.seconds)
        for cell in cells
        if cell.origin == "measured" and cell.seconds and derive.ranked(cell.record)
    ]
    if len(timed) < 2:
        return None
    (first, best), *others = sorted(timed, key=lambda pair: pair[1].value)
    return first if all(best.high < seconds.low for _, seconds in others) else None


def _unpaired(sources: Sequence[Source], shared: Mapping[tuple, Any]) -> Iterator[str]:
    first = sources[0]
    hashes = {r.config_hash for r in first.records}
    for number, source in enumerate(sources):
        alone = [r for r in source.records if pair_key(r) not in shared]
        # Where nothing pairs, the others say why they differ from the first.
        if not alone or (not number and not shared):
            continue
        name = f"{source.path}: {len(alone)} of {len(source.records)} rows pair with nothing"
        if source.target:
            name = f"{source.path} {source.target}: {len(alone)} of {len(source.records)} rows"
        if number and not hashes & {r.config_hash for r in alone}:
            yield f"{name}: another experiment ({_config_difference(first, source)})"
        else:
            others = [r for other in sources if other is not source for r in other.records]
            yield f"{name}: {_field_difference(alone, others)}"


def _config_difference(one: Source, other: Source) -> str:
    if one.config is None or other.config is None:
        return "config_hash differs; there is no config.json to say in which field"
    found = configs.differing_fields(
        configs.experiment(one.config), configs.experiment(other.config)
    )
    return "; ".join(found[:3]) or "config_hash differs"


def require_same_experiment(one: Source, other: Source) -> None:
    """Raises `RequestError` unless two sources are of one experiment on one mesh."""
    if not {r.config_hash for r in one.records} & {r.config_hash for r in other.records}:
        raise RequestError(
            f"nothing to compare: {other.path} is another experiment than {one.path} "
            f"({_config_difference(one, other)})"
        )
    meshes = [{mesh.text(r.mesh) for r in source.records} for source in (one, other)]
    if meshes[0] != meshes[1]:
        raise RequestError(
            f"nothing to compare: {one.path} ran on {_devices(meshes[0])} and {other.path} on "
            f"{_devices(meshes[1])}"
        )


def _devices(meshes: set[str]) -> str:
    return " and ".join(sorted(f"mesh {text}" if text else "one device" for text in meshes))


def _field_difference(alone: Sequence[Record], others: Sequence[Record]) -> str:
    """Which of precision, implementation and parameters no other source has."""
    held: dict[tuple[str, str], set[Any]] = {}
    for record in others:
        for field in ("precision", "implementation"):
            held.setdefault((record.workload, field), set()).add(getattr(record, field))
    reasons: dict[str, None] = {}
    for record in alone:
        for field in ("precision", "implementation"):
            there = held.get((record.workload, field))
            if there and getattr(record, field) not in there:
                reasons[f"{field} {getattr(record, field)} is only here"] = None
                break
        else:
            reasons[f"{record.workload} {derive.label(record)} is only here"] = None
    shown = list(reasons)
    more = f", and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(shown[:3]) + more


def _said(value: Any) -> str:
    """A setting as it was, or that it was not there or empty."""
    return "unset" if value is None else str(value) or "empty"


def environment_differences(one: Source, other: Source) -> Iterator[str]:
    """Versions and settings in which two runs differ: they may be what a ratio is of."""
    first, second = one.records[0].env, other.records[0].env
    for group in ("packages", "settings"):
        held, now = first.get(group) or {}, second.get(group) or {}
        names = [name for name in {**held, **now} if held.get(name) != now.get(name)]
        if names:
            found = ", ".join(f"{n} {_said(held.get(n))} / {_said(now.get(n))}" for n in names)
            yield f"{group} differ: {found}"
    if first.get("isolation") != second.get("isolation"):
        yield "one ran in its caller's process, with that process's settings"
