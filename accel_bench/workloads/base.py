"""What a workload is to the code that measures or compiles it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

# jax.Device; to a type checker that is a variable.
Device: TypeAlias = Any


# What a matrix product may have become in an optimised program.
PRODUCTS = (r"\bdot\(", r"\bconvolution\(", r"custom-call", r"__triton", r"__ynn")


class UnsupportedCase(Exception):
    """The case cannot be done on this back end; the text says why, for the row's reason."""


class SkippedCase(Exception):
    """The case has no meaning as it was asked for; the text says why, for the row's reason."""


def keep_arguments(args: tuple, out: Any) -> tuple:
    """The next call's arguments are this call's: nothing is fed back."""
    del out
    return args


def nothing(args: tuple) -> tuple:
    """Of arguments that only move memory, those whose values matter."""
    del args
    return ()


@dataclass(frozen=True)
class Workload:
    """A pure function that is jit-compiled, its abstract inputs and its analytic cost.

    A call of `fn` does `inner` steps; everything else speaks of one step.

    Attributes:
      fn: the pure function.
      inputs: its arguments as `jax.ShapeDtypeStruct`s with shardings.
      init: from a seed to real arguments like `inputs`, the same on every mesh, and to what `error`
        compares the first call's result with: float64 figures, as a rule of a sample of the result.
      work: what one step does, over all devices: `flops`, `bytes`, `tokens`.
      donate: numbers of arguments whose buffers the call may reuse.
      feed: from one call's arguments and result to the next call's arguments. Donated arguments
        must be replaced there.
      inner: steps inside one call.
      doubled: the same function with twice the steps, where there are inner steps. It must take
        twice as long, else the compiler took work out of the loop.
      block_each: whether each call is waited for before the next one starts.
      error: relative error of the first call's result, given what `init` said to expect; None where
        it could not say (`facts.unchecked` says why).
      max_error: largest error of an honest result.
      falls: a figure of a result, such as a loss, that must fall from the first call to the last.
      parts: from arguments like `inputs` to the seconds that the parts of a step take, each timed
        by itself, and to the next arguments; for what a step's own time does not tell.
      single_steps: calls that are timed one by one, each waited for, besides the samples; their
        distribution is what a user of one call after the other sees. 0 for none.
      drawn: from the arguments to those of them that the seed alone determines, on every machine;
        to nothing where memory is moved and what it holds is of no interest.
      holds: regular expressions; one of them must be found in the optimised program.
      working_set: bytes that one step goes through, where it matters if they fit a cache.
      facts: goes into the record as it is.
    """

    fn: Callable[..., Any]
    inputs: tuple
    init: Callable[[int], tuple[tuple, Any]]
    work: Mapping[str, float]
    donate: tuple[int, ...] = ()
    feed: Callable[[tuple, Any], tuple] = keep_arguments
    inner: int = 1
    doubled: Callable[..., Any] | None = None
    block_each: bool = False
    error: Callable[[Any, Any], float | None] | None = None
    max_error: float = 0.0
    falls: Callable[[Any], float] | None = None
    parts: Callable[[tuple], tuple[Mapping[str, float], tuple]] | None = None
    single_steps: int = 0
    drawn: Callable[[tuple], tuple] = lambda args: args
    holds: tuple[str, ...] = ()
    working_set: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A question about what a program computes, not about how fast.

    Whatever comes out is a result, numbers that are not finite among it. A few calls are timed, so
    that the row has the time of one; nothing is claimed from it.

    Attributes:
      key: equal for studies whose programs are equal: one that was compiled is used again.
      fn: the pure function.
      init: from a seed to its arguments, and to what `examine` compares with.
      examine: from a way to call the program, arguments, the first call's result and what `init`
        said to expect, to facts.
      facts: goes into the record as it is.
    """

    key: tuple
    fn: Callable[..., Any]
    init: Callable[[int], tuple[tuple, Any]]
    examine: Callable[[Callable[..., Any], tuple, Any, Any], Mapping[str, Any]]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostWorkload:
    """Work that the host drives and that is no single compiled program: a transfer, a library.

    Attributes:
      setup: makes the inputs and returns the calls to time, by name. The first is the one the row
        is about; the others are timed in turn with it, and their samples stand beside it in
        `facts.companions_s`.
      work: what one call of the first does.
      needed_bytes: memory that the inputs and results take.
      error: after `setup`, checks a result of the first call; relative error.
      max_error: largest error of an honest result.
      facts: goes into the record as it is.
    """

    setup: Callable[[int], Mapping[str, HostCall]]
    work: Mapping[str, float]
    needed_bytes: int
    max_error: float = 0.0
    working_set: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CourseWorkload:
    """Work that is a course of steps and is gone through once: a training.

    Attributes:
      run: from a seed, the free bytes of a device (None if unknown), a folder for what the course
        can be carried on from (None for none), the `Measurement` to fill in, and what is told of
        progress.
      work: what one step does.
      facts: goes into the record as it is.
    """

    run: Callable[[int, int | None, Path | None, Any, Callable[[str], None]], None]
    work: Mapping[str, float]
    working_set: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class HostCall:
    """One thing to time.

    Attributes:
      call: does it, and returns when it is done.
      prepare: makes the call's argument, outside the clock.
      error: relative error of a result.
    """

    call: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None
    error: Callable[[Any], float] | None = None


def make_mesh(devices: Sequence[Device], axes: Mapping[str, int]) -> Mesh:
    """A mesh over all the devices given, or over the first one where there are no axes.

    The axis types are Auto: the programs are written without shardings and XLA's partitioner
    propagates those of the inputs.
    """
    names = tuple(axes) or ("device",)
    grid = _grid(devices if axes else devices[:1], tuple(axes.values()) or (1,))
    return Mesh(grid, names, axis_types=(AxisType.Auto,) * len(names))


def _grid(devices: Sequence[Device], shape: tuple[int, ...]) -> np.ndarray:
    """Devices in the order in which neighbours along an axis are neighbours on a TPU's torus.

    Elsewhere, over several slices, and for shapes that jax lays out on no torus: in the order in
    which jax lists them, the last axis fastest.
    """
    plain = np.asarray(devices, dtype=object).reshape(shape)
    if devices[0].platform != "tpu" or len({getattr(d, "slice_index", 0) for d in devices}) > 1:
        return plain
    try:
        return mesh_utils.create_device_mesh(shape, devices)
    except (NotImplementedError, ValueError, AssertionError):
        return plain


def sharding(mesh: Mesh, *dims: str | tuple[str, ...] | None) -> NamedSharding:
    """A sharding whose dimensions lie along these axes; an axis the mesh lacks shards nothing."""

    def present(dim: str | tuple[str, ...] | None) -> Any:
        if isinstance(dim, tuple):
            return tuple(axis for axis in dim if axis in mesh.axis_names) or None
        return dim if dim in mesh.axis_names else None

    return NamedSharding(mesh, PartitionSpec(*(present(dim) for dim in dims)))


def host_array(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """An empty array that a CPU device copies and does not take over as its own memory.

    XLA's CPU client adopts an aligned array instead of copying it. A transfer would then move
    nothing, and memory would be laid out by NumPy on some runs and by XLA on others.
    """
    item, align = np.dtype(dtype).itemsize, 64
    count = math.prod(shape)
    raw = np.empty(count * item + align + item, np.uint8)
    start = -raw.ctypes.data % align + item
    return raw[start : start + count * item].view(dtype).reshape(shape)


def place(values: np.ndarray | np.generic, where: NamedSharding) -> jax.Array:
    """The values on the devices; returns when they are there.

    Of several processes each has all the values, and gives its own devices their part.
    """
    if where.is_fully_addressable:
        return jax.block_until_ready(jax.device_put(values, where))
    values = np.asarray(values)
    return jax.block_until_ready(
        jax.make_array_from_callback(values.shape, where, lambda index: values[index])
    )


def fetch(array: jax.Array) -> np.ndarray:
    """All of an array on the host, wherever its parts are; every process must ask."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    assert isinstance(array.sharding, NamedSharding)
    whole = NamedSharding(array.sharding.mesh, PartitionSpec())
    return np.asarray(jax.jit(lambda x: x, out_shardings=whole)(array))


def relative_error(result: np.ndarray, reference: np.ndarray) -> float:
    """Frobenius norm of the difference over that of the reference, in float64.

    NaN where the result holds one, so that it is never taken for a small error.
    """
    difference = np.asarray(result, np.float64) - reference
    return float(np.linalg.norm(difference) / np.linalg.norm(reference))
