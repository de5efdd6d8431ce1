"""What many devices cost and gain: shares of a data-parallel step, scaling, relief of a network.

Derived from records, as `accel_bench.derive` derives times and rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accel_bench import derive, stats
from accel_bench.record import Record

# A network is no bottleneck where steps are at least this fraction as fast as without it.
GOOD_EFFICIENCY = 0.9


@dataclass(frozen=True)
class Parts:
    """Where the time of a data-parallel step goes, in seconds per optimizer step.

    Attributes:
      step: the whole step, timed as one program.
      without: the same without the exchange, in which replicas learn apart.
      compute, waiting, exchange, update: pieces timed one by one; they can overlap in the step.
        Waiting is None where one process holds all replicas.
    """

    step: float
    without: float
    compute: float
    waiting: float | None
    exchange: float
    update: float

    @property
    def communication(self) -> float:
        """Share of the step that the exchange costs, by the difference to the step without it."""
        return max(0.0, 1 - self.without / self.step)


def parts(record: Record) -> Parts | None:
    """The parts of a step; None for a record that has none."""
    step, found = derive.time(record), record.facts.get("parts_s") or {}
    if step is None or not all(
        found.get(name) for name in ("without_exchange", "compute", "exchange", "update")
    ):
        return None
    of = {name: stats.median(samples).value for name, samples in found.items() if samples}
    return Parts(
        step.value,
        of["without_exchange"],
        of["compute"],
        of.get("waiting"),
        of["exchange"],
        of["update"],
    )


@dataclass(frozen=True)
class Need:
    """Bandwidth of each replica's link, in bytes per second one way, that a model needs.

    Attributes:
      balance: the exchange takes as long as all the rest: below it the network is the bottleneck.
      good: steps are `GOOD_EFFICIENCY` as fast as without an exchange.
    """

    balance: float
    good: float


def need(record: Record) -> Need | None:
    """What network a step needs, if nothing hides its exchange; None where it has no parts."""
    found, sent = parts(record), record.facts.get("data_parallel", {}).get("sent_bytes")
    if found is None or not sent or not found.without > 0:
        return None
    balance = sent / found.without
    return Need(balance, balance * GOOD_EFFICIENCY / (1 - GOOD_EFFICIENCY))


def same_but(record: Record, *leave_out: str) -> tuple:
    """A key that is equal for records that differ in these parameters only."""
    params = {k: v for k, v in record.params.items() if k not in leave_out}
    key = tuple(sorted((k, repr(v)) for k, v in params.items()))
    return record.workload, key, record.precision, record.target.get("device_kind")


@dataclass(frozen=True)
class Scaling:
    """One case over meshes of growing size.

    Attributes:
      weak: whether the work grows with the devices; else it is the same for all.
      rows: devices -> record.
      efficiency: devices -> rate per device as a fraction of that on the fewest.
      shared: whether the devices share one CPU's cores, so that the efficiency says nothing of
        hardware.
    """

    weak: bool
    rows: Mapping[int, Record]
    efficiency: Mapping[int, float]
    shared: bool


def scalings(records: Sequence[Record]) -> list[Scaling]:
    """Cases that were measured on meshes of their own, two sizes or more."""
    groups: dict[tuple, dict[int, Record]] = {}
    for record in records:
        if record.params.get("mesh") and derive.headline(record):
            axes = tuple(record.mesh)  # the same axes, whatever their sizes
            key = (*same_but(record, "mesh"), axes)
            groups.setdefault(key, {})[math.prod(record.mesh.values())] = record
    found = []
    for rows in groups.values():
        if len(rows) < 2:
            continue
        rates = {count: derive.headline(record) for count, record in rows.items()}
        per_device = {count: rate.value / count for count, rate in rates.items() if rate}
        first = per_device[min(per_device)]
        sample = next(iter(rows.values()))
        found.append(
            Scaling(
                "/replica" in str(sample.params.get("batch", "")),
                dict(sorted(rows.items())),
                {count: per_device[count] / first for count in sorted(per_device)},
                any(bool(record.target.get("virtual")) for record in rows.values()),
            )
        )
    return found


RELIEFS = ("exchange", "accumulate", "local_steps")


def relief_name(record: Record) -> str:
    """What relieves the network in a record, in a few words: `int8`, `fp32, 8 local steps`."""
    words = [str(record.params.get("exchange", "auto"))]
    if record.params.get("accumulate", 1) > 1:
        words.append(f"{record.params['accumulate']} accumulated")
    if record.params.get("local_steps", 1) > 1:
        words.append(f"{record.params['local_steps']} local steps")
    return ", ".join(words)


def is_plain(record: Record) -> bool:
    """Whether gradients travel in fp32 on every step."""
    return relief_name(record) == "fp32"


@dataclass(frozen=True)
class Relief:
    """What relieves one model's network of one speed, beside gradients in fp32 on every step.

    Attributes:
      plain: the record without relief.
      others: relief -> its record.
      speedup: relief -> tokens per second over those of `plain`.
    """

    plain: Record
    others: Mapping[str, Record]
    speedup: Mapping[str, float]


def reliefs(records: Sequence[Record]) -> list[Relief]:
    """Every group of records that differ in the relief alone, with one of them without."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        if record.facts.get("data_parallel") and derive.headline(record):
            key = (*same_but(record, *RELIEFS), tuple(record.mesh.items()))
            groups.setdefault(key, []).append(record)
    found = []
    for group in groups.values():
        plain = next((record for record in group if is_plain(record)), None)
        others = {relief_name(r): r for r in group if not is_plain(r)}
        if plain is None or not others:
            continue
        base = derive.headline(plain)
        assert base
        rates = {name: derive.headline(record) for name, record in others.items()}
        speedup = {name: rate.value / base.value for name, rate in rates.items() if rate}
        found.append(Relief(plain, others, speedup))
    return found


