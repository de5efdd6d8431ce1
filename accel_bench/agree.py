"""What the processes of a run must decide alike: how long something took, how much room there is.

Each process has its own clock. How often to repeat and when to stop follows from times, and a
process that made one call more than the others would wait for them for ever. So times are the
slowest process's, for all of them. With one process nothing happens here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def largest(value: float) -> float:
    """The largest of all processes' values (as fp32); each process must ask."""
    return _reduced(value, jnp.max)


def mean(value: float) -> float:
    """The mean of all processes' values."""
    return _reduced(value, jnp.mean)


def smallest(value: float) -> float:
    """The smallest of all processes' values."""
    return -largest(-value)


def _reduced(value: float, function: Callable[[jax.Array], jax.Array]) -> float:
    if jax.process_count() == 1:
        return value
    place, reduce = _reducer(function)
    with jax.transfer_guard("allow"):
        mine = np.asarray([value], np.float32)
        values = jax.make_array_from_callback((jax.process_count(),), place, lambda _: mine)
        return float(reduce(values))


@functools.cache
def _reducer(function: Callable[[jax.Array], jax.Array]):
    """One device of each process, as a sharding, and a compiled reduction over them."""
    chosen = {device.process_index: device for device in reversed(jax.devices())}
    devices = [chosen[index] for index in sorted(chosen)]
    mesh = Mesh(np.asarray(devices), ("process",))
    whole = NamedSharding(mesh, PartitionSpec())
    place = NamedSharding(mesh, PartitionSpec("process"))
    return place, jax.jit(function, out_shardings=whole)
