"""What a workload's rows say, in words. No sentence without a figure from the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from accel_bench import derive, units
from accel_bench.cases import XLA, format_bytes
from accel_bench.derive import Ceilings
from accel_bench.record import Record

_Finder = Callable[[Sequence[Record], Mapping[str, Ceilings]], Iterator[str]]


def of_workload(
    name: str, records: Sequence[Record], best: Mapping[str, Ceilings]
) -> Iterator[str]:
    """Sentences about the records of one workload on one machine."""
    finder = _FINDERS.get(name)
    if finder:
        yield from finder([r for r in records if r.status == "ok"], best)


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
    top = _fastest(own)
    if top is None:
        return
    share = derive.fraction_of_peak(top, best)
    of = f", {units.percent(share.value)} of the {share.of}" if share and share.value < 1 else ""
    yield f"Fastest: {_shown(top)} at {derive.label(top)} in {top.precision}{of}."
    yield from _precisions(own)
    for record in records:
        if record.implementation == XLA:
            continue
        same = [r for r in own if r.params == record.params and r.precision == record.precision]
        if same and _rate(record):
            ratio = _rate(same[0]) / _rate(record)
            yield (
                f"XLA on {derive.machine(same[0])} is {units.digits(ratio, 2)}x "
                f"{record.implementation} at {derive.label(record)} in {record.precision}."
            )


def _precisions(records: Sequence[Record]) -> Iterator[str]:
    """Each precision against fp32 at the largest size that both have."""
    fp32 = {derive.label(r): r for r in records if r.precision == "fp32" and derive.ranked(r)}
    for precision in dict.fromkeys(r.precision for r in records if r.precision != "fp32"):
        shared = [
            r
            for r in records
            if r.precision == precision and derive.label(r) in fp32 and derive.ranked(r)
        ]
        if not shared:
            continue
        # The largest size that was quiet on both sides, if there is one.
        quiet = [r for r in shared if "noisy" not in _both(r, fp32)]
        record = max(quiet or shared, key=lambda r: r.facts["work"]["flops"])
        base = fp32[derive.label(record)]
        speed = f"{units.digits(_rate(record) / _rate(base), 2)}x fp32"
        if derive.alike(record, base):
            speed = "as fast as fp32"
        emulated = ": emulated" if "emulated" in derive.flags(record) else ""
        yield (
            f"{precision} is {speed} here at {derive.label(record)}{emulated} "
            f"(error {record.facts['error']:.1e})."
        )


def _both(record: Record, others: Mapping[str, Record]) -> list[str]:
    return derive.flags(record) + derive.flags(others[derive.label(record)])


def _dispatch(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    for record in records:
        step = derive.time(record)
        if step:
            how = {"queued": "queued behind others", "blocking": "waited for"}
            mode = str(record.params["mode"])
            yield f"A launch {how.get(mode, mode)} costs {units.seconds(step.value)}."


def _memory(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    triads = [r for r in records if r.params["op"] == "triad"]
    far = [r for r in triads if "cache-resident" not in derive.flags(r)]
    near = [r for r in triads if r not in far]
    latencies = [r for r in records if r.params["op"] == "latency"]
    if far:
        record = max(far, key=lambda r: r.facts["working_set"])
        size = format_bytes(record.facts["working_set"])
        yield f"Main memory: triad at {_shown(record)}, over {size}."
    if far and near:
        fast = max(near, key=_rate)
        ratio = _rate(fast) / _rate(max(far, key=lambda r: r.facts["working_set"]))
        size = format_bytes(fast.facts["working_set"])
        yield f"Caches: up to {_shown(fast)}, over {size}: {units.digits(ratio, 2)}x that."
    if len(latencies) > 1:
        ordered = sorted(latencies, key=lambda r: r.facts["working_set"])
        first, last = derive.time(ordered[0]), derive.time(ordered[-1])
        if first and last:
            yield (
                f"A dependent load takes {units.seconds(first.value)} in "
                f"{format_bytes(ordered[0].facts['working_set'])} and "
                f"{units.seconds(last.value)} in "
                f"{format_bytes(ordered[-1].facts['working_set'])}."
            )


def _transfer(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    for direction, words in (("h2d", "Host to device"), ("d2h", "Device to host")):
        top = _fastest([r for r in records if r.params["direction"] == direction])
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
        top = _fastest([r for r in records if r.params["phase"] == phase])
        if top is None:
            continue
        flops = derive.rate(top, "flops")
        share = derive.fraction_of_peak(top, best)
        of = f", {units.percent(share.value)} of the {share.of}" if share else ""
        work = f" ({units.quantity(flops.value, flops.unit)}{of})" if flops else ""
        yield f"{words} of {top.params['model']} in {top.precision}: {_shown(top)}{work}."
    for record in records:
        step = derive.time(record)
        if record.params["phase"] == "decode" and step:
            yield (
                f"Decoding {record.params['model']} in {record.precision}, batch "
                f"{record.params['batch']}: {units.seconds(step.value)} per step, {_shown(record)}."
            )


_FINDERS: dict[str, _Finder] = {
    "matmul": _matmul,
    "dispatch": _dispatch,
    "memory": _memory,
    "transfer": _transfer,
    "attention": _attention,
    "model": _model,
}
