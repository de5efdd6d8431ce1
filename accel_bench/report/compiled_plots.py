"""Plots of what compilers tell: memory, collectives, and the parts of a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench import derive, units
from accel_bench.comparison import Comparison
from accel_bench.report import style
from accel_bench.report.figure import Figure, Series, Spot, axis, categories
from accel_bench.report.points import Point
from accel_bench.stats import Median

# Rows of names that can still be read one under the other.
_MAX_NAMES = 40
# Share of the memory below which a bar cannot be seen.
_NOTHING = 0.01
_NOT_RUN = "Compiled, not run."


@dataclass(frozen=True)
class _Names:
    """How the rows of a plot are called: by source and case, or by source where all are one case.

    Attributes:
      case: the only case; empty where there are several.
    """

    case: str

    @classmethod
    def of(cls, points: Sequence[Point]) -> _Names:
        cases = {point.case for point in points}
        return cls(cases.pop() if len(cases) == 1 else "")

    def name(self, point: Point) -> str:
        """What stands at the point's row."""
        where = derive.target_name(point.record) or derive.machine(point.record)
        return f"{point.letter} {where if self.case else point.case[:90]}"

    def axis(self, points: Sequence[Point]) -> dict[str, Any]:
        """The axis of names, in the order of the points."""
        return categories([self.name(p) for p in points], "source" if self.case else "source, case")

    def notes(self) -> list[str]:
        """A sentence on the only case."""
        return [f"All rows: {self.case}."] if self.case else []


def _number(facts: Mapping[str, Any], name: str) -> float | None:
    value = facts.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _first(points: Sequence[Point]) -> tuple[list[Point], list[str]]:
    """The points that have room, and a note on the others."""
    left_out = len(points) - _MAX_NAMES
    notes = [f"{left_out} more records are left out here."] if left_out > 0 else []
    return list(points[:_MAX_NAMES]), notes


def memory(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Memory that programs need as a share of what there is."""
    placed, small = [], 0
    for point in points:
        facts = point.record.facts.get("memory") or {}
        needed, usable = _number(facts, "needed"), _number(facts, "usable")
        if needed is not None and usable:
            if needed < _NOTHING * usable:
                small += 1
                continue
            placed.append((point, needed, usable))
    # The fullest first: the question is what fits.
    placed.sort(key=lambda item: -item[1] / item[2])
    kept, notes = _first([point for point, _, _ in placed])
    if not kept:
        return None
    names = _Names.of(kept)
    if small:
        notes.append(f"{small} records need less than {units.percent(_NOTHING)} and have no bar.")
    series = []
    for source in dict.fromkeys(point.source for point in kept):
        own = [item for item in placed[:_MAX_NAMES] if item[0].source == source]
        spots = []
        for point, needed, usable in own:
            sizes = f"{units.quantity(needed, 'B')} of {units.quantity(usable, 'B')} a device"
            text = f"{names.name(point)}\nneeds {sizes} ({units.percent(needed / usable)})"
            said = f"status {point.record.status}; by the compiler, not run"
            spots.append(Spot(100 * needed / usable, names.name(point), f"{text}\n{said}"))
        series.append(
            Series(source, own[0][0].letter, spots,
                   bar=style.PATTERNS[source % len(style.PATTERNS)], legend=False)
        )  # fmt: skip
    return Figure(
        "plot-memory",
        "Memory needed against capacity",
        "A bar that passes the line at 100 % does not fit. The fullest are on top. By the "
        f"compiler's account of what one device can use. {_NOT_RUN}",
        axis("memory needed (% of usable)", rangemode="tozero"),
        names.axis(kept),
        series,
        [*names.notes(), *notes],
        {"shapes": [_capacity()]},
    )


def _capacity() -> dict[str, Any]:
    return {"type": "line", "x0": 100, "x1": 100, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"dash": "dash", "width": 2}}  # fmt: skip


def collectives(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Bytes that a device sends in a step over each mesh axis."""
    having = [p for p in points if p.record.facts.get("collectives")]
    kept, notes = _first(having)
    naming = _Names.of(kept)
    bars: dict[tuple[int, str], list[Spot]] = {}
    unknown = 0
    for point in kept:
        for axes, (size, kinds, blank) in _by_axes(point.record.facts["collectives"]).items():
            unknown += blank
            if size:
                sent = f"{units.quantity(size, 'B')} a step and device over {axes}"
                name = naming.name(point)
                text = f"{name}\n{sent}:\n{chr(10).join(kinds)}\nby the program, not run"
                bars.setdefault((point.source, axes), []).append(Spot(size, name, text))
    if not bars:
        return None
    if unknown:
        notes.append(f"{unknown} collectives of unknown size are not in the bars.")
    names = sorted({axes for _, axes in bars})
    seen: set[str] = set()
    series = []
    for (source, axes), spots in sorted(bars.items()):
        number = names.index(axes)
        pattern = style.PATTERNS[number % len(style.PATTERNS)]
        first = axes not in seen
        seen.add(axes)
        series.append(
            Series(source, f"over {axes}", spots, bar=pattern, color=number, legend=first)
        )
    return Figure(
        "plot-collectives",
        "Collectives by mesh axis",
        "What each device sends at least in a step, by the mesh axes that it crosses; the longest "
        f"part is the axis to look at. From the compiled program. {_NOT_RUN}",
        axis("sent by a device in a step (B)", rangemode="tozero", exponentformat="SI"),
        naming.axis(kept),
        series,
        [*naming.notes(), *notes],
        {"barmode": "stack"},
    )


def _by_axes(entries: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, list[str], int]]:
    """Axes -> bytes sent, what by, and how many collectives of unknown size."""
    found: dict[str, tuple[float, list[str], int]] = {}
    for entry in entries:
        axes = entry.get("axes")
        name = "+".join(axes) if axes else "unknown axes" if axes is None else "one device"
        size, kinds, unknown = found.get(name, (0.0, [], 0))
        sent, calls = _number(entry, "wire_bytes"), _number(entry, "calls")
        often = f" {calls:g} calls" if calls is not None else ""
        amount = "unknown size" if sent is None else units.quantity(sent, "B")
        kind = f"{entry.get('kind')} {entry.get('dtype') or ''} {amount}{often}"
        found[name] = size + (sent or 0.0), [*kinds, kind], unknown + (sent is None)
    return found


