"""What the compiler chose: fusions, kernels, copies, layouts; and what it thinks they cost."""

from __future__ import annotations

import re
from typing import Any

from accel_bench.hlo.kinds import call_target, works
from accel_bench.hlo.loops import trip_count
from accel_bench.hlo.pairs import find_done, find_host
from accel_bench.hlo.products import is_product
from accel_bench.hlo.runs import Run, Tally, sum_over_runs
from accel_bench.hlo.text import Computation, Instruction, Module
from accel_bench.hlo.traffic import instruction_bytes

# Opcodes of moves; only a started slice is one, as the others are the program's own.
_MOVES = ("copy", "copy-start", "slice-start", "dynamic-slice-start")
_CYCLES = re.compile(r'"estimated_cycles":"(\d{1,19})"')
_ABSURD = 1 << 62  # cycles; what the compiler writes where it does not know


def _kernel_family(module: Module, run: Run) -> str:
    """What kind of kernel runs a product, as far as the text names it."""
    called = call_target(run.instruction)
    if called:
        library = re.match(r"__(\w+\$lt|[a-zA-Z]+)", called)
        return library[1].replace("$", "") if library else called
    texts = [run.instruction.attributes]
    if host := find_host(module, run.computation):
        texts.append(host[1].attributes)
    for text in texts:
        if emitter := re.search(r'"emitter":"(\w+)"', text):
            return emitter[1]
        if name := re.search(r'"custom_fusion_config":\{"name":"(\w+)"', text):
            return name[1]
        if kind := re.search(r'"kind":"__([a-zA-Z]+)', text):
            return kind[1]
    return f"compiled {run.instruction.opcode}"


def _move(computation: Computation, instruction: Instruction) -> str | None:
    """`copies` or `prefetches`, if all an instruction does is move its operand; None otherwise."""
    opcode = instruction.opcode
    if opcode == "transpose":
        return "copies"
    if opcode not in _MOVES:
        return None
    done = find_done(computation, instruction) if opcode.endswith("-start") else instruction
    before = (computation.operand_shapes(instruction) or [None])[0]
    after = done.shapes if done else None
    if not before or not after:
        return None if "slice" in opcode else "copies"
    source, result = before[0], after[0]
    between = source.memory_space != result.memory_space
    if "slice" in opcode:  # within one memory it is the program's own slice
        return "prefetches" if between else None
    changed = source.layout and result.layout and source.layout != result.layout
    return "prefetches" if between and not changed else "copies"


def _moves(module: Module, all_runs: list[Run], unknown: list[str]) -> dict[str, dict[str, Any]]:
    """`copies` and `prefetches` of `describe_code`."""
    found = {}
    kinds = [
        None if run.execution.fused else _move(run.computation, run.instruction) for run in all_runs
    ]
    for name, what in (("copies", "copied bytes"), ("prefetches", "prefetched bytes")):
        runs = [run for run, kind in zip(all_runs, kinds, strict=True) if kind == name]
        tally = Tally()
        for run in runs:
            tally.add(name, run)
        sizes = ((instruction_bytes(module, r.computation, r.instruction), r) for r in runs)
        found[name] = {
            **tally.counts.get(name, {"static": 0, "executed": 0}),
            "bytes": sum_over_runs(sizes, unknown, what),
        }
    return found


def _layouts(module: Module) -> dict[str, int]:
    """How many of the entry computation's parameters lie in which order, see `describe_code`."""
    found = {"row_major": 0, "other": 0, "unknown": 0}
    names = {True: "row_major", False: "other", None: "unknown"}
    entry = module.computations.get(module.entry or "")
    for parameter in entry.parameters.values() if entry else ():
        for shape in parameter.shapes:
            found[names[shape.row_major]] += 1
    return found


def describe_code(module: Module, all_runs: list[Run], unknown: list[str]) -> dict[str, Any]:
    """What a program is made of. `static` is how many the text has, `executed` how often they run.

    Returns:
      fusions: kind, as `Loop`, -> `static`, `executed`.
      custom_calls: target -> `static`, `executed`.
      kernels: kind of kernel that runs a product -> `static`, `executed`.
      copies: `static`, `executed` and `bytes` of copies and transposes that stay in one memory or
        change the layout: work that the program would not need.
      prefetches: the same of moves from one memory to another, either way, as between a TPU's main
        and vector memory. As for copies, `bytes` are those read from and written to main memory.
      layouts: arrays among the parameters that are `row_major`, in some `other` order, `unknown`.
      while_loops: `name`, `trips` per start and `executed`, how often the loop is started.
      instructions: in the text.
    """
    fusions, calls, kernels = Tally(), Tally(), Tally()
    loops = []
    for run in all_runs:
        instruction = run.instruction
        if instruction.opcode == "fusion" and not run.execution.fused:
            fusions.add((instruction.attribute("kind") or "?").removeprefix("k"), run)
        if instruction.opcode == "custom-call":
            calls.add(call_target(instruction), run)
        if is_product(instruction):
            kernels.add(_kernel_family(module, run), run)
        if instruction.opcode == "while":
            trips, _ = trip_count(module, run.computation, instruction)
            loops.append(
                {"name": instruction.name, "trips": trips, "executed": run.execution.count}
            )
    return {
        "fusions": fusions.counts,
        "custom_calls": calls.counts,
        "kernels": kernels.counts,
        **_moves(module, all_runs, unknown),
        "layouts": _layouts(module),
        "while_loops": loops,
        "instructions": sum(len(c.instructions) for c in module.computations.values()),
    }


def estimated_cycles(all_runs: list[Run], unknown: list[str]) -> dict[str, Any]:
    """A TPU compiler's own estimate of one call of the program; both None where it gives none.

    Returns:
      cycles: of the chip's clock, of the instructions that it has an estimate for.
      cycles_without: opcode -> how often instructions run that do work and have no estimate.
    """
    known: list[tuple[int | None, Run]] = []
    without = Tally()
    for run in all_runs:
        if run.execution.fused or not works(run.instruction):
            continue
        found = _CYCLES.search(run.instruction.attributes)
        if found and int(found[1]) < _ABSURD:
            known.append((int(found[1]), run))
        else:
            without.add(run.instruction.opcode, run)
    if not known:
        return {"cycles": None, "cycles_without": None}
    return {
        "cycles": sum_over_runs(iter(known), unknown, "cycles"),
        "cycles_without": {name: n["executed"] for name, n in sorted(without.counts.items())},
    }
