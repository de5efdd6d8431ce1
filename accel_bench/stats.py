"""Statistics of timing samples: robust ones, since timings have long tails and no normal law."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Median:
    """A median with its confidence interval, in the unit of the samples."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's width as a fraction of the median."""
        return (self.high - self.low) / 2 / self.value if self.value else float("inf")


def median(samples: Sequence[float], confidence: float = 0.95) -> Median:
    """The median and its distribution-free confidence interval.

    The interval's ends are order statistics: the number of samples below the true median is
    binomial with p = 1/2. With too few samples for the confidence (under 6 for 95 %) the interval
    is the whole range.

    Raises:
      ValueError: there are no samples.
    """
    if not len(samples):
        raise ValueError("no samples")
    ordered = sorted(samples)  # of a handful of numbers several times as fast as an array's sort
    count = len(ordered)
    rank = _rank(count, confidence)
    low, high = ordered[max(rank - 1, 0)], ordered[min(count - rank, count - 1)]
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Median(float(middle), float(low), float(high))


@functools.cache
def _rank(count: int, confidence: float) -> int:
    """Largest rank such that P(fewer samples than that lie below the median) is small enough."""
    from scipy import special  # a seventh of a second, which a wrong request need not wait for

    ranks = np.arange(count // 2 + 1)
    return int(np.sum(special.bdtr(ranks, count, 0.5) <= (1 - confidence) / 2))


def drift(samples: Sequence[float]) -> float:
    """Relative change of the median from the first third of the samples to the last third.

    0 where that may be chance: where the confidence intervals of the two medians overlap, and for
    fewer than fifteen samples, of which a third says nothing.
    """
    third = len(samples) // 3
    if third < 5:
        return 0.0
    first, last = median(samples[:third]), median(samples[-third:])
    if first.low <= last.high and last.low <= first.high:
        return 0.0
    return last.value / first.value - 1
