"""Ways to divide a train step over a target, and what the formulas say of their memory.

A candidate is a mesh, what is kept for the backward pass, and how many sequences each copy of the
model takes at a time. A batch that is too large for one pass is made of several (accumulation).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from accel_bench import mesh
from accel_bench.planner.request import Request, computed_as
from accel_bench.target import Target
from models import costs
from models.sizes import DTYPE_BYTES, ModelConfig, check_divisible

# The formula of activations is a published estimate and no account of a program: what it puts over
# the memory by less than this is compiled all the same.
MARGIN = 1.5
# Sequences of one copy of the model in one pass: more hardly make the products any larger.
_MOST_AT_ONCE = 32
# A vocabulary that a mesh axis does not divide is filled up to a multiple of this, as GPT
# implementations do (karpathy/nanoGPT, model.py).
_VOCAB_MULTIPLE = 128
_TPU_MODEL_AXES = (8, 4)


@dataclass(frozen=True)
class Memory:
    """Bytes on each device by the formulas of `models.costs`.

    Attributes:
      state: weights and moments. Nothing else can be smaller than these.
      gradients: of one pass, and their sum where several passes make a batch.
      activations: kept for the backward pass, by the published estimate, and what the largest
        part of it works on.
      usable: memory of a device.
    """

    state: float
    gradients: float
    activations: float
    usable: float

    @property
    def needed(self) -> float:
        """All of them."""
        return self.state + self.gradients + self.activations

    @property
    def excess(self) -> float:
        """Bytes too much; negative where there is room."""
        return self.needed - self.usable

    @property
    def hopeless(self) -> bool:
        """Whether it cannot fit, or is so far from it that compiling is a waste."""
        return self.state > self.usable or self.needed > MARGIN * self.usable


@dataclass(frozen=True)
class Candidate:
    """One way to do a train step.

    Attributes:
      axes: mesh axes and sizes; none for one device.
      remat: `none` keeps all activations, `full` computes each layer's again.
      micro: sequences of each copy of the model in one pass.
      passes: passes that make a batch.
      vocab_size: where it had to be filled up; else None.
      memory: by the formulas.
      accumulator: bytes of the sum of gradients on a device, which no compiled pass holds.
    """

    axes: tuple[tuple[str, int], ...]
    remat: str
    micro: int
    passes: int
    vocab_size: int | None
    memory: Memory
    accumulator: float

    @property
    def mesh(self) -> dict[str, int]:
        return dict(self.axes)

    @property
    def label(self) -> str:
        """`fsdp:64,model:8 remat full 2/replica x 8`."""
        where = mesh.text(self.mesh) or "one device"
        return f"{where} remat {self.remat} {self.micro}/replica x {self.passes}"


@dataclass(frozen=True)
class Ladder:
    """Candidates of one mesh and one remat, those with the largest passes first."""

    axes: tuple[tuple[str, int], ...]
    remat: str
    rungs: tuple[Candidate, ...]


@dataclass(frozen=True)
class Enumeration:
    """What there is to compile, and what there is not.

    Attributes:
      ladders: in the order in which they are tried.
      hopeless: what the formulas say cannot fit: of each mesh and remat the smallest.
      impossible: meshes that do not divide the step, each with the reason.
    """

    ladders: tuple[Ladder, ...]
    hopeless: tuple[Candidate, ...]
    impossible: tuple[str, ...]


def enumerate_for(request: Request, target: Target) -> Enumeration:
    """Candidates for a target."""
    ladders, hopeless, impossible = [], [], []
    for axes in _meshes(request, target):
        size, vocab_size = _filled_up(request.size, axes)
        replicas = axes.get("data", 1) * axes.get("fsdp", 1)
        each, rest = divmod(request.sequences, replicas)
        try:
            check_divisible(size, request.sequences, request.length, axes)
        except ValueError as error:
            impossible.append(f"{mesh.text(axes)}: {error}")
            continue
        if rest or not each:
            impossible.append(
                f"{mesh.text(axes)}: {request.sequences} sequences are none for each of "
                f"{replicas} replicas"
            )
            continue
        for remat in ("none", "full"):
            found = [
                _candidate(request, target, axes, size, vocab_size, remat, micro, each // micro)
                for micro in _micro_batches(each)
            ]
            rungs = [candidate for candidate in found if not candidate.memory.hopeless]
            if not rungs:
                hopeless.append(found[-1])
                continue
            # Begin with the largest that the formulas let in; where they let in none, the smallest.
            fitting = [n for n, candidate in enumerate(rungs) if candidate.memory.excess <= 0]
            start = fitting[0] if fitting else len(rungs) - 1
            ladders.append(Ladder(tuple(axes.items()), remat, tuple(rungs[start:])))
    return Enumeration(tuple(ladders), tuple(hopeless), tuple(impossible))


def _meshes(request: Request, target: Target) -> Iterator[dict[str, int]]:
    """Meshes in the order in which they are worth a try."""
    devices = target.num_devices
    if request.mesh:
        yield mesh.check(request.mesh, devices, str(target))
        return
    if devices == 1:
        yield {}
        return
    within, apart = _domain(target)
    state = costs.train_state_bytes(computed_as(request.size, request.precision_on(target.chip)))
    copies = {"data": devices}
    if small := state < usable_bytes(target) / 2:
        yield copies
    shards = [m for m in within if devices % m == 0 and m < devices]
    yield {"fsdp": devices}
    if apart > 1 and devices // apart > 1:
        yield {"data": apart, "fsdp": devices // apart}
    for model in shards:
        yield {"fsdp": devices // model, "model": model}
    for model in shards if apart > 1 and target.platform == "tpu" else ():
        if devices // apart > model:
            yield {"data": apart, "fsdp": devices // apart // model, "model": model}
    if not small:
        yield copies


def _domain(target: Target) -> tuple[tuple[int, ...], int]:
    """Sizes of `model` that stay where links are fast, and how many such places there are."""
    if target.platform == "gpu":
        hosts, each = target.shape
        return tuple(m for m in (8, 4) if each % m == 0 and m <= each), hosts
    return _TPU_MODEL_AXES, target.slices


def _filled_up(size: ModelConfig, axes: Mapping[str, int]) -> tuple[ModelConfig, int | None]:
    """The architecture with a vocabulary that the mesh divides."""
    if size.vocab_size % axes.get("model", 1) == 0:
        return size, None
    filled = math.ceil(size.vocab_size / _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE
    return dataclasses.replace(size, vocab_size=filled), filled


def _micro_batches(each: int) -> list[int]:
    """Ways to cut a replica's sequences into equal passes, the largest first."""
    sizes = {1 << n for n in range(_MOST_AT_ONCE.bit_length())} | {each}
    return sorted((n for n in sizes if n <= _MOST_AT_ONCE and each % n == 0), reverse=True)


