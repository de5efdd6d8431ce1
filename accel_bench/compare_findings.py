"""Where accelerators part, in words. No sentence without figures, and none without its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accel_bench import compare_numerics, derive, energy_findings, units
from accel_bench.comparison import Cell, Comparison, Row

# Errors of one precision on two machines further apart than this are of different arithmetic.
_ERROR_FACTOR = 3.0
_PADDING = 1.05


@dataclass(frozen=True)
class Finding:
    """A sentence, and the labels of the rows that it rests on.

    Attributes:
      text: the sentence.
      rows: the rows' names.
      error: whether it says that the comparison itself is not what it seems.
    """

    text: str
    rows: tuple[str, ...]
    error: bool = False


def of_comparison(found: Comparison) -> Iterator[Finding]:
    """What a comparison shows, most telling first."""
    for text, rows in compare_numerics.inputs(found):
        yield Finding(text, tuple(map(_name, rows)), error=True)
    for finder in (_overtaking, _emulated, _numerics, _bound_by, _network, _padding, _dispatch):
        yield from finder(found)
    for finder in (
        energy_findings.compared,
        compare_numerics.learnt,
        compare_numerics.errors,
        compare_numerics.losses,
        compare_numerics.bits,
    ):
        for text, rows in finder(found):
            yield Finding(text, tuple(map(_name, rows)))


def _name(row: Row) -> str:
    return " ".join(filter(None, (row.workload, row.label, row.precision)))


def _cells(found: Comparison, row: Row) -> Iterator[tuple[str, Cell]]:
    for source, cell in zip(found.sources, row.cells, strict=True):
        if cell is not None:
            yield source.letter, cell


def _flops(row: Row) -> float:
    work = next((c.record.facts.get("work") or {} for c in row.cells if c), {})
    return work.get("flops") or 0.0


def _overtaking(found: Comparison) -> Iterator[Finding]:
    """Sizes of a product at which the faster of two sources changes."""
    groups: dict[str, list[Row]] = {}
    for row in found.rows:
        if row.workload == "matmul" and row.implementation == "xla":
            groups.setdefault(row.precision, []).append(row)
    reference = found.sources[found.reference].letter
    for precision, rows in groups.items():
        rows = sorted(rows, key=_flops)
        for number, source in enumerate(found.sources):
            seen: tuple[Row, float] | None = None
            for row in rows:
                cell = row.cells[number]
                if cell is None or cell.ratio is None or cell.claim != "different":
                    continue
                if seen and (seen[1] < 1) != (cell.ratio < 1):
                    how = "" if cell.origin == "measured" else f" by the {cell.origin}s"
                    yield Finding(
                        f"{source.letter} against {reference} in {precision}{how}: "
                        f"{units.digits(seen[1])}x as fast at {seen[0].label}, "
                        f"{units.digits(cell.ratio)}x at {row.label}.",
                        (_name(seen[0]), _name(row)),
                    )
                seen = (row, cell.ratio)


def _emulated(found: Comparison) -> Iterator[Finding]:
    """A precision that one source multiplies in hardware and another does not."""
    best: dict[tuple[str, str], tuple[Row, Cell]] = {}
    for row in found.rows:
        if row.workload != "matmul":
            continue
        for letter, cell in _cells(found, row):
            if cell.origin == "measured" and cell.rate and derive.ranked(cell.record):
                key = (letter, row.precision)
                if key not in best or cell.rate.value > _rate(best[key][1]):
                    best[key] = (row, cell)
    for (letter, precision), (row, cell) in best.items():
        base = best.get((letter, "fp32"))
        if "emulated" in derive.flags(cell.record) and base and precision != "fp32":
            elsewhere = [
                other
                for (other, name), (_, found_cell) in best.items()
                if name == precision and "emulated" not in derive.flags(found_cell.record)
            ]
            also = f", which {' and '.join(elsewhere)} has in hardware" if elsewhere else ""
            ratio = units.digits(_rate(cell) / _rate(base[1]), 2)
            yield Finding(
                f"{precision} is emulated on {letter}{also}: at best {_shown(cell)}, {ratio}x its "
                "fp32.",
                (_name(row), _name(base[0])),
            )


def _rate(cell: Cell) -> float:
    return cell.rate.value if cell.rate else 0.0


def _shown(cell: Cell) -> str:
    return units.quantity(cell.rate.value, cell.rate.unit) if cell.rate else "?"


def _numerics(found: Comparison) -> Iterator[Finding]:
    """The largest product of each precision whose error differs between two sources."""
    widest: dict[str, Finding] = {}
    for row in sorted(found.rows, key=_flops):
        if row.workload != "matmul":
            continue
        errors = {
            letter: cell.record.facts["error"]
            for letter, cell in _cells(found, row)
            if cell.origin == "measured" and cell.record.facts.get("error")
        }
        if len(errors) < 2 or max(errors.values()) < _ERROR_FACTOR * min(errors.values()):
            continue
        low, high = min(errors, key=errors.__getitem__), max(errors, key=errors.__getitem__)
        widest[row.precision] = Finding(
            f"{row.precision} is not the same arithmetic: at {row.label} the relative error is "
            f"{errors[low]:.1e} on {low} and {errors[high]:.1e} on {high}.",
            (_name(row),),
        )
    yield from widest.values()


def _estimate(cell: Cell) -> dict[str, Any]:
    return cell.record.facts.get("estimate") or {}


def _bound_by(found: Comparison) -> Iterator[Finding]:
    """Cases that memory binds on one target and arithmetic on another: the largest of each kind."""
    widest: dict[tuple[str, str], Finding] = {}
    for row in sorted(found.rows, key=_flops):
        binds = {letter: _estimate(c).get("binds") for letter, c in _cells(found, row)}
        by: dict[str, list[str]] = {}
        for letter, what in binds.items():
            if what:
                by.setdefault(what, []).append(letter)
        if len(by) < 2:
            continue
        cells = dict(_cells(found, row))
        parts = []
        for what, letters in sorted(by.items()):
            seconds = _estimate(cells[letters[0]]).get("bound_s")
            least = f" (at least {units.seconds(seconds)})" if seconds else ""
            parts.append(f"{what} on {', '.join(letters)}{least}")
        widest[row.workload, row.precision] = Finding(
            f"{_name(row)} is bound by {'; '.join(parts)}.", (_name(row),)
        )
    yield from widest.values()


def _network(found: Comparison) -> Iterator[Finding]:
    """Programs whose collectives take longer than their arithmetic and their memory."""
    for row in found.rows:
        for letter, cell in _cells(found, row):
            figures = _estimate(cell)
            if figures.get("binds") != "network" or not figures.get("network_s"):
                continue
            axes = {name: s for name, s in (figures.get("axes_s") or {}).items() if s}
            most = max(axes, key=lambda name: axes[name], default=None)
            where = f", most over {most} ({units.seconds(axes[most])})" if most else ""
            yield Finding(
                f"On {letter} the network binds {_name(row)}: collectives keep a link busy for "
                f"{units.seconds(figures['network_s'])} a step, arithmetic takes "
                f"{units.seconds(figures.get('compute_s') or 0.0)}{where}.",
                (_name(row),),
            )


def _padding(found: Comparison) -> Iterator[Finding]:
    """Products whose program multiplies more than the mathematics needs."""
    for row in found.rows:
        if row.workload != "matmul":
            continue
        for letter, cell in _cells(found, row):
            ratio = (cell.record.facts.get("program") or {}).get("flops_vs_work")
            if ratio and ratio > _PADDING:
                yield Finding(
                    f"Padding: {letter} multiplies {units.digits(ratio)}x what {_name(row)} needs.",
                    (_name(row),),
                )


def _dispatch(found: Comparison) -> Iterator[Finding]:
    """For each source the largest case that a launch outweighs."""
    largest: dict[str, tuple[Row, Cell]] = {}
    for row in sorted(found.rows, key=_flops):
        for letter, cell in _cells(found, row):
            if cell.seconds and "dispatch-bound" in derive.flags(cell.record):
                largest[letter] = (row, cell)
    for letter, (row, cell) in largest.items():
        launch = cell.record.facts.get("launch_queued_s")
        if launch and cell.seconds:
            yield Finding(
                f"On {letter} launching is what is timed up to {_name(row)}: a step takes "
                f"{units.seconds(cell.seconds.value)}, a launch {units.seconds(launch)}.",
                (_name(row),),
            )
