"""How often each computation and instruction runs per call of the program, and sums over that."""

from __future__ import annotations

import graphlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from accel_bench.hlo.loops import trip_count
from accel_bench.hlo.text import Computation, Instruction, Module

_BRANCHES = ("branch_computations", "true_computation", "false_computation")


@dataclass(frozen=True)
class Execution:
    """How often a computation runs in one call of the program.

    Attributes:
      count: None if it cannot be told; `reason` says why.
      fused: whether it runs inside a fusion, so that what is between stays on the chip.
    """

    count: int | None
    fused: bool = False
    reason: str | None = None


def _called(module: Module, computation: Computation) -> Iterator[tuple[str, Execution]]:
    """Computations that one run of a computation runs, with how often."""
    for instruction in computation.instructions.values():
        called = instruction.called
        if not called or instruction.opcode.endswith(("-done", "-update")):
            continue
        if instruction.opcode == "while":
            trips, reason = trip_count(module, computation, instruction)
            for name in called.get("body", ()):
                yield name, Execution(trips, reason=reason)
            for name in called.get("condition", ()):
                yield name, Execution(None if trips is None else trips + 1, reason=reason)
            continue
        if instruction.opcode == "conditional":
            branches = {name for kind in _BRANCHES for name in called.get(kind, ())}
            reason = f"conditional {instruction.name}: which branch runs is not in the text"
            for name in branches:
                yield name, Execution(1) if len(branches) == 1 else Execution(None, reason=reason)
            continue
        kinds = {"calls"}
        if instruction.opcode in ("call", "async-start", "call-start"):
            kinds.add("to_apply")  # elsewhere the scalar function of a reduction or sort
        for kind in kinds & called.keys():
            for name in called[kind]:
                yield name, Execution(1, fused=instruction.opcode == "fusion")


def executions(module: Module) -> dict[str, Execution]:
    """Computation -> how often it runs per call of the program; those that do not are left out.

    Of a conditional's branches it cannot be told: the data choose which one runs.
    """
    if module.entry is None:
        return {}
    calls = {name: list(_called(module, c)) for name, c in module.computations.items()}
    callers: dict[str, set[str]] = {name: set() for name in calls}
    for caller, inner in calls.items():
        for name, _ in inner:
            callers.setdefault(name, set()).add(caller)
    try:
        order = list(graphlib.TopologicalSorter(callers).static_order())
    except graphlib.CycleError:
        return {module.entry: Execution(None, reason="a computation calls itself")}
    found = {module.entry: Execution(1)}
    for caller in order:
        if caller not in found:
            continue
        for name, inner in calls.get(caller, []):
            if name in module.computations:
                found[name] = _add(found.get(name), found[caller], inner)
    return found


def _add(known: Execution | None, caller: Execution, call: Execution) -> Execution:
    """What was known of a computation, and one more place that calls it."""
    count = 0 if 0 in (caller.count, call.count) else None
    if caller.count is not None and call.count is not None:
        count = caller.count * call.count
    fused = caller.fused or call.fused
    reason = None if count is not None else caller.reason or call.reason
    if known is None:
        return Execution(count, fused, reason)
    total = None if count is None or known.count is None else known.count + count
    return Execution(total, fused and known.fused, known.reason or reason)


class Run(NamedTuple):
    """An instruction in its computation, with how often it runs."""

    computation: Computation
    instruction: Instruction
    execution: Execution


def find_runs(module: Module) -> list[Run]:
    """Every instruction that the program runs, inside fusions too."""
    times = executions(module)
    return [
        Run(computation, instruction, times[computation.name])
        for computation, instruction in module.instructions()
        if computation.name in times
    ]


def sum_over_runs(
    amounts: Iterator[tuple[int | None, Run]], unknown: list[str], what: str
) -> int | None:
    """Sum of amounts times how often each runs; None if one is unknown.

    Args:
      amounts: of one run of an instruction, in any unit; and that instruction.
      unknown: where the reason for a None is noted.
      what: the amounts are of, as the reason names it.
    """
    total: int | None = 0
    for amount, run in amounts:
        if amount is None:
            unknown.append(
                f"{what}: {run.instruction.name} ({run.instruction.opcode}) is not clear"
            )
            total = None
        elif amount and run.execution.count is None:
            unknown.append(f"{what}: {run.execution.reason}")
            total = None
        elif total is not None:
            total += amount * (run.execution.count or 0)
    return total


def sum_known(amounts: list[int | None]) -> int | None:
    """Sum of amounts; None if one is unknown."""
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


class Tally:
    """Name -> how many instructions there are, and how often they run in all."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int | None]] = {}

    def add(self, name: str, run: Run) -> None:
        count = self.counts.setdefault(name, {"static": 0, "executed": 0})
        count["static"] = (count["static"] or 0) + 1
        known, times = count["executed"], run.execution.count
        count["executed"] = None if known is None or times is None else known + times
