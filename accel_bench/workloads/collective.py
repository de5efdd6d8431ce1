"""Collectives: the devices along a mesh axis exchange one buffer, and nothing else happens.

As nccl-tests does it: one collective a call, from the same source into the same destination each
time. The destination is the result of the call before, which is donated, so that no call waits for
fresh memory. Along the other axes of the mesh every group does the same at the same time.
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

from accel_bench import bus_bandwidth, measure
from accel_bench.workloads.base import SkippedCase, Workload, host_array, nothing, sharding
from accel_bench.workloads.params import Collective

# Each rank holds whole numbers below _TOP, repeated after _PERIOD elements: a prime, so that no
# two pieces of a buffer are equal. fp32 adds them exactly for up to 16,384 ranks.
_TOP, _PERIOD = 1024, 1021
# Rows and columns of a tile of a TPU's memory. Its compiler makes of a reduce_scatter of anything
# but whole tiles an all-reduce, which sends twice as much.
_ROWS, _COLUMNS = 8, 128
# What the operation may have become in an optimised program. TPU compilers make an all-reduce also
# of small gathers, and of gathers and scatters over some shapes of a torus.
HLO = {
    "all_reduce": ("all-reduce",),
    "all_gather": ("all-gather", "all-reduce"),
    "reduce_scatter": ("reduce-scatter", "all-reduce"),
    "all_to_all": ("all-to-all",),
    "ppermute": ("collective-permute",),
}


def program(op: str, axis: str, ranks: int) -> Callable[[jax.Array], jax.Array]:
    """What one device does with its buffer; to be mapped over a mesh that has the axis.

    `ppermute` sends along a ring: each rank to the next one.
    """
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    return {
        "all_reduce": lambda x: lax.psum(x, axis),
        "all_gather": lambda x: lax.all_gather(x, axis, tiled=True),
        "reduce_scatter": lambda x: lax.psum_scatter(x, axis, tiled=True),
        "all_to_all": lambda x: lax.all_to_all(x, axis, 0, 0, tiled=True),
        "ppermute": lambda x: lax.ppermute(x, axis, ring),
    }[op]


def build(params: Collective, precision: str, mesh: Mesh) -> Workload:
    """The collective `params.op` along one axis of the mesh, in fp32.

    Raises:
      SkippedCase: there is no one to talk to, or the buffers do not fit the memory.
    """
    del precision
    axis = _axis(params.axis, mesh)
    ranks = mesh.shape[axis]
    elements = params.elements(ranks)
    piece = elements // ranks
    length_in = piece if params.op == "all_gather" else elements
    length_out = piece if params.op == "reduce_scatter" else elements
    _require_memory(params.op, 4 * elements, 4 * (length_in + length_out), mesh)
    width = _width(piece)
    everywhere = tuple(mesh.axis_names)
    where = sharding(mesh, everywhere)
    exchange = jax.shard_map(
        program(params.op, axis, ranks),
        mesh=mesh,
        in_specs=where.spec,
        out_specs=where.spec,
        check_vma=False,
    )

    def once(source: jax.Array, destination: jax.Array) -> jax.Array:
        del destination  # donated: the result takes its place
        return exchange(source)

    def init(seed: int) -> tuple[tuple, np.ndarray]:
        tables = np.random.default_rng(seed).integers(0, _TOP, (mesh.size, _PERIOD))

        def make(length: int, values: Callable[[int], np.ndarray]) -> jax.Array:
            own = _shape(length, width)
            return jax.make_array_from_callback(
                _shape(mesh.size * length, width),
                where,
                lambda index: values(_position(index, own[0])).reshape(own),
            )

        source = make(length_in, lambda rank: _repeated(tables[rank], 0, length_in))
        destination = make(length_out, lambda rank: _repeated(np.zeros(_PERIOD), 0, length_out))
        return (source, destination), tables

    on_cpu = mesh.devices.flat[0].platform == "cpu"
    factor = bus_bandwidth.FACTORS[params.op](ranks)
    devices = list(mesh.devices.flat)
    f32 = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.float32, sharding=where)
    return Workload(
        fn=once,
        inputs=tuple(f32(_shape(mesh.size * length, width)) for length in (length_in, length_out)),
        init=init,
        work={"bytes": 4 * elements, "bus_bytes": 4 * elements * factor},
        donate=(1,),
        feed=lambda args, out: (args[0], out),
        drawn=nothing,
        # Collectives between devices of one process block its threads: queued up they dead-lock.
        block_each=on_cpu,
        error=lambda tables, out: _wrong(params.op, axis, mesh, tables, elements, out),
        max_error=0.0,
        holds=tuple(rf"\b{kind}(-start)?\(" for kind in HLO[params.op]),
        facts={
            "inputs": {"distribution": f"whole numbers from 0 to {_TOP - 1}, other ones per rank"},
            "mode": "blocking" if on_cpu else "queued",
            "exchange": {
                "axis": axis,
                "ranks": ranks,
                "groups": mesh.size // ranks,
                "elements": elements,
                "factor": factor,
                "processes": len({device.process_index for device in devices}),
                "slices": len({getattr(device, "slice_index", 0) for device in devices}),
            },
        },
    )


def _axis(asked: str, mesh: Mesh) -> str:
    """The mesh axis that is meant; `each` stands for the only one that has several devices."""
    wide = [name for name, size in mesh.shape.items() if size > 1]
    if asked == Collective.EACH and len(wide) == 1:
        return wide[0]
    if asked in wide:
        return asked
    if not wide:
        raise SkippedCase(
            "one device has no one to talk to: a mesh has several, as in --mesh=data:8 (on a CPU "
            "with --fake_devices=8)"
        )
    if asked == Collective.EACH:
        raise SkippedCase(f"several mesh axes to talk along: name one of {', '.join(wide)}")
    raise SkippedCase(f"one device along mesh axis {asked!r} has no one to talk to")


def _require_memory(op: str, size: int, buffers: int, mesh: Mesh) -> None:
    """Raises `SkippedCase` where the buffers do not fit; devices of a CPU share its memory.

    A device that is only described has no memory to ask: its compiler says what does not fit.
    """
    local = mesh.local_devices
    needed = buffers
    if local[0].platform == "cpu":
        # XLA's CPU compiler cuts the buffer of an all_to_all into pieces, and joins what came.
        needed += 2 * size if op == "all_to_all" else 0
        needed *= len(local)
    free = measure.available_device_bytes(local[0])
    if free is not None and needed > free:
        raise SkippedCase(f"needs {needed / 2**30:.2f} GiB, {free / 2**30:.2f} GiB are free")


def _width(piece: int) -> int:
    """Columns of the buffers: 1 where each rank's piece is not a whole number of tiles."""
    return 1 if piece % (_ROWS * _COLUMNS) else piece // _ROWS


