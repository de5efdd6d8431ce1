"""How long a program's collectives keep the links busy at least.

From what each device must send (`accel_bench.hlo.collectives`) and the chip table's links. A bound:
no latency, every link full, both directions used, collectives over different links at the same
time. Links are counted apart: a torus dimension of a TPU slice, the data center's network between
slices, the NVLinks or the PCIe slot inside a GPU host, the network cards between hosts. The bound
is the busiest one's time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench.chips import Chip


@dataclass(frozen=True)
class Span:
    """Where the devices lie that one collective connects.

    Attributes:
      links: torus dimension in which a TPU group's chips differ -> links of a chip along it: two on
        a ring, one where the ends of a line have no other; empty within one chip.
      size: devices in the group.
      hosts: hosts it reaches over (GPUs).
      slices: slices it reaches over (TPUs).
    """

    links: Mapping[int, int]
    size: int
    hosts: int = 1
    slices: int = 1


@dataclass(frozen=True)
class Busy:
    """How long links are busy in a step.

    Attributes:
      seconds: of the busiest; 0 without collectives; None where a figure is not known.
      links: link -> seconds.
      by_axes: mesh axes, joined by `+`, -> seconds that their collectives take at least.
      reason: why seconds is None.
    """

    seconds: float | None
    links: Mapping[str, float]
    by_axes: Mapping[str, float]
    reason: str | None = None


def busy(
    collectives: Sequence[Mapping[str, Any]], spans: Mapping[tuple[str, ...], Span], chip: Chip
) -> Busy:
    """Seconds per step that the links need.

    Args:
      collectives: as `accel_bench.hlo.collectives` lists them, per step.
      spans: mesh axes -> where a group along them lies.
      chip: whose links they are.
    """
    links: dict[str, float] = {}
    by_axes: dict[str, float] = {}
    for entry in collectives:
        axes = entry["axes"]
        span = spans.get(tuple(axes)) if axes else None
        if span is None or entry["wire_bytes"] is None:
            return Busy(None, {}, {}, entry.get("reason") or "a collective's devices are not known")
        loads = _tpu(entry, span, chip) if chip.platform == "tpu" else _gpu(entry, span, chip)
        if isinstance(loads, str):
            return Busy(None, {}, {}, loads)
        for link, seconds in loads.items():
            links[link] = links.get(link, 0.0) + seconds
        name = "+".join(axes)
        by_axes[name] = by_axes.get(name, 0.0) + max(loads.values(), default=0.0)
    return Busy(max(links.values(), default=0.0), links, by_axes)


def _tpu(entry: Mapping[str, Any], span: Span, chip: Chip) -> dict[str, float] | str:
    """A group that lies along several torus dimensions can use the links of all of them.

    The two cores of one chip share its memory and need no link.
    """
    inside = span.size // span.slices
    loads = {}
    if span.links:
        if not chip.link_gbs:
            return "the chip table has no link bandwidth for this generation"
        share = _sent(entry, inside) if span.slices > 1 else entry["wire_bytes"]
        seconds = share / (sum(span.links.values()) * chip.link_gbs * 1e9)
        loads = {f"torus dimension {d}": seconds for d in span.links}
    if span.slices > 1:
        if not chip.dcn_gbs:
            return "the chip table has no bandwidth between slices for this generation"
        # A slice's chips share what must come in from the others; a permutation along the axis may
        # take only one pair of neighbours across.
        shared = _shared(entry) or entry["kind"] == "collective-permute"
        crossing = _sent(entry, span.slices) / (inside if shared else 1)
        loads["data center network"] = crossing * chip.devices_per_chip / (chip.dcn_gbs * 1e9)
    return loads


def _gpu(entry: Mapping[str, Any], span: Span, chip: Chip) -> dict[str, float] | str:
    inside = span.size // span.hosts
    loads = {}
    if inside > 1:
        if not chip.link_gbs or not chip.link_name:
            return "the chip table has no link bandwidth for GPUs of this kind in one host"
        share = _sent(entry, inside) if span.hosts > 1 else entry["wire_bytes"]
        loads[chip.link_name] = share / (chip.link_gbs * 1e9)
    if span.hosts > 1:
        if not chip.nic_gbs:
            return "the chip table has no network card for hosts of this GPU"
        # A host's GPUs share what must come in from the other hosts.
        crossing = _sent(entry, span.hosts) / (inside if _shared(entry) else 1)
        loads["network card"] = crossing / (chip.nic_gbs * 1e9)
    return loads


def _shared(entry: Mapping[str, Any]) -> bool:
    """Whether all devices end with the same data, or parts of it, so that a host needs it once."""
    return entry["kind"] in ("all-gather", "reduce-scatter", "all-reduce")


def _sent(entry: Mapping[str, Any], parties: int) -> float:
    """What one of so many parties sends at least (nccl-tests, PERFORMANCE.md, `busbw` factors)."""
    factors = {"all-reduce": 2 * (parties - 1) / parties, "collective-permute": 1.0}
    return entry["bytes"] * factors.get(entry["kind"], (parties - 1) / parties)
