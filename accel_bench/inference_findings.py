"""What decoding and the precisions of a model come to: latency, throughput, memory; and in words.

A decode row has samples of many steps queued one behind the other, which say how many tokens a
device makes, and single steps that were each waited for, which say how long a user waits for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accel_bench import derive, units
from accel_bench.cases import format_bytes
from accel_bench.chips import CHIPS
from accel_bench.record import Record

# Under so many single steps no 99th percentile is told.
_ENOUGH = 100
GIB = 1 << 30


@dataclass(frozen=True)
class Latency:
    """Seconds per token of single decode steps.

    Attributes:
      p50, p99: percentiles; `p99` is None where there are too few steps to tell.
      steps: that were timed.
    """

    p50: float
    p99: float | None
    steps: int


def latency(record: Record) -> Latency | None:
    """How long single steps took; None where none were timed."""
    single = record.facts.get("single_steps_s")
    if record.status != "ok" or not single:
        return None
    p50, p99 = np.percentile(single, (50, 99))
    return Latency(float(p50), float(p99) if len(single) >= _ENOUGH else None, len(single))


def cache_of_memory(record: Record) -> tuple[float, float] | None:
    """Bytes of the key-value cache, and of all memory of the chips; None where not known."""
    cache = record.facts.get("cache_bytes")
    chip, count = CHIPS.get(record.target.get("chip") or ""), record.target.get("num_chips")
    if not cache or chip is None or not count:
        return None
    return cache, chip.memory_gb * GIB * count


def cache_note(record: Record) -> str:
    """`cache 12 GiB of 80 GiB`; empty where the chip's memory is not known."""
    found = cache_of_memory(record)
    return f"cache {format_bytes(found[0])} of {format_bytes(found[1])}" if found else ""


def _of_model(record: Record, name: str) -> str:
    value = record.facts.get(name) if _runs_a_model(record) else None
    return format_bytes(value) if value else ""


def _needed(record: Record, best: Mapping[str, Any]) -> str:
    value = record.facts.get("memory", {}).get("needed") if _runs_a_model(record) else None
    return format_bytes(value) if value else ""


def _runs_a_model(record: Record) -> bool:
    return record.workload in ("model", "training") and record.status == "ok"


def _percentile(name: str):
    def cell(record: Record, best: Mapping[str, Any]) -> str:
        found = latency(record)
        value = getattr(found, name) if found else None
        return units.seconds(value) if value is not None else ""

    return cell


# Columns of the tables: title -> what a record has there.
CELLS = {
    "p50": _percentile("p50"),
    "p99": _percentile("p99"),
    "weights": lambda record, best: _of_model(record, "weight_bytes"),
    "state": lambda record, best: _of_model(record, "state_bytes"),
    "cache": lambda record, best: _of_model(record, "cache_bytes"),
    "needed": _needed,
}


def sentences(records: Sequence[Record]) -> Iterator[str]:
    """Each model, precision and way of sampling at its smallest and largest batch."""
    groups: dict[tuple, dict[int, Record]] = {}
    for record in records:
        batch = str(record.params.get("batch"))
        if record.params.get("phase") != "decode" or not derive.time(record):
            continue
        if batch.isdecimal():
            same = {k: v for k, v in record.params.items() if k != "batch"}
            key = (derive.machine(record), repr(sorted(same.items(), key=str)), record.precision)
            groups.setdefault((*key, repr(record.mesh)), {})[int(batch)] = record
    for group in groups.values():
        ends = sorted({min(group), max(group)})
        sample = group[ends[0]]
        how = sample.params.get("sampling", "greedy")
        how = "" if how == "greedy" else f" ({how})"
        parts = [f"batch {batch}: {_shown(group[batch])}" for batch in ends]
        yield (
            f"Decoding {sample.params['model']} in {sample.precision}{how}, "
            f"{'; '.join(parts)}{_growth(group, ends)}."
        )


def _shown(record: Record) -> str:
    found, rate, step = latency(record), derive.headline(record), derive.time(record)
    assert rate and step
    per_token = f"{units.seconds(step.value)} per token"
    if found and found.p99 is not None:
        per_token = f"p50 {units.seconds(found.p50)}, p99 {units.seconds(found.p99)} per token"
    elif found:
        per_token = f"p50 {units.seconds(found.p50)} per token"
    cache = cache_note(record)
    return f"{per_token}, {units.quantity(rate.value, rate.unit)}" + (f", {cache}" if cache else "")


def _growth(group: Mapping[int, Record], ends: Sequence[int]) -> str:
    """How throughput grows; nothing where a row is too uncertain to say so."""
    if len(ends) < 2 or not all(derive.ranked(group[batch]) for batch in ends):
        return ""
    first, last = (derive.headline(group[batch]) for batch in ends)
    assert first and last
    times = units.digits(last.value / first.value, 2)
    return f"; throughput grows {times}x from batch {ends[0]} to {ends[1]}"
