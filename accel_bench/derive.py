"""From raw records to what is shown: times, rates, fractions of a ceiling. The only such place.

A ceiling is the chip table's peak. A CPU has no data sheet here: its ceiling is the best that the
same machine showed in the same records, and is called so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench import bus_bandwidth, chips, precision, stats
from accel_bench.bus_bandwidth import Line
from accel_bench.cases import XLA, describe
from accel_bench.record import Record
from accel_bench.stats import Median
from accel_bench.workloads import WORKLOADS

RATE_UNITS = {
    "flops": "FLOP/s", "bytes": "B/s", "bus_bytes": "B/s", "tokens": "tokens/s", "time": "s",
}  # fmt: skip
# Rows of these flags do not say how fast the work is, or not well enough: they set no ceiling, win
# no ranking, and no sentence rests on them.
UNRANKED = frozenset({"dispatch-bound", "cache-resident", "nonlinear", "noisy", "few-samples"})
# A time whose interval is wider than this on either side tells a line over sizes nothing.
_TELLING = 0.25


@dataclass(frozen=True)
class Rate:
    """A rate with its interval, per second; `high` belongs to the shortest time."""

    value: float
    low: float
    high: float
    unit: str


@dataclass(frozen=True)
class Fraction:
    """A share of a ceiling: 1 is all of it. `of` says which ceiling."""

    value: float
    of: str


@dataclass(frozen=True)
class Ceilings:
    """What a machine without a data sheet showed at best.

    Attributes:
      flops: precision -> FLOP/s of its best matmul.
      bandwidth: bytes per second of its best STREAM kernel in main memory.
    """

    flops: Mapping[str, float] = dataclasses.field(default_factory=dict)
    bandwidth: float | None = None


def time(record: Record) -> Median | None:
    """Median seconds per step with its interval; None for a record without samples.

    None, too, for a study of numerics: its few calls are of no speed to speak of.
    """
    if record.status != "ok" or not record.samples_s or record.facts.get("numerics"):
        return None
    return stats.median(record.samples_s)


def alike(one: Record, other: Record) -> bool:
    """Whether the confidence intervals of two times overlap, so that no ratio can be claimed."""
    first, second = time(one), time(other)
    if first is None or second is None:
        return False
    return first.low <= second.high and second.low <= first.high


@dataclass(frozen=True)
class Estimate:
    """Seconds per step that nobody measured.

    Attributes:
      seconds: per step.
      kind: `estimate` where the vendor's compiler counted cycles, `bound` where only the roofline
        says how long it takes at least.
    """

    seconds: float
    kind: str


def is_compiled(record: Record) -> bool:
    """Whether the record is of a program that was compiled and not run."""
    return record.target.get("kind") == "compiled"


def target_name(record: Record) -> str:
    """The target that a record was compiled for, as it is written; empty for a measurement."""
    if not is_compiled(record):
        return ""
    target = record.target
    return f"{target.get('platform')}:{target.get('chip')}:{target.get('topology')}"


def axes_name(collective: Mapping[str, Any]) -> str:
    """The mesh axes of an entry of `facts.collectives`: `fsdp+model`."""
    return "+".join(collective["axes"]) if collective["axes"] else "unknown axes"


def estimate(record: Record) -> Estimate | None:
    """The compiler's own time of a compiled record, else its bound; None where neither is known.

    The compiler counts no collectives: the least time of those that nothing hides is added.
    """
    found = record.facts.get("estimate", {})
    if not is_compiled(record) or record.status != "ok":
        return None
    if found.get("compiler_s"):
        return Estimate(found["compiler_s"] + (found.get("exposed_s") or 0.0), "estimate")
    return Estimate(found["bound_s"], "bound") if found.get("bound_s") else None


def rate(record: Record, quantity: str) -> Rate | None:
    """Work of a kind (a key of `RATE_UNITS`) per second; None where there is none."""
    amount = record.facts.get("work", {}).get(quantity)
    step = time(record)
    if not amount or step is None:
        return None
    unit = _unit(quantity, record)
    return Rate(amount / step.value, amount / step.high, amount / step.low, unit)


def _unit(quantity: str, record: Record) -> str:
    if quantity == "flops" and record.precision == "int8":
        return "OP/s"  # whole numbers
    return RATE_UNITS[quantity]


def headline(record: Record) -> Rate | None:
    """The rate that a row of this workload is about; None where that is the time itself."""
    spec = WORKLOADS.get(record.workload)
    if spec is None or spec.rate == "time" or record.params.get("op") == "latency":
        return None
    return rate(record, spec.rate)


def flags(record: Record) -> list[str]:
    """The record's flags (`accel_bench.record.FLAGS`)."""
    return list(record.facts.get("flags", []))


