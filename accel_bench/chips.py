"""The chip table: what the vendors publish about each accelerator, and where they do.

Peaks are dense (no sparsity) and per chip, in units of 10^12 operations per second. A figure that
was not found is absent or None, never a neighbour's. To add a chip, add one entry to `CHIPS`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from accel_bench.errors import unknown
from accel_bench.precision import PRECISIONS

SOURCES = {
    "J": "jax, jax/_src/tpu_info.py",
    "G": "Google Cloud TPU documentation, system architecture pages",
    "B": "How to Scale Your Model (scaling-book), TPU chapter",
    "S": "stas00/ml-engineering, accelerators page (collects vendor datasheets)",
    "N": "stas00/ml-engineering, network page",
    "A": "Jouppi et al., A domain-specific supercomputer for training deep neural networks, CACM 2020, as others quote it",
    "P": "PCI Express specification: 16 lanes x 8, 16 or 32 GT/s (generation 3, 4, 5) x 128/130",
    "X": "openxla/xla, GPU target specifications",
    "L": "Lightning, throughput table",
    "D": "the vendor's datasheet",
    "W": "secondary page, uncertain",
    "C": "clock derived: TPU peak = matrix units x 128^2 (v6e: 256^2) x 2 x clock; 7x: its core does "
    "the products of a v6e core per cycle, so that the peaks are as the clocks",
}


@dataclass(frozen=True)
class Chip:
    """One accelerator as its vendor describes it.

    Attributes:
      platform: `gpu` or `tpu`.
      device_kinds: the exact strings by which jax names a device of this chip.
      peaks: unit (`bf16`, `fp32`, ...) -> dense peak in TFLOP/s (TOP/s for int8). A unit that is
        absent does not exist on the chip or has no published figure.
      memory_gb: memory as sold; the GB that vendors write are GiB.
      bandwidth_gbs: memory bandwidth in GB/s.
      cache_bytes: last cache (GPU) or vector memory (TPU) that data may stay in; None if unknown.
      link_name: what joins the chips of a slice or of a host.
      link_gbs: bandwidth of one link in one direction, GB/s; GPUs: all NVLinks together, or the
        slot. Bridges that can be put on a pair of cards are not counted.
      links: number of such links.
      watts: board power.
      nic_gbs: share of one GPU in the network cards of the vendor's own DGX system, one direction,
        GB/s. Other systems have other cards.
      dcn_gbs: TPUs: share of one chip in the data center's network, which joins slices, one
        direction, GB/s.
      devices_per_chip: jax devices that one chip shows itself as.
      clock_ghz: GPUs: boost clock. TPUs: derived, see `SOURCES`; the clock that the compiler's
        estimates in cycles are counted in.
      memory_bytes: GPUs: memory that the driver reports, as it is told to the compiler.
      capability: GPUs: CUDA compute capability, a key of `CAPABILITIES`.
      cores: GPUs: streaming multiprocessors.
      largest: TPUs: chips along each dimension of the largest slice; two numbers or three.
      megacore: TPUs: whether the compiler must be told that the chip's two cores act as one.
      year: year in which it could first be bought or rented.
      source: where each figure was read, keys of `SOURCES`.
    """

    platform: str
    device_kinds: tuple[str, ...]
    peaks: Mapping[str, float]
    memory_gb: float
    bandwidth_gbs: float
    source: str
    cache_bytes: int | None = None
    link_name: str | None = None
    link_gbs: float | None = None
    links: int | None = None
    watts: int | None = None
    nic_gbs: float | None = None
    dcn_gbs: float | None = None
    devices_per_chip: int = 1
    year: int | None = None
    clock_ghz: float | None = None
    memory_bytes: int | None = None
    capability: str | None = None
    cores: int | None = None
    largest: tuple[int, ...] = ()
    megacore: bool = False


@dataclass(frozen=True)
class Capability:
    """What GPUs of one compute capability have in common (CUDA programming guide, technical
    specifications per compute capability; X).

    Attributes:
      threads: threads that a multiprocessor holds.
      shared_bytes, shared_optin_bytes: shared memory of a multiprocessor, and of one block that
        asks for more than the usual 48 KiB.
      fp32_units: fp32 units of a multiprocessor.
    """

    threads: int
    shared_bytes: int
    shared_optin_bytes: int
    fp32_units: int


CAPABILITIES = {
    "6.1": Capability(2048, 98304, 49152, 128),
    "7.0": Capability(2048, 98304, 98304, 64),
    "7.5": Capability(1024, 65536, 65536, 64),
    "8.0": Capability(2048, 167936, 166912, 64),
    "8.6": Capability(1536, 102400, 101376, 128),
    "8.9": Capability(1536, 102400, 101376, 128),
    "9.0": Capability(2048, 233472, 232448, 128),
    "10.0": Capability(2048, 233472, 232448, 128),
}


_gpu = functools.partial(Chip, "gpu")
_tpu = functools.partial(Chip, "tpu", link_name="ICI")

_HOPPER = {"fp16": 989.0, "bf16": 989.0, "tf32": 494.5, "fp32": 67.0, "fp8": 1979.0, "int8": 1979.0}
_AMPERE = {"fp16": 312.0, "bf16": 312.0, "tf32": 156.0, "fp32": 19.5, "int8": 624.0}
_H100_PCIE = {
    "fp16": 756.0,
    "bf16": 756.0,
    "tf32": 378.0,
    "fp32": 51.0,
    "fp8": 1513.0,
    "int8": 1513.0,
}

# One chip a row: a table is easier to check than a page for each chip.
# ruff: noqa: E501
# fmt: off
CHIPS: dict[str, Chip] = {
    "v2": _tpu(("TPU v2",), {"bf16": 46.0}, memory_gb=16, bandwidth_gbs=716, link_gbs=62, links=4, year=2017, devices_per_chip=2, clock_ghz=0.70, largest=(16, 16), source="J, link A, clock C"),
    "v3": _tpu(("TPU v3",), {"bf16": 123.0}, memory_gb=32, bandwidth_gbs=900, link_gbs=82, links=4, year=2018, devices_per_chip=2, clock_ghz=0.94, largest=(32, 32), source="G, link A, clock C; J and B give 140 bf16, J 825 GB/s; B gives a link of 100, the paper on v4 70"),
    "v4": _tpu(("TPU v4",), {"bf16": 275.0, "int8": 275.0}, memory_gb=32, bandwidth_gbs=1200, link_gbs=45, links=6, year=2021, clock_ghz=1.05, largest=(16, 16, 16), megacore=True, source="G, link B, clock C; J gives 1230 GB/s; one jax device per chip with megacore, the default where attached, two without"),
    "v5e": _tpu(("TPU v5 lite", "TPU v5e"), {"bf16": 197.0, "int8": 394.0}, memory_gb=16, bandwidth_gbs=819, link_gbs=45, links=4, dcn_gbs=3.125, year=2023, clock_ghz=1.50, largest=(16, 16), source="G, int8 J, link B, clock C, network between slices G"),
    "v5p": _tpu(("TPU v5", "TPU v5p"), {"bf16": 459.0, "int8": 918.0}, memory_gb=95, bandwidth_gbs=2765, link_gbs=90, links=6, dcn_gbs=6.25, year=2023, clock_ghz=1.75, largest=(16, 20, 28), source="G, link B, clock C, network between slices G"),
    "v6e": _tpu(("TPU v6 lite", "TPU v6e"), {"bf16": 918.0, "int8": 1836.0}, memory_gb=32, bandwidth_gbs=1638, link_gbs=90, links=4, dcn_gbs=12.5, year=2024, clock_ghz=1.75, largest=(16, 16), source="G, int8 S, link B, clock C, network between slices G"),
    "tpu7x": _tpu(("TPU7x", "TPU v7x"), {"bf16": 2307.0, "fp8": 4614.0}, memory_gb=192, bandwidth_gbs=7380, link_gbs=100, links=6, dcn_gbs=12.5, year=2025, devices_per_chip=2, clock_ghz=2.20, largest=(16, 24, 24), source="G, link N, clock C, network between slices G"),
    "p40": _gpu(("Tesla P40",), {"fp32": 11.8}, memory_gb=24, bandwidth_gbs=346, link_name="PCIe slot", link_gbs=15.75, links=1, watts=250, year=2016, cache_bytes=3145728, capability="6.1", cores=30, clock_ghz=1.531, memory_bytes=24032378880, source="W, GPU facts D, slot P and W; fp16 runs at 0.18 TFLOP/s, there is no matrix unit"),
    "v100_sxm2": _gpu(("Tesla V100-SXM2-16GB",), {"fp16": 125.0, "fp32": 15.7}, memory_gb=16, bandwidth_gbs=898, cache_bytes=6291456, link_name="NVLink", link_gbs=150, links=1, watts=300, year=2017, nic_gbs=6.25, capability="7.0", cores=80, clock_ghz=1.53, memory_bytes=16935682048, source="peaks L, memory X, link N, GPU facts X, network card D"),
    "t4": _gpu(("Tesla T4",), {"fp16": 65.0, "fp32": 8.1, "int8": 130.0}, memory_gb=16, bandwidth_gbs=320, cache_bytes=4194304, link_name="PCIe slot", link_gbs=15.75, links=1, watts=70, year=2018, capability="7.5", cores=40, clock_ghz=1.59, memory_bytes=15_800_000_000, source="peaks L, int8 D, memory W, GPU facts D, slot P and D"),
    "a100_40": _gpu(("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"), _AMPERE, memory_gb=40, bandwidth_gbs=1555, cache_bytes=41943040, link_name="NVLink", link_gbs=300, links=1, watts=400, year=2020, nic_gbs=25, capability="8.0", cores=108, clock_ghz=1.41, memory_bytes=42331013120, source="peaks S, int8 D, memory X, link N, GPU facts X, network card D"),
    "a100_80": _gpu(("NVIDIA A100-SXM4-80GB",), _AMPERE, memory_gb=80, bandwidth_gbs=2039, cache_bytes=41943040, link_name="NVLink", link_gbs=300, links=1, watts=400, year=2020, nic_gbs=25, capability="8.0", cores=108, clock_ghz=1.41, memory_bytes=85100068864, source="peaks S, int8 D, memory X, link N, GPU facts X, network card D"),
    "l4": _gpu(("NVIDIA L4",), {"fp16": 121.0, "bf16": 121.0, "tf32": 60.0, "fp32": 30.3, "fp8": 242.0, "int8": 242.0}, memory_gb=24, bandwidth_gbs=300, cache_bytes=50331648, link_name="PCIe slot", link_gbs=31.5, links=1, watts=72, year=2023, capability="8.9", cores=58, clock_ghz=2.04, memory_bytes=24_100_000_000, source="peaks L, 8-bit D, memory W, GPU facts D, slot P and W"),
    "rtx3080": _gpu(("NVIDIA GeForce RTX 3080",), {"fp16": 60.0, "bf16": 60.0, "tf32": 29.8, "fp32": 29.8}, memory_gb=10, bandwidth_gbs=760, link_name="PCIe slot", link_gbs=31.5, links=1, watts=320, year=2020, cache_bytes=5242880, capability="8.6", cores=68, clock_ghz=1.71, memory_bytes=10_500_000_000, source="16-bit and memory W, fp32 L, GPU facts D, slot P and D"),
    "rtx3090": _gpu(("NVIDIA GeForce RTX 3090",), {"fp16": 71.0, "bf16": 71.0, "tf32": 35.6, "fp32": 35.6}, memory_gb=24, bandwidth_gbs=936, cache_bytes=6291456, link_name="PCIe slot", link_gbs=31.5, links=1, watts=350, year=2020, capability="8.6", cores=82, clock_ghz=1.695, memory_bytes=25_400_000_000, source="16-bit and memory W, fp32 L, GPU facts D, slot P and D; an NVLink bridge would join pairs at 56 GB/s"),
    "rtx4090": _gpu(("NVIDIA GeForce RTX 4090",), {"fp16": 165.0, "bf16": 165.0, "tf32": 82.6, "fp32": 82.6, "fp8": 330.0}, memory_gb=24, bandwidth_gbs=1008, link_name="PCIe slot", link_gbs=31.5, links=1, watts=450, year=2022, cache_bytes=75497472, capability="8.9", cores=128, clock_ghz=2.52, memory_bytes=25_400_000_000, source="16-bit, fp8 and memory W, fp32 L, GPU facts D, slot P and W"),
    "h100_sxm": _gpu(("NVIDIA H100 80GB HBM3",), _HOPPER, memory_gb=80, bandwidth_gbs=3352, cache_bytes=52428800, link_name="NVLink", link_gbs=450, links=1, watts=700, year=2022, nic_gbs=50, capability="9.0", cores=132, clock_ghz=1.98, memory_bytes=84942979072, source="peaks S, int8 D, memory X, link N, GPU facts X, network card D"),
    "h100_pcie": _gpu(("NVIDIA H100 PCIe",), _H100_PCIE, memory_gb=80, bandwidth_gbs=2039, cache_bytes=52428800, link_name="PCIe slot", link_gbs=63, links=1, watts=350, year=2022, capability="9.0", cores=114, clock_ghz=1.755, memory_bytes=84942979072, source="peaks S, int8 D, memory X, GPU facts X, slot P and D; an NVLink bridge would join pairs at 300 GB/s"),
    "h200": _gpu(("NVIDIA H200",), _HOPPER, memory_gb=141, bandwidth_gbs=4800, cache_bytes=52428800, link_name="NVLink", link_gbs=450, links=1, watts=700, year=2024, nic_gbs=50, capability="9.0", cores=132, clock_ghz=1.98, memory_bytes=151397597184, source="peaks S, int8 D, memory S and X, link N, GPU facts X, network card D"),
    "b200": _gpu(("NVIDIA B200",), {"fp16": 2250.0, "bf16": 2250.0, "tf32": 1125.0, "fp32": 80.0, "fp8": 4500.0}, memory_gb=180, bandwidth_gbs=8000, cache_bytes=132644864, link_name="NVLink", link_gbs=900, links=1, watts=1000, year=2024, nic_gbs=50, capability="10.0", cores=148, clock_ghz=1.965, memory_bytes=191514411008, source="S, GPU facts X, network card D; X gives 7672 GB/s, link N"),
    "mi300x": _gpu(("AMD Instinct MI300X",), {"fp16": 1307.0, "bf16": 1307.0, "tf32": 653.7, "fp32": 163.4, "fp8": 2610.0, "int8": 2610.0}, memory_gb=192, bandwidth_gbs=5300, link_name="Infinity Fabric", link_gbs=448, links=1, watts=750, year=2023, source="S, int8 D, link N"),
}
# fmt: on

# No core sold multiplies more per second than this; the widest are two 512-bit fused
# multiply-adds a cycle (64 fp32 FLOPs), or a 16 x 16 tile unit (2048 bf16 operations), at 6.2 GHz.
# It is no peak of any machine: it only catches a time that cannot be true.
CPU_CORE_LIMIT_FLOPS = {"vector": 64 * 6.2e9, "tile": 2048 * 6.2e9}
# Two loads and one store of 64 bytes a cycle.
CPU_CORE_LIMIT_BYTES = 192 * 6.2e9


def find_chip(device_kind: str) -> str | None:
    """The table's name of the chip that jax calls `device_kind`; None when it is not in it.

    The match is exact: a chip that is merely similar has another peak.
    """
    for name, chip in CHIPS.items():
        if device_kind.lower() in (kind.lower() for kind in chip.device_kinds):
            return name
    return None


def lookup(name: str) -> Chip:
    """The chip of this table name; raises `RequestError` for a name that is not in the table."""
    if name not in CHIPS:
        raise unknown("chip", name, CHIPS)
    return CHIPS[name]


def peak_flops(chip: Chip, precision: str) -> tuple[float, str] | None:
    """Peak rate of one chip for a precision, in FLOP/s, and the unit whose peak it is.

    None where the chip has no published peak for the unit. `fp32_default` means the unit that the
    back end takes by default: bf16 on TPUs, TF32 on GPUs that have it.
    """
    entry = PRECISIONS.get(precision)
    if entry is None:  # a later version's
        return None
    unit = entry.unit
    if precision == "fp32_default":
        unit = "bf16" if chip.platform == "tpu" else ("tf32" if "tf32" in chip.peaks else "fp32")
    if unit not in chip.peaks:
        return None
    return chip.peaks[unit] * 1e12 / entry.passes, unit


def limit_flops(chip: Chip) -> float:
    """The highest published rate of the chip in any precision, FLOP/s: nothing true exceeds it."""
    return max(chip.peaks.values()) * 1e12


def cpu_limit_flops(cores: int, precision: str) -> float:
    """A rate in FLOP/s that no CPU of so many cores reaches; not a peak."""
    small = PRECISIONS[precision].unit in ("bf16", "fp16", "int8", "fp8")
    return cores * CPU_CORE_LIMIT_FLOPS["tile" if small else "vector"]


def has_unit(chip: Chip, precision: str) -> bool:
    """Whether the chip multiplies in this precision in hardware, as far as is published."""
    if precision == "fp32_default":
        return True
    entry = PRECISIONS[precision]
    return entry.unit in chip.peaks and entry.passes == 1
