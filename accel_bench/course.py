"""How far a training has come: what was learnt when, and how long steps took.

It is what a checkpoint holds beside the train state, as JSON, so that a training that was stopped
ends in the same record as one that was not.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

# Figures that are kept are at most so many, and half as many after some were dropped.
MAX_TIMES = 400
MAX_LOSSES = 1000
# The first losses are all kept: they tell what rounding does before training spreads it.
FIRST_LOSSES = 10


@dataclass
class Samples:
    """Figures of calls of the step, evenly chosen among all of them, the first one included.

    Attributes:
      limit: figures that are kept at most.
      kept: the figure of every `every`-th call.
      seen: calls so far.
    """

    limit: int
    kept: list[float] = field(default_factory=list)
    every: int = 1
    seen: int = 0

    def add(self, figure: float) -> None:
        """Takes the figure of the next call."""
        if self.seen % self.every == 0:
            self.kept.append(figure)
        self.seen += 1
        if len(self.kept) > self.limit:
            self.kept = self.kept[::2]
            self.every *= 2


@dataclass
class Curve:
    """Points at which the held-out data was looked at.

    Attributes:
      step: optimizer steps taken.
      loss: mean over the steps since the last point of the loss on what they learnt from, in nats.
      test_loss: of the held-out data, in nats per token that counts.
      accuracy: share of held-out sequences whose class was right; None without classes.
      elapsed_s: seconds of training, without such looks and without checkpoints.
      tokens: that were learnt from.
    """

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    test_loss: list[float] = field(default_factory=list)
    accuracy: list[float | None] = field(default_factory=list)
    elapsed_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


@dataclass
class Course:
    """A training's course up to a step.

    Attributes:
      step: optimizer steps taken; also says which batch comes next.
      curve: see there.
      recent: losses of the calls since the last point of the curve.
      losses: of all calls; `first_losses` of the first ones.
      samples: seconds per optimizer step; not of the first call.
      elapsed_s: seconds of training.
      input_wait_s: seconds of them spent waiting for input.
      place: where it runs: `mesh`, `device_kind` and `processes`.
      inputs_checksum: of the first weights, the data and its order.
      resumed: for each time that it was carried on the `step`, and the place of before.
    """

    place: dict[str, Any]
    step: int = 0
    curve: Curve = field(default_factory=Curve)
    recent: list[float] = field(default_factory=list)
    first_losses: list[float] = field(default_factory=list)
    losses: Samples = field(default_factory=partial(Samples, MAX_LOSSES))
    samples: Samples = field(default_factory=partial(Samples, MAX_TIMES))
    elapsed_s: float = 0.0
    input_wait_s: float = 0.0
    inputs_checksum: str = ""
    resumed: list[dict[str, Any]] = field(default_factory=list)

    def add_loss(self, loss: float) -> None:
        """Takes the loss of the next call."""
        self.recent.append(loss)
        self.losses.add(loss)
        if len(self.first_losses) < FIRST_LOSSES:
            self.first_losses.append(loss)

    def add_point(self, test_loss: float, accuracy: float | None, tokens: int) -> None:
        """A point of the curve at this step, after `tokens` were learnt from."""
        point = {
            "step": self.step,
            "loss": math.fsum(self.recent) / len(self.recent),
            "test_loss": test_loss,
            "accuracy": accuracy,
            "elapsed_s": self.elapsed_s,
            "tokens": tokens,
        }
        for name, value in point.items():
            getattr(self.curve, name).append(value)
        self.recent = []

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)

    @classmethod
    def resumed_from(cls, plain: dict[str, Any], place: dict[str, Any]) -> Course:
        """The course that `to_plain` gave, to be carried on at a place.

        Times of steps that were taken elsewhere are left out: they are of another machine.

        Raises:
          TypeError, ValueError: it is none.
        """
        kept = {name: Samples(**plain[name]) for name in ("losses", "samples")}
        course = cls(**{**plain, "curve": Curve(**plain["curve"]), **kept})
        lengths = {len(values) for values in vars(course.curve).values()}
        if not isinstance(course.step, int) or len(lengths) != 1:
            raise ValueError("its course has no step, or a torn curve")
        before, course.place = course.place, place
        course.resumed = [*course.resumed, {"step": course.step, **before}]
        if before != place:
            course.samples = Samples(MAX_TIMES)
        return course
