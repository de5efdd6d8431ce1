"""What a training's rows say, in words and in two columns of the table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accel_bench import mesh, parallel, parallel_findings, units
from accel_bench.derive import Ceilings
from accel_bench.record import Record


def curve(record: Record) -> Mapping[str, Any]:
    """The curve of a training that has a point at least; else nothing."""
    found = record.facts.get("curve") or {}
    return found if record.status == "ok" and found.get("step") else {}


def last(record: Record, name: str) -> float | None:
    """The last point of the curve; None where it has none."""
    values = curve(record).get(name) or [None]
    return values[-1]


def waiting(record: Record) -> float | None:
    """Share of the training time that was spent waiting for input; None where not known."""
    waited, elapsed = record.facts.get("input_wait_s"), last(record, "elapsed_s")
    return waited / elapsed if waited is not None and elapsed else None


def accuracy_cell(record: Record, best: Mapping[str, Ceilings]) -> str:
    """Share of held-out sequences that were told, after the last step."""
    accuracy = last(record, "accuracy")
    return share(accuracy) if accuracy is not None else ""


def loss_cell(record: Record, best: Mapping[str, Ceilings]) -> str:
    """Loss on the held-out data after the last step."""
    loss = last(record, "test_loss")
    return units.digits(loss) if loss is not None else ""


def share(fraction: float) -> str:
    """`98.6 %`: of a few hundred held-out images each counts for 0.3 %."""
    return f"{100 * fraction:.1f} %"


def sentences(records: Sequence[Record], best: Mapping[str, Ceilings]) -> Iterator[str]:
    """Sentences about the trainings of one machine."""
    for record in records:
        if not curve(record):
            continue
        yield (
            f"{name(record)}: {_learnt(record)} after "
            f"{last(record, 'step')} steps in {units.seconds(last(record, 'elapsed_s') or 0.0)}"
            f"{_waited(record)}."
        )
        yield from _resumed(record)
        for problem in record.facts.get("checkpoint_problems", []):
            yield f"{record.params.get('task')}: {problem}."
    yield from parallel_findings.learning(records)


def name(record: Record) -> str:
    """What is trained and how, in a few words: `digits in fp32 (int8, data:2)`."""
    words = []
    if record.params.get("exchange", "auto") != "auto":
        words.append(parallel.relief_name(record))
    if record.mesh:
        words.append(mesh.text(record.mesh))
    how = f" ({', '.join(words)})" if words else ""
    return f"{record.params.get('task')} in {record.precision}{how}"


def _learnt(record: Record) -> str:
    accuracy, loss = last(record, "accuracy"), last(record, "test_loss") or 0.0
    if accuracy is not None:
        return f"{share(accuracy)} of held-out images"
    nats = units.digits(loss)
    # Of a text each token is a byte.
    return f"{nats} nats/byte ({units.digits(loss / math.log(2))} bits) on held-out text"


def _waited(record: Record) -> str:
    waited = waiting(record)
    return "" if waited is None else f"; the input took {units.percent(waited)} of the time"


def _resumed(record: Record) -> Iterator[str]:
    resumed = record.facts.get("resumed") or []
    if not resumed:
        return
    steps = ", ".join(str(entry.get("step")) for entry in resumed)
    here = {"mesh": dict(record.mesh), "processes": record.target.get("processes", 1)}
    elsewhere = any(
        {"mesh": entry.get("mesh"), "processes": entry.get("processes")} != here
        or entry.get("device_kind") != record.target.get("device_kind")
        for entry in resumed
    )
    parts = " on other devices before: the seconds are those of both" if elsewhere else ""
    yield f"It was carried on at step {steps}{',' if parts else ''}{parts}."
