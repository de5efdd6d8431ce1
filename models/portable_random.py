"""Random numbers whose bits are the same on every back end.

`jax.random.normal` turns random bits into a normal number through a logarithm and a square root,
whose last bits each back end computes in its own way. Here integers are added up instead, which is
exact, and multiplied once, which IEEE 754 rounds in one way only.
"""

import math

import jax
import jax.numpy as jnp

# Of the sum of four uniform 16-bit integers.
_MEAN = 2 * 65535
_STD = math.sqrt(4 * (65536**2 - 1) / 12)


def normal(key: jax.Array, shape: tuple[int, ...], std: float) -> jax.Array:
    """Nearly normal numbers in fp32, with mean 0, and at most 3.46 times `std` from it.

    Their law is that of the sum of four uniform numbers (Irwin-Hall); its excess kurtosis is -0.3.
    """
    first, second = (jax.random.bits(part, shape, jnp.uint32) for part in jax.random.split(key))
    parts = (first >> 16, first & 0xFFFF, second >> 16, second & 0xFFFF)
    total = sum((part.astype(jnp.int32) for part in parts), jnp.int32(-_MEAN))
    return total.astype(jnp.float32) * jnp.float32(std / _STD)
