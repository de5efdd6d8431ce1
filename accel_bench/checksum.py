"""Checksums of what went into a case and of what came out.

Two machines are compared on the same inputs, or not at all: the checksum of the inputs is of what
the seed determines, so it is the same on every back end, number of devices and mesh, to the last
bit: operands and tokens are drawn by NumPy, and weights by the device from random integers
(models/portable_random.py). Only weights in 8 bits are made by divisions, in whose last bit back
ends may differ; of their codes and scales the signs count.
"""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from accel_bench.workloads.base import fetch
from models.quantised import is_scaled

# Of a larger array a sample counts, spread over it by a stride.
WHOLE_BYTES = 64 << 20


def of_inputs(arguments: tuple) -> str:
    """Twelve hexadecimal digits of the arguments of a case.

    Of a train state its parameters count.
    """
    digest = hashlib.sha256()
    for argument in arguments:
        drawn = getattr(argument, "params", argument)
        for node in jax.tree.leaves(drawn, is_leaf=is_scaled):
            for leaf in jax.tree.leaves(node):
                values = _sample(leaf)
                if is_scaled(node):
                    values = np.sign(values.astype(np.float32)).astype(np.int8)
                _add(digest, leaf, values)
    return digest.hexdigest()[:12]


def of_result(result: Any) -> str:
    """Twelve hexadecimal digits of all bits of a result."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(result):
        _add(digest, leaf, _sample(leaf))
    return digest.hexdigest()[:12]


def _add(digest: Any, leaf: jax.Array, values: np.ndarray) -> None:
    digest.update(f"{leaf.shape} {values.dtype}".encode())
    digest.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


def _sample(leaf: Any) -> np.ndarray:
    """All of an array on the host, or every so manieth index of its longest dimension."""
    if leaf.nbytes <= WHOLE_BYTES:
        return fetch(leaf) if isinstance(leaf, jax.Array) else np.asarray(leaf)
    longest = int(np.argmax(leaf.shape))
    step = -(-leaf.nbytes // WHOLE_BYTES)
    index = tuple(slice(None, None, step if axis == longest else None) for axis in range(leaf.ndim))
    if isinstance(leaf, np.ndarray):
        return leaf[index]
    if leaf.is_fully_addressable and next(iter(leaf.devices())).platform == "cpu":
        return np.asarray(leaf)[index]  # no copy, nothing to compile
    here = leaf.sharding
    whole = NamedSharding(here.mesh, PartitionSpec()) if isinstance(here, NamedSharding) else here
    return fetch(jax.jit(lambda x: x[index], out_shardings=whole)(leaf))
