"""How long a compiled program takes at least, by the chip table's figures.

The program's own products, main-memory traffic and collectives over the chip's peak rate, memory
bandwidth and links; what takes longest binds. Of the program as it was compiled: recomputation and
padding are in it. Data that stays in a GPU's cache would make the memory part shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_bench import chips, precision
from accel_bench.network import Busy
from accel_bench.target import Target

# HLO's element type -> the unit that multiplies it.
_UNITS = {"bf16": "bf16", "f16": "fp16", "s8": "int8", "u8": "int8"}


def bound(
    target: Target,
    precision_name: str,
    program: Mapping[str, Any],
    sizes: Mapping[str, Any],
    busy: Busy,
) -> dict[str, Any]:
    """The roofline of one step on one device; the record's `facts.estimate`, as far as it goes.

    Args:
      target: what the program was compiled for.
      precision_name: the case's.
      program: `flops_by_type` and `bytes` of a step, each None where not known.
      sizes: the compiler's account of the memory, bytes.
      busy: the links.

    Returns:
      `compute_s`, `memory_s`, `network_s` (None where not known, with a sentence in `unknown`) and
      `binds`, the name of the largest; `bound_s`, what a step takes at least. That is the largest
      too, but of a GPU's traffic only what must cross its memory whatever its cache keeps.
    """
    flops_by_type, traffic_bytes = program["flops_by_type"], program["bytes"]
    chip, unknown = target.chip, []
    compute_s = None
    if flops_by_type is None:
        unknown.append("compute: the program's products could not be counted")
    else:
        compute_s = 0.0
        for operands, flops in flops_by_type.items():
            rate, note = _rate(chip, operands, precision_name)
            compute_s += flops / (rate / chip.devices_per_chip)
            unknown += [note] if note else []
    memory_s = None
    if traffic_bytes is None:
        unknown.append("memory: the program's traffic could not be counted")
    else:
        memory_s = traffic_bytes * chip.devices_per_chip / (chip.bandwidth_gbs * 1e9)
    if busy.seconds is None:
        unknown.append(f"network: {busy.reason}")
    parts = {"compute": compute_s, "memory": memory_s, "network": busy.seconds}
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    binds = max(known, key=lambda name: known[name], default=None)
    if memory_s is not None and traffic_bytes:
        known["memory"] = memory_s * _compulsory(chip, traffic_bytes, sizes) / traffic_bytes
    return {
        **{f"{name}_s": seconds for name, seconds in parts.items()},
        "bound_s": max(known.values()) if known else None,
        "binds": binds,
        "links_s": dict(busy.links),
        "axes_s": dict(busy.by_axes),
        "unknown": list(dict.fromkeys(unknown)),
    }


def _compulsory(chip: chips.Chip, traffic_bytes: float, sizes: Mapping[str, Any]) -> float:
    """Bytes that cross a device's memory in any case.

    A TPU's program says what it moves. A GPU's cache may keep what one kernel leaves to the next,
    but not more than its size of the arguments and results.
    """
    if chip.platform == "tpu":
        return traffic_bytes
    parts = [sizes.get(name) for name in ("arguments", "outputs", "aliased")]
    if None in parts or chip.cache_bytes is None:
        return 0.0
    arguments, outputs, aliased = (part or 0 for part in parts)
    return max(0.0, min(traffic_bytes, arguments + outputs - aliased) - chip.cache_bytes)


def _rate(chip: chips.Chip, operands: str, precision_name: str) -> tuple[float, str | None]:
    """FLOP/s of a chip for operands of a type, and what is uncertain about it.

    Where the chip has no published rate for them, its highest rate in any type: still a bound.
    """
    entry = precision.lookup(precision_name)
    unit = _UNITS.get(operands) or ("fp8" if operands.startswith("f8") else None)
    if operands == "f32":
        if chip.platform == "tpu":
            # The matrix unit multiplies bf16; fp32 is one pass of it, or six in full precision
            # (jax.lax.Precision: DEFAULT and HIGHEST).
            passes = 6 if entry.dot == "highest" else 1
            return chip.peaks["bf16"] * 1e12 / passes, None
        tensor = precision_name in ("tf32", "fp32_default") and "tf32" in chip.peaks
        unit = "tf32" if tensor else "fp32"
    if unit and unit in chip.peaks:
        return chip.peaks[unit] * 1e12, None
    return chips.limit_flops(chip), (
        f"compute: no published rate for {operands} on this chip; bounded by its highest rate"
    )
