"""What each workload may be asked for: one frozen dataclass each, checked without jax.

A dataclass's fields are the parameters that a case in a config may set. Its `check` raises
`RequestError` for values that cannot work, among them a dimension that a mesh axis does not divide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_bench.errors import RequestError, unknown
from models.sizes import ATTENTIONS, SIZES, ModelConfig, check_divisible

MEMORY_OPS = ("copy", "scale", "add", "triad", "dot", "latency")
TRANSFERS = ("h2d", "d2h", "overlap")
PHASES = ("forward", "train_step", "prefill", "decode")
DISPATCHES = ("queued", "blocking")


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise unknown(what, str(value), known)


def _positive(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{what} must be a whole number of at least 1, got {value!r}")


def _only_axes(workload: str, axes: Mapping[str, int], known: tuple[str, ...]) -> None:
    for axis in axes:
        if axis not in known:
            raise RequestError(
                f"{workload} knows no mesh axis {axis!r}: its axes are {', '.join(known)}"
            )


@dataclass(frozen=True)
class Matmul:
    """A matrix product (m,k) x (k,n).

    Attributes:
      shape: `2048` for a square one, `MxKxN`, or `BxMxKxN` for a batch of them; a label may stand
        before it, as in `mlp_up=4096x768x3072`.
    """

    shape: str | int

    has_program = True

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """batch, m, k, n."""
        text = str(self.shape).rpartition("=")[2]
        numbers = [int(number) for number in text.split("x")]
        if len(numbers) == 1:
            numbers *= 3
        if len(numbers) == 3:
            numbers = [1, *numbers]
        batch, m, k, n = numbers
        return batch, m, k, n

    def check(self, axes: Mapping[str, int]) -> None:
        if not re.fullmatch(
            r"([\w.]+=)?[1-9]\d*(x[1-9]\d*x[1-9]\d*(x[1-9]\d*)?)?", str(self.shape)
        ):
            raise RequestError(
                f"matmul shape {self.shape!r}: write N for a square one, MxKxN, or BxMxKxN"
            )
        if max(self.sizes) >= 2**31:
            raise RequestError(f"matmul shape {self.shape}: a dimension is below 2^31")
        _only_axes("matmul", axes, ("data", "fsdp", "model"))
        batch, m, k, n = self.sizes
        rows = ("batch", batch) if batch > 1 else ("m", m)
        for (dim, length), axis in ((rows, "data"), (("k", k), "fsdp"), (("n", n), "model")):
            if length % axes.get(axis, 1):
                raise RequestError(
                    f"matmul {self.shape}: {dim}={length} is not divisible by mesh axis "
                    f"{axis}={axes[axis]}"
                )


@dataclass(frozen=True)
class Dispatch:
    """Launching a program that does nothing to speak of.

    Attributes:
      mode: `queued` launches one after the other and waits for the last; `blocking` waits for each.
    """

    mode: str

    # Whether there is a program to compile for an absent accelerator, and worth it.
    has_program = False

    def check(self, axes: Mapping[str, int]) -> None:
        _one_of("dispatch mode", self.mode, DISPATCHES)


@dataclass(frozen=True)
class Memory:
    """A STREAM kernel or a chain of dependent loads over a working set.

    Attributes:
      op: one of `MEMORY_OPS`.
      bytes: working set: all arrays of the kernel together.
    """

    op: str
    bytes: int

    ITEM = 4
    # Arrays that the kernel reads or writes once per pass (BabelStream, src/benchmark.h).
    ARRAYS = {"copy": 2, "scale": 2, "add": 3, "triad": 3, "dot": 2, "latency": 1}  # noqa: RUF012
    # Two cache lines of most CPUs, one of most GPUs: loads of a chain never share one.
    LINE = 128

    @property
    def has_program(self) -> bool:
        """A chain of loads is measured on CPUs only."""
        return self.op != "latency"

    @property
    def length(self) -> int:
        """Elements of one array (`latency`: lines of the chain)."""
        if self.op == "latency":
            return self.bytes // self.LINE
        return self.bytes // (self.ARRAYS[self.op] * self.ITEM) // 64 * 64

    def check(self, axes: Mapping[str, int]) -> None:
        _one_of("memory op", self.op, MEMORY_OPS)
        _positive(f"memory {self.op}: bytes", self.bytes)
        if self.length < 64:
            raise RequestError(
                f"memory {self.op}: bytes={self.bytes} is too little: 64 KB is enough"
            )
        if self.op == "latency" and self.bytes > self.LINE * (2**31 - 1):
            raise RequestError(
                f"memory latency: bytes={self.bytes} has more lines than 32 bits count"
            )
        devices = math.prod(axes.values())
        if self.op != "latency" and self.length % devices:
            raise RequestError(
                f"memory {self.op}: length={self.length} is not divisible by the {devices} devices "
                "of the mesh"
            )


@dataclass(frozen=True)
class Transfer:
    """Data between host and device.

    Attributes:
      direction: `h2d`, `d2h`, or `overlap`: chunks sent while the ones before are computed on.
      bytes: all that is sent.
      chunks: pieces it is cut into (`overlap`).
    """

    direction: str
    bytes: int
    chunks: int = 8

    # Bytes of the rows that `overlap` multiplies with a matrix.
    ROW = 1024
    has_program = False

    def check(self, axes: Mapping[str, int]) -> None:
        _one_of("transfer direction", self.direction, TRANSFERS)
        _positive(f"transfer {self.direction}: bytes", self.bytes)
        _positive(f"transfer {self.direction}: chunks", self.chunks)
        piece = self.ROW * self.chunks if self.direction == "overlap" else 4
        if self.bytes % piece:
            raise RequestError(
                f"transfer {self.direction}: bytes={self.bytes} must be a multiple of {piece}"
                + (f", {self.ROW} for each of {self.chunks} chunks" if piece > 4 else "")
            )


def resolve_model(name: str, overrides: Mapping[str, object]) -> ModelConfig:
    """The named model with the config's overrides; raises `RequestError` where that makes none."""
    if name not in SIZES:
        raise unknown("model", str(name), SIZES)
    import dataclasses

    try:
        return dataclasses.replace(SIZES[name], **overrides)
    except (TypeError, ValueError) as error:
        raise RequestError(f"model {name}: {error}") from error