def ranked(record: Record) -> bool:
    """Whether the row's rate says how fast the work itself is."""
    return record.status == "ok" and not UNRANKED & set(flags(record))


def machine(record: Record) -> str:
    """The device that a record was made on, in words: `NVIDIA H100 80GB HBM3 x 8`."""
    kind = record.target.get("device_kind") or record.target.get("platform", "?")
    count = record.target.get("num_devices", 1)
    virtual = " virtual" if record.target.get("virtual") and count > 1 else ""
    return kind if count == 1 else f"{kind} x {count}{virtual}"


def ceilings(records: Iterable[Record]) -> dict[str, Ceilings]:
    """Machine -> what it showed at best, over its `ok` records of matmul and memory."""
    flops: dict[str, dict[str, float]] = {}
    bandwidth: dict[str, float] = {}
    for record in records:
        best = headline(record)
        if best is None or not ranked(record):
            continue
        name = machine(record)
        if record.workload == "matmul" and record.implementation == XLA:
            of = flops.setdefault(name, {})
            of[record.precision] = max(best.value, of.get(record.precision, 0.0))
        elif record.workload == "memory":
            bandwidth[name] = max(best.value, bandwidth.get(name, 0.0))
    return {
        name: Ceilings(flops.get(name, {}), bandwidth.get(name)) for name in {**flops, **bandwidth}
    }


def fraction_of_peak(record: Record, best: Mapping[str, Ceilings]) -> Fraction | None:
    """The row's rate as a share of what its hardware can do; None where that is not known.

    FLOP/s stand against the matmul peak of the row's precision (for a model this is the MFU, by
    the convention of `facts.work.flops`), bytes per second against main memory's bandwidth, a
    collective's bus bandwidth against what the links carry.
    """
    spec = WORKLOADS.get(record.workload)
    if spec is None:
        return None
    quantity = "bytes" if spec.rate == "bytes" else "flops"
    if record.workload == "transfer" or {"cache-resident", "dispatch-bound"} & set(flags(record)):
        return None
    value = rate(record, quantity)
    if value is None:
        return None
    if record.workload == "collective":
        return _of_links(record, value.value)
    chip = chips.CHIPS.get(record.target.get("chip") or "")
    if chip is None:
        shown = best.get(machine(record), Ceilings())
        top = shown.bandwidth if quantity == "bytes" else shown.flops.get(record.precision)
        of = "best measured STREAM kernel" if quantity == "bytes" else "best measured matmul"
        # A noisy row, which makes no ceiling, can lie above one; a share of over 1 says nothing.
        return Fraction(value.value / top, of) if top and value.value <= top else None
    return _of_published(record, quantity, value.value)


def _of_links(record: Record, per_second: float) -> Fraction | None:
    """A collective's rate, times its factor, as a share of what the links of a chip carry."""
    chip = chips.CHIPS.get(record.target.get("chip") or "")
    exchange = record.facts.get("exchange", {})
    if chip is None or not exchange.get("factor"):
        return None
    limit, what = bus_bandwidth.link_limit(chip, str(record.params.get("op")), exchange)
    return Fraction(per_second * exchange["factor"] / limit, what) if limit else None


def _of_published(record: Record, quantity: str, per_second: float) -> Fraction | None:
    """A rate over all of a target's chips as a share of what the chip table says they can do."""
    chip = chips.CHIPS.get(record.target.get("chip") or "")
    count = record.target.get("num_chips")
    if chip is None or not count:
        return None
    if quantity == "bytes":
        return Fraction(per_second / (chip.bandwidth_gbs * 1e9 * count), "published bandwidth")
    peak = chips.peak_flops(chip, record.precision)
    if peak is None:
        return None
    return Fraction(per_second / (peak[0] * count), f"published {peak[1]} peak")


def estimated_rate(record: Record) -> Rate | None:
    """The headline rate that an estimated time stands for; of a bound the rate at most."""
    found, spec = estimate(record), WORKLOADS.get(record.workload)
    if found is None or spec is None or spec.rate == "time":
        return None
    amount = record.facts.get("work", {}).get(spec.rate)
    if not amount:
        return None
    value = amount / found.seconds
    return Rate(value, value, value, _unit(spec.rate, record))


def estimated_fraction(record: Record) -> Fraction | None:
    """The share of the published peak that an estimated time stands for."""
    found, spec = estimate(record), WORKLOADS.get(record.workload)
    if found is None or spec is None:
        return None
    quantity = "bytes" if spec.rate == "bytes" else "flops"
    amount = record.facts.get("work", {}).get(quantity)
    if not amount:
        return None
    if record.workload == "collective":
        return _of_links(record, amount / found.seconds)
    return _of_published(record, quantity, amount / found.seconds)


