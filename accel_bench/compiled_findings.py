"""What compiled records say, in words. No sentence without a figure from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accel_bench import derive, units
from accel_bench.record import Record


def of_workload(records: Sequence[Record]) -> Iterator[str]:
    """Sentences about the compiled records of one workload."""
    yield from _collectives(records)
    yield from fits(records)


def _name(record: Record) -> str:
    return f"{derive.label(record)} {record.precision}"


def _collectives(records: Sequence[Record]) -> Iterator[str]:
    """What each program sends over each mesh axis in a step."""
    for record in records:
        by_axes: dict[str, dict[str, list[float]]] = {}
        for entry in record.facts.get("collectives") or ():
            axes = derive.axes_name(entry)
            found = by_axes.setdefault(axes, {}).setdefault(entry["kind"], [0.0, 0.0])
            found[0] += entry["bytes"] or 0.0
            found[1] += entry["calls"] or 0.0
        parts = [
            f"over {axes} "
            + ", ".join(
                f"{kind} {units.quantity(size, 'B')} in {calls:g} calls"
                for kind, (size, calls) in sorted(kinds.items(), key=lambda item: -item[1][0])
            )
            for axes, kinds in by_axes.items()
        ]
        if parts:
            where, case = derive.target_name(record), _name(record)
            yield f"{where} {case}: each device's buffers a step: {'; '.join(parts)}."


def smallest_fits(records: Sequence[Record]) -> dict[tuple[str, str, str], list[Record]]:
    """Case, precision and search -> the records of a search for the smallest fit, by chips."""
    searches: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.facts.get("searched"):
            key = (derive.label(record), record.precision, str(record.facts["searched"]))
            searches.setdefault(key, []).append(record)
    return {key: sorted(found, key=_chips) for key, found in searches.items()}


def expected(records: Sequence[Record]) -> list[Record]:
    """Those that did not fit in a search that found a size that does."""
    searches = smallest_fits(records).values()
    return [
        record
        for found in searches
        if found[-1].status == "ok"  # the largest
        for record in found
        if record.status == "oom_compile"
    ]


def fits(records: Sequence[Record]) -> Iterator[str]:
    """What each search for the smallest fit found."""
    for (case, precision, search), found in smallest_fits(records).items():
        chip = found[0].target.get("chip")
        fitting = [r for r in found if r.status == "ok"]
        too_small = [r for r in found if r.status == "oom_compile"]
        what = f"{case} {precision}"
        other = [r for r in found if r not in fitting and r not in too_small]
        if other:
            yield (
                f"The smallest {chip} that fits {what} ({search}) is not known: "
                f"{derive.target_name(other[0])} ended as {other[0].status}."
            )
            continue
        if not fitting:
            largest = found[-1]
            yield f"{what} fits no {chip} up to {derive.target_name(largest)}: {_memory(largest)}."
            continue
        first = fitting[0]
        smaller = [r for r in too_small if _chips(r) < _chips(first)]
        share = ""
        if "over-default-share" in derive.flags(first):
            share = ", more than the 75 % that jax takes by default"
        but = f"; {derive.target_name(smaller[-1])}: {_memory(smaller[-1])}" if smaller else ""
        yield (
            f"Smallest {chip} that fits {what}: {derive.target_name(first)}, "
            f"{_chips(first):g} chips, {_memory(first)}{share}{but}."
        )


def _chips(record: Record) -> float:
    return record.target.get("num_chips") or 0


def _memory(record: Record) -> str:
    sizes: Mapping[str, Any] = record.facts.get("memory") or {}
    needed, usable = sizes.get("needed"), sizes.get("usable")
    if needed is None or usable is None:
        return record.reason or record.status
    return f"needs {units.digits(needed / 2**30)} of {units.digits(usable / 2**30)} GiB a device"
