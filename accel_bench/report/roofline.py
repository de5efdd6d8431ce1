"""The roofline: what each case reaches against what its hardware allows at its intensity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel_bench import chips, derive, units
from accel_bench.comparison import Comparison
from accel_bench.precision import PRECISIONS
from accel_bench.report import style
from accel_bench.report.figure import Figure, Series, Spot, axis
from accel_bench.report.points import Point, flops_rate, grouped

_CAPTION = (
    "Each point is a case: to the right it does more arithmetic for each byte, higher up it is "
    "faster. A line is the roof of a source and precision: sloped where memory bandwidth limits, "
    "flat where arithmetic does. The further below its roof a point is, the more is left. Filled: "
    "measured; hollow: the compiler's estimate, not run; triangle: a bound, not run, at most so "
    "fast, which lies above the roof where a GPU's cache may hold the data. Rates are per chip; of "
    "a CPU, per machine; of int8, whole-number operations."
)


def roofline(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Arithmetic intensity against FLOP/s; None where no record tells both."""
    placed = [(p, spot) for p in points if (spot := _spot(p))]
    if not placed:
        return None
    spots = {id(point): spot for point, spot in placed}
    series = [
        Series(
            source,
            f"{group[0].letter} {style.SHORT[origin]}",
            [spots[id(point)] for point in group],
            symbol=style.symbol(source, origin),
        )
        for (source, origin), group in grouped([point for point, _ in placed])
    ]
    xs = [spot.x for _, spot in placed if isinstance(spot.x, float)]
    edges = min(xs) / 3, max(xs) * 3
    roofs = list(_roofs(found, [point for point, _ in placed], edges))
    unplaced = sum(p.cell.seconds is not None for p in points) - len(placed)
    notes = [f"{unplaced} records do not tell both work and traffic."] if unplaced else []
    return Figure(
        "plot-roofline",
        "Roofline",
        _CAPTION,
        axis("arithmetic intensity (FLOP/B)", log=True),
        axis("rate (FLOP/s per chip)", log=True),
        [*roofs, *series],
        notes,
    )


def _spot(point: Point) -> Spot | None:
    rate, found = flops_rate(point.cell), _intensity(point)
    if rate is None or found is None:
        return None
    intensity, of = found
    chips_there = point.record.target.get("num_chips")
    each = rate / (chips_there or 1)
    mark = {"estimate": "~", "bound": "<= "}.get(point.cell.origin, "")
    shown = f"{mark}{units.quantity(each, 'FLOP/s')} a {'chip' if chips_there else 'machine'}"
    said = f"{units.digits(intensity)} FLOP/B {of}, {shown}"
    return Spot(float(intensity), each, point.text(said))


def _intensity(point: Point) -> tuple[float, str] | None:
    """FLOPs per byte of the mathematics, else of the compiled program; None where not known."""
    for fact, of in (("work", "of the work"), ("program", "of the program")):
        found = point.record.facts.get(fact) or {}
        flops, size = found.get("flops"), found.get("bytes")
        if isinstance(flops, int | float) and isinstance(size, int | float) and flops and size:
            return flops / size, of
    return None


def _roofs(
    found: Comparison, points: Sequence[Point], edges: tuple[float, float]
) -> Iterator[Series]:
    """A line for each roof, sources of one chip together."""
    by_source: dict[int, list[Point]] = {}
    for point in points:
        by_source.setdefault(point.source, []).append(point)
    roofs: dict[tuple, list[int]] = {}
    for number, group in by_source.items():
        bandwidth, peaks, of = _ceilings(found, number, group)
        for order, (name, peak) in enumerate(peaks.items()):
            roofs.setdefault((bandwidth, peak, name, of, order), []).append(number)
    for (bandwidth, peak, name, of, order), numbers in roofs.items():
        letters = _letters([found.sources[number].letter for number in numbers])
        memory = f" and {units.quantity(bandwidth, 'B/s')}" if bandwidth else ""
        text = f"{letters}: roof for {name}\n{units.quantity(peak, 'FLOP/s')}{memory}\n{of}"
        yield Series(
            numbers[0],
            f"{letters} roof",
            [Spot(x, y, text) for x, y in _corners(bandwidth, peak, edges)],
            dash=style.DASHES[order % len(style.DASHES)],
            end=f"{letters} {name}",
            legend=not order,
            shared=numbers,
        )


def _letters(letters: Sequence[str]) -> str:
    return ", ".join(letters) if len(letters) < 4 else f"{letters[0]} ... {letters[-1]}"


def _corners(
    bandwidth: float | None, peak: float, edges: tuple[float, float]
) -> Iterator[tuple[float, float]]:
    """Points of one roof between two intensities; level where the bandwidth is not known."""
    low, high = edges
    ridge = peak / bandwidth if bandwidth else low
    yield low, min(peak, bandwidth * low) if bandwidth else peak
    if low < ridge < high:
        yield ridge, peak
    yield high, min(peak, bandwidth * high) if bandwidth else peak


def _ceilings(
    found: Comparison, number: int, points: Sequence[Point]
) -> tuple[float | None, dict[str, float], str]:
    """Bytes per second, unit or precision -> FLOP/s, and where both are from."""
    record = points[0].record
    precisions = sorted({p.record.precision for p in points if p.record.precision in PRECISIONS})
    chip = chips.CHIPS.get(record.target.get("chip") or "")
    if chip is None:
        best = derive.ceilings(found.sources[number].records).get(derive.machine(record))
        best = best or derive.Ceilings()
        peaks = {name: best.flops[name] for name in precisions if name in best.flops}
        return best.bandwidth, peaks, "best measured on this machine, no data sheet"
    known = [(name, chips.peak_flops(chip, name)) for name in precisions]
    peaks = {name: peak[0] for name, peak in known if peak}
    return chip.bandwidth_gbs * 1e9, peaks, "published figures of the chip"
