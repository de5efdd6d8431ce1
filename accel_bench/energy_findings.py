"""Energy of the rows where it was taken: columns, what does most with a joule, what is not told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accel_bench import derive, units
from accel_bench.comparison import Comparison, Row
from accel_bench.record import Record

# A smaller ratio of energies says nothing: counters are no better (docs/methods.md).
_TELLING = 1.1


def joules(record: Record, what: str) -> float | None:
    """A figure of `facts.energy`, such as `joules_per_step`; None where it is not known."""
    found = record.facts.get("energy") if record.status == "ok" else None
    return found.get(what) if found else None


def _cell(what: str):
    def cell(record: Record, best: Mapping[str, Any]) -> str:
        value = joules(record, what)
        return "" if value is None else units.energy(value)

    return cell


# Columns of the tables: title -> what a record has there.
CELLS = {
    "energy": _cell("joules_per_step"),
    "above idle": _cell("joules_per_step_above_idle"),
    "energy a token": _cell("joules_per_token"),
}


def sentences(records: Sequence[Record]) -> Iterator[str]:
    """What took least energy for its work, on each machine: tokens, or else arithmetic."""
    for machine in dict.fromkeys(map(derive.machine, records)):
        own = [r for r in records if derive.machine(r) == machine and derive.ranked(r)]
        known = {id(r): value for r in own if (value := joules(r, "joules_per_token"))}
        if known:
            record = min((r for r in own if id(r) in known), key=lambda r: known[id(r)])
            above = joules(record, "joules_per_token_above_idle")
            without = f", {units.energy(above)} above idle" if above else ""
            yield (
                f"Least energy a token: {units.energy(known[id(record)])}{without}, "
                f"{_what(record)}."
            )
            continue
        work = {id(r): value for r in own if (value := _flops_per_joule(r))}
        if work:
            record = max((r for r in own if id(r) in work), key=lambda r: work[id(r)])
            unit = "OP/J" if record.precision == "int8" else "FLOP/J"
            most = units.quantity(work[id(record)], unit)
            yield f"Most arithmetic a joule: {most}, {_what(record)}."


def _flops_per_joule(record: Record) -> float | None:
    step, flops = joules(record, "joules_per_step"), record.facts.get("work", {}).get("flops")
    return flops / step if step and flops else None


def _what(record: Record) -> str:
    source = record.facts["energy"].get("source")
    return f"{derive.label(record)} in {record.precision} ({derive.machine(record)}; {source})"


def unknown(records: Sequence[Record]) -> Iterator[str]:
    """Why energy that was asked for is not told, each reason once."""
    reasons: dict[str, int] = {}
    for record in records:
        found = record.facts.get("energy")
        if found and found.get("joules_per_call") is None:
            reason = str(found.get("reason"))
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        yield f"Energy is not told of {count} row{'s' if count > 1 else ''}: {reason}"


def compared(found: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """The energy of a step on each source, at each workload's largest row that two know it of."""
    largest: dict[str, tuple[float, Row, dict[str, Record]]] = {}
    for row in found.rows:
        cells = zip(found.sources, row.cells, strict=True)
        known = {
            source.letter: cell.record
            for source, cell in cells
            if cell and derive.ranked(cell.record) and joules(cell.record, "joules_per_step")
        }
        if len(known) > 1:
            flops = next(iter(known.values())).facts.get("work", {}).get("flops") or 0.0
            if flops >= largest.get(row.workload, (0.0,))[0]:
                largest[row.workload] = (flops, row, known)
    for workload, (_, row, known) in largest.items():
        each = {letter: joules(r, "joules_per_step") or 0.0 for letter, r in known.items()}
        counters = {letter: str(r.facts["energy"].get("source")) for letter, r in known.items()}
        said = ", ".join(
            f"{letter} {units.energy(value)} ({counters[letter]})" for letter, value in each.items()
        )
        least, most = min(each, key=each.__getitem__), max(each, key=each.__getitem__)
        ratio = each[most] / each[least]
        more = f" {most} takes {units.digits(ratio, 2)} times as much as {least}."
        kinds = {counter.partition(",")[0] for counter in counters.values()}
        warning = "; these do not count the same parts" if len(kinds) > 1 else ""
        yield (
            f"Energy of a step of {workload} {row.label} {row.precision}: {said}{warning}."
            f"{more if ratio >= _TELLING else ''}",
            [row],
        )
