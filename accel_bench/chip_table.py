"""The chip table: what the vendors publish about each accelerator, and where they do.

Peaks are dense (no sparsity) and per chip, in units of 10^12 operations per second. A figure that
was not found is absent or None, never a neighbour's. To add a chip, add one entry to `CHIPS`:
nothing else names chips. `python main.py list chips` shows it (`accel_bench.chip_listing`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

SOURCES = {
    "J": "jax, jax/_src/tpu_info.py",
    "G": "Google Cloud TPU documentation, system architecture pages",
    "B": "How to Scale Your Model (scaling-book), TPU chapter",
    "S": "stas00/ml-engineering, accelerators page (collects vendor datasheets)",
    "N": "stas00/ml-engineering, network page",
    "A": "Jouppi et al., A domain-specific supercomputer for training deep neural networks, CACM "
    "2020, as others quote it",
    "P": "PCI Express specification: 16 lanes x 8, 16 or 32 GT/s (generation 3, 4, 5) x 128/130",
    "X": "openxla/xla, GPU target specifications",
    "L": "Lightning, throughput table",
    "D": "the vendor's datasheet",
    "W": "secondary page, uncertain",
    "R": "AMD ROCm documentation, GPU specifications",
    "C": "clock derived: TPU peak = matrix units x their size^2 x 2 x clock; of v6e and 7x twice "
    "that: by the compiler's count of cycles their units pass twice in a cycle of this clock",
}

# Where figures are from of which `source` says nothing, by what they are of.
FIELD_SOURCES = {
    "architecture, memory kind, made for": "TPUs G; GPUs D, as secondary pages quote it (W)",
    "cores": "TPUs J; GPUs X, or D where `source` says so",
    "matrix units": "TPUs J; NVIDIA D and X: 8 to a multiprocessor of Volta and Turing, then 4",
    "fp32 units": "cores x units of each, CUDA programming guide and X; NVIDIA's CUDA cores",
    "board power": "D; TPUs G, the largest power of a chip that was measured",
}


@dataclass(frozen=True)
class Chip:
    """One accelerator as its vendor describes it.

    Attributes:
      platform: `gpu` or `tpu`.
      architecture: the vendor's name of the design, or the generation.
      made_for: what the vendor sells it for.
      device_kinds: the exact strings by which jax names a device of this chip.
      peaks: unit (`bf16`, `fp32`, ...) -> dense peak in TFLOP/s (TOP/s for int8). A unit that is
        absent does not exist on the chip or has no published figure.
      memory_gb: memory as sold; the GB that vendors write are GiB.
      memory_kind: `HBM2e`, `GDDR6X`, ...
      bandwidth_gbs: memory bandwidth in GB/s.
      cache_bytes: last cache (GPU) or vector memory (TPU) that data may stay in; None if unknown.
      link_name: what joins the chips of a slice or of a host.
      link_gbs: bandwidth of one link in one direction, GB/s; GPUs: all NVLinks together, or the
        slot. Bridges that can be put on a pair of cards are not counted.
      links: number of such links.
      watts: board power; of a TPU the largest that was measured of a chip.
      nic_gbs: share of one GPU in the network cards of the vendor's own DGX system, one direction,
        GB/s. Other systems have other cards.
      dcn_gbs: TPUs: share of one chip in the data center's network, which joins slices, one
        direction, GB/s.
      devices_per_chip: jax devices that one chip shows itself as.
      clock_ghz: GPUs: boost clock. TPUs: derived, see `SOURCES`; the clock that the compiler's
        estimates in cycles are counted in.
      memory_bytes: GPUs: memory that the driver reports, as it is told to the compiler.
      capability: GPUs: CUDA compute capability, a key of `CAPABILITIES`.
      cores: streaming multiprocessors (NVIDIA), compute units (AMD), TensorCores (TPU).
      core_fp32_units, core_matrix_units: units of each core; None: what its `capability` says.
      matrix_size: TPUs: rows and columns of a matrix unit.
      matrix_passes: TPUs: how often a matrix unit passes in a cycle of `clock_ghz`.
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
    architecture: str | None = None
    made_for: str | None = None
    memory_kind: str | None = None
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
    core_fp32_units: int | None = None
    core_matrix_units: int | None = None
    matrix_size: int | None = None
    matrix_passes: int = 1
    largest: tuple[int, ...] = ()
    megacore: bool = False

    @property
    def fp32_units(self) -> int | None:
        """Units that each do a multiply-add in fp32 per cycle: NVIDIA sells them as CUDA cores."""
        return self._in_all(self.core_fp32_units, "fp32_units")

    @property
    def matrix_units(self) -> int | None:
        """Tensor Cores (NVIDIA), Matrix Cores (AMD) or MXUs (TPU) in all; 0 where it has none."""
        return self._in_all(self.core_matrix_units, "matrix_units")

    def _in_all(self, of_a_core: int | None, name: str) -> int | None:
        if of_a_core is None and self.capability:
            of_a_core = getattr(CAPABILITIES[self.capability], name)
        return None if of_a_core is None or self.cores is None else of_a_core * self.cores


