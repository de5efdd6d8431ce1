"""What trainings have learnt, by step and by second."""

from __future__ import annotations

from collections.abc import Sequence

from accel_bench import compare_numerics, loss_curves, training_findings, units
from accel_bench.comparison import Comparison
from accel_bench.loss_curves import Parting
from accel_bench.report import style
from accel_bench.report.figure import Figure, Series, Spot, axis
from accel_bench.report.points import Point

_BY_STEP = axis("steps of the optimizer (count)")
_BY_TIME = axis("time of training (s), without looks at held-out data and checkpoints")


def loss_by_step(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Loss against steps: of what was learnt from, and held out."""
    return _figure(
        "plot-loss-steps",
        "Loss by step",
        "Lines that lie on each other learn alike, however fast they are. Solid: held out; dotted: "
        "mean of what was learnt from since the point before. Where the two part the model learns "
        "by heart.",
        _BY_STEP,
        axis("loss (nats per token that counts)", log=True),
        _lines(points, "step", "test_loss", "held out")
        + _lines(points, "step", "loss", "learnt from", dash="dot", end=False),
    )


def loss_by_time(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Loss on held-out data against seconds."""
    return _figure(
        "plot-loss-time",
        "Loss on held-out data by time",
        "A line further left gets there sooner.",
        _BY_TIME,
        axis("loss (nats per token that counts)", log=True),
        _lines(points, "elapsed_s", "test_loss", "held out"),
    )


def accuracy_by_step(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Share of held-out data that was told right against steps."""
    return _figure(
        "plot-accuracy-steps",
        "Accuracy on held-out data by step",
        "Lines that lie on each other learn alike, however fast they are.",
        _BY_STEP,
        axis("held-out sequences told right (share)", tickformat=".0%"),
        _lines(points, "step", "accuracy", "held out"),
    )


def accuracy_by_time(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """Share of held-out data that was told right against seconds."""
    return _figure(
        "plot-accuracy-time",
        "Accuracy on held-out data by time",
        "A line further left gets there sooner.",
        _BY_TIME,
        axis("held-out sequences told right (share)", tickformat=".0%"),
        _lines(points, "elapsed_s", "accuracy", "held out"),
    )


def loss_distance(found: Comparison, points: Sequence[Point]) -> Figure | None:
    """How far the losses of trainings from one seed are apart, against steps."""
    series = []
    for number, source in enumerate(found.sources):
        own = [p.record for p in points if p.source == number]
        for parted in loss_curves.by_precision(own):
            name = f"{source.letter} {training_findings.name(parted.other)}"
            series.append(
                _distances(parted, number, f"{name}, from {parted.one.precision}", len(series))
            )
    for _, one, other, parted in compare_numerics.trainings(found):
        name = f"{other.letter} {training_findings.name(parted.other)}, from {one.letter}"
        series.append(_distances(parted, found.sources.index(other), name, len(series)))
    return _figure(
        "plot-loss-distance",
        "How far losses are apart",
        "Rounding parts two trainings at first, training itself spreads them further on every "
        "step. A line that starts high is of another arithmetic; one that jumps, of a fault.",
        _BY_STEP,
        axis("distance (share of the loss)", log=True),
        [line for line in series if line.spots],
    )


def _distances(parted: Parting, source: int, name: str, color: int) -> Series:
    spots = [
        Spot(step, distance, f"step {step}: {distance:.1e} apart")
        for step, distance in zip(parted.steps, parted.distances, strict=True)
        if distance > 0
    ]
    return Series(source, name, spots, dash=style.DASHES[0], color=color)


def _figure(
    name: str, title: str, caption: str, x: dict, y: dict, series: Sequence[Series]
) -> Figure | None:
    return Figure(name, title, caption, x, y, series) if series else None


def _lines(
    points: Sequence[Point], x: str, y: str, what: str, dash: str = "", end: bool = True
) -> list[Series]:
    """A line for each training; in the colour of its source, and where a source has several in
    colours that follow."""
    trained = [p for p in points if any(v is not None for v in _values(p, y))]
    several = len({p.source for p in trained}) < len(trained)
    series = []
    for number, point in enumerate(trained):
        spots = [
            Spot(at, value, point.text(_said(point, index)))
            for index, (at, value) in enumerate(
                zip(_values(point, x), _values(point, y), strict=True)
            )
            if at is not None and value is not None
        ]
        series.append(
            Series(
                point.source,
                f"{point.letter} {training_findings.name(point.record)}, {what}",
                spots,
                dash=dash or style.DASHES[0],
                end=point.letter if end else "",
                color=number if several else None,
                listed=end,
            )
        )
    return series


def _values(point: Point, name: str) -> Sequence[float | None]:
    curve = training_findings.curve(point.record)
    return curve.get(name) or [] if point.record.workload == "training" else []


def _said(point: Point, index: int) -> str:
    curve = training_findings.curve(point.record)
    words = [
        f"step {curve['step'][index]} after {units.seconds(curve['elapsed_s'][index])}",
        f"loss {units.digits(curve['test_loss'][index])} held out, "
        f"{units.digits(curve['loss'][index])} learnt from",
    ]
    accuracy = curve["accuracy"][index]
    if accuracy is not None:
        words.append(f"{training_findings.share(accuracy)} told right")
    return ", ".join(words)
