"""Checksums of what went into a case and of what came out.

Two machines are compared on the same inputs, or not at all: the checksum of the inputs is of what
the seed determines, so it is the same on every back end, number of devices and mesh. Operands and
tokens are drawn by NumPy, and all of their bits count. Weights are drawn by the device, where the
last bits of a normal number depend on how the back end computes logarithms and roots; its sign does
not, as it is that of a uniform number made of random bits. So of weights the signs and the zeros
count: with another generator half of them differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from accel_bench.workloads.base import fetch

# Of a larger array a sample counts, spread over it by a stride.
WHOLE_BYTES = 64 << 20


def of_inputs(arguments: tuple) -> str:
    """Twelve hexadecimal digits of the arguments of a case.

    Of a train state its parameters count; a dict is taken for parameters.
    """
    digest = hashlib.sha256()
    for argument in arguments:
        drawn = getattr(argument, "params", argument)
        signs = isinstance(drawn, Mapping)
        for leaf in jax.tree.leaves(drawn):
            values = _sample(leaf)
            _add(digest, leaf, np.sign(values.astype(np.float32)).astype(np.int8) if signs
                 else values)  # fmt: skip
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
