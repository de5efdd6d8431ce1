"""Reads the text of an optimised XLA program into computations and instructions.

Nothing here raises for odd text. A line inside a computation that cannot be read is named in
`Module.problems`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from accel_bench.hlo.shapes import Shape, shapes

_HEADER = re.compile(r"\s*(ENTRY )?%?([\w.$-]+)\s*")
_INSTRUCTION = re.compile(
    r"\s*(ROOT )?%?([\w.$-]+) = (\(.*?\)|[a-z]\w*\[[^\]]*\](?:\{[^}]*\})?) ([a-zA-Z][\w-]*)\("
)
_COMMENT = re.compile(r"/\*.*?\*/")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][(){},]')
_CALLS = ("calls", "to_apply", "condition", "body", "branch_computations", "true_computation")
_CALLS += ("false_computation", "called_computations")


def _top_level(text: str) -> list[str]:
    """Parts between the commas that stand in no bracket and no string."""
    parts, depth, start = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            depth -= 1
        elif token[0] == "," and depth <= 0:
            parts.append(text[start : token.start()])
            start = token.end()
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one just before `start`; the end if none does."""
    end = text.find(")", start)
    if end >= 0 and not re.search(r'[("]', text[start:end]):
        return end
    depth = 1
    for token in _TOKEN.finditer(text, start):
        depth += (token[0] == "(") - (token[0] == ")")
        if not depth:
            return token.start()
    return len(text)


def _header(line: str) -> re.Match[str] | None:
    """`ENTRY` and the name, if a line opens a computation: `%f (p: f32[]) -> f32[] {`.

    Piece by piece, as one pattern for all of it takes time that grows as the line's length squared.
    """
    found = _HEADER.match(line)
    rest = line[found.end() :].rstrip() if found else ""
    if not rest.endswith("{"):
        return None
    rest = rest[:-1].rstrip()
    if rest and not (rest[0] == "(" and (rest[-1] == ")" or re.search(r"\)\s*->", rest))):
        return None
    return found


@dataclass(eq=False)
class Instruction:
    """One line of a computation.

    Attributes:
      type_text: its result's type as written; `shapes` has the arrays of it.
      arguments: text between the brackets; `operands` has the names in it.
      attributes: text behind the brackets; `attribute` looks one up.
      root: whether its value is the computation's.
    """

    name: str
    opcode: str
    type_text: str
    arguments: str
    attributes: str
    root: bool = False

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Arrays of the result; those of a tuple one after the other."""
        return shapes(self.type_text)

    @cached_property
    def _operands(self) -> list[str]:
        if self.opcode in ("constant", "parameter", "iota"):
            return []
        return _top_level(_COMMENT.sub("", self.arguments))

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """Names of the instructions whose results it takes."""
        return tuple(text.split(" ")[-1].lstrip("%") for text in self._operands)

    @cached_property
    def operand_types(self) -> tuple[tuple[Shape, ...] | None, ...]:
        """Shapes of the operands that are written with their type; None for the others."""
        return tuple(shapes(text) if " " in text else None for text in self._operands)

    @cached_property
    def _attributes(self) -> dict[str, str]:
        pairs = (part.partition("=") for part in _top_level(self.attributes))
        return {name.strip(): value for name, _, value in pairs}

    def attribute(self, name: str) -> str | None:
        """The text of an attribute, as `{1,0}` of `dimensions={1,0}`; None without it."""
        return self._attributes.get(name)

    @cached_property
    def called(self) -> dict[str, tuple[str, ...]]:
        """Attribute -> names of the computations that it names."""
        found = {}
        for name in _CALLS:
            if name + "=" in self.attributes and (value := self.attribute(name)):
                found[name] = tuple(re.findall(r"[\w.$-]+", value))
        return found


@dataclass(eq=False)
class Computation:
    """Named instructions in the order of the text: that of execution in a scheduled module."""

    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict)

    @cached_property
    def root(self) -> Instruction | None:
        """The instruction whose value is the computation's."""
        return next((i for i in self.instructions.values() if i.root), None)

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Number -> parameter."""
        found = (i for i in self.instructions.values() if i.opcode == "parameter")
        return {int(i.arguments): i for i in found if re.fullmatch(r"\d{1,9}", i.arguments)}

    @cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Name -> the instructions that have it as an operand."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions.values():
            for name in dict.fromkeys(instruction.operands):
                found.setdefault(name, []).append(instruction)
        return found

    def operand_shapes(self, instruction: Instruction) -> list[tuple[Shape, ...] | None]:
        """Shapes of each operand; None for one that the computation does not define."""
        found = []
        for name, typed in zip(instruction.operands, instruction.operand_types, strict=True):
            definition = self.instructions.get(name)
            found.append(typed or (definition.shapes if definition else None))
        return found


@dataclass(eq=False)
class Module:
    """A program.

    Attributes:
      computations: name -> computation; instructions outside of any are in one named "".
      entry: name of the one that a call runs; None where the text ends before it does.
      num_partitions, replica_count: devices that run it are the one times the other.
      is_scheduled: whether instructions stand in the order in which they run.
      problems: sentences about lines that could not be read.
    """

    computations: dict[str, Computation] = field(default_factory=dict)
    entry: str | None = None
    num_partitions: int = 1
    replica_count: int = 1
    is_scheduled: bool = False
    problems: list[str] = field(default_factory=list)

    def instructions(self) -> Iterator[tuple[Computation, Instruction]]:
        """Every instruction of the text, with the computation that it is in."""
        for computation in self.computations.values():
            for instruction in computation.instructions.values():
                yield computation, instruction

    def fused(self, fusion: Instruction) -> Computation | None:
        """The computation inside a fusion; None where the text does not have it."""
        return self.computations.get(next(iter(fusion.called.get("calls", ())), ""))

    @cached_property
    def callers(self) -> dict[str, list[tuple[Computation, Instruction]]]:
        """Computation -> where it is called from: once for an asynchronous one, at its start."""
        found: dict[str, list[tuple[Computation, Instruction]]] = {}
        for computation, instruction in self.instructions():
            if instruction.opcode.endswith(("-done", "-update")):
                continue
            for name in itertools.chain.from_iterable(instruction.called.values()):
                found.setdefault(name, []).append((computation, instruction))
        return found


def parse(text: str) -> Module:
    """Reads a module; lines outside computations that are no instructions are passed over."""
    module = Module()
    current: Computation | None = None
    entry = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _INSTRUCTION.match(line):
            end = _closing(line, found.end())
            place = current or module.computations.setdefault("", Computation(""))
            root, name, type_text, opcode = found.groups()
            place.instructions[name] = Instruction(
                name, opcode, type_text, line[found.end() : end], line[end + 1 :], bool(root)
            )
        elif line.startswith("HloModule"):
            for key in ("num_partitions", "replica_count"):
                if count := re.search(rf"\b{key}=(\d{{1,9}})", line):
                    setattr(module, key, int(count[1]))
            module.is_scheduled = "is_scheduled=true" in line
        elif current and line.lstrip().startswith("}"):
            if entry == current.name:
                module.entry = entry
            current = None
        elif (header := _header(line)) and (current is None or "->" in line):
            current = module.computations[header[2]] = Computation(header[2])
            entry = header[2] if header[1] else entry
        elif current and line.strip() and not line.lstrip().startswith("//"):
            module.problems.append(f"line {number} in {current.name} is no instruction")
    if current:
        module.problems.append(f"the text ends inside {current.name}")
    return module