@dataclass(frozen=True)
class Capability:
    """What GPUs of one compute capability have in common (CUDA programming guide, technical
    specifications per compute capability; X).

    Attributes:
      threads: threads that a multiprocessor holds.
      shared_bytes, shared_optin_bytes: shared memory of a multiprocessor, and of one block that
        asks for more than the usual 48 KiB.
      fp32_units: fp32 units of a multiprocessor.
      matrix_units: Tensor Cores of a multiprocessor (D, white papers).
    """

    threads: int
    shared_bytes: int
    shared_optin_bytes: int
    fp32_units: int
    matrix_units: int


CAPABILITIES = {
    "6.1": Capability(2048, 98304, 49152, 128, 0),
    "7.0": Capability(2048, 98304, 98304, 64, 8),
    "7.5": Capability(1024, 65536, 65536, 64, 8),
    "8.0": Capability(2048, 167936, 166912, 64, 4),
    "8.6": Capability(1536, 102400, 101376, 128, 4),
    "8.9": Capability(1536, 102400, 101376, 128, 4),
    "9.0": Capability(2048, 233472, 232448, 128, 4),
    "10.0": Capability(2048, 233472, 232448, 128, 4),
}


_gpu = functools.partial(Chip, "gpu")
_tpu = functools.partial(Chip, "tpu", link_name="ICI")

# fmt: off
_AMPERE = {"fp16": 312.0, "bf16": 312.0, "tf32": 156.0, "fp32": 19.5, "int8": 624.0}
_HOPPER = {"fp16": 989.0, "bf16": 989.0, "tf32": 494.5, "fp32": 67.0, "fp8": 1979.0, "int8": 1979.0}
_HOPPER_PCIE = {
    "fp16": 756.0, "bf16": 756.0, "tf32": 378.0, "fp32": 51.0, "fp8": 1513.0, "int8": 1513.0,
}
_BLACKWELL = {
    "fp16": 2250.0, "bf16": 2250.0, "tf32": 1125.0, "fp32": 75.0, "fp8": 4500.0, "int8": 4500.0,
}
_CDNA3 = {
    "fp16": 1307.0, "bf16": 1307.0, "tf32": 653.7, "fp32": 163.4, "fp8": 2610.0, "int8": 2610.0,
}

