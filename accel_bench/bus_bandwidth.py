"""Bus bandwidth of collectives: what a rank must send, what its links carry, latency beside it.

nccl-tests (doc/PERFORMANCE.md) gives a collective of size S two rates: the algorithm bandwidth
S / time, and the bus bandwidth, which is that times a factor. The factor makes of S what each rank
sends at least, so that bus bandwidths of all operations and numbers of ranks can be held against
the same links. Imports no jax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accel_bench.chips import Chip

# Operation -> bus bytes over S among n ranks. What S is: `accel_bench.workloads.params.Collective`.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "ppermute": lambda n: 1.0,
}
# A line through fewer sizes, or through sizes that lie closer together, tells latency from
# bandwidth by chance.
_MIN_SIZES, _MIN_SPAN = 3, 100
# NVSwitches from the third generation on, those of Hopper, add up what passes through them (NCCL
# documentation, NCCL_NVLS_ENABLE).
_ADDING_SWITCH = (9, 0)


def link_limit(chip: Chip, op: str, exchange: Mapping[str, Any]) -> tuple[float | None, str]:
    """Bus bandwidth in B/s that a chip's links cannot exceed, and what it is; None if not known.

    GPUs: all NVLinks of one in one direction; where a switch adds, ranks need to send S only once
    for an all_reduce, which is as much by its factor. Over several processes, which may be several
    hosts, the network card is added. TPUs: all links of a chip, each in one direction. Not known
    for GPUs that are joined by slots, since some of these cards take bridges that no driver names;
    for chips that are several devices, which talk to each other inside the chip; and over slices.

    Args:
      chip: the chip of every rank.
      op: the operation.
      exchange: the record's `facts.exchange`.
    """
    if not chip.link_gbs or chip.link_name == "PCIe slot" or chip.devices_per_chip > 1:
        return None, ""
    if chip.platform == "tpu":
        if exchange.get("slices", 1) > 1:
            return None, ""
        return (chip.links or 1) * chip.link_gbs * 1e9, "what the chip's links carry together"
    limit, what = chip.link_gbs * 1e9, "what the links carry"
    if exchange.get("processes", 1) > 1:
        if not chip.nic_gbs:
            return None, ""
        limit, what = limit + chip.nic_gbs * 1e9, "what links and network card carry"
    capability = tuple(int(part) for part in (chip.capability or "0").split("."))
    if op == "all_reduce" and capability >= _ADDING_SWITCH:
        limit *= max(1.0, exchange.get("factor", 1.0))
        what += ", with a switch that adds"
    return limit, what


@dataclass(frozen=True)
class Line:
    """Latency and bandwidth that explain the times of a collective over sizes (Hockney).

    time = latency + bus bytes / bandwidth.

    Attributes:
      latency_s: seconds of an exchange of nothing.
      bus_bandwidth: B/s.
      within: the largest distance of a time from the line, as a fraction of that time.
      sizes: how many sizes it was fitted to.
    """

    latency_s: float
    bus_bandwidth: float
    within: float
    sizes: int


def fit(bus_bytes: Sequence[float], seconds: Sequence[float]) -> Line | None:
    """The line for which the sum of squares of the relative distances is smallest.

    Relative, so that microseconds count as much as seconds; neither part is negative. None for
    under three sizes, for sizes that span less than a factor of 100, and where no bandwidth can be
    told because larger sizes take no longer.

    Args:
      bus_bytes: S times the factor of each row.
      seconds: time of each row.
    """
    sizes = set(bus_bytes)
    if len(sizes) < _MIN_SIZES or max(sizes) < _MIN_SPAN * min(sizes):
        return None
    from scipy.optimize import nnls

    sent, times = np.asarray(bus_bytes, np.float64), np.asarray(seconds, np.float64)
    # Both columns of about the same size: 1 / time spans many powers of ten.
    columns = np.stack([np.ones_like(sent), sent], axis=1) / times[:, None]
    scale = np.linalg.norm(columns, axis=0)
    (latency, per_byte), _ = nnls(columns / scale, np.ones_like(times))
    latency, per_byte = latency / scale[0], per_byte / scale[1]
    if not per_byte > 0:
        return None
    distance = np.abs((latency + per_byte * sent) / times - 1)
    return Line(float(latency), float(1 / per_byte), float(distance.max()), len(sizes))
