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

    Attributes:
      element: its index; None for a constant alone.
      added: the constant.
      span: numbers that its type holds; a sum beyond them wraps around.
    """

    element: int | None
    added: int
    span: range


class Comparison(NamedTuple):
    """A loop's condition: `left <direction> right`, the direction being HLO's, as `LT`."""

    direction: str
    left: Term
    right: Term


def _span(instruction: Instruction | None) -> range | None:
    """Numbers that an instruction's type holds; None for all but types of whole numbers."""
    shapes = instruction.shapes if instruction else ()
    found = re.fullmatch(r"([su])(\d{1,2})", shapes[0].element_type) if shapes else None
    if found is None:
        return None
    size = 1 << int(found[2])
    return range(size) if found[1] == "u" else range(-(size // 2), size // 2)


def _wrap(number: int, span: range) -> int:
    """The number of a type that a sum gives."""
    return (number - span.start) % (span.stop - span.start) + span.start


def _plus(element: int | None, added: int, span: range) -> Term:
    """A sum as a Term: of the constants that give the same, the one closest to 0.

    Compilers write `i - 1` of an unsigned i as `i + 4294967295`.
    """
    half = (span.stop - span.start) // 2
    return Term(element, _wrap(added, span if element is None else range(-half, half)), span)


def _convert(value: Term, span: range) -> Term | None:
    """A Term as another type; None where that may change its number."""
    if span == value.span:
        return value
    if value.element is None:
        return Term(None, value.added, span) if value.added in span else None
    # A sum may have wrapped in the type that it leaves.
    wider = span.start <= value.span.start and span.stop >= value.span.stop
    return Term(value.element, 0, span) if wider and not value.added else None


def _evaluate(
    module: Module,
    computation: Computation,
    name: str,
    arguments: Sequence[Term | None] | None,
    notes: list[str],
    depth: int = 12,
) -> Term | Comparison | None:
    """What an instruction gives, if it is a Term or a comparison of two; None otherwise.

    Args:
      arguments: a fusion's operands; None in a computation whose parameter is a loop's tuple.
      notes: where it is said that a conversion may change a number.
    """
    instruction = computation.instructions.get(name)
    if instruction is None or depth < 0 or any(s.elements != 1 for s in instruction.shapes[:1]):
        return None

    def operand(index: int) -> Term | Comparison | None:
        if index >= len(instruction.operands):
            return None
        name = instruction.operands[index]
        return _evaluate(module, computation, name, arguments, notes, depth - 1)

    def inside(fusion: Instruction, index: int | None) -> Term | Comparison | None:
        inner = module.computations.get(
            next(itertools.chain.from_iterable(fusion.called.values()), "")
        )
        if inner is None or inner.root is None:
            return None
        name = inner.root.name if index is None else _tuple_element(inner, inner.root.name, index)
        given = [
            _evaluate(module, computation, operand, arguments, notes, depth - 1)
            for operand in fusion.operands
        ]
        terms = [term if isinstance(term, Term) else None for term in given]
        return _evaluate(module, inner, name, terms, notes, depth - 1) if name else None

    span = _span(instruction)
    match instruction.opcode:
        case "constant":
            literal = re.fullmatch(r"-?\d{1,18}", instruction.arguments.strip())
            return Term(None, int(literal[0]), span) if literal and span else None
        case "parameter" if arguments is not None:
            number = integers(instruction.arguments)
            return arguments[number[0]] if number and number[0] < len(arguments) else None
        case "get-tuple-element":
            source = computation.instructions.get("".join(instruction.operands))
            index = integers(instruction.attribute("index") or "")
            if source is None or not index:
                return None
            if source.opcode == "parameter" and arguments is None:
                return Term(index[0], 0, span) if span else None
            if source.opcode == "fusion":
                return inside(source, index[0])
        case "copy" | "bitcast" | "reshape" | "copy-start" | "copy-done":
            return operand(0)
        case "convert":
            value = operand(0)
            found = _convert(value, span) if isinstance(value, Term) and span else None
            if found is None:
                types = [s.element_type for s in instruction.shapes[:1]]
                notes.append(f"a conversion to {''.join(types)} may change its counter or limit")
            return found
        case "compare" | "add" | "subtract":
            left, right = operand(0), operand(1)
            if not (isinstance(left, Term) and isinstance(right, Term)):
                return None
            if instruction.opcode == "compare":
                return Comparison(instruction.attribute("direction") or "", left, right)
            if span is None:
                return None
            if instruction.opcode == "subtract":
                if right.element is not None:
                    return None
                return _plus(left.element, left.added - right.added, span)
            if left.element is None or right.element is None:
                element = left.element if right.element is None else right.element
                return _plus(element, left.added + right.added, span)
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


def _after_trip(module: Module, body: Computation, index: int, notes: list[str]) -> Term | None:
    """A carried element after one trip."""
    name = _tuple_element(body, body.root.name, index) if body.root else None
    value = _evaluate(module, body, name, None, notes) if name else None
    return value if isinstance(value, Term) else None


def _unchanged(module: Module, body: Computation, index: int, notes: list[str]) -> bool:
    """Whether a trip leaves a carried element as it is."""
    after = _after_trip(module, body, index, notes)
    return after is not None and (after.element, after.added) == (index, 0)


def _before_first_trip(
    module: Module,
    computation: Computation,
    loop: Instruction,
    index: int,
    notes: list[str],
    depth: int = 8,
) -> int | None:
    """A carried element before the first trip; it may come unchanged through loops around.

    Also through a call: a CPU's compiler puts small loops in computations of their own.
    """
    source = computation.instructions.get("".join(loop.operands))
    added, span = 0, None
    if source is None or source.opcode != "parameter":
        name = _tuple_element(computation, "".join(loop.operands), index)
        value = _evaluate(module, computation, name, None, notes) if name else None
        if not isinstance(value, Term):
            return None
        if value.element is None:
            return value.added
        index, added, span = value.element, value.added, value.span
    callers = module.callers.get(computation.name, [])
    if len(callers) != 1 or depth == 0:
        return None
    outside, caller = callers[0]
    if computation.name in caller.called.get("body", ()):
        if not _unchanged(module, computation, index, notes):
            return None
    elif caller.opcode != "call":
        return None
    outer = _before_first_trip(module, outside, caller, index, notes, depth - 1)
    return outer if outer is None or span is None else _wrap(outer + added, span)


def _count_trips(start: int, direction: str, limit: int, step: int) -> int | None:
    """Trips of `for (i = start; i <direction> limit; i += step)`; None if it never ends.

    As if the counter could not wrap.
    """
    if direction in ("GT", "GE"):
        direction = {"GT": "LT", "GE": "LE"}[direction]
        start, limit, step = -start, -limit, -step
    if direction == "LE":
        direction, limit = "LT", limit + 1
    if direction == "LT":
        return 0 if start >= limit else -(-(limit - start) // step) if step > 0 else None
    if direction == "EQ":
        return int(start == limit) if step else None
    if direction == "NE" and step and (limit - start) % step == 0 and (limit - start) // step >= 0:
        return (limit - start) // step
    return None


class _Reading(NamedTuple):
    """What a loop's text tells of its trips.

    Attributes:
      trips: None, with a `reason`, if it does not tell them.
      doubtful: whether the compiler's own count is not to be believed either.
    """

    trips: int | None
    reason: str = ""
    doubtful: bool = False


def _read_trips(module: Module, computation: Computation, loop: Instruction) -> _Reading:
    """Trips from the counter's start, step and limit."""
    names = [next(iter(loop.called.get(key, ())), "") for key in ("condition", "body")]
    condition, body = (module.computations.get(name) for name in names)
    if condition is None or condition.root is None or body is None:
        return _Reading(None, "its condition or body is not in the text")
    notes: list[str] = []
    test = _evaluate(module, condition, condition.root.name, None, notes)
    if not isinstance(test, Comparison):
        reason = next(iter(notes), "its condition compares no counter with a number")
        return _Reading(None, reason, bool(notes))
    for counter, limit, direction in (
        (test.left, test.right, test.direction),
        (test.right, test.left, test.direction.translate(str.maketrans("LG", "GL"))),
    ):
        if counter.element is None:
            continue
        after = _after_trip(module, body, counter.element, notes)
        # A step of nothing is a carried limit: the counter is on the other side.
        if after is None or after.element != counter.element or not after.added:
            continue
        end: int | None = limit.added
        if limit.element is not None:
            same = _unchanged(module, body, limit.element, notes)
            given = None
            if same:
                given = _before_first_trip(module, computation, loop, limit.element, notes)
            end = None if given is None else _wrap(given + limit.added, limit.span)
        start = _before_first_trip(module, computation, loop, counter.element, notes)
        if start is None or end is None:
            continue
        trips = _count_trips(start + counter.added, direction, end, after.added)
        # Both what is carried and what is compared move steadily: the ends tell of all between.
        values = () if trips is None else (start, start + trips * after.added)
        if trips is not None and all(
            value in after.span and value + counter.added in counter.span for value in values
        ):
            return _Reading(trips)
        reason = "its counter leaves the range of its type before it meets the limit"
        return _Reading(None, reason, doubtful=True)
    reason = next(iter(notes), "its counter's start, step or limit cannot be told")
    return _Reading(None, reason, bool(notes) or test.left.span.start == 0)


def trip_count(
    module: Module, computation: Computation, loop: Instruction
) -> tuple[int | None, str | None]:
    """How often a while loop's body runs, and None; or None and why it cannot be told.

    The compiler's own `known_trip_count` takes no account of a counter that wraps around: of one of
    8 bits without a sign that goes from 0 in steps of 100 while below 250, it says 3, and 23 are
    right. So it must agree with the counter's start, step and limit. Where the text does not tell
    those, it is believed unless the condition compares unsigned numbers, which wrap below 0, or a
    conversion may change the counter.
    """
    read = _read_trips(module, computation, loop)
    reason = read.reason
    if known := _TRIPS.search(loop.attributes):
        if read.trips == int(known[1]):
            return read.trips, None
        if read.trips is not None:
            reason = f"the compiler counts {known[1]} trips, its counter makes {read.trips}"
        elif not read.doubtful:
            return int(known[1]), None
    elif read.trips is not None:
        return read.trips, None
    return None, f"loop {loop.name}: {reason}"
