"""Where the results of several sources part: their inputs, their bits and their errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from accel_bench import loss_curves, training_findings, units
from accel_bench.comparison import Comparison, Row, Source, environment_differences
from accel_bench.loss_curves import Parting
from accel_bench.numerics import PARTS, WORKLOAD, part, ulps_text
from accel_bench.record import Record
from accel_bench.tables import literal

# Errors of one precision on two machines further apart than this are of different arithmetic.
FACTOR = 3.0
MAX_ROWS = 40
# Rows that a sentence names, and sentences on errors; the table has them all.
_NAMED, _SENTENCES = 3, 10


@dataclass(frozen=True)
class Difference:
    """A result or gradient whose errors differ between two sources.

    Attributes:
      row: the case.
      part: `forward` or `gradient`.
      letters: the reference and the other source.
      errors: their relative errors; None where nothing finite came out.
      ulps: their median errors in ulps; None likewise.
      counts: what was counted -> how often by each: `nonfinite`, `flushed`, `lost`.
    """

    row: Row
    part: str
    letters: tuple[str, str]
    errors: tuple[float | None, float | None]
    ulps: tuple[float | None, float | None]
    counts: Mapping[str, tuple[int, int]]

    @property
    def name(self) -> str:
        """Case, precision and part: `matmul normal 512 fp32 gradient`."""
        words = [self.row.label, self.row.precision]
        return " ".join(words + (["gradient"] if self.part == "gradient" else []))

    @property
    def ratio(self) -> float | None:
        """The other's error over the reference's; infinite where only that is 0."""
        one, other = self.errors
        if one is None or other is None:
            return None
        return other / one if one else (math.inf if other else 1.0)

    @property
    def distance(self) -> float:
        """How far apart they are, for an order: the errors' logarithm, counts before errors."""
        if any(one != other for one, other in self.counts.values()):
            return math.inf
        ratio = self.ratio
        return 0.0 if ratio is None else abs(math.log(ratio)) if ratio else math.inf


def pairs(found: Comparison) -> Iterator[tuple[Row, Source, Source, Record, Record]]:
    """Each measured `ok` row of the reference with that of every other source."""
    reference = found.sources[found.reference]
    for row in found.rows:
        first = row.cells[found.reference]
        for source, cell in zip(found.sources, row.cells, strict=True):
            if source is reference or not (first and cell):
                continue
            if first.record.status == cell.record.status == "ok":
                yield row, reference, source, first.record, cell.record


def differences(found: Comparison) -> list[Difference]:
    """Results and gradients of studies of numerics on two sources, furthest apart first."""
    parted = [
        Difference(
            row,
            which,
            (one.letter, other.letter),
            (errors[0].get("error"), errors[1].get("error")),
            (_median(errors[0]), _median(errors[1])),
            {
                name: (errors[0].get(name) or 0, errors[1].get(name) or 0)
                for name in ("nonfinite", "flushed", "lost")
            },
        )
        for row, one, other, first, second in pairs(found)
        if row.workload == WORKLOAD and _same_inputs(first, second)
        for which in PARTS
        if all(errors := (part(first, which), part(second, which)))
    ]
    return sorted(parted, key=lambda difference: -difference.distance)


def _median(errors: Mapping) -> float | None:
    return (errors.get("ulps") or {}).get("median")


def _same_inputs(one: Record, other: Record) -> bool:
    return one.facts.get("inputs_checksum") == other.facts.get("inputs_checksum")


def _names(rows: Sequence[Row]) -> str:
    shown = [" ".join(filter(None, (r.workload, r.label, r.precision))) for r in rows[:_NAMED]]
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return ", ".join(shown) + more


def _by_source(
    found: Comparison, fact: str
) -> Iterator[tuple[Source, Source, list[tuple[Row, Record, Record]]]]:
    """For each source but the reference the rows where both have a fact."""
    reference = found.sources[found.reference]
    for source in found.sources:
        rows = [
            (row, first, second)
            for row, _, other, first, second in pairs(found)
            if other is source and first.facts.get(fact) and second.facts.get(fact)
        ]
        if rows:
            yield reference, source, rows


