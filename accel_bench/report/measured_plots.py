"""Plots over sizes: products, bandwidth, latency; and speed against accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accel_bench.cases import XLA, format_bytes
from accel_bench.comparison import Comparison
from accel_bench.report import style
from accel_bench.report.figure import Figure, Series, Spot, axis
from accel_bench.report.points import Point, grouped

_MARKS = (
    "Filled: measured, with its 95 % interval; hollow: the compiler's estimate, not run; triangle: "
    "a bound, not run."
)


def _spot(point: Point, x: float, rate: bool = True) -> Spot | None:
    """A point at its rate, or at its time."""
    cell = point.cell
    shown = cell.rate if rate else cell.seconds
    if shown is None:
        return None
    low, high = (shown.low, shown.high) if cell.origin == "measured" else (None, None)
    return Spot(x, shown.value, point.text(), low, high)


def _lines(
    points: Sequence[tuple[Point, Spot]], field: str, of_params: bool = False, rate: bool = True
) -> list[Series]:
    """A line for each source, origin and value of a field (or parameter), by size."""
    lines: dict[tuple, list[tuple[Point, Spot]]] = {}
    for point, spot in points:
        record = point.record
        value = record.params.get(field) if of_params else getattr(record, field)
        library = "" if record.implementation == XLA else f" {record.implementation}"
        name = f"{value or ''}{library}"
        lines.setdefault((point.source, point.cell.origin, name), []).append((point, spot))
    names = list(dict.fromkeys(name for _, _, name in lines))
    series = []
    for (source, origin, name), group in lines.items():
        letter = group[0][0].letter
        spots = sorted((spot for _, spot in group), key=lambda spot: float(spot.x))
        series.append(
            Series(
                source,
                f"{letter} {name}, {style.SHORT[origin]}",
                spots,
                symbol=style.symbol(source, origin, rate),
                dash=style.DASHES[names.index(name) % len(style.DASHES)],
                end=f"{letter} {name}",
            )
        )
    return series


def matmul(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Rate of products against their size."""
    placed = []
    for point in points:
        flops = (point.record.facts.get("work") or {}).get("flops")
        if point.record.workload == "matmul" and flops:
            spot = _spot(point, (flops / 2) ** (1 / 3))
            placed += [(point, spot)] if spot else []
    if not placed:
        return None
    return Figure(
        "plot-matmul",
        "Rate of matrix products by size",
        "To the right products are larger (a batch counts as more rows); a line that still climbs "
        f"has not reached its ceiling. A dash for each precision. {_MARKS} A bound is "
        "the highest rate possible.",
        axis("size, cube root of MxNxK (elements)", log=True),
        axis("rate (FLOP/s; int8: OP/s)", log=True),
        _lines(placed, "precision"),
    )


def _by_working_set(points: Sequence[Point], latency: bool) -> list[tuple[Point, Spot]]:
    placed = []
    for point in points:
        record = point.record
        size = record.facts.get("working_set") or record.params.get("bytes")
        wanted = record.workload == "memory" and (record.params.get("op") == "latency") == latency
        if wanted and isinstance(size, int | float) and size > 0:
            spot = _spot(point, float(size), rate=not latency)
            placed += [(point, spot)] if spot else []
    return placed


def bandwidth(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Memory bandwidth against the working set."""
    placed = _by_working_set(points, latency=False)
    if not placed:
        return None
    return Figure(
        "plot-bandwidth",
        "Memory bandwidth by working set",
        "Bandwidth falls in steps where the working set outgrows a cache; the level on the right "
        f"is main memory. Dotted uprights: a CPU's caches. {_MARKS} Of caches of accelerators "
        "nothing is known here.",
        axis("working set (bytes)", log=True),
        axis("bandwidth (B/s)", log=True),
        [*_cache_levels(placed), *_lines(placed, "op", of_params=True)],
    )


def latency(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Time of one dependent load against the working set."""
    placed = _by_working_set(points, latency=True)
    if not placed:
        return None
    return Figure(
        "plot-latency",
        "Latency of dependent loads by working set",
        "Each step upwards is a cache that no longer holds the data. Dotted uprights: a CPU's "
        f"caches. {_MARKS}",
        axis("working set (bytes)", log=True),
        axis("time of one load (s)", log=True),
        [*_cache_levels(placed), *_lines(placed, "op", of_params=True, rate=False)],
    )


def _cache_levels(placed: Sequence[tuple[Point, Spot]]) -> Iterator[Series]:
    """An upright at the size of each cache of each CPU."""
    ys = [float(spot.y) for _, spot in placed]
    seen = set()
    for point, _ in placed:
        record = point.record
        if point.source in seen or record.target.get("platform") != "cpu":
            continue
        seen.add(point.source)
        caches = (record.env.get("cpu") or {}).get("caches") or {}
        for level, size in sorted(caches.items()):
            text = f"{point.letter}: {level} cache\n{format_bytes(size)}\nof one core or group"
            yield Series(
                point.source,
                f"{point.letter} {level} cache",
                [Spot(size, min(ys), text), Spot(size, max(ys), text)],
                dash="dot",
                end=level,
                listed=False,
                legend=False,
            )


def accuracy(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Speed against relative error: the largest product of each precision and source."""
    largest: dict[tuple, Point] = {}
    exact = 0
    for point in points:
        record, cell = point.record, point.cell
        error = record.facts.get("error")
        if record.workload != "matmul" or cell.origin != "measured" or not cell.rate:
            continue
        if error is None or error <= 0:
            exact += error == 0
            continue
        key = (point.source, record.precision, record.implementation)
        size = (record.facts.get("work") or {}).get("flops") or 0
        held = largest.get(key)
        if held is None or size > held.record.facts["work"]["flops"]:
            largest[key] = point
    if not largest:
        return None
    series = [
        _accuracy_series(source, precision, group)
        for (source, _, precision), group in grouped(list(largest.values()), "precision")
    ]
    return Figure(
        "plot-accuracy",
        "Speed against accuracy of matrix products",
        "Up is faster, left is more accurate: a precision that is to the right of another and not "
        "above it buys nothing on that source. The largest product of each precision; measured "
        "only, since what was not run has no error.",
        axis("relative error against float64 (no unit)", log=True, exponentformat="power"),
        axis("rate (FLOP/s; int8: OP/s)", log=True),
        series,
        [f"{exact} results without any error have no place on this axis."] if exact else [],
    )


def _accuracy_series(source: int, precision: str, group: Sequence[Point]) -> Series:
    spots = []
    for point in group:
        error = point.record.facts["error"]
        spot = _spot(point, error)
        if spot:
            text = point.text(f"relative error {error:.1e}")
            spots.append(Spot(error, spot.y, text, spot.low, spot.high))
    letter = group[0].letter
    return Series(
        source,
        f"{letter} {precision}, measured",
        spots,
        symbol=style.symbol(source, "measured"),
        legend=False,
        end=f"{letter} {precision}",
    )
