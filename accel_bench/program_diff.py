"""What differs between the programs that two targets' compilers made of one case, in words.

Read from the facts of two compiled records; every sentence has both figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from accel_bench import derive, units
from accel_bench.record import Record


def differences(one: Record, other: Record, names: tuple[str, str]) -> list[str]:
    """Sentences on the products, fusions, copies, memory and collectives of two programs.

    Args:
      one, other: compiled records of the same case.
      names: what to call them.
    """
    found: list[str] = []
    parts = (_products, _kernels, _work, _fusions, _moves, _layouts, _custom_calls, _memory)
    for part in parts:
        found += part(one.facts, other.facts, names)
    found += _collectives(one.facts, other.facts, names)
    return found


def _both(names: tuple[str, str], first: str, second: str) -> str:
    return f"{names[0]} {first}, {names[1]} {second}"


def _products(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    shares = [_shares((facts.get("program") or {}).get("flops_by_type")) for facts in (one, other)]
    if shares[0] != shares[1] and all(shares):
        yield "products by operand: " + _both(names, *(_listed(share) for share in shares))


def _shares(by_type: Mapping[str, float] | None) -> dict[str, str]:
    known = {name: n for name, n in (by_type or {}).items() if n}
    total = sum(known.values())
    return {name: units.percent(n / total) for name, n in known.items()}


def _listed(items: Mapping[str, Any]) -> str:
    return " + ".join(f"{value} {name}" for name, value in items.items()) or "none"


def _counts(facts: Mapping, group: str) -> dict[str, str]:
    entries = (facts.get("code") or {}).get(group) or {}
    return {name: f"{entry.get('executed') or 0:g} x" for name, entry in entries.items()}


def _kernels(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    first, second = _counts(one, "kernels"), _counts(other, "kernels")
    if set(first) != set(second):
        yield "products run as: " + _both(names, _listed(first), _listed(second))


def _custom_calls(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    first, second = _counts(one, "custom_calls"), _counts(other, "custom_calls")
    if set(first) != set(second):
        yield "custom calls: " + _both(names, _listed(first), _listed(second))


def _work(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    for field, what in (("flops_vs_work", "products over what the mathematics needs"),):
        first, second = ((facts.get("program") or {}).get(field) for facts in (one, other))
        if first and second and abs(first / second - 1) > 0.01:
            yield f"{what}: " + _both(names, f"{first:.3g}x", f"{second:.3g}x")


def _fusions(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    first, second = (_total(facts, "fusions") for facts in (one, other))
    if first != second:
        yield "fusions executed a call: " + _both(names, f"{first:g}", f"{second:g}")


def _total(facts: Mapping, group: str) -> float:
    entries = (facts.get("code") or {}).get(group) or {}
    return sum(entry.get("executed") or 0 for entry in entries.values())


def _moves(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    kinds = {"copies": "copies and changes of layout", "prefetches": "moves between memories"}
    for group, what in kinds.items():
        first, second = ((facts.get("code") or {}).get(group) or {} for facts in (one, other))
        if first.get("executed") != second.get("executed"):
            yield f"{what}: " + _both(names, _amount(first), _amount(second))


def _amount(entry: Mapping) -> str:
    size = units.quantity(entry.get("bytes") or 0, "B")
    return f"{entry['executed']:g} ({size} of main memory)" if entry.get("executed") else "none"


def _layouts(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    first, second = ((facts.get("code") or {}).get("layouts") or {} for facts in (one, other))
    if first.get("other") != second.get("other"):
        total = sum(count or 0 for count in first.values())
        yield f"of {total} arguments not row-major: " + _both(
            names, str(first.get("other")), str(second.get("other"))
        )


def _memory(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    first, second = ((facts.get("memory") or {}).get("temporaries") for facts in (one, other))
    if first is not None and second is not None and first != second:
        shown = (units.quantity(size, "B") if size else "none" for size in (first, second))
        yield "temporaries on each device: " + _both(names, *shown)


def _collectives(one: Mapping, other: Mapping, names: tuple[str, str]) -> Iterator[str]:
    first, second = _sent(one), _sent(other)
    for key in dict.fromkeys([*first, *second]):
        held, now = first.get(key), second.get(key)
        if held != now:
            kind, axes, dtype = key
            shown = (
                f"{calls:g} calls, {units.quantity(size, 'B')}"
                if (calls, size) != (0, 0)
                else "none"
                for calls, size in (held or (0.0, 0.0), now or (0.0, 0.0))
            )
            yield f"{kind} over {axes} in {dtype}: " + _both(names, *shown)


def _sent(facts: Mapping) -> dict[tuple[str, str, str], tuple[float, float]]:
    """(kind, axes, element type) -> calls and bytes a step, overlapped or not."""
    found: dict[tuple[str, str, str], tuple[float, float]] = {}
    for entry in facts.get("collectives") or ():
        axes = derive.axes_name(entry)
        key = (entry["kind"], axes, str(entry.get("dtype")))
        calls, size = found.get(key, (0.0, 0.0))
        found[key] = (calls + (entry["calls"] or 0.0), size + (entry["bytes"] or 0.0))
    return found
