"""Matrix products: the operation that accelerators are built for."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from accel_bench.precision import Precision, lookup
from accel_bench.workloads.base import (
    PRODUCTS,
    UnsupportedCase,
    Workload,
    fetch,
    host_array,
    place,
    relative_error,
    sharding,
)
from accel_bench.workloads.params import Matmul

# int8 operands stand for normally distributed values up to this many standard deviations.
INT8_RANGE = 5.0
_CHECKED_BATCHES, _CHECKED_ROWS = 4, 48
_DRAWN_AT_ONCE = 1 << 20


def flops(batch: int, m: int, k: int, n: int) -> int:
    """2 m k n for each product: one multiplication and one addition a term."""
    return 2 * batch * m * k * n


def traffic_bytes(batch: int, m: int, k: int, n: int, entry: Precision) -> int:
    """Bytes of both operands and the result, each moved once."""
    item, out = jnp.dtype(entry.storage).itemsize, jnp.dtype(entry.output).itemsize
    return batch * ((m * k + k * n) * item + m * n * out)


def store(x: np.ndarray, entry: Precision) -> np.ndarray:
    """fp32 values as the precision stores them."""
    if entry.quantised:
        x = np.clip(np.rint(x * (127 / INT8_RANGE)), -127, 127)
    return x.astype(jnp.dtype(entry.storage))


def dot_precision(name: str | None) -> lax.Precision | lax.DotAlgorithmPreset | None:
    """The precision table's `dot` as the object that jax takes."""
    if name is None:
        return None
    return lax.DotAlgorithmPreset[name] if name.isupper() else lax.Precision[name.upper()]


def multiply(a: jax.Array, b: jax.Array, entry: Precision) -> jax.Array:
    """(b,m,k) x (b,k,n) or (m,k) x (k,n), in the precision's compute, sum and output types."""
    batch = tuple(range(a.ndim - 2))
    product = lax.dot_general(
        a.astype(entry.compute),
        b.astype(entry.compute),
        (((a.ndim - 1,), (b.ndim - 2,)), (batch, batch)),
        precision=dot_precision(entry.dot),
        preferred_element_type=jnp.dtype(entry.accumulate),
    )
    return product.astype(entry.output)


def build(params: Matmul, precision: str, mesh: Mesh) -> Workload:
    """A product of two matrices of normally distributed numbers.

    The mesh axis `data` divides m (or the batch), `fsdp` divides k, `model` divides n.

    Raises:
      UnsupportedCase: the back end has no such precision.
    """
    entry = lookup(precision)
    batch, m, k, n = params.sizes
    lead = (batch,) if batch > 1 else ()
    rows = ("data", None) if batch > 1 else ("data",)
    shapes = ((*lead, m, k), (*lead, k, n))
    a_sharding = sharding(mesh, *rows, "fsdp")
    b_sharding = sharding(mesh, *(("data",) if batch > 1 else ()), "fsdp", "model")

    def matmul(a, b):
        return multiply(a, b, entry)

    picks = _picks(batch, m, n)

    def init(seed: int) -> tuple[tuple, np.ndarray]:
        rng = np.random.default_rng(seed)
        batches, rows, columns = picks
        # One operand after the other, so that the host holds a copy of only one at a time.
        a, a_rows = _draw(rng, shapes[0], entry, batches, rows, np.arange(k))
        a = place(a, a_sharding)
        b, b_columns = _draw(rng, shapes[1], entry, batches, np.arange(k), columns)
        return (a, place(b, b_sharding)), a_rows @ b_columns

    def error(expected: np.ndarray, result: jax.Array) -> float:
        batches, rows, columns = picks
        # One compiled program: eager indexing would compile one for each of its steps.
        chosen = np.ix_(batches, rows, columns)
        part = jax.jit(lambda x: x.reshape(batch, m, n)[chosen].astype(jnp.float32))(result)
        scale = (INT8_RANGE / 127) ** 2 if entry.quantised else 1.0
        return relative_error(fetch(part).astype(np.float64) * scale, expected)

    dtype = jnp.dtype(entry.storage)
    workload = Workload(
        fn=matmul,
        inputs=(
            jax.ShapeDtypeStruct(shapes[0], dtype, sharding=a_sharding),
            jax.ShapeDtypeStruct(shapes[1], dtype, sharding=b_sharding),
        ),
        init=init,
        work={
            "flops": flops(batch, m, k, n),
            "bytes": traffic_bytes(batch, m, k, n, entry),
        },
        error=error,
        max_error=entry.max_error,
        # A product of vectors is a multiplication or a sum, and XLA makes it one.
        holds=() if 1 in (m, k, n) else PRODUCTS,
        facts={
            "inputs": {"distribution": "normal(0, 1)", "checked": "sampled rows and columns"},
            "compute_dtype": entry.compute,
        },
    )
    _require_supported(workload, precision)
    return workload


def _require_supported(workload: Workload, precision: str) -> None:
    """Tracing alone tells a dot algorithm that the back end does not have."""
    try:
        jax.jit(workload.fn).lower(*workload.inputs)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise UnsupportedCase(f"{precision}: {str(error).splitlines()[0]}") from error


def _picks(batch: int, m: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Batches, rows and columns to check: one from each of equally large blocks."""

    def pick(length: int, count: int) -> np.ndarray:
        rng = np.random.default_rng(length)
        edges = np.linspace(0, length, min(count, length) + 1).astype(int)
        return rng.integers(edges[:-1], edges[1:])

    return pick(batch, _CHECKED_BATCHES), pick(m, _CHECKED_ROWS), pick(n, _CHECKED_ROWS)


def _draw(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    entry: Precision,
    batches: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Normally distributed numbers as they are stored, and a float64 sample of them as drawn.

    NumPy draws them: the same on every back end, and there is nothing to compile.

    Returns:
      An array of `shape`, and one of (batches, rows, columns).
    """
    *lead, length, width = shape
    stored = host_array((math.prod(lead), length, width), jnp.dtype(entry.storage))
    sample = np.empty((len(batches), len(rows), len(columns)))
    step = max(1, _DRAWN_AT_ONCE // width)
    for i, matrix in enumerate(stored):
        for start in range(0, length, step):
            drawn = rng.standard_normal((min(step, length - start), width), dtype=np.float32)
            matrix[start : start + step] = store(drawn, entry)
            inside = (rows >= start) & (rows < start + step)
            for at in np.flatnonzero(batches == i):
                sample[at, inside] = drawn[rows[inside] - start][:, columns]
    return stored.reshape(shape), sample