@dataclass(frozen=True)
class Exchange:
    """A collective over one axis of one machine, whatever its size.

    Attributes:
      machine, op, axis: which one.
      mesh: the mesh in which the axis lies, name and size of each axis.
      ranks: devices that talk to each other.
      groups: how many such groups did so at the same time.
    """

    machine: str
    op: str
    axis: str
    mesh: tuple[tuple[str, int], ...]
    ranks: int
    groups: int


@dataclass(frozen=True)
class LatencyAndBandwidth:
    """What the times of an `Exchange` over its sizes say.

    Attributes:
      line: latency and bus bandwidth.
      smallest, largest: bytes (S) between which they were told.
      with_launch: whether launching the program is part of the latency.
    """

    line: Line
    smallest: float
    largest: float
    with_launch: bool


def latency_and_bandwidth(records: Iterable[Record]) -> dict[Exchange, LatencyAndBandwidth]:
    """Latency and bus bandwidth of each collective whose `ok` rows have enough sizes to tell them.

    Dispatch-bound rows take part: they carry the latency, with the launch in it. So do noisy ones,
    as long as their time is known to a quarter: the line says how well it fits them.
    """
    groups: dict[Exchange, list[tuple[Record, float]]] = {}
    for record in records:
        step = time(record) if record.facts.get("exchange") else None
        if step is None or not rate(record, "bus_bytes") or "nonlinear" in flags(record):
            continue
        if step.half_width <= _TELLING:
            groups.setdefault(_exchange(record), []).append((record, step.value))
    found = {}
    for exchange, group in groups.items():
        work = [record.facts["work"] for record, _ in group]
        line = bus_bandwidth.fit([each["bus_bytes"] for each in work], [s for _, s in group])
        if line:
            sizes = [each.get("bytes", 0) for each in work]
            launched = any(
                "dispatch-bound" in flags(r) or r.facts.get("mode") == "blocking" for r, _ in group
            )
            found[exchange] = LatencyAndBandwidth(line, min(sizes), max(sizes), launched)
    return found


def _exchange(record: Record) -> Exchange:
    what = record.facts["exchange"]
    return Exchange(
        machine(record), str(record.params.get("op")), what.get("axis", "?"),
        tuple(record.mesh.items()), what.get("ranks", 1), what.get("groups", 1),
    )  # fmt: skip


def precision_shown(record: Record) -> str:
    """The precision; empty for a workload that has none."""
    spec = WORKLOADS.get(record.workload)
    return record.precision if spec is None or spec.uses_precision else ""


def hidden_fraction(record: Record) -> float | None:
    """Share of the shorter of transfer and compute that a pipeline hid; None for other rows.

    (serial - pipelined) / min(transfer, compute): 1 when the shorter one cost nothing, 0 when
    nothing was gained. A pipeline also spares the waits between chunks, so that the figure can come
    out above 1; no more than all can be hidden, and 1 is what is said then.
    """
    companions = record.facts.get("companions_s", {})
    step = time(record)
    names = ("serial", "transfer_only", "compute_only")
    if step is None or not all(companions.get(name) for name in names):
        return None
    serial, transfer, compute = (stats.median(companions[name]).value for name in names)
    return min(1.0, (serial - step.value) / min(transfer, compute))


def delivered(record: Record) -> str | None:
    """The precision that a product's error looks like, beside the one that was asked for.

    None for rows that are no single product: errors add up through the layers of a model.
    """
    error = record.facts.get("error")
    if record.workload not in ("matmul", "attention") or record.status != "ok" or error is None:
        return None
    return precision.delivered(error)


def label(record: Record) -> str:
    """The case's parameters in a few words."""
    return describe(record.params)


def by_workload(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records grouped by workload, in the order in which workloads are listed."""
    order = [*WORKLOADS, *sorted({r.workload for r in records} - set(WORKLOADS))]
    groups = {name: [r for r in records if r.workload == name] for name in order}
    return {name: group for name, group in groups.items() if group}


def cache_level(record: Record) -> str | None:
    """The smallest cache of a CPU that a working set fits: `L1`, ..., or `RAM`; None elsewhere."""
    working_set = record.facts.get("working_set")
    caches = record.env.get("cpu", {}).get("caches", {})
    if working_set is None or not caches or record.target.get("platform") != "cpu":
        return None
    # What is there once per core serves each core's share of the work.
    for level, size in sorted(caches.items()):
        if working_set <= size:
            return level
    return "RAM" if working_set >= 4 * max(caches.values()) else "mixed"
