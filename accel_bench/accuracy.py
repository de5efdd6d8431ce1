"""How far results are from a reference: relative errors, ulps, and what was lost altogether.

An ulp (unit in the last place) of a number is the distance to the next larger one of its format
(Goldberg 1991, "What every computer scientist should know about floating-point arithmetic"): a
correctly rounded result is off by half a one at most. Where numbers become denormal that distance
stays the smallest denormal number. This module does not import jax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Format:
    """A format of numbers, all values in float64.

    Attributes:
      digits: bits behind the leading one.
      largest: largest finite number.
      normal: smallest normal number; a smaller one is denormal.
      smallest: smallest number above 0.
    """

    digits: int
    largest: float
    normal: float
    smallest: float


def format_of(dtype: Any) -> Format:
    """The format of a dtype; of whole numbers one whose every ulp is 1."""
    dtype = np.dtype(dtype)
    if np.issubdtype(dtype, np.integer):
        return Format(0, float(np.iinfo(dtype).max), 1.0, 1.0)
    info = ml_dtypes.finfo(dtype)
    return Format(
        int(info.nmant), float(info.max), float(info.smallest_normal),
        float(info.smallest_subnormal),
    )  # fmt: skip


def spacing(values: np.ndarray, dtype: Any) -> np.ndarray:
    """One ulp of the format at each of these float64 values; at 0 the smallest denormal number."""
    form = format_of(dtype)
    if np.issubdtype(np.dtype(dtype), np.integer):
        return np.ones(np.shape(values))
    _, exponents = np.frexp(np.minimum(np.abs(values), form.largest))
    steps = np.where(values == 0, 0.0, np.ldexp(1.0, exponents - 1 - form.digits))
    return np.maximum(steps, form.smallest)


def ulps(result: np.ndarray, reference: np.ndarray, dtype: Any) -> np.ndarray:
    """Distance of results to float64 references, in ulps of the reference in this format."""
    return np.abs(np.asarray(result, np.float64) - reference) / spacing(reference, dtype)


def errors(results: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> dict[str, Any]:
    """What is wrong with results, each an array in its own dtype; the record's error figures.

    Args:
      results: as computed; what is not finite is counted and left out of all errors.
      references: the same in float64.

    Returns:
      `count` of numbers; `error`, the relative Frobenius error of them all; `max_relative`, over
      references that are normal numbers; `ulps` with `median`, `p99` and `max`; `nonfinite`,
      results that are not finite though the format holds the reference; `beyond`, references that
      it does not hold; `denormal`, references that are denormal; `flushed`, those of them that
      came out as 0; `lost`, normal numbers that came out as 0. An error is None without numbers.
    """
    parts = [_part(np.asarray(x), r) for x, r in zip(results, references, strict=True)]
    counts = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
    distances = np.concatenate([part.ulps for part in parts])
    relative = np.concatenate([part.relative for part in parts])
    square = sum(part.reference_square for part in parts)
    error = float(np.sqrt(sum(part.square for part in parts) / square)) if square else None
    if not distances.size:
        return {**counts, "error": None, "max_relative": None, "ulps": None}
    median, p99, largest = np.quantile(distances, (0.5, 0.99, 1.0))
    return {
        **counts,
        "error": error,
        "max_relative": float(relative.max()) if relative.size else None,
        "ulps": {"median": float(median), "p99": float(p99), "max": float(largest)},
    }


@dataclass(frozen=True)
class _Part:
    counts: dict[str, int]
    ulps: np.ndarray
    relative: np.ndarray
    square: float
    reference_square: float


def _part(result: np.ndarray, reference: np.ndarray) -> _Part:
    """One array's share of `errors`."""
    dtype, form = result.dtype, format_of(result.dtype)
    x, r = result.astype(np.float64).ravel(), np.asarray(reference, np.float64).ravel()
    size = np.abs(r)
    # What rounds to more than the largest number is infinite in the format.
    held = size < form.largest * (1 + 2.0 ** -(form.digits + 2))
    finite = np.isfinite(x)
    denormal = (size > form.smallest / 2) & (size < form.normal)
    zero = x == 0
    counts = {
        "count": x.size,
        "nonfinite": int(np.sum(held & ~finite)),
        "beyond": int(np.sum(~held)),
        "denormal": int(np.sum(denormal)),
        "flushed": int(np.sum(denormal & zero)),
        "lost": int(np.sum((size >= form.normal) & zero)),
    }
    x, r = x[held & finite], r[held & finite]
    usual = np.abs(r) >= form.normal
    return _Part(
        counts,
        ulps(x, r, dtype),
        np.abs(x[usual] - r[usual]) / np.abs(r[usual]),
        float(np.sum((x - r) ** 2)),
        float(np.sum(r**2)),
    )


def growth(sizes: Sequence[float], figures: Sequence[float]) -> float | None:
    """The exponent p of figure ~ size^p, by least squares of the logarithms.

    None with fewer than three different sizes whose figure is above 0.
    """
    points = [(np.log(s), np.log(f)) for s, f in zip(sizes, figures, strict=True) if f and f > 0]
    if len({s for s, _ in points}) < 3:
        return None
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def one_after_the_other(x_RK: np.ndarray) -> np.ndarray:
    """Sums of rows in their own dtype, each term added to the sum of those before it."""
    return np.add.accumulate(x_RK, axis=1)[:, -1]


def in_pairs(x_RK: np.ndarray) -> np.ndarray:
    """Sums of rows, of a power of 2 terms, in their own dtype: neighbours, then their sums."""
    while x_RK.shape[1] > 1:
        x_RK = x_RK[:, ::2] + x_RK[:, 1::2]
    return x_RK[:, 0]


ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sequential": one_after_the_other,
    "pairwise": in_pairs,
}


def order_errors(terms_RK: np.ndarray) -> dict[str, float | None]:
    """Order of summation -> its relative error where these very terms are added in their dtype."""
    exact_R = terms_RK.astype(np.float64).sum(axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        return {
            name: errors([order(terms_RK)], [exact_R])["error"] for name, order in ORDERS.items()
        }