@dataclass(frozen=True)
class Attention:
    """Causal self-attention with the heads of a named model.

    Attributes:
      model: gives heads, key-value heads and head size.
      batch, length: sequences, and tokens in each.
      implementation: one of `models.sizes.ATTENTIONS`.
      overrides: fields of the model that the config changes.
    """

    model: str
    batch: int
    length: int
    implementation: str = "einsum"
    overrides: Mapping[str, object] = field(default_factory=dict)

    has_program = True

    @property
    def config(self) -> ModelConfig:
        return resolve_model(self.model, {**self.overrides, "attention": self.implementation})

    def check(self, axes: Mapping[str, int]) -> None:
        _positive("attention batch", self.batch)
        _positive("attention length", self.length)
        _one_of("attention implementation", self.implementation, ATTENTIONS)
        _only_axes("attention", axes, ("data", "model"))
        _divisible("attention", self.config, self.batch, self.length, axes)


@dataclass(frozen=True)
class Model:
    """The Transformer of `models/transformer.py`.

    Attributes:
      phase: one of `PHASES`. `decode` makes one token per sequence with `length` tokens in the
        key-value cache.
      model: a name in `models.sizes.SIZES`.
      batch: sequences, or `N/replica` for so many in each copy of the model: each index of the mesh
        axes `data` and `fsdp`.
      length: tokens in each.
      overrides: fields of the model that the config changes.
    """

    phase: str
    model: str
    batch: int | str
    length: int
    overrides: Mapping[str, object] = field(default_factory=dict)

    has_program = True

    def sequences(self, axes: Mapping[str, int]) -> int:
        """The batch over a mesh."""
        number, per, _ = str(self.batch).partition("/replica")
        return int(number) * (axes.get("data", 1) * axes.get("fsdp", 1) if per else 1)

    @property
    def config(self) -> ModelConfig:
        return resolve_model(self.model, self.overrides)

    def check(self, axes: Mapping[str, int]) -> None:
        _one_of("model phase", self.phase, PHASES)
        if isinstance(self.batch, bool) or not re.fullmatch(
            r"[1-9][0-9]{0,8}(/replica)?", str(self.batch)
        ):
            raise RequestError(
                f"model batch must be a whole number of at least 1, or as in 2/replica, got "
                f"{self.batch!r}"
            )
        _positive("model length", self.length)
        _only_axes("model", axes, ("data", "fsdp", "model", "seq"))
        _divisible("model", self.config, self.sequences(axes), self.length, axes)


def _divisible(
    workload: str, config: ModelConfig, batch: int, length: int, axes: Mapping[str, int]
) -> None:
    try:
        check_divisible(config, batch, length, axes)
    except ValueError as error:
        raise RequestError(f"{workload}: {error}") from error
