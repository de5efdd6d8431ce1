"""Is the number true? Physics and plausibility of a finished measurement.

A row that fails a check is `invalid` and says why. What is true but must be read with care becomes
a flag in `facts.flags` (`accel_bench.record.FLAGS`). Tables show it; `accel_bench.derive` leaves
rows out of rankings and ceilings where the flag means that the rate is not the work's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accel_bench import bus_bandwidth, chips, detect
from accel_bench import precision as precisions
from accel_bench.cases import XLA, Case
from accel_bench.measure import Measurement
from accel_bench.netns import burst_bytes, parse_rate
from accel_bench.program import HLO_TYPES
from accel_bench.workloads import WORKLOADS

# Where a chip's cache is not known, anything smaller than this may sit in one.
_UNKNOWN_CACHE = 256 << 20
# CPU flags (Linux names) that mean a unit for a precision.
_CPU_UNITS = {
    "fp32": None,
    "bf16": ("avx512_bf16", "amx_bf16", "bf16", "avx_ne_convert"),
    "fp16": ("avx512_fp16", "amx_fp16", "fphp", "asimdhp"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8", "i8mm", "asimddp"),
    "tf32": (),
    "fp8": (),
}


class Untrue(Exception):
    """The measurement contradicts physics; the text says how."""


def check(case: Case, target: Mapping[str, Any], result: Measurement) -> None:
    """Checks a measurement and sets `facts.flags`.

    Raises:
      Untrue: a rate above what the hardware can do.
    """
    step_s = float(np.median(result.samples_s))
    flags = result.facts.setdefault("flags", [])
    flags += [
        name
        for name, present in {
            "emulated": emulated(case, target, result.facts),
            "dispatch-bound": _dispatch_bound(case, target, result.facts, step_s),
            "cache-resident": cache_resident(target, result.facts),
            "drift": abs(result.facts.get("drift", 0.0)) > 0.05,
            "noisy": _noisy(result.samples_s),
            "few-samples": len(result.samples_s) < 6,
            "nonlinear": not 1.5 < result.facts.get("linearity", 2.0) < 2.7,
        }.items()
        if present
    ]
    _require_physical(case, target, result.facts, step_s)


def _noisy(samples_s: list[float]) -> bool:
    from accel_bench import stats

    return stats.median(samples_s).half_width > 0.05


def emulated(case: Case, target: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether the hardware has no unit for the precision, or the compiler widened its operands."""
    if not WORKLOADS[case.workload].uses_precision:
        return False
    entry = precisions.lookup(case.precision)
    operands = facts.get("dot_operands") or []
    compute = HLO_TYPES[entry.compute]
    # The compiler widened the operands: whatever the hardware has, it was not used.
    if case.implementation == XLA and operands and compute not in operands:
        return True
    if target["chip"]:
        return not chips.has_unit(chips.CHIPS[target["chip"]], case.precision)
    if target["platform"] == "cpu":
        if entry.passes > 1:
            return True
        units = _CPU_UNITS[entry.unit]
        return units is not None and not (set(units) & detect.cpu_flags())
    return False


def _dispatch_bound(
    case: Case, target: Mapping[str, Any], facts: Mapping[str, Any], step_s: float
) -> bool:
    if case.workload == "dispatch" or case.implementation != XLA:
        return False
    # On GPUs a loop inside a program launches its kernels one by one too.
    steps = 1 if target["platform"] == "gpu" else facts.get("steps_per_call", 1)
    return step_s * steps < 10 * facts["launch_queued_s"]


def cache_resident(target: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether what a step goes through may stay in the caches."""
    working_set = facts.get("working_set")
    if working_set is None:
        return False
    # Virtual devices of a CPU share its caches.
    caches = 1 if target.get("virtual") else target["num_devices"]
    return working_set < 4 * cache_bytes(target) * caches


def cache_bytes(target: Mapping[str, Any]) -> int:
    """The largest cache of one device, in bytes; a cautious figure where it is not known."""
    if target["chip"]:
        return chips.CHIPS[target["chip"]].cache_bytes or _UNKNOWN_CACHE
    if target["platform"] == "cpu":
        return max(detect.cpu_caches().values(), default=_UNKNOWN_CACHE)
    return _UNKNOWN_CACHE


def _require_physical(
    case: Case, target: Mapping[str, Any], facts: Mapping[str, Any], step_s: float
) -> None:
    work = facts.get("work", {})
    flops = work.get("flops_causal", work.get("flops"))
    if not step_s > 0:
        raise Untrue(f"a step took {step_s} s: the clock did not see the work")
    if flops:
        limit, what = flops_limit(target, case.precision)
        if limit is not None and flops / step_s > limit:
            raise Untrue(
                f"{flops / step_s / 1e12:.4g} TFLOP/s is above {what} of {limit / 1e12:.4g}"
            )
    if work.get("bytes") and case.workload in ("memory", "transfer"):
        limit, what = bytes_limit(target, facts)
        if limit is not None and work["bytes"] / step_s > limit:
            raise Untrue(
                f"{work['bytes'] / step_s / 1e9:.4g} GB/s is above {what} of {limit / 1e9:.4g}"
            )

    if case.workload == "collective":
        link = case.params.get("link", "")
        limit, what = bus_limit(target, case.params["op"], facts, link)
        # After a pause a link lets a little pass at once.
        sent = work["bus_bytes"] - (burst_bytes(link) if link else 0)
        if limit is not None and sent / step_s > limit:
            raise Untrue(
                f"{sent / step_s / 1e9:.4g} GB/s of bus bandwidth is above {what}, "
                f"{limit / 1e9:.4g}"
            )


def bus_limit(
    target: Mapping[str, Any], op: str, facts: Mapping[str, Any], link: str = ""
) -> tuple[float | None, str]:
    """Bus bandwidth in B/s that no true collective exceeds, and what it is; None if not known."""
    exchange = facts["exchange"]
    rate = parse_rate(link) if link else None
    if rate:
        return rate / 8, "what the link carries"
    if target["chip"]:
        return bus_bandwidth.link_limit(chips.CHIPS[target["chip"]], op, exchange)
    if target["platform"] != "cpu":
        return None, ""
    # Virtual devices: what each of them sends is a copy within the one memory.
    limit, what = bytes_limit(target, facts)
    senders = exchange["ranks"] * exchange["groups"]
    return None if limit is None else limit / senders, f"{what}, for each of {senders} devices"


def flops_limit(target: Mapping[str, Any], precision: str) -> tuple[float | None, str]:
    """FLOP/s that nothing true exceeds on a target, and what it is; None where not known."""
    if target["chip"]:
        chip = chips.CHIPS[target["chip"]]
        peak = chips.peak_flops(chip, precision)
        limit = peak[0] if peak else chips.limit_flops(chip)
        return limit * target["num_chips"], "the published peak"
    if target["platform"] == "cpu":
        limit = chips.cpu_limit_flops(detect.cpu_cores(), precision)
        return limit, "what any CPU of as many cores could do"
    return None, ""


def bytes_limit(target: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[float | None, str]:
    """Bytes per second that nothing true exceeds on a target; None where not known."""
    if target["chip"]:
        if "cache-resident" in facts.get("flags", []):
            return None, ""
        chip = chips.CHIPS[target["chip"]]
        return chip.bandwidth_gbs * 1e9 * target["num_chips"], "the published memory bandwidth"
    if target["platform"] == "cpu":
        limit = detect.cpu_cores() * chips.CPU_CORE_LIMIT_BYTES
        return limit, "what the load and store units of any CPU of as many cores could do"
    return None, ""
