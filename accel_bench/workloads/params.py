"""What each workload may be asked for: one frozen dataclass each, checked without jax.

A dataclass's fields are the parameters that a case in a config may set. Its `check` raises
`RequestError` for values that cannot work, among them a dimension that a mesh axis does not divide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_bench import mesh as meshes
from accel_bench.errors import RequestError, unknown
from accel_bench.netns import parse_rate
from models.exchange_options import Exchange
from models.sizes import ATTENTIONS, SAMPLINGS, SIZES, ModelConfig, check_divisible

MEMORY_OPS = ("copy", "scale", "add", "triad", "dot", "latency")
TRANSFERS = ("h2d", "d2h", "overlap")
PHASES = ("forward", "train_step", "prefill", "decode")
DISPATCHES = ("queued", "blocking")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ppermute")


def one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    """Raises `RequestError` for a name that is not known."""
    if value not in known:
        raise unknown(what, str(value), known)


def positive(what: str, value: object) -> None:
    """Raises `RequestError` for anything but a whole number above 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{what} must be a whole number of at least 1, got {value!r}")


def only_axes(workload: str, axes: Mapping[str, int], known: tuple[str, ...]) -> None:
    """Raises `RequestError` for a mesh axis that the workload does not divide along."""
    for axis in axes:
        if axis not in known:
            raise RequestError(
                f"{workload} knows no mesh axis {axis!r}: its axes are {', '.join(known)}"
            )


# Processes that one machine starts to stand for as many hosts.
MAX_LOCAL_PROCESSES = 64


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where a case is measured, if not where the whole run is.

    Attributes:
      mesh: a mesh of its own, over the first of the devices: `data:4`. With `each` as a size, as in
        `data:each`, there is a case for each of 1, 2, 4 and so on, as many as there are.
      processes: so many processes on this machine's CPU, each of them one device along `data`.
      link: rate of the network link that each process gets, such as `100mbit`, or `unlimited`;
        empty: they share the machine's own loopback.
    """

    mesh: str = ""
    processes: int = 1
    link: str = ""

    @property
    def placed(self) -> bool:
        """Whether the case has a place of its own."""
        return bool(self.mesh) or self.processes > 1

    @property
    def has_program(self) -> bool:
        """Whether there is a program to compile for an absent accelerator: of its own mesh."""
        return not self.placed

    def own_axes(self, axes: Mapping[str, int]) -> Mapping[str, int]:
        """The mesh that the case is measured on, where the run's is `axes`."""
        if self.mesh:
            return meshes.parse(self.mesh)
        return {"data": self.processes} if self.processes > 1 else axes

    def check(self, axes: Mapping[str, int]) -> None:
        """Raises `RequestError` for values that cannot work on a mesh."""
        raise NotImplementedError

    def check_place(self, platform: str) -> None:
        """Raises `RequestError` for a place that does not exist."""
        for name in ("mesh", "link"):
            if not isinstance(getattr(self, name), str):
                raise RequestError(
                    f"{name}={getattr(self, name)!r} must be a text, such as "
                    + {"mesh": "data:4", "link": "100mbit"}[name]
                )
        positive("processes", self.processes)
        if self.processes > MAX_LOCAL_PROCESSES:
            raise RequestError(
                f"processes={self.processes} are too many for one machine: at most "
                f"{MAX_LOCAL_PROCESSES}"
            )
        if self.processes == 1:
            if self.link:
                raise RequestError(f"link={self.link!r} needs processes: 2 or more that it joins")
            return
        if self.mesh:
            raise RequestError(
                f"mesh={self.mesh!r} and processes={self.processes}: processes are one device each "
                "along 'data'; leave mesh out"
            )
        if platform != "cpu":
            raise RequestError(
                f"processes={self.processes} are started on this machine's CPU and measured there: "
                "use --device=cpu"
            )
        if self.link:
            parse_rate(self.link)


