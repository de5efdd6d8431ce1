"""What a workload's rows say, in words. No sentence without a figure from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from accel_bench import (
    derive,
    energy_findings,
    inference_findings,
    numerics_findings,
    parallel_findings,
    training_findings,
    units,
)
from accel_bench.cases import XLA, format_bytes
from accel_bench.derive import Ceilings
from accel_bench.record import Record

_Finder = Callable[[Sequence[Record], Mapping[str, Ceilings]], Iterator[str]]


def of_workload(
    name: str, records: Sequence[Record], best: Mapping[str, Ceilings]
) -> Iterator[str]:
    """Sentences about the records of one workload on one machine."""
    finder = _FINDERS.get(name)
    well = [r for r in records if r.status == "ok"]
    if finder:
        yield from finder(well, best)
    yield from energy_findings.sentences(well)


def _rate(record: Record) -> float:
    rate = derive.headline(record)
    return rate.value if rate else 0.0


def _fastest(records: Sequence[Record]) -> Record | None:
    ranked = [r for r in records if derive.ranked(r) and _rate(r)]
    return max(ranked, key=_rate, default=None)


def _shown(record: Record) -> str:
    rate = derive.headline(record)
    return units.quantity(rate.value, rate.unit) if rate else "?"


def _matmul(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    own = [r for r in records if r.implementation == XLA]
    top = _fastest([r for r in own if r.precision != "int8"]) or _fastest(own)
    if top is None:
        return
    share = derive.fraction_of_peak(top, best)
    of = f", {units.percent(share.value)} of the {share.of}" if share and share.value < 1 else ""
    yield f"Fastest: {_shown(top)} at {derive.label(top)} in {top.precision}{of}."
    yield from _precisions(own)
    yield from _libraries(own, [r for r in records if r.implementation != XLA])


def _libraries(own: Sequence[Record], others: Sequence[Record]) -> Iterator[str]:
    """XLA against each library and precision, at the largest product quiet on both sides."""
    mine = {(derive.label(r), r.precision): r for r in own if derive.ranked(r)}
    for library, precision in dict.fromkeys((r.implementation, r.precision) for r in others):
        shared = [
            r
            for r in others
            if (r.implementation, r.precision) == (library, precision)
            and derive.ranked(r)
            and _rate(r)
            and (derive.label(r), precision) in mine
        ]
        if not shared:
            continue
        theirs = max(shared, key=lambda r: r.facts["work"]["flops"])
        ours = mine[derive.label(theirs), precision]
        speed = f"{units.digits(_rate(ours) / _rate(theirs), 2)}x"
        if derive.alike(ours, theirs):
            speed = "as fast as"
        yield (
            f"XLA on {derive.machine(ours)} is {speed} {library} at {derive.label(theirs)} in "
            f"{precision}."
        )


def _precisions(records: Sequence[Record]) -> Iterator[str]:
    """Each precision against fp32, at the largest size that was quiet on both sides."""
    fp32 = {
        derive.label(r): r
        for r in records
        if r.precision == "fp32" and derive.ranked(r) and _rate(r)
    }
    for precision in dict.fromkeys(r.precision for r in records if r.precision != "fp32"):
        shared = [
            r
            for r in records
            if r.precision == precision
            and derive.label(r) in fp32
            and derive.ranked(r)
            and _rate(r)
        ]
        if not shared:
            continue
        record = max(shared, key=lambda r: r.facts["work"]["flops"])
        base = fp32[derive.label(record)]
        speed = f"{units.digits(_rate(record) / _rate(base), 2)}x fp32"
        if derive.alike(record, base):
            speed = "as fast as fp32"
        emulated = ": emulated" if "emulated" in derive.flags(record) else ""
        yield (
            f"{precision} is {speed} here at {derive.label(record)}{emulated} "
            f"(error {record.facts.get('error') or 0:.1e})."
        )


def _dispatch(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    for record in records:
        step = derive.time(record)
        if step:
            how = {"queued": "queued behind others", "blocking": "waited for"}
            mode = str(record.params.get("mode"))
            yield f"A launch {how.get(mode, mode)} costs {units.seconds(step.value)}."


def _memory(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    triads = [r for r in records if r.params.get("op") == "triad"]
    far = [r for r in triads if derive.ranked(r)]
    near = [r for r in triads if derive.flags(r) == ["cache-resident"]]
    latencies = [
        r for r in records if r.params.get("op") == "latency" and "noisy" not in derive.flags(r)
    ]
    if far:
        record = max(far, key=_rate)
        size = format_bytes(record.facts.get("working_set", 0))
        yield f"Main memory: triad at {_shown(record)}, over {size}."
    if far and near:
        fast = max(near, key=_rate)
        ratio = _rate(fast) / _rate(max(far, key=_rate))
        size = format_bytes(fast.facts.get("working_set", 0))
        yield f"Caches: up to {_shown(fast)}, over {size}: {units.digits(ratio, 2)}x that."
    if len(latencies) > 1:
        ordered = sorted(latencies, key=lambda r: r.facts.get("working_set", 0))
        first, last = derive.time(ordered[0]), derive.time(ordered[-1])
        if first and last:
            yield (
                f"A dependent load takes {units.seconds(first.value)} in "
                f"{format_bytes(ordered[0].facts.get('working_set', 0))} and "
                f"{units.seconds(last.value)} in "
                f"{format_bytes(ordered[-1].facts.get('working_set', 0))}."
            )


def _transfer(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    for direction, words in (("h2d", "Host to device"), ("d2h", "Device to host")):
        top = _fastest([r for r in records if r.params.get("direction") == direction])
        if top:
            yield f"{words}: up to {_shown(top)}."
    hidden = [
        (share, record)
        for record in records
        if (share := derive.hidden_fraction(record)) is not None
        and "noisy" not in derive.flags(record)
    ]
    if hidden:
        share, record = max(hidden, key=lambda pair: pair[0])
        yield (
            f"A pipeline of {record.params.get('chunks', 8)} chunks hides {units.percent(share)} "
            "of the shorter of transfer and compute."
        )


def _collective(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    for exchange, found in derive.latency_and_bandwidth(records).items():
        line = found.line
        groups = f", {exchange.groups} groups at once" if exchange.groups > 1 else ""
        latency = units.seconds(line.latency_s) if line.latency_s else "no latency to speak of"
        launch = ", the program's launch included," if found.with_launch and line.latency_s else ""
        yield (
            f"{exchange.op} over {exchange.axis} ({exchange.ranks}{groups}): {latency}{launch} + "
            f"bytes at {units.quantity(line.bus_bandwidth, 'B/s')} bus bandwidth, within "
            f"{units.percent(line.within)} from {format_bytes(found.smallest)} to "
            f"{format_bytes(found.largest)}."
        )


def _attention(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    top = _fastest(records)
    if top is None:
        return
    share = derive.fraction_of_peak(top, best)
    of = f", {units.percent(share.value)} of the {share.of}" if share else ""
    implementation = top.facts.get("attention", "?")
    yield (
        f"Fastest: {_shown(top)} of causal work at {derive.label(top)} in {top.precision}"
        f" ({implementation}){of}."
    )


def _model(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    names = {"train_step": "Training", "forward": "Forward pass", "prefill": "Prefill"}
    for phase, words in names.items():
        top = _fastest([r for r in records if r.params.get("phase") == phase])
        if top is None:
            continue
        flops = derive.rate(top, "flops")
        share = derive.fraction_of_peak(top, best)
        of = f", {units.percent(share.value)} of the {share.of}" if share else ""
        work = f" ({units.quantity(flops.value, flops.unit)}{of})" if flops else ""
        yield f"{words} of {top.params['model']} in {top.precision}: {_shown(top)}{work}."
    for phase in (*names, "decode"):
        yield from _precisions([r for r in records if r.params.get("phase") == phase])
    yield from inference_findings.sentences(records)
    yield from parallel_findings.sentences(records)


_FINDERS: dict[str, _Finder] = {
    "matmul": _matmul,
    "dispatch": _dispatch,
    "memory": _memory,
    "transfer": _transfer,
    "collective": _collective,
    "attention": _attention,
    "model": _model,
    "numerics": numerics_findings.sentences,
    "training": training_findings.sentences,
}
