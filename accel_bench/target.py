"""Accelerators that are only described: `tpu:v5e:4x4`, `gpu:h100_sxm:4x8`. Checked without jax.

A target names a chip of the chip table and how many of them, laid out how. To compile for it needs
no such chip (`accel_bench.compile`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accel_bench.chips import CHIPS, Chip
from accel_bench.errors import RequestError, unknown

# What `auto` stands for: one small TPU and one GPU that many can rent.
AUTO = ("tpu:v5e:1x1", "gpu:h100_sxm:1")
MAX_HOSTS, GPUS_PER_HOST, MAX_SLICES = 1024, 8, 64
_KINDS = ("tpu", "gpu")


@dataclass(frozen=True)
class Target:
    """So many chips of a kind in one layout.

    Attributes:
      platform: `tpu` or `gpu`.
      name: the chip's name in the chip table.
      shape: TPUs: chips along each dimension of a slice. GPUs: hosts, GPUs in each.
      slices: TPU slices, joined by the data centre's network; 1 for GPUs.
    """

    platform: str
    name: str
    shape: tuple[int, ...]
    slices: int = 1

    @property
    def chip(self) -> Chip:
        """The chip table's row."""
        return CHIPS[self.name]

    @property
    def num_chips(self) -> int:
        """Chips in all."""
        return math.prod(self.shape) * self.slices

    @property
    def num_devices(self) -> int:
        """Devices that jax sees: some TPU chips are two."""
        return self.num_chips * self.chip.devices_per_chip

    @property
    def layout(self) -> str:
        """The last part of the target's text: `4x4`, `8`, `4x8`, `16x16*2`."""
        if self.platform == "gpu" and self.shape[0] == 1:
            return str(self.shape[1])
        text = "x".join(map(str, self.shape))
        return f"{text}*{self.slices}" if self.slices > 1 else text

    def record(self, device_kind: str | None = None) -> dict[str, Any]:
        """The record's `target` for what is compiled for this one."""
        return {
            "kind": "compiled",
            "platform": self.platform,
            "device_kind": device_kind or self.chip.device_kinds[0],
            "chip": self.name,
            "topology": self.layout,
            "num_devices": self.num_devices,
            "num_chips": self.num_chips,
            "attached": 0,
            "virtual": False,
        }

    def __str__(self) -> str:
        return f"{self.platform}:{self.name}:{self.layout}"


def parse(text: str) -> Target:
    """The target that a text names.

    Raises:
      RequestError: it names none; the message says what is accepted.
    """
    parts = text.strip().split(":")
    if len(parts) != 3 or parts[0] not in _KINDS:
        raise RequestError(
            f"--targets={text}: write tpu:GENERATION:TOPOLOGY, as in tpu:v5e:4x4, or "
            "gpu:CHIP:COUNT or gpu:CHIP:HOSTSxCOUNT, as in gpu:h100_sxm:8 or gpu:a100_80:4x8"
        )
    platform, name, layout = parts
    known = [key for key, chip in CHIPS.items() if can_compile_for(chip, platform)]
    if name not in known:
        if name in CHIPS and CHIPS[name].platform == platform:
            raise RequestError(
                f"--targets={text}: {name} is in the chip table, but nothing here compiles for it: "
                "choose a TPU or an NVIDIA GPU of list chips that has a largest target"
            )
        raise unknown(f"{platform} in --targets={text}:", name, known)
    return _tpu(text, name, layout) if platform == "tpu" else _gpu(text, name, layout)


def can_compile_for(chip: Chip, platform: str) -> bool:
    """Whether a compiler that runs without the chip is known for it: TPUs and NVIDIA GPUs."""
    described = chip.largest if platform == "tpu" else chip.capability
    return chip.platform == platform and bool(described)


