"""Bytes that instructions read from and write to main memory, fusions being looked into.

Of what a fusion takes and gives, only the part counts that its inside touches: a slice of an
operand, the update of a buffer that is changed in place.
"""

from __future__ import annotations

from accel_bench.hlo.kinds import SLICES, call_target, collective_kind, works
from accel_bench.hlo.pairs import continues, find_done, holds_call
from accel_bench.hlo.runs import Run, sum_known, sum_over_runs
from accel_bench.hlo.shapes import Shape, array_bytes, integers
from accel_bench.hlo.text import Computation, Instruction, Module


def _read_bytes(
    module: Module, computation: Computation, name: str, whole: int, depth: int = 32
) -> int | None:
    """Bytes that a fused computation reads of one of its values, `whole` at most.

    None if the size of a slice is not known.
    """
    parts: list[int | None] = []
    for user in computation.users.get(name, []):
        first = user.operands[0] == name
        once = user.operands.count(name) == 1
        if user.opcode in ("bitcast", "get-tuple-element") and depth:
            parts.append(_read_bytes(module, computation, user.name, whole, depth - 1))
        elif user.opcode in SLICES and first and once:
            parts.append(array_bytes(user.shapes, None))
        elif user.opcode in ("dynamic-update-slice", "scatter") and first and once:
            pass  # in place: what lies beside the update is left alone
        elif user.opcode == "tuple":
            pass  # handed on as it is
        elif continues(computation) and (collective_kind(user) or call_target(user)):
            pass  # read by the part that started it
        elif user.opcode == "fusion" and depth and (inner := module.fused(user)):
            for number, operand in enumerate(user.operands):
                if operand == name and number in inner.parameters:
                    parameter = inner.parameters[number]
                    if user is not computation.root and _relaid(module, inner, parameter):
                        rest = _read_bytes(module, computation, user.name, whole, depth - 1)
                        parts.append(rest)
                        continue
                    parts.append(_read_bytes(module, inner, parameter.name, whole, depth - 1))
                    if inner.root and _source(module, inner, inner.root.name) == (inner, parameter):
                        rest = _read_bytes(module, computation, user.name, whole, depth - 1)
                        parts.append(rest)
        else:
            return whole
    total = sum_known(parts)
    return None if total is None else min(total, whole)


def _relaid(module: Module, inner: Computation, parameter: Instruction) -> bool:
    """Whether a fusion inside a fusion gives a parameter again, but in another layout.

    Nobody makes such a copy as a whole: what is sliced off it is read of the original.
    """
    root = inner.root
    if root is None or root.opcode != "copy":
        return False
    return _source(module, inner, root.operands[0]) == (inner, parameter)


def _source(
    module: Module, computation: Computation, name: str, depth: int = 32
) -> tuple[Computation, Instruction] | None:
    """Where a value is made: bitcasts and fusions inside a fusion are looked through."""
    source = computation.instructions.get(name)
    if source is None or depth == 0:
        return None
    if source.opcode == "bitcast" and source.operands:
        return _source(module, computation, source.operands[0], depth - 1)
    inner = module.fused(source) if source.opcode == "fusion" else None
    if inner is None or inner.root is None or inner.root.opcode == "tuple":
        return computation, source
    place, made = _source(module, inner, inner.root.name, depth - 1) or (inner, inner.root)
    if place is inner and made.opcode == "parameter":
        number = integers(made.arguments)[:1]
        if number and number[0] < len(source.operands):
            return _source(module, computation, source.operands[number[0]], depth - 1)
    return place, made


def _written_bytes(module: Module, computation: Computation, name: str, shape: Shape) -> int | None:
    """Bytes that a fusion writes for one array of its result: none if it was handed on."""
    place, source = _source(module, computation, name) or (computation, None)
    if source is None:
        return shape.bytes
    if source.opcode == "parameter":
        return 0
    if source.opcode == "dynamic-update-slice" and len(source.operands) > 1:
        return array_bytes(place.operand_shapes(source)[1], None)
    if source.opcode == "scatter" and len(source.operands) > 2:
        update = array_bytes(place.operand_shapes(source)[-1], None)
        return None if update is None else 2 * update
    if continues(place) and (collective_kind(source) or call_target(source)):
        return 0
    return shape.bytes


def _fusion_bytes(module: Module, computation: Computation, fusion: Instruction) -> int | None:
    """Bytes of main memory that one run of a fusion reads and writes."""
    operands = computation.operand_shapes(fusion)
    inner = module.fused(fusion)
    if inner is None or inner.root is None:
        return sum_known([array_bytes(arrays) for arrays in (*operands, fusion.shapes)])
    amounts: list[int | None] = []
    for number, arrays in enumerate(operands):
        whole = array_bytes(arrays)
        parameter = inner.parameters.get(number)
        if whole and parameter:
            whole = _read_bytes(module, inner, parameter.name, whole)
        amounts.append(whole)
    results = fusion.shapes
    if inner.root.opcode == "tuple" and len(inner.root.operands) == len(results):
        names = inner.root.operands
    else:
        names = (inner.root.name,) * len(results)
    if holds_call(inner, "AsyncCollectiveStart"):
        results = results[1:]  # the first is what it was given
    for name, shape in zip(names, results, strict=False):
        amounts.append(0 if shape.memory_space else _written_bytes(module, inner, name, shape))
    return sum_known(amounts)


def instruction_bytes(
    module: Module, computation: Computation, instruction: Instruction
) -> int | None:
    """Bytes that one run of an instruction reads from and writes to main memory.

    A slice or gather reads what it gives. An update in place writes the update; a scatter also
    reads what it changes. Of an asynchronous pair the start stands for both.
    """
    if not works(instruction):
        return 0
    opcode = instruction.opcode
    if opcode == "fusion":
        return _fusion_bytes(module, computation, instruction)
    shapes = computation.operand_shapes(instruction)
    distinct = dict(zip(instruction.operands, shapes, strict=True))
    reads = [array_bytes(arrays) for arrays in distinct.values()]
    results: tuple[Shape, ...] | None = instruction.shapes
    if opcode.endswith("-start"):
        done = find_done(computation, instruction)
        results = done.shapes if done else None
    given = array_bytes(results, None)
    if opcode.removesuffix("-start") in SLICES and reads:
        reads[0] = given if reads[0] else reads[0]
    if opcode in ("dynamic-update-slice", "scatter") and len(shapes) > 1:
        update = array_bytes(shapes[1 if opcode == "dynamic-update-slice" else -1], None)
        changed = update if array_bytes(results) else 0
        reads[0] = 0 if opcode == "dynamic-update-slice" else changed
        return sum_known([*reads, changed])
    return sum_known([*reads, array_bytes(results)])


def main_memory_bytes(module: Module, all_runs: list[Run], unknown: list[str]) -> int | None:
    """Bytes that a call of the program reads from and writes to main memory.

    As if no cache kept anything from one instruction to the next.
    """
    amounts = (
        (instruction_bytes(module, run.computation, run.instruction), run)
        for run in all_runs
        if not run.execution.fused
    )
    return sum_over_runs(amounts, unknown, "bytes")