def usable_bytes(target: Target) -> float:
    """Memory of a device by the chip table; what a TPU's compiler gives is about that."""
    chip = target.chip
    return (chip.memory_bytes or chip.memory_gb * 2**30) / chip.devices_per_chip


def _candidate(
    request: Request,
    target: Target,
    axes: Mapping[str, int],
    size: ModelConfig,
    vocab_size: int | None,
    remat: str,
    micro: int,
    passes: int,
) -> Candidate:
    config = computed_as(size, request.precision_on(target.chip))
    config = dataclasses.replace(config, remat=remat)
    model = axes.get("model", 1)
    shards = axes.get("fsdp", 1) * model
    gradient = costs.param_bytes(config) / shards
    accumulator = gradient if passes > 1 else 0.0
    # The published formula is of 16-bit activations. A layer's input, which is all that is kept
    # when layers are computed again, is whole on every device along `model`.
    wide = DTYPE_BYTES[config.dtype] / 2
    kept = wide * costs.activation_bytes(config, micro, request.length)
    kept /= model if remat == "none" else 1
    # Beside them one layer that is computed again, and the logits with their gradient, in fp32.
    all_kept = dataclasses.replace(config, remat="none")
    layer = wide * costs.activation_bytes(all_kept, micro, request.length) / config.num_layers
    logits = 2 * 4 * micro * request.length * config.vocab_size
    working = logits + (layer if remat == "full" else 0.0)
    memory = Memory(
        state=costs.train_state_bytes(config) / shards,
        gradients=gradient + accumulator,
        activations=(kept + working / model) / axes.get("seq", 1),
        usable=usable_bytes(target),
    )
    return Candidate(tuple(axes.items()), remat, micro, passes, vocab_size, memory, accumulator)
