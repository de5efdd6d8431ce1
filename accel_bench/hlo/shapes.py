"""Array types as a program's text writes them: element type, sizes, layout, place and bytes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_SHAPE = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([^}]*)\})?")
_SPACE = re.compile(r"S\((\d{1,9})\)")
_INTEGER = re.compile(r"-?\d{1,18}")
_TYPE_BITS = re.compile(r"(?:b?f|[suc])(\d{1,3})(?:e\d+m\d+\w*)?")


def integers(text: str) -> tuple[int, ...]:
    """Every whole number in a text, in order."""
    return tuple(int(number) for number in _INTEGER.findall(text))


@dataclass(frozen=True)
class Shape:
    """An array.

    Attributes:
      element_type: by its HLO name, as `bf16`.
      dims: sizes.
      memory_space: 0 is a device's main memory. The others are XLA's numbers; S(1) of a TPU is its
        vector memory.
      layout: the order of the dimensions, that of the closest elements first, and how they are
        tiled, as `1,0:T(8,128)`; None where it is not written.
    """

    element_type: str
    dims: tuple[int, ...]
    memory_space: int = 0
    layout: str | None = None

    @property
    def elements(self) -> int | None:
        """How many, without padding; None if a size is negative, as in a text that is damaged."""
        return None if min(self.dims, default=0) < 0 else math.prod(self.dims)

    @property
    def row_major(self) -> bool | None:
        """Whether the dimensions lie in their order, the last one's elements closest together.

        Nothing depends on where a dimension of size 1 stands. None where the order is not written.
        """
        large = [i for i, dim in enumerate(self.dims) if dim != 1]
        if len(large) < 2:
            return True
        order = integers((self.layout or "").partition(":")[0])
        if sorted(order) != list(range(len(self.dims))):
            return None
        return [i for i in reversed(order) if i in large] == large

    @property
    def bytes(self) -> int | None:
        """Bytes without padding; None for an element type or a size that is not known."""
        if self.element_type in ("token", "opaque"):
            return 0
        if self.element_type == "pred":
            return self.elements
        known = _TYPE_BITS.fullmatch(self.element_type)
        if known is None or self.elements is None:
            return None
        return -(-self.elements * int(known[1]) // 8)


def shapes(text: str) -> tuple[Shape, ...]:
    """The arrays of a type's text; those of a tuple one after the other."""
    found = []
    for name, dims, layout in _SHAPE.findall(text):
        space = _SPACE.search(layout)
        rest = _SPACE.sub("", layout).removesuffix(":") or None
        found.append(Shape(name, integers(dims), int(space[1]) if space else 0, rest))
    return tuple(found)


def array_bytes(arrays: tuple[Shape, ...] | None, memory_space: int | None = 0) -> int | None:
    """Bytes of the arrays in a memory space, 0 being main memory; in all of them with None.

    None where one is of an unknown type or size, or where the arrays themselves are not known.
    """
    if arrays is None:
        return None
    sizes = [s.bytes for s in arrays if memory_space is None or s.memory_space == memory_space]
    return None if None in sizes else sum(size for size in sizes if size is not None)
