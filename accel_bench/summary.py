"""The command `summary`: one run's story in ten lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from accel_bench import compiled_findings, derive, energy_findings, findings, mesh, units
from accel_bench.comparison import read_all
from accel_bench.record import FAILURES, Record
from accel_bench.tables import literal, make_console

LINES = 10


def show(path: Path, console: Console | None = None) -> None:
    """Prints the summary of a workdir or records file; raises `RequestError` without records."""
    console = console or make_console()
    for line in lines(path):
        console.print(literal(line), soft_wrap=True)


def lines(path: Path) -> list[str]:
    """At most ten lines: what ran where, how it went, and what matters most."""
    sources = read_all([path])
    records = [record for source in sources for record in source.records]
    problems = [problem for source in sources for problem in source.problems]
    head = [_what(path, records), _went(records), *(problems[:1])]
    wrong = [r for r in records if r.status in FAILURES]
    head += [f"{derive.label(r)} {r.precision}: {r.status}: {r.reason}" for r in wrong[:2]]
    return [*head, *list(_told(records))[: LINES - len(head)]]


def _what(path: Path, records: Sequence[Record]) -> str:
    measured = [r for r in records if not derive.is_compiled(r)]
    machines = list(dict.fromkeys(derive.machine(r) for r in measured))
    targets = [name for name in dict.fromkeys(derive.target_name(r) for r in records) if name]
    parts = [f"measured on {', '.join(machines[:2])}"] if machines else []
    if targets:
        more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
        parts.append(f"compiled for {', '.join(targets[:3])}{more}")
    meshes = sorted({mesh.text(r.mesh) for r in records} - {""})
    if meshes:
        parts.append(f"mesh {', '.join(meshes[:3])}")
    jax = records[0].env.get("packages", {}).get("jax")
    return f"{path}: {'; '.join(parts)}" + (f"; jax {jax}" if jax else "")


def _went(records: Sequence[Record]) -> str:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.status] = counts.get(record.status, 0) + 1
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    marks = [f"{count} of them marked {mark}" for mark in ("noisy", "drift")
             if (count := sum(mark in derive.flags(r) for r in records))]  # fmt: skip
    return "; ".join([f"{len(records)} rows: {said}", *marks])


def _told(records: Sequence[Record]) -> Iterator[str]:
    """Sentences, one of each workload before the second of any."""
    measured = [r for r in records if not derive.is_compiled(r)]
    compiled = [r for r in records if derive.is_compiled(r)]
    best = derive.ceilings(measured)
    groups = [
        list(findings.of_workload(name, group, best))
        for name, group in derive.by_workload(measured).items()
    ]
    groups.append(list(energy_findings.unknown(measured)))
    groups.append([_estimates(compiled), *compiled_findings.fits(compiled)] if compiled else [])
    for number in range(max(map(len, groups), default=0)):
        yield from (group[number] for group in groups if len(group) > number)


def _estimates(compiled: Sequence[Record]) -> str:
    """How what was compiled fits, and what binds it."""
    known = [
        fits for r in compiled if (fits := (r.facts.get("memory") or {}).get("fits")) is not None
    ]
    binds: dict[str, int] = {}
    for record in compiled:
        what = (record.facts.get("estimate") or {}).get("binds")
        if what:
            binds[what] = binds.get(what, 0) + 1
    bound = ", ".join(f"{count} by {what}" for what, count in binds.items())
    least = [s for r in compiled if (s := (r.facts.get("estimate") or {}).get("bound_s"))]
    span = f", at least {units.seconds(min(least))} to {units.seconds(max(least))} a step"
    return (
        f"Compiled, not run: {sum(known)} of {len(known)} fit; bound {bound or 'unknown'}"
        f"{span if least else ''}."
    )