def inputs(found: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """Sources that did not compute with the same numbers, with the rows and a likely reason."""
    for reference, source, rows in _by_source(found, "inputs_checksum"):
        differing = [row for row, first, second in rows if not _same_inputs(first, second)]
        if differing:
            why = "; ".join(environment_differences(reference, source))
            yield (
                f"Not comparable: {reference.letter} and {source.letter} did not compute with the "
                f"same numbers in {len(differing)} of {len(rows)} rows ({_names(differing)}), "
                "though the seed is the same. Versions of jax or NumPy, jax_threefry_partitionable "
                "and jax_default_prng_impl decide what a seed gives: "
                f"{why or 'the recorded versions and settings are the same'}.",
                differing,
            )


def bits(found: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """In how many rows two sources gave the same bits; where the machines are alike, which not."""
    for reference, source, rows in _by_source(found, "result_checksum"):
        rows = [entry for entry in rows if _same_inputs(*entry[1:])]
        if not rows:
            continue
        differing = [
            row for row, first, second in rows
            if first.facts["result_checksum"] != second.facts["result_checksum"]
        ]  # fmt: skip
        text = (
            f"The results' bits are equal in {len(rows) - len(differing)} of {len(rows)} rows of "
            f"{reference.letter} and {source.letter}"
        )
        alike = all(_same_machine(first, second) for _, first, second in rows)
        named = f"; they differ in {_names(differing)}" if differing and alike else ""
        yield f"{text}{named}.", [row for row, _, _ in rows]


def _same_machine(one: Record, other: Record) -> bool:
    same_device = one.target.get("device_kind") == other.target.get("device_kind")
    return same_device and dict(one.mesh) == dict(other.mesh)


def errors(found: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """Operations whose errors are of another arithmetic: the widest of each one and precision."""
    widest: dict[tuple, Difference] = {}
    for difference in differences(found):
        ratio = difference.ratio
        if ratio is None or 1 / FACTOR < ratio < FACTOR:
            continue
        record = next(c.record for c in difference.row.cells if c)
        key = (
            difference.letters,
            record.params.get("op"),
            difference.row.precision,
            difference.part,
        )
        if key not in widest or abs(math.log(ratio or 1e-300)) > abs(
            math.log(widest[key].ratio or 1e-300)
        ):
            widest[key] = difference
    for difference in list(widest.values())[:_SENTENCES]:
        (low, high), (one, other) = difference.letters, difference.errors
        first, second = map(_in_ulps, difference.ulps)
        assert one is not None and other is not None
        by = f" ({max(one, other) / min(one, other):.2g} times)" if min(one, other) else ""
        yield (
            f"{difference.name} is not the same arithmetic: relative error {one:.1e}{first} on "
            f"{low} and {other:.1e}{second} on {high}{by}.",
            [difference.row],
        )


def _in_ulps(ulps: float | None) -> str:
    return "" if ulps is None else f" ({ulps_text(ulps)} ulps)"


def trainings(found: Comparison) -> Iterator[tuple[Row, Source, Source, Parting]]:
    """How the losses of a training on another source leave those on the reference."""
    for row, one, other, first, second in pairs(found):
        if row.workload == "training" and _same_inputs(first, second):
            parted = loss_curves.parting(first, second)
            if parted:
                yield row, one, other, parted


def learnt(found: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """Where the losses of a training part on two sources, and whether rounding explains it."""
    for row, one, other, parted in trainings(found):
        name = f"{training_findings.name(parted.other)} on {other.letter}"
        yield training_findings.parted(parted, one.letter, name), [row]


def losses(found: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """What one source loses and another keeps, over all rows of a precision."""
    words = {
        "flushed": "denormal results come out as 0",
        "nonfinite": "results that fit are not finite",
        "lost": "normal results come out as 0",
    }
    for name, text in words.items():
        counted: dict[tuple, list[Difference]] = {}
        for difference in differences(found):
            counted.setdefault((difference.letters, difference.row.precision), []).append(
                difference
            )
        for (letters, precision), group in counted.items():
            totals = [sum(p.counts[name][n] for p in group) for n in (0, 1)]
            if min(totals) * 1.1 < max(totals):
                yield (
                    f"In {precision}, {text} {totals[0]} times on {letters[0]} and {totals[1]} "
                    f"times on {letters[1]}.",
                    [p.row for p in group if p.counts[name][0] != p.counts[name][1]],
                )


def table(found: Comparison) -> Table | None:
    """Errors side by side, furthest apart first; None where none parts."""
    every = differences(found)
    parted = [p for p in every if p.distance > math.log(1.01)]
    if not parted:
        return None
    title = f"numerics: {len(every) - len(parted)} of {len(every)} errors are the same"
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("case", overflow="fold")
    for heading in ("of", "error", "ratio", "median ulps", "not finite", "flushed", "lost"):
        made.add_column(heading, justify="right", no_wrap=True)
    for p in parted[:MAX_ROWS]:
        shown = ["none" if error is None else f"{error:.1e}" for error in p.errors]
        ulps = ["none" if u is None else ulps_text(u) for u in p.ulps]
        counts = [" / ".join(map(str, c)) if any(c) else "" for c in p.counts.values()]
        ratio = "" if p.ratio is None else f"{units.digits(p.ratio)}x"
        cells = [" / ".join(p.letters), " / ".join(shown), ratio, " / ".join(ulps), *counts]
        made.add_row(literal(p.name), *(literal(cell) for cell in cells))
    if len(parted) > MAX_ROWS:
        made.caption = f"and {len(parted) - MAX_ROWS} more"
    return made