# Of each chip: names and peaks; what it is; its units; memory; links and power; sources.
CHIPS: dict[str, Chip] = {
    "v2": _tpu(
        ("TPU v2",), {"bf16": 46.0},
        architecture="2nd gen.", made_for="training", year=2017,
        cores=2, core_matrix_units=1, matrix_size=128, clock_ghz=0.70, devices_per_chip=2,
        largest=(16, 16),
        memory_gb=16, memory_kind="HBM", bandwidth_gbs=716,
        link_gbs=62, links=4,
        source="J, link A, clock C",
    ),
    "v3": _tpu(
        ("TPU v3",), {"bf16": 123.0},
        architecture="3rd gen.", made_for="training", year=2018,
        cores=2, core_matrix_units=2, matrix_size=128, clock_ghz=0.94, devices_per_chip=2,
        largest=(32, 32),
        memory_gb=32, memory_kind="HBM2", bandwidth_gbs=900,
        link_gbs=82, links=4, watts=262,
        source="G, link A, clock C; J and B give 140 bf16, J 825 GB/s; B gives a link of 100, "
        "the paper on v4 70",
    ),
    "v4": _tpu(
        ("TPU v4",), {"bf16": 275.0, "int8": 275.0},
        architecture="4th gen.", year=2021,
        cores=2, core_matrix_units=4, matrix_size=128, clock_ghz=1.05, largest=(16, 16, 16),
        megacore=True,
        memory_gb=32, memory_kind="HBM2", bandwidth_gbs=1200,
        link_gbs=45, links=6, watts=192,
        source="G, link B, clock C; J gives 1230 GB/s; one jax device per chip with megacore, "
        "the default where attached, two without",
    ),
    "v5e": _tpu(
        ("TPU v5 lite", "TPU v5e"), {"bf16": 197.0, "int8": 394.0},
        architecture="5th gen.", made_for="training, inference", year=2023,
        cores=1, core_matrix_units=4, matrix_size=128, clock_ghz=1.50, largest=(16, 16),
        memory_gb=16, memory_kind="HBM2", bandwidth_gbs=819,
        link_gbs=45, links=4, dcn_gbs=3.125,
        source="G, int8 J, link B, clock C, network between slices G",
    ),
    "v5p": _tpu(
        ("TPU v5", "TPU v5p"), {"bf16": 459.0, "int8": 918.0},
        architecture="5th gen.", made_for="training", year=2023,
        cores=2, core_matrix_units=4, matrix_size=128, clock_ghz=1.75, largest=(16, 20, 28),
        memory_gb=95, memory_kind="HBM2e", bandwidth_gbs=2765,
        link_gbs=90, links=6, dcn_gbs=6.25,
        source="G, link B, clock C, network between slices G",
    ),
    "v6e": _tpu(
        ("TPU v6 lite", "TPU v6e"), {"bf16": 918.0, "int8": 1836.0},
        architecture="Trillium", made_for="training, inference", year=2024,
        cores=1, core_matrix_units=2, matrix_size=256, matrix_passes=2, clock_ghz=1.75,
        largest=(16, 16),
        memory_gb=32, memory_kind="HBM", bandwidth_gbs=1638,
        link_gbs=90, links=4, dcn_gbs=12.5,
        source="G, int8 S, link B, clock C, network between slices G",
    ),
    "tpu7x": _tpu(
        ("TPU7x", "TPU v7x"), {"bf16": 2307.0, "fp8": 4614.0},
        architecture="Ironwood", made_for="training, inference", year=2025,
        cores=2, core_matrix_units=2, matrix_size=256, matrix_passes=2, clock_ghz=2.20,
        devices_per_chip=2, largest=(16, 24, 24),
        memory_gb=192, memory_kind="HBM", bandwidth_gbs=7380,
        link_gbs=100, links=6, dcn_gbs=12.5,
        source="G, link N, clock C, network between slices G",
    ),
    "p40": _gpu(
        ("Tesla P40",), {"fp32": 11.8},
        architecture="Pascal", made_for="inference", year=2016,
        cores=30, clock_ghz=1.531, capability="6.1",
        memory_gb=24, memory_kind="GDDR5", bandwidth_gbs=346, cache_bytes=3145728,
        memory_bytes=24032378880,
        link_name="PCIe slot", link_gbs=15.75, links=1, watts=250,
        source="W, GPU facts D, slot P and W; fp16 runs at 0.18 TFLOP/s, there is no matrix "
        "unit",
    ),
    "v100_sxm2": _gpu(
        ("Tesla V100-SXM2-16GB",), {"fp16": 125.0, "fp32": 15.7},
        architecture="Volta", made_for="training, HPC", year=2017,
        cores=80, clock_ghz=1.53, capability="7.0",
        memory_gb=16, memory_kind="HBM2", bandwidth_gbs=898, cache_bytes=6291456,
        memory_bytes=16935682048,
        link_name="NVLink", link_gbs=150, links=1, nic_gbs=6.25, watts=300,
        source="peaks L, memory X, link N, GPU facts X, network card D",
    ),
    "t4": _gpu(
        ("Tesla T4",), {"fp16": 65.0, "fp32": 8.1, "int8": 130.0},
        architecture="Turing", made_for="inference", year=2018,
        cores=40, clock_ghz=1.59, capability="7.5",
        memory_gb=16, memory_kind="GDDR6", bandwidth_gbs=320, cache_bytes=4194304,
        memory_bytes=15_800_000_000,
        link_name="PCIe slot", link_gbs=15.75, links=1, watts=70,
        source="peaks L, int8 D, memory W, GPU facts D, slot P and D",
    ),
    "a100_40": _gpu(
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"), _AMPERE,
        architecture="Ampere", made_for="training, inference, HPC", year=2020,
        cores=108, clock_ghz=1.41, capability="8.0",
        memory_gb=40, memory_kind="HBM2", bandwidth_gbs=1555, cache_bytes=41943040,
        memory_bytes=42331013120,
        link_name="NVLink", link_gbs=300, links=1, nic_gbs=25, watts=400,
        source="peaks S, int8 D, memory X, link N, GPU facts X, network card D",
    ),
    "a100_80": _gpu(
        ("NVIDIA A100-SXM4-80GB",), _AMPERE,
        architecture="Ampere", made_for="training, inference, HPC", year=2020,
        cores=108, clock_ghz=1.41, capability="8.0",
        memory_gb=80, memory_kind="HBM2e", bandwidth_gbs=2039, cache_bytes=41943040,
        memory_bytes=85100068864,
        link_name="NVLink", link_gbs=300, links=1, nic_gbs=25, watts=400,
        source="peaks S, int8 D, memory X, link N, GPU facts X, network card D",
    ),
    "l4": _gpu(
        ("NVIDIA L4",),
        {"fp16": 121.0, "bf16": 121.0, "tf32": 60.0, "fp32": 30.3, "fp8": 242.0, "int8": 242.0},
        architecture="Ada Lovelace", made_for="inference, video", year=2023,
        cores=58, clock_ghz=2.04, capability="8.9",
        memory_gb=24, memory_kind="GDDR6", bandwidth_gbs=300, cache_bytes=50331648,
        memory_bytes=24_100_000_000,
        link_name="PCIe slot", link_gbs=31.5, links=1, watts=72,
        source="peaks L, 8-bit D, memory W, GPU facts D, slot P and W; some pages give 60 cores, "
        "with which the clock would give 31.3 fp32 and not the 30.3 that NVIDIA publishes",
    ),
    "rtx3080": _gpu(
        ("NVIDIA GeForce RTX 3080",), {"fp16": 60.0, "bf16": 60.0, "tf32": 29.8, "fp32": 29.8},
        architecture="Ampere", made_for="games, workstations", year=2020,
        cores=68, clock_ghz=1.71, capability="8.6",
        memory_gb=10, memory_kind="GDDR6X", bandwidth_gbs=760, cache_bytes=5242880,
        memory_bytes=10_500_000_000,
        link_name="PCIe slot", link_gbs=31.5, links=1, watts=320,
        source="16-bit and memory W, fp32 L, GPU facts D, slot P and D",
    ),
    "rtx3090": _gpu(
        ("NVIDIA GeForce RTX 3090",), {"fp16": 71.0, "bf16": 71.0, "tf32": 35.6, "fp32": 35.6},
        architecture="Ampere", made_for="games, workstations", year=2020,
        cores=82, clock_ghz=1.695, capability="8.6",
        memory_gb=24, memory_kind="GDDR6X", bandwidth_gbs=936, cache_bytes=6291456,
        memory_bytes=25_400_000_000,
        link_name="PCIe slot", link_gbs=31.5, links=1, watts=350,
        source="16-bit and memory W, fp32 L, GPU facts D, slot P and D; an NVLink bridge would "
        "join pairs at 56 GB/s",
    ),
    "rtx4090": _gpu(
        ("NVIDIA GeForce RTX 4090",),
        {"fp16": 165.0, "bf16": 165.0, "tf32": 82.6, "fp32": 82.6, "fp8": 330.0},
        architecture="Ada Lovelace", made_for="games, workstations", year=2022,
        cores=128, clock_ghz=2.52, capability="8.9",
        memory_gb=24, memory_kind="GDDR6X", bandwidth_gbs=1008, cache_bytes=75497472,
        memory_bytes=25_400_000_000,
        link_name="PCIe slot", link_gbs=31.5, links=1, watts=450,
        source="16-bit, fp8 and memory W, fp32 L, GPU facts D, slot P and W",
    ),
    "h100_sxm": _gpu(
        ("NVIDIA H100 80GB HBM3",), _HOPPER,
        architecture="Hopper", made_for="training, inference, HPC", year=2022,
        cores=132, clock_ghz=1.98, capability="9.0",
        memory_gb=80, memory_kind="HBM3", bandwidth_gbs=3352, cache_bytes=52428800,
        memory_bytes=84942979072,
        link_name="NVLink", link_gbs=450, links=1, nic_gbs=50, watts=700,
        source="peaks S, int8 D, memory X, link N, GPU facts X, network card D",
    ),
    "h100_pcie": _gpu(
        ("NVIDIA H100 PCIe",), _HOPPER_PCIE,
        architecture="Hopper", made_for="training, inference, HPC", year=2022,
        cores=114, clock_ghz=1.755, capability="9.0",
        memory_gb=80, memory_kind="HBM2e", bandwidth_gbs=2039, cache_bytes=52428800,
        memory_bytes=84942979072,
        link_name="PCIe slot", link_gbs=63, links=1, watts=350,
        source="peaks S, int8 D, memory X, GPU facts X, slot P and D; an NVLink bridge would "
        "join pairs at 300 GB/s",
    ),
    "h200": _gpu(
        ("NVIDIA H200",), _HOPPER,
        architecture="Hopper", made_for="training, inference, HPC", year=2024,
        cores=132, clock_ghz=1.98, capability="9.0",
        memory_gb=141, memory_kind="HBM3e", bandwidth_gbs=4800, cache_bytes=52428800,
        memory_bytes=151397597184,
        link_name="NVLink", link_gbs=450, links=1, nic_gbs=50, watts=700,
        source="peaks S, int8 D, memory S and X, link N, GPU facts X, network card D",
    ),
    "b200": _gpu(
        ("NVIDIA B200",), _BLACKWELL,
        architecture="Blackwell", made_for="training, inference", year=2024,
        cores=148, clock_ghz=1.965, capability="10.0",
        memory_gb=180, memory_kind="HBM3e", bandwidth_gbs=7700, cache_bytes=132644864,
        memory_bytes=191514411008,
        link_name="NVLink", link_gbs=900, links=1, nic_gbs=50, watts=1000,
        source="S, fp32, int8 and memory D as W quotes it, GPU facts X, network card D, link "
        "N; S gives 80 fp32 and 8000 GB/s, which NVIDIA gave at first; X gives 7672",
    ),
    "mi300x": _gpu(
        ("AMD Instinct MI300X",), _CDNA3,
        architecture="CDNA 3", made_for="training, inference, HPC", year=2023,
        cores=304, core_fp32_units=128, core_matrix_units=4, clock_ghz=2.1,
        memory_gb=192, memory_kind="HBM3", bandwidth_gbs=5300, cache_bytes=268435456,
        link_name="Infinity Fabric", link_gbs=448, links=1, watts=750,
        source="S, int8 D, link N, compute units and last cache R, fp32 units and clock X, "
        "matrix units W; AMD counts 19456 stream processors, which do two fp32 at a "
        "time; the name that jax gives it is HIP's, not seen on the hardware",
    ),
}
# fmt: on