def _gpu(text: str, name: str, layout: str) -> Target:
    match = re.fullmatch(r"(?:([1-9][0-9]{0,5})x)?([1-9][0-9]{0,5})", layout)
    hosts, count = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    if not (1 <= hosts <= MAX_HOSTS and 1 <= count <= GPUS_PER_HOST):
        raise RequestError(
            f"--targets={text}: {layout!r} is no number of GPUs: write 1 to {GPUS_PER_HOST}, or "
            f"hosts x GPUs in each, as in 4x8, of up to {MAX_HOSTS} hosts"
        )
    return Target("gpu", name, (hosts, count))


def _tpu(text: str, name: str, layout: str) -> Target:
    match = re.fullmatch(r"([1-9][0-9]{0,5}(?:x[1-9][0-9]{0,5})+)(?:\*([1-9][0-9]{0,5}))?", layout)
    shape = tuple(int(part) for part in match[1].split("x")) if match else ()
    slices = int(match[2] or 1) if match else 0
    shapes = list(tpu_shapes(CHIPS[name]))
    if shape not in shapes or not 1 <= slices <= MAX_SLICES:
        small = ", ".join("x".join(map(str, s)) for s in shapes[:6])
        largest = "x".join(map(str, CHIPS[name].largest))
        raise RequestError(
            f"--targets={text}: {name} has no topology {layout!r}: choose from {small} and so on "
            f"to {largest}; {small.split(',')[0]}*2 is two slices of that, up to {MAX_SLICES}"
        )
    return Target("tpu", name, shape, slices)


def tpu_shapes(chip: Chip) -> Iterator[tuple[int, ...]]:
    """Topologies of one slice that a generation has, smallest first.

    One chip; then powers of two in two dimensions, one at most twice the other (Google Cloud TPU
    documentation: 2x2, 2x4, 4x4, ...), or in three dimensions 2x2x1, 2x2x2, 2x2x4, 2x4x4 and then
    multiples of 4 in ascending order.
    """
    yield (1,) * len(chip.largest)
    if len(chip.largest) == 2:
        sizes = [2**i for i in range(1, 11) if 2**i <= max(chip.largest)]
        yield from ((a, b) for a in sizes for b in (a, 2 * a) if b in sizes)
        return
    yield from ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
    ranges = [range(4, limit + 1, 4) for limit in chip.largest]
    cubes = (s for s in itertools.product(*ranges) if list(s) == sorted(s))
    yield from sorted(cubes, key=lambda s: (math.prod(s), s[-1]))


def is_ring(chip: Chip, length: int) -> bool:
    """Whether so many chips along a dimension of a TPU slice are closed to a ring.

    Three-dimensional slices are made of cubes of 4 x 4 x 4 whose faces are joined; others are
    closed where they have their generation's full length (B).
    """
    if len(chip.largest) == 3:
        return length % 4 == 0
    return length == max(chip.largest)


def smaller(target: Target) -> list[Target]:
    """The targets of one chip that a search for the smallest fit tries, this one the last.

    TPUs: the most cubic topology of each power of two of chips. GPUs: 1, 2, 4, 8, then 2, 4, 8, ...
    hosts of 8.
    """
    if target.platform == "gpu":
        hosts, count = target.shape
        steps = [(1, 2**i) for i in range(4) if 2**i <= GPUS_PER_HOST]
        steps += [(2**i, GPUS_PER_HOST) for i in range(1, 11)]
        shapes = [s for s in steps if math.prod(s) < hosts * count]
    else:
        by_count: dict[int, tuple[int, ...]] = {}
        for shape in tpu_shapes(target.chip):
            chips = math.prod(shape)
            flattest = by_count.setdefault(chips, shape)
            if max(shape) < max(flattest):
                by_count[chips] = shape
        powers = [n for n in sorted(by_count) if n & (n - 1) == 0]
        shapes = [by_count[n] for n in powers if n < math.prod(target.shape)]
    return [*(Target(target.platform, target.name, shape) for shape in shapes), target]