@dataclass(frozen=True)
class Matmul(Placed):
    """A matrix product (m,k) x (k,n).

    Attributes:
      shape: `2048` for a square one, `MxKxN`, or `BxMxKxN` for a batch of them; a label may stand
        before it, as in `mlp_up=4096x768x3072`.
    """

    shape: str | int

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
        only_axes("matmul", axes, ("data", "fsdp", "model"))
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
        one_of("dispatch mode", self.mode, DISPATCHES)


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
        one_of("memory op", self.op, MEMORY_OPS)
        positive(f"memory {self.op}: bytes", self.bytes)
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
        one_of("transfer direction", self.direction, TRANSFERS)
        positive(f"transfer {self.direction}: bytes", self.bytes)
        positive(f"transfer {self.direction}: chunks", self.chunks)
        piece = self.ROW * self.chunks if self.direction == "overlap" else 4
        if self.bytes % piece:
            raise RequestError(
                f"transfer {self.direction}: bytes={self.bytes} must be a multiple of {piece}"
                + (f", {self.ROW} for each of {self.chunks} chunks" if piece > 4 else "")
            )


@dataclass(frozen=True)
class Collective(Placed):
    """An exchange of fp32 numbers among the devices along a mesh axis.

    Attributes:
      op: one of `COLLECTIVES`.
      bytes: S as nccl-tests count it (doc/PERFORMANCE.md). all_reduce: the buffer of each rank;
        all_gather: what each rank ends with; reduce_scatter: what each rank begins with;
        all_to_all: the whole buffer of each rank; ppermute: what each rank sends. Rounded down so
        that it divides evenly over the ranks.
      axis: a mesh axis, or `each` for a case along every axis of several devices.
    """

    op: str
    bytes: int
    axis: str = "each"

    EACH = "each"
    ITEM = 4

    def elements(self, ranks: int) -> int:
        """Elements of S: a whole number of them for each rank."""
        return self.bytes // (self.ITEM * ranks) * ranks

    def along(self, axes: Mapping[str, int]) -> list[str]:
        """The mesh axes that are meant: every one of several devices, or the one named."""
        if self.axis != self.EACH:
            return [self.axis]
        return [axis for axis, size in axes.items() if size > 1]

    def check(self, axes: Mapping[str, int]) -> None:
        one_of("collective op", self.op, COLLECTIVES)
        positive(f"collective {self.op}: bytes", self.bytes)
        if not isinstance(self.axis, str):
            raise RequestError(f"collective axis must be a name, got {self.axis!r}")
        # Without a mesh there is one device, and the row says so.
        if axes and self.axis not in (self.EACH, *axes):
            raise RequestError(
                f"collective {self.op}: the mesh has no axis {self.axis!r}: its axes are "
                f"{', '.join(axes)}"
            )
        for axis in self.along(axes):
            ranks = axes.get(axis, 1)
            if not self.elements(ranks):
                raise RequestError(
                    f"collective {self.op}: bytes={self.bytes} is too little for mesh axis "
                    f"{axis}={ranks}: at least {self.ITEM * ranks}, a number for each rank"
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
        positive("attention batch", self.batch)
        positive("attention length", self.length)
        one_of("attention implementation", self.implementation, ATTENTIONS)
        only_axes("attention", axes, ("data", "model"))
        divisible("attention", self.config, self.batch, self.length, axes)


@dataclass(frozen=True, kw_only=True)
class Exchanged:
    """How gradients travel between the replicas of a training.

    Attributes:
      exchange: `auto`, as the compiler divides the work over the mesh, or a format of
        `models.exchange_options`.
      accumulate, local_steps: see there; `batch` is that of one micro-batch and of one local step.
    """

    exchange: str = "auto"
    accumulate: int = 1
    local_steps: int = 1

    @property
    def explicit(self) -> Exchange | None:
        """The exchange that is written out; None where the compiler makes it."""
        if self.exchange == "auto":
            return None
        return Exchange(self.exchange, self.accumulate, self.local_steps)

    def check_exchange(self, workload: str, batch: int, axes: Mapping[str, int]) -> None:
        """Raises `RequestError` for an exchange that cannot work with `batch` on a mesh."""
        one_of(f"{workload} exchange", self.exchange, ("auto", "fp32", "bf16", "int8"))
        positive(f"{workload} accumulate", self.accumulate)
        positive(f"{workload} local_steps", self.local_steps)
        steps = self.accumulate * self.local_steps
        if self.exchange == "auto":
            if steps > 1:
                raise RequestError(
                    f"{workload} accumulate and local_steps need an exchange, as fp32"
                )
            return
        try:
            exchange = self.explicit
            assert exchange
            exchange.check(batch * steps, dict(axes) or {"data": 1})
        except ValueError as error:
            raise RequestError(f"{workload} exchange: {error}") from error


@dataclass(frozen=True)
class Model(Placed, Exchanged):
    """The Transformer of `models/transformer.py`.

    Attributes:
      phase: one of `PHASES`. `decode` makes one token per sequence with `length` tokens in the
        key-value cache.
      model: a name in `models.sizes.SIZES`.
      batch: sequences, or `N/replica` for so many in each copy of the model: each index of the mesh
        axes `data` and `fsdp`.
      length: tokens in each.
      sampling: one of `models.sizes.SAMPLINGS`, for `decode`: the most likely token, or one drawn
        from the `top_k` most likely ones, their logits divided by `temperature`.
      overrides: fields of the model that the config changes.
    """

    phase: str
    model: str
    batch: int | str
    length: int
    sampling: str = "greedy"
    temperature: float = 1.0
    top_k: int = 50
    overrides: Mapping[str, object] = field(default_factory=dict)

    def sequences(self, axes: Mapping[str, int]) -> int:
        """The batch over a mesh."""
        number, per, _ = str(self.batch).partition("/replica")
        return int(number) * (axes.get("data", 1) * axes.get("fsdp", 1) if per else 1)

    @property
    def config(self) -> ModelConfig:
        return resolve_model(self.model, self.overrides)

    def check(self, axes: Mapping[str, int]) -> None:
        one_of("model phase", self.phase, PHASES)
        if isinstance(self.batch, bool) or not re.fullmatch(
            r"[1-9][0-9]{0,8}(/replica)?", str(self.batch)
        ):
            raise RequestError(
                f"model batch must be a whole number of at least 1, or as in 2/replica, got "
                f"{self.batch!r}"
            )
        positive("model length", self.length)
        only_axes("model", axes, ("data", "fsdp", "model", "seq"))
        if self.exchange != "auto" and self.phase != "train_step":
            raise RequestError(
                f"model exchange={self.exchange} is for phase train_step, not {self.phase}"
            )
        self._check_sampling()
        self.check_exchange("model", self.sequences(axes), axes)
        divisible("model", self.config, self.sequences(axes), self.length, axes)

    def _check_sampling(self) -> None:
        one_of("model sampling", self.sampling, SAMPLINGS)
        if self.sampling != "greedy" and self.phase != "decode":
            raise RequestError(
                f"model sampling={self.sampling} is for phase decode, not {self.phase}"
            )
        positive("model top_k", self.top_k)
        number = isinstance(self.temperature, (int, float)) and not isinstance(
            self.temperature, bool
        )
        if not number or not 0 < self.temperature < math.inf:
            raise RequestError(
                f"model temperature must be a number above 0, got {self.temperature!r}"
            )


def divisible(
    workload: str, config: ModelConfig, batch: int, length: int, axes: Mapping[str, int]
) -> None:
    """Raises `RequestError` where a mesh axis does not divide what it is to divide."""
    try:
        check_divisible(config, batch, length, axes)
    except ValueError as error:
        raise RequestError(f"{workload}: {error}") from error
