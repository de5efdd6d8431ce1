"""What the plots are made of: each record with its figures and the words that say what it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from accel_bench import derive
from accel_bench.compare import value_text
from accel_bench.comparison import Cell, Comparison, make_cell
from accel_bench.record import Record
from accel_bench.report.style import ORIGINS

# More sources than this cannot be told apart in a plot.
MAX_SOURCES = 24
# Records of one source and workload that take part in plots, evenly spread over what there is.
MAX_OF_WORKLOAD = 2000
# Records of one source that pair with nothing and are plotted all the same.
_MAX_ALONE = 2000
_T = TypeVar("_T")


@dataclass(frozen=True)
class Point:
    """A record of a source.

    Attributes:
      source: the source's number.
      letter: the source's letter.
      cell: the record with what is derived from it.
    """

    source: int
    letter: str
    cell: Cell

    @property
    def record(self) -> Record:
        return self.cell.record

    @property
    def case(self) -> str:
        """Workload, parameters, precision and library."""
        record = self.record
        library = "" if record.implementation == "xla" else record.implementation
        words = (record.workload, derive.label(record), derive.precision_shown(record), library)
        return " ".join(filter(None, words))

    def text(self, *more: str) -> str:
        """Lines that say what it is: source and case, value with its mark, origin, flags."""
        flags = derive.flags(self.record)
        lines = [f"{self.letter}: {self.case}", value_text(self.cell), ORIGINS[self.cell.origin]]
        return "\n".join([*lines, *more, *([f"flags: {', '.join(flags)}"] if flags else [])])


def collect(found: Comparison) -> list[Point]:
    """Every record of the sources that are plotted, those that pair with nothing among them."""
    points: list[Point] = []
    for number, source in enumerate(found.sources[:MAX_SOURCES]):
        cells = [cell for row in found.rows if (cell := row.cells[number])]
        paired = {id(cell.record) for cell in cells}
        alone = [record for record in source.records if id(record) not in paired]
        cells += [_alone(record) for record in alone[:_MAX_ALONE]]
        by_workload: dict[str, list[Cell]] = {}
        for cell in cells:
            by_workload.setdefault(cell.record.workload, []).append(cell)
        points += [
            Point(number, source.letter, cell)
            for group in by_workload.values()
            for cell in thin(group, MAX_OF_WORKLOAD)
        ]
    return points


def _alone(record: Record) -> Cell:
    """A record that pairs with nothing: what its machine showed at best is not looked up."""
    return dataclasses.replace(make_cell(record, {}), fraction=None)


def flops_rate(cell: Cell) -> float | None:
    """FLOP/s over all of a record's devices, measured or as the estimated time has it."""
    flops = (cell.record.facts.get("work") or {}).get("flops")
    return flops / cell.seconds.value if flops and cell.seconds else None


def grouped(points: Sequence[Point], *fields: str) -> Iterator[tuple[tuple, list[Point]]]:
    """Points by source, origin and these fields of the record, each group by itself."""
    groups: dict[tuple, list[Point]] = {}
    for point in points:
        more = tuple(getattr(point.record, field) for field in fields)
        groups.setdefault((point.source, point.cell.origin, *more), []).append(point)
    yield from groups.items()


def thin(items: Sequence[_T], limit: int) -> list[_T]:
    """At most so many of them, evenly spread, the first and the last among them."""
    if len(items) <= limit:
        return list(items)
    step = (len(items) - 1) / (limit - 1)
    return [items[round(number * step)] for number in range(limit)]