@dataclass(frozen=True)
class Learnt:
    """What trainings that differ in the relief alone have learnt, beside that without relief.

    Attributes:
      plain: the record without relief.
      tokens, seconds: how much each of them had learnt from, and for how long, at least.
      after_tokens, after_seconds: relief (`fp32` without) -> loss on held-out data by then.
    """

    plain: Record
    tokens: float
    seconds: float
    after_tokens: Mapping[str, float]
    after_seconds: Mapping[str, float]


def learnt(records: Sequence[Record]) -> list[Learnt]:
    """Every group of trainings of one task with different reliefs, one of them without."""
    groups: dict[tuple, dict[str, Record]] = {}
    for record in records:
        if (record.facts.get("curve") or {}).get("step") and record.params.get("exchange"):
            # With accumulation as much is learnt from in fewer steps.
            schedule = ("steps", "warmup", "eval_every", "checkpoint_every")
            key = (*same_but(record, *RELIEFS, *schedule), tuple(record.mesh.items()))
            groups.setdefault(key, {})[relief_name(record)] = record
    return [
        _learnt(group)
        for group in groups.values()
        if len(group) > 1 and any(map(is_plain, group.values()))
    ]


def _learnt(group: Mapping[str, Record]) -> Learnt:
    curves = {name: record.facts["curve"] for name, record in group.items()}
    tokens = min(curve["tokens"][-1] for curve in curves.values())
    seconds = min(curve["elapsed_s"][-1] for curve in curves.values())
    return Learnt(
        next(record for record in group.values() if is_plain(record)),
        tokens,
        seconds,
        {name: _loss_by(curve, "tokens", tokens) for name, curve in curves.items()},
        {name: _loss_by(curve, "elapsed_s", seconds) for name, curve in curves.items()},
    )


def _loss_by(curve: Mapping[str, Sequence[float]], what: str, limit: float) -> float:
    """Loss on held-out data when so much of something was spent, between the looks around it."""
    return float(np.interp(limit, curve[what], curve["test_loss"]))
