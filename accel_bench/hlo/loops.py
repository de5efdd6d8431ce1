"""How often a while loop runs its body, told from its counter: start, step and limit."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from accel_bench.hlo.shapes import integers
from accel_bench.hlo.text import Computation, Instruction, Module

_TRIPS = re.compile(r"known_trip_count\W+n\W+(\d{1,18})")


class Term(NamedTuple):
    """A whole number inside a loop: an element of the tuple that it carries, plus a constant.

    `element` is None for a constant alone.
    """

    element: int | None
    added: int


class Comparison(NamedTuple):
    """A loop's condition: `left <direction> right`, the direction being HLO's, as `LT`."""

    direction: str
    left: Term
    right: Term


def _evaluate(
    module: Module,
    computation: Computation,
    name: str,
    arguments: Sequence[Term | None] | None,
    depth: int = 12,
) -> Term | Comparison | None:
    """What an instruction gives, if it is a Term or a comparison of two; None otherwise.

    `arguments` are a fusion's operands; None in a computation whose parameter is a loop's tuple.
    """
    instruction = computation.instructions.get(name)
    if instruction is None or depth < 0 or any(s.elements != 1 for s in instruction.shapes[:1]):
        return None

    def operand(index: int) -> Term | Comparison | None:
        if index >= len(instruction.operands):
            return None
        return _evaluate(module, computation, instruction.operands[index], arguments, depth - 1)

    def inside(fusion: Instruction, index: int | None) -> Term | Comparison | None:
        inner = module.computations.get(
            next(itertools.chain.from_iterable(fusion.called.values()), "")
        )
        if inner is None or inner.root is None:
            return None
        name = inner.root.name if index is None else _tuple_element(inner, inner.root.name, index)
        given = [_evaluate(module, computation, o, arguments, depth - 1) for o in fusion.operands]
        terms = [term if isinstance(term, Term) else None for term in given]
        return _evaluate(module, inner, name, terms, depth - 1) if name else None

    match instruction.opcode:
        case "constant":
            literal = re.fullmatch(r"-?\d{1,18}", instruction.arguments.strip())
            return Term(None, int(literal[0])) if literal else None
        case "parameter" if arguments is not None:
            number = integers(instruction.arguments)
            return arguments[number[0]] if number and number[0] < len(arguments) else None
        case "get-tuple-element":
            source = computation.instructions.get("".join(instruction.operands))
            index = integers(instruction.attribute("index") or "")
            if source is None or not index:
                return None
            if source.opcode == "parameter" and arguments is None:
                return Term(index[0], 0)
            if source.opcode == "fusion":
                return inside(source, index[0])
        case "copy" | "bitcast" | "reshape" | "convert" | "copy-start" | "copy-done":
            return operand(0)
        case "compare" | "add" | "subtract":
            left, right = operand(0), operand(1)
            if not (isinstance(left, Term) and isinstance(right, Term)):
                return None
            if instruction.opcode == "compare":
                return Comparison(instruction.attribute("direction") or "", left, right)
            if instruction.opcode == "subtract":
                if right.element is not None:
                    return None
                return Term(left.element, left.added - right.added)
            if left.element is None or right.element is None:
                element = left.element if right.element is None else right.element
                return Term(element, left.added + right.added)
        case "fusion" | "call":
            return inside(instruction, None)
    return None


def _tuple_element(computation: Computation, name: str, index: int) -> str | None:
    """Name of a tuple's element, where the tuple is put together in this computation."""
    source = computation.instructions.get(name)
    while source and source.opcode in ("copy", "bitcast", "opt-barrier") and source.operands:
        source = computation.instructions.get(source.operands[0])
    if source is None or source.opcode != "tuple" or index >= len(source.operands):
        return None
    return source.operands[index]


def _after_trip(module: Module, body: Computation, index: int) -> Term | None:
    """A carried element after one trip."""
    name = _tuple_element(body, body.root.name, index) if body.root else None
    value = _evaluate(module, body, name, None) if name else None
    return value if isinstance(value, Term) else None


def _before_first_trip(
    module: Module, computation: Computation, loop: Instruction, index: int, depth: int = 8
) -> int | None:
    """A carried element before the first trip; it may come unchanged through loops around."""
    name = _tuple_element(computation, "".join(loop.operands), index)
    value = _evaluate(module, computation, name, None) if name else None
    if not isinstance(value, Term):
        return None
    if value.element is None:
        return value.added
    around = [
        (outside, caller)
        for outside, caller in module.callers.get(computation.name, [])
        if computation.name in caller.called.get("body", ())
    ]
    same = _after_trip(module, computation, value.element) == Term(value.element, 0)
    if len(around) != 1 or not same or depth == 0:
        return None
    outer = _before_first_trip(module, *around[0], value.element, depth - 1)
    return None if outer is None else outer + value.added


def _count_trips(start: int, direction: str, limit: int, step: int) -> int | None:
    """Trips of `for (i = start; i <direction> limit; i += step)`; None if it never ends."""
    if direction in ("GT", "GE"):
        direction = {"GT": "LT", "GE": "LE"}[direction]
        start, limit, step = -start, -limit, -step
    if direction == "LE":
        direction, limit = "LT", limit + 1
    if direction == "LT":
        return 0 if start >= limit else -(-(limit - start) // step) if step > 0 else None
    if direction == "NE" and step and (limit - start) % step == 0 and (limit - start) // step >= 0:
        return (limit - start) // step
    return None


def trip_count(
    module: Module, computation: Computation, loop: Instruction
) -> tuple[int | None, str | None]:
    """How often a while loop's body runs, and None; or None and why it cannot be told."""
    if known := _TRIPS.search(loop.attributes):
        return int(known[1]), None
    names = [next(iter(loop.called.get(key, ())), "") for key in ("condition", "body")]
    condition, body = (module.computations.get(name) for name in names)
    if condition is None or condition.root is None or body is None:
        return None, f"loop {loop.name}: its condition or body is not in the text"
    test = _evaluate(module, condition, condition.root.name, None)
    if not isinstance(test, Comparison):
        return None, f"loop {loop.name}: its condition compares no counter with a number"
    for counter, limit, direction in (
        (test.left, test.right, test.direction),
        (test.right, test.left, test.direction.translate(str.maketrans("LG", "GL"))),
    ):
        after = None if counter.element is None else _after_trip(module, body, counter.element)
        if counter.element is None or after is None or after.element != counter.element:
            continue
        end: int | None = limit.added
        if limit.element is not None:
            same = _after_trip(module, body, limit.element) == Term(limit.element, 0)
            given = _before_first_trip(module, computation, loop, limit.element) if same else None
            end = None if given is None else given + limit.added
        start = _before_first_trip(module, computation, loop, counter.element)
        # A step of nothing is a carried limit: the counter is on the other side.
        if start is None or end is None or not after.added:
            continue
        trips = _count_trips(start + counter.added, direction, end, after.added)
        if trips is not None:
            return trips, None
    return None, f"loop {loop.name}: its counter's start, step or limit cannot be told"