# Part -> words, marker, number of its colour.
_PARTS = {
    "compute_s": ("arithmetic, at least", "triangle-right-open", 0),
    "memory_s": ("memory traffic, at least", "square-open", 2),
    "network_s": ("network, at least", "diamond-open", 3),
    "compiler_s": ("the compiler's estimate", "circle-open", 1),
    "measured": ("measured", "circle", 6),
}


def parts(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """What a model's step is made of, beside the time that the compiler or a clock gives."""
    models = [p for p in points if p.record.workload == "model" and p.record.status == "ok"]
    steps = [p for p in models if p.record.params.get("phase") == "train_step"]
    # Measured alone, a step has no parts.
    if not any(p.record.facts.get("estimate") for p in steps):
        steps = models
    if not any(p.record.facts.get("estimate") for p in steps):
        return None
    kept, notes = _first(steps)
    names = _Names.of(kept)
    series = []
    for source in dict.fromkeys(point.source for point in kept):
        own = [point for point in kept if point.source == source]
        for part, (words, symbol, color) in _PARTS.items():
            spots = [
                spot for point in own if (spot := _part(point, names.name(point), part, words))
            ]
            if spots:
                series.append((part, Series(source, words, spots, symbol=symbol, color=color)))
    if not series:
        return None
    phases = sorted({str(p.record.params.get("phase")) for p in kept})
    order = [s for part in _PARTS for name, s in series if name == part]
    return Figure(
        "plot-parts",
        f"Parts of a model's step ({', '.join(phases)})",
        "On each line the mark furthest right among arithmetic, memory traffic and network binds "
        "the step: it takes at least so long (they can go on at the same time, so they do not add "
        "up). The compiler's estimate or a measurement further right shows what is lost to "
        "anything else. Hollow marks were not run; what is not known or 0 has no mark.",
        axis("time of one step (s)", log=True),
        names.axis(kept),
        _legend_once(order),
        [*names.notes(), *notes],
    )


def _part(point: Point, name: str, part: str, words: str) -> Spot | None:
    if part == "measured":
        step: Median | None = point.cell.seconds if point.cell.origin == "measured" else None
        return Spot(step.value, name, point.text()) if step else None
    seconds = _number(point.record.facts.get("estimate") or {}, part)
    if not seconds:
        return None
    return Spot(seconds, name, f"{name}\n{words}: {units.seconds(seconds)}\nnot run")


def _legend_once(series: Sequence[Series]) -> list[Series]:
    """Each name once in the legend, though every source has its own series."""
    seen: set[str] = set()
    found = []
    for one in series:
        found.append(dataclasses.replace(one, legend=one.name not in seen))
        seen.add(one.name)
    return found
