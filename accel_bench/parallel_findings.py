"""What rows of many devices say, in words: scaling, communication, the network's speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from accel_bench import derive, parallel, units
from accel_bench.record import Record

_SHARED = (
    "these devices share one processor, so that this is the cost of dividing the work and not what "
    "hardware would gain"
)


def sentences(records: Sequence[Record]) -> Iterator[str]:
    """Sentences about the model's rows of one machine."""
    yield from _scaling(records)
    yield from _networks(records)
    yield from _relief(records)


def _model(record: Record) -> str:
    return f"{record.params.get('model')} in {record.precision}"


def _scaling(records: Sequence[Record]) -> Iterator[str]:
    for found in parallel.scalings(records):
        sample = next(iter(found.rows.values()))
        how = "Weak" if found.weak else "Strong"
        steps = ", ".join(
            f"{count}: {units.percent(value)}" for count, value in found.efficiency.items()
        )
        shared = f"; {_SHARED}" if found.shared else ""
        shares = {
            count: share
            for count, record in found.rows.items()
            if (share := parallel.parts(record)) is not None
        }
        talk = ", ".join(f"{n}: {units.percent(s.communication)}" for n, s in shares.items())
        yield (
            f"{how} scaling of {_model(sample)} {sample.params.get('phase')} over "
            f"{'+'.join(sample.mesh)}, tokens/s per device: {steps}"
            + (f"; communication's share of the step: {talk}" if talk else "")
            + f"{shared}."
        )


def _networks(records: Sequence[Record]) -> Iterator[str]:
    """Each model over the speeds of a network, in fp32 without relief."""
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        if record.params.get("link") and parallel.is_plain(record) and parallel.parts(record):
            groups.setdefault(parallel.same_but(record, "link"), []).append(record)
    for group in groups.values():
        sample = group[0]
        shares = []
        for record in group:
            found = parallel.parts(record)
            assert found
            shares.append(
                f"{units.seconds(found.step)} a step at {record.params['link']} "
                f"({units.percent(found.communication)} of it communication)"
            )
        # The step without an exchange is the same whatever the link.
        needs = [n for record in group if (n := parallel.need(record)) is not None]
        need = min(needs, key=lambda n: n.balance, default=None)
        sent = sample.facts["data_parallel"]["sent_bytes"]
        yield (
            f"{_model(sample)}, {sample.params.get('processes')} processes, which send "
            f"{units.quantity(sent, 'B')} each a step: {'; '.join(shares)}."
        )
        if need:
            yield (
                f"The network is the bottleneck of {_model(sample)} with "
                f"{sample.params.get('processes')} processes below "
                f"{units.quantity(8 * need.balance, 'bit/s')}; for "
                f"{units.percent(parallel.GOOD_EFFICIENCY)} of the speed without exchange it needs "
                f"{units.quantity(8 * need.good, 'bit/s')} (each way, nothing overlapped)."
            )


def _relief(records: Sequence[Record]) -> Iterator[str]:
    for found in parallel.reliefs(records):
        link = found.plain.params.get("link")
        count = found.plain.params.get("processes") or found.plain.target.get("num_devices")
        where = f" at {link}" if link else ""
        gains = []
        for name, speed in found.speedup.items():
            alike = derive.alike(found.plain, found.others[name]) and abs(speed - 1) < 0.1
            gains.append(f"{name} {'as fast' if alike else f'{units.digits(speed, 2)}x'}")
        yield (
            f"{_model(found.plain)} on {count}{where}, tokens/s beside gradients in fp32 on every "
            f"step: {', '.join(gains)}."
        )


def learning(records: Sequence[Record]) -> Iterator[str]:
    """Sentences about one machine's trainings with different reliefs."""
    for found in parallel.learnt(records):
        link = found.plain.params.get("link")
        where = f" at {link}" if link else ""

        def losses(by: Mapping[str, float]) -> str:
            return ", ".join(f"{name} {units.digits(loss)}" for name, loss in by.items())

        replicas = found.plain.params.get("processes") or found.plain.target.get("num_devices")
        task, time = found.plain.params.get("task"), units.seconds(found.seconds)
        yield (
            f"Loss on held-out {task} of {replicas} replicas{where}, after as much data: "
            f"{losses(found.after_tokens)}; after as much time ({time}): "
            f"{losses(found.after_seconds)}."
        )