def _shape(length: int, width: int) -> tuple[int, ...]:
    return (length // width, width) if width > 1 else (length,)


def _position(index: Any, rows: int) -> int:
    """A device's place in the mesh, counted row by row, from its part of an array over all axes.

    Args:
      index: the part.
      rows: how many rows of the array each device has.
    """
    return (index[0].start or 0) // rows


def _repeated(table: np.ndarray, start: int, length: int) -> np.ndarray:
    """Elements from `start` on of a table that is repeated for ever, in fp32."""
    out = host_array((length,), np.float32)
    turned = np.roll(table, -start).astype(np.float32)
    whole = length // _PERIOD * _PERIOD
    out[:whole].reshape(-1, _PERIOD)[:] = turned
    out[whole:] = turned[: length - whole]
    return out


def expected(
    op: str, tables: np.ndarray, group: np.ndarray, rank: int, elements: int
) -> np.ndarray:
    """What a rank must end with, from what each rank of the mesh began with.

    Args:
      op: the operation.
      tables: by place in the mesh, the numbers that the device there holds over and over.
      group: places of the ranks that talk to each other, in their order along the axis.
      rank: which of them.
      elements: S in elements.
    """
    piece = elements // len(group)
    if op == "all_reduce":
        return _repeated(tables[group].sum(axis=0), 0, elements)
    if op == "reduce_scatter":
        return _repeated(tables[group].sum(axis=0), rank * piece, piece)
    if op == "ppermute":
        return _repeated(tables[group[rank - 1]], 0, elements)
    first = rank * piece if op == "all_to_all" else 0
    return np.concatenate([_repeated(tables[place], first, piece) for place in group])


def _wrong(op: str, axis: str, mesh: Mesh, tables: np.ndarray, elements: int, out: Any) -> float:
    """Share of the elements that are not exactly as they must be, over this process's devices."""
    dim = mesh.axis_names.index(axis)
    places = np.arange(mesh.size).reshape(mesh.devices.shape)
    rows = out.shape[0] // mesh.size
    shares = []
    for shard in out.addressable_shards:
        at = np.unravel_index(_position(shard.index, rows), mesh.devices.shape)
        group = places[(*at[:dim], slice(None), *at[dim + 1 :])]
        right = expected(op, tables, group, int(at[dim]), elements)
        shares.append(np.mean(np.asarray(shard.data).ravel() != right))
    return float(np.mean(shares))
