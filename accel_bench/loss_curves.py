"""Where the losses of two trainings part, and whether rounding explains it.

Two trainings from the same seed learn from the same batches with the same first weights. Where they
compute in another order or precision their losses differ first by rounding; then training itself
spreads the difference, a little on every step, until two runs are as different as two seeds. So

  - over the first steps rounding alone has a say, and bounds how far the losses may be apart;
  - later any distance may be reached, but by growing: a sudden jump is no rounding.

What falls outside is another arithmetic than was asked for, other data, or a fault. This module
does not import jax.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench.accuracy import format_of
from accel_bench.precision import PRECISIONS
from accel_bench.record import Record

# Steps over which training has hardly spread anything.
EARLY = 10
# Losses are sums in fp32 whatever the precision: order alone may move them by some ulps (up to 3
# were seen on trainings over one and eight devices).
_ORDER = 32 * 2.0**-24
# Growth in one step that is no growth any more; up to 25 was seen as a model leaves a plateau.
_JUMP = 100.0
# Losses that a person sees apart.
VISIBLE = 0.01


@dataclass(frozen=True)
class Parting:
    """How the losses of one training leave those of another.

    Attributes:
      one, other: the records, the first one for reference.
      steps: of each pair of losses that both have.
      distances: |other - one| / |one| at each.
      every: steps from one of these to the next, but for the first ones.
      allowed: distance that rounding may make over the first steps.
    """

    one: Record
    other: Record
    steps: Sequence[int]
    distances: Sequence[float]
    every: int
    allowed: float

    @property
    def first(self) -> int | None:
        """Step at which the losses' bits differ first, as far as they were kept; None if never."""
        return next((s for s, d in zip(self.steps, self.distances, strict=True) if d), None)

    @property
    def visible(self) -> int | None:
        """Step at which they are `VISIBLE` apart first; None if never."""
        pairs = zip(self.steps, self.distances, strict=True)
        return next((step for step, distance in pairs if distance >= VISIBLE), None)

    @property
    def early(self) -> float:
        """The largest distance over the first `EARLY` steps."""
        pairs = zip(self.steps, self.distances, strict=True)
        return max(distance for step, distance in pairs if step <= max(EARLY, self.steps[0]))

    @property
    def growth(self) -> float:
        """The largest factor by which one step is further apart than all before it."""
        return max((factor for _, _, factor in self._growths()), default=1.0)

    @property
    def jump(self) -> tuple[int, float, float] | None:
        """Step, distance so far and distance there, where they part at once; None for no such."""
        for step, distance, factor in self._growths():
            if factor > _JUMP * self.every:
                return step, distance / factor, distance
        return None

    def _growths(self) -> Iterator[tuple[int, float, float]]:
        """Step, distance, and how many times that is the largest one before it.

        Nothing is said of what is within that which rounding may make of any step.
        """
        largest = itertools.accumulate((max(d, 2.0**-24) for d in self.distances), max)
        for step, distance, before in zip(
            self.steps[1:], self.distances[1:], largest, strict=False
        ):
            if distance > self.allowed:
                yield step, distance, distance / before

    @property
    def is_rounding(self) -> bool:
        """Whether rounding explains all of it."""
        return self.early <= self.allowed and self.jump is None


def roundoff(precision: str) -> float:
    """Largest relative error of rounding to what a precision multiplies: 2^-24 for fp32.

    What a back end chooses for itself may be as coarse as bf16.
    """
    entry = PRECISIONS[precision]
    if precision == "fp32_default":
        return 2.0**-8
    if entry.unit == "tf32":
        return 2.0**-11
    if precision == "bf16_3x":
        return 2.0**-16
    return 2.0 ** -(format_of(entry.compute).digits + 1)


def parting(one: Record, other: Record) -> Parting | None:
    """How two trainings part; None where one has no losses, or is in a precision not known here."""
    records = (one, other)
    if not all(r.status == "ok" and r.precision in PRECISIONS for r in records):
        return None
    first, second = (_by_step(record.facts.get("losses") or {}) for record in records)
    steps = sorted(first.keys() & second.keys())
    if not steps:
        return None
    distances = [abs(second[s] - first[s]) / abs(first[s] or 1.0) for s in steps]
    every = max(record.facts["losses"].get("every") or 1 for record in records)
    coarse = max(roundoff(record.precision) for record in records)
    return Parting(one, other, steps, distances, every, max(_ORDER, coarse))


def _by_step(losses: dict[str, Any]) -> dict[int, float]:
    """Step -> loss. That of several steps in one call is kept under the first of them."""
    found: dict[int, float] = {}
    for values, apart in (("values", "every"), ("first", "per_call")):
        if losses.get(values) and losses.get(apart):
            found |= zip(itertools.count(1, losses[apart]), losses[values], strict=False)
    return found


def by_precision(records: Sequence[Record]) -> Iterator[Parting]:
    """Trainings that differ in nothing but precision, each beside the one in most digits."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.workload == "training" and record.precision in PRECISIONS:
            same = (sorted(record.params.items(), key=str), sorted(dict(record.mesh).items()))
            groups.setdefault(repr(same), []).append(record)
    for group in groups.values():
        finest = min(group, key=lambda r: (roundoff(r.precision), -PRECISIONS[r.precision].bits))
        others = (record for record in group if record is not finest)
        yield from (found for other in others if (found := parting(finest, other)))
