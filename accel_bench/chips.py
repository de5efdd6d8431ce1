"""Look-ups in the chip table: a chip by its name or jax's, its peaks, and what no CPU exceeds.

The table itself is `accel_bench.chip_table`; a chip is added there.
"""

from __future__ import annotations

from accel_bench.chip_table import CAPABILITIES, CHIPS, FIELD_SOURCES, SOURCES, Capability, Chip
from accel_bench.errors import unknown
from accel_bench.precision import PRECISIONS

__all__ = [
    "CAPABILITIES", "CHIPS", "CPU_CORE_LIMIT_BYTES", "CPU_CORE_LIMIT_FLOPS", "FIELD_SOURCES",
    "SOURCES", "Capability", "Chip", "cpu_limit_flops", "find_chip", "has_unit", "limit_flops",
    "lookup", "peak_flops",
]  # fmt: skip

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
