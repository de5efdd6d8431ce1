"""Values that a study of numerics starts from: usual ones, and those at the ends of a format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from accel_bench.accuracy import format_of

# Of the largest number: what results are about, so that the format holds them all (of a normal
# distribution nothing lies beyond eight standard deviations).
_HEADROOM = 8.0
# Two terms that cancel differ by so many ulps, give or take.
_CANCELLING_ULPS = 16.0


@dataclass(frozen=True)
class Operand:
    """An array to draw.

    Attributes:
      shape: its shape.
      dtype: as it is stored.
      axis: the axis that is summed over: terms that cancel are neighbours along it.
      factors: how many numbers of this size a result is a product of, 1 or 2: products of `huge`
        ones are near the end of the format, and so are sums of `terms` of them.
      terms: how many of them are added up.
      role: `main`: takes every range. `other`: is as usual where the range is `denormal`, which a
        product of two such numbers would not even be. `exact`: is always as usual.
      partner: whether of two neighbours that cancel both have the same sign, as the second factor
        of a product has.
    """

    shape: tuple[int, ...]
    dtype: Any
    axis: int = -1
    factors: int = 1
    terms: int = 1
    role: str = "main"
    partner: bool = False


def scale_of(operand: Operand, values: str) -> float:
    """Standard deviation of an operand in a range of values.

    `huge`: results are about an eighth of the largest number; `tiny`: a tenth of the root of the
    smallest normal number (1e-20 in fp32), so that products are denormal; `denormal`: an eighth of
    the smallest normal number.
    """
    form = format_of(operand.dtype)
    if operand.role == "exact" or values in ("normal", "mixed"):
        return 1.0
    if values == "huge":
        result = form.largest / _HEADROOM / np.sqrt(operand.terms)
        return float(result ** (1 / operand.factors))
    if values == "tiny":
        return 0.1 * form.normal**0.5
    if operand.role == "other":  # so that sums of products are as small as the main operand
        return float(1 / np.sqrt(operand.terms))
    return form.normal / _HEADROOM


def draw(rng: np.random.Generator, operand: Operand, values: str) -> np.ndarray:
    """Normally distributed numbers of a range of values, as they are stored."""
    drawn = rng.standard_normal(operand.shape, dtype=np.float32)
    return shaped(rng, drawn, operand, values)


def shaped(
    rng: np.random.Generator, drawn: np.ndarray, operand: Operand, values: str
) -> np.ndarray:
    """Numbers with a standard deviation of 1 brought to a range of values, and stored."""
    if values == "mixed" and operand.role != "exact":
        drawn = _cancelling(rng, drawn, operand)
    dtype, scale = jnp.dtype(operand.dtype), scale_of(operand, values)
    # In float64: in fp32 the scale itself may be denormal.
    return drawn.astype(dtype) if scale == 1.0 else (drawn * np.float64(scale)).astype(dtype)


def _cancelling(rng: np.random.Generator, drawn: np.ndarray, operand: Operand) -> np.ndarray:
    """Neighbours along the axis as pairs (x, -x) with a small difference, or partners (y, y)."""
    moved = np.moveaxis(drawn, operand.axis, -1)
    pairs = moved.shape[-1] // 2
    first = moved[..., 0 : 2 * pairs : 2]
    near = 2.0 ** -format_of(operand.dtype).digits * _CANCELLING_ULPS
    nearly = 1 + near * rng.standard_normal(first.shape, dtype=np.float32)
    moved[..., 1 : 2 * pairs : 2] = (
        first * nearly.astype(np.float32) * (1 if operand.partner else -1)
    )
    return np.moveaxis(moved, -1, operand.axis)
