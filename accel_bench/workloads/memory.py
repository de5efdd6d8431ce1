"""Memory: STREAM kernels and dependent loads over one working set.

The passes over the working set are repeated inside the compiled program, since a launch takes as
long as hundreds of passes over a cache. XLA hoists whatever does not change from one pass to the
next out of a loop, so each pass depends on the one before: a scalar that the kernel uses is
recomputed from the array that it wrote (plus 0 times an element, which a compiler may not simplify:
the element might be infinite). The result goes to the donated array, as in STREAM; a fresh array
for each pass would measure the operating system's page faults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from accel_bench.workloads.base import (
    SkippedCase,
    UnsupportedCase,
    Workload,
    fetch,
    host_array,
    nothing,
    place,
    relative_error,
    sharding,
)
from accel_bench.workloads.params import Memory

_SCALAR = 3.0
# Traffic of one call: long against a launch on each platform.
_CALL_BYTES = {"cpu": 64 << 20, "gpu": 2 << 30, "tpu": 2 << 30}
_LOADS = 1 << 17


def _copy(b, c, scalar, length):
    # XLA drops a plain copy. A slice at a start that only the running program knows is one.
    del c
    return lax.dynamic_slice(b, ((scalar != _SCALAR).astype(jnp.int32),), (length,))


def _scale(b, c, scalar, length):
    del b, length
    return scalar * c


def _add(b, c, scalar, length):
    # The scalar is far above every element: the minimum is c, but not for the compiler.
    del length
    return b + jnp.minimum(c, scalar)


def _triad(b, c, scalar, length):
    del length
    return b + scalar * c


KERNELS: dict[str, Callable[..., jax.Array]] = {
    "copy": _copy,
    "scale": _scale,
    "add": _add,
    "triad": _triad,
}
# The same in float64 for checking.
EXPECTED: dict[str, Callable[[Any, Any], Any]] = {
    "copy": lambda b, c: b,
    "scale": lambda b, c: _SCALAR * c,
    "add": lambda b, c: b + c,
    "triad": lambda b, c: b + _SCALAR * c,
}


def stream_bytes(op: str, length: int) -> int:
    """w N sizeof, with w arrays read or written: copy 2, scale 2, add 3, triad 3, dot 2."""
    return Memory.ARRAYS[op] * length * Memory.ITEM


def build(params: Memory, precision: str, mesh: Mesh) -> Workload:
    """The kernel `params.op` over `params.bytes`; arrays are divided over all mesh axes.

    Raises:
      UnsupportedCase: dependent loads anywhere but on a CPU.
      SkippedCase: dependent loads on a mesh.
    """
    del precision
    if params.op == "latency":
        return _latency(params, mesh)
    per_pass = stream_bytes(params.op, params.length)
    repeats = max(1, _CALL_BYTES[_platform(mesh)] // per_pass)
    return (_dot if params.op == "dot" else _stream)(params, mesh, repeats)


def _platform(mesh: Mesh) -> str:
    platform = mesh.devices.flat[0].platform
    return platform if platform in _CALL_BYTES else "gpu"


def uniform(rng: np.random.Generator, length: int) -> np.ndarray:
    """fp32 numbers between 0 and 1, in memory that is copied to any device."""
    return rng.random(out=host_array((length,), np.float32), dtype=np.float32)


def _stream(params: Memory, mesh: Mesh, repeats: int) -> Workload:
    op, length = params.op, params.length
    kernel = KERNELS[op]
    spread, whole = sharding(mesh, tuple(mesh.axis_names)), sharding(mesh)
    # The source of a copy is longer by a little, so that its slice has somewhere to start.
    b_length = {"scale": 1, "copy": length + mesh.size}.get(op, length)
    c_length = 1 if op == "copy" else length

    def passes(count: int, state, b, c):
        def one(_, state):
            _, scalar = state
            a = kernel(b, c, scalar, length)
            return a, scalar + 0.0 * a[0]

        return lax.fori_loop(0, count, one, state)

    picks = np.random.default_rng(0).integers(0, length, 1024)

    def source(rng: np.random.Generator, size: int) -> tuple[jax.Array, np.ndarray]:
        values = uniform(rng, size)
        if size == 1:  # stands for a source that the kernel does not read
            return place(values, whole), np.zeros(len(picks))
        return place(values, spread), values[picks].astype(np.float64)

    def init(seed: int) -> tuple[tuple, np.ndarray]:
        rng = np.random.default_rng(seed)
        b, b_sample = source(rng, b_length)
        c, c_sample = source(rng, c_length)
        a = place(uniform(rng, length), spread)  # overwritten
        state = (a, place(np.float32(_SCALAR), whole))
        return (state, b, c), EXPECTED[op](b_sample, c_sample)

    f32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    return Workload(
        fn=functools.partial(passes, repeats),
        inputs=(
            (f32((length,), sharding=spread), f32((), sharding=whole)),
            f32((b_length,), sharding=whole if b_length == 1 else spread),
            f32((c_length,), sharding=whole if c_length == 1 else spread),
        ),
        init=init,
        work={"bytes": stream_bytes(op, length)},
        donate=(0,),
        feed=lambda args, out: (out, *args[1:]),
        drawn=nothing,
        inner=repeats,
        doubled=functools.partial(passes, 2 * repeats),
        error=lambda expected, out: relative_error(fetch(out[0][picks]), expected),
        max_error=1e-6,
        holds=(r"\bfusion\(", r"dynamic-slice", r"\badd\(", r"\bmultiply\("),
        working_set=stream_bytes(op, length),
        facts={"inputs": {"distribution": "uniform(0, 1)"}, "length": length},
    )


def _dot(params: Memory, mesh: Mesh, repeats: int) -> Workload:
    length = params.length
    spread, whole = sharding(mesh, tuple(mesh.axis_names)), sharding(mesh)

    def passes(count: int, total, b, c):
        return lax.fori_loop(0, count, lambda _, t: jnp.sum(b * (c + 0.0 * t)), total)

    def init(seed: int) -> tuple[tuple, float]:
        rng = np.random.default_rng(seed)
        b, c = (uniform(rng, length) for _ in range(2))
        blocks = np.einsum("ij,ij->i", b.reshape(-1, 64), c.reshape(-1, 64))
        expected = float(blocks.sum(dtype=np.float64))
        return (place(np.float32(0), whole), place(b, spread), place(c, spread)), expected

    f32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32)
    return Workload(
        fn=functools.partial(passes, repeats),
        inputs=(
            f32((), sharding=whole),
            f32((length,), sharding=spread),
            f32((length,), sharding=spread),
        ),
        init=init,
        work={"bytes": stream_bytes("dot", length), "flops": 2 * length},
        feed=lambda args, out: (out, *args[1:]),
        drawn=nothing,
        inner=repeats,
        doubled=functools.partial(passes, 2 * repeats),
        error=lambda expected, out: abs(float(fetch(out)) - expected) / expected,
        # A sum of many fp32 terms in whatever order the back end likes.
        max_error=1e-3,
        holds=(r"\breduce\(", r"\bdot\(", r"custom-call"),
        working_set=stream_bytes("dot", length),
        facts={"inputs": {"distribution": "uniform(0, 1)"}, "length": length},
    )


def _latency(params: Memory, mesh: Mesh) -> Workload:
    if mesh.devices.flat[0].platform != "cpu":
        raise UnsupportedCase(
            "dependent loads: XLA launches a kernel for each step of a loop here, so that the time "
            "would be the launch's and not the load's"
        )
    if mesh.size > 1:
        raise SkippedCase("one chain of loads runs on one device: it has no mesh")
    lines, width = params.length, Memory.LINE // 4
    where = sharding(mesh)

    def loads(count: int, line, chain):
        return lax.fori_loop(0, count, lambda _, at: chain[at, 0], line)

    def init(seed: int) -> tuple[tuple, int]:
        # One cycle through all lines in random order: no prefetcher can guess the next.
        path = np.random.default_rng(seed).permutation(lines).astype(np.int32)
        following = np.empty_like(path)
        following[path] = np.roll(path, -1)
        chain = host_array((lines, width), np.int32)
        chain[:] = 0
        chain[:, 0] = following
        return (place(path[0], where), place(chain, where)), int(path[_LOADS % lines])

    return Workload(
        fn=functools.partial(loads, _LOADS),
        inputs=(
            jax.ShapeDtypeStruct((), jnp.int32, sharding=where),
            jax.ShapeDtypeStruct((lines, width), jnp.int32, sharding=where),
        ),
        init=init,
        work={"loads": 1},
        feed=lambda args, out: (out, args[1]),
        drawn=nothing,
        inner=_LOADS,
        doubled=functools.partial(loads, 2 * _LOADS),
        error=lambda expected, out: float(int(out) != expected),
        holds=(r"dynamic-slice", r"\bgather\("),
        working_set=lines * Memory.LINE,
        facts={"inputs": {"distribution": "one random cycle"}, "line_bytes": Memory.LINE},
    )
