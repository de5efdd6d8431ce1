"""What a training's rows say, in words and in two columns of the table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accel_bench import loss_curves, mesh, parallel, parallel_findings, units
from accel_bench.cases import format_bytes
from accel_bench.derive import Ceilings
from accel_bench.loss_curves import Parting
from accel_bench.record import Record

# A difference in accuracy that equally good models show less often than this is one.
_CHANCE = 0.05


CURVE = ("step", "loss", "test_loss", "accuracy", "elapsed_s", "tokens")


def curve(record: Record) -> Mapping[str, Any]:
    """The curve of a training that has a point at least, and all of each; else nothing."""
    found = record.facts.get("curve") or {}
    lengths = {len(found.get(name) or []) for name in CURVE}
    return found if record.status == "ok" and len(lengths) == 1 and found.get("step") else {}


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
        yield from _also_in(record)
        yield from _resumed(record)
        for problem in record.facts.get("checkpoint_problems", []):
            yield f"{record.params.get('task')}: {problem}."
    for found in loss_curves.by_precision(records):
        yield parted(found, found.one.precision, name(found.other))
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


def _also_in(record: Record) -> Iterator[str]:
    """What is left of it in other precisions, with the bytes of the weights."""
    found, whole = record.facts.get("also_in") or {}, record.facts.get("weight_bytes")
    if not found or not whole:
        return
    said = [
        f"{precision} {_quality(figures.get('accuracy'), figures.get('test_loss'))} with weights "
        f"of {format_bytes(figures['weight_bytes'])}"
        for precision, figures in found.items()
        if figures.get("weight_bytes")
    ]
    yield (
        f"{name(record)} ({format_bytes(whole)} of weights), rounded after it was trained: "
        f"{'; '.join(said)}."
    )


def _quality(accuracy: float | None, loss: float | None) -> str:
    if loss is None:
        return "a loss that is not finite"
    return share(accuracy) if accuracy is not None else f"{units.digits(loss)} nats/byte"


def _waited(record: Record) -> str:
    waited = waiting(record)
    return "" if waited is None else f"; the input took {units.percent(waited)} of the time"


def parted(found: Parting, one: str, other: str) -> str:
    """Where the losses of a training leave those of a reference, why, and what comes of it.

    Args:
      found: of the two.
      one, other: what the reference and the training are called.
    """
    if found.first is None:
        return f"{other} loses bit for bit as {one} does, in all {len(found.steps)} losses kept."
    apart = "are never 1 % apart"
    if found.visible is not None:
        apart = f"are 1 % apart from {_step(found, found.visible)}"
    return (
        f"{other} leaves {one}: the losses' bits differ from {_step(found, found.first)} and they "
        f"{apart}. {_explained(found)}{_in_the_end(found)}"
    )


def _step(found: Parting, step: int) -> str:
    """A step, known as well as losses were kept around it."""
    number = found.steps.index(step)
    since = found.steps[number - 1] if number else step - 1
    return f"step {step}" if step - since == 1 else f"a step of {since + 1} to {step}"


def _explained(found: Parting) -> str:
    early = f"{found.early:.1e} apart in the first {loss_curves.EARLY} steps"
    one_step = "on one step" if found.every == 1 else f"within {found.every} steps"
    if found.is_rounding:
        return (
            f"Rounding explains it: they are {early}, where it may make {found.allowed:.1e}, and "
            f"never more than {units.digits(found.growth, 2)} times as far as before {one_step}."
        )
    if found.early > found.allowed:
        why = "other data or weights, or a fault"
        for unit in ("tf32", "bf16"):
            if found.early <= loss_curves.roundoff(unit):
                why = f"as products in {unit} would make it, or a fault"
                break
        return (
            f"Rounding does not explain it: they are {early}, where it makes {found.allowed:.1e} "
            f"at most: {why}."
        )
    assert found.jump
    step, before, distance = found.jump
    return (
        f"Rounding does not explain it: at {_step(found, step)} they are at once {distance:.1e} "
        f"apart, from {before:.1e}: another batch, a faulty update, or a device that computes "
        "wrongly."
    )


def _in_the_end(found: Parting) -> str:
    if not (curve(found.one) and curve(found.other)):
        return ""
    ends = [
        _quality(last(record, "accuracy"), last(record, "test_loss"))
        for record in (found.other, found.one)
    ]
    p = _p_value(found.one, found.other)
    if p is None:
        return f" In the end it has {ends[0]}, the other {ends[1]}."
    chance = "no more than chance" if p > _CHANCE else "more than chance"
    return f" In the end it tells {ends[0]}, the other {ends[1]}: {chance} (p = {p:.2g})."


def _p_value(one: Record, other: Record) -> float | None:
    """Probability that two equally good models differ as much on as many images as these do.

    Fisher's exact test; None without classes.
    """
    from scipy.stats import fisher_exact

    table = []
    for record in (one, other):
        accuracy = last(record, "accuracy")
        count = (record.facts.get("data") or {}).get("held_out") or 0
        if accuracy is None or not 0 <= accuracy <= 1 or not 0 < count < 1e9:
            return None
        right = round(accuracy * count)
        table.append([right, count - right])
    return float(fisher_exact(table)[1])  # type: ignore[arg-type] - scipy's stub has none


def _resumed(record: Record) -> Iterator[str]:
    resumed = [entry for entry in record.facts.get("resumed") or [] if "step" in entry]
    if not resumed:
        return
    steps = ", ".join(str(entry["step"]) for entry in resumed)
    here = {"mesh": dict(record.mesh), "processes": record.target.get("processes", 1)}
    elsewhere = any(
        {"mesh": entry.get("mesh"), "processes": entry.get("processes")} != here
        or entry.get("device_kind") != record.target.get("device_kind")
        for entry in resumed
    )
    parts = " on other devices before: the seconds are those of both" if elsewhere else ""
    yield f"It was carried on at step {steps}{',' if parts else ''}{parts}."
