"""Records as evidence: which of them speak to a claim, and the figures in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench import derive
from accel_bench.claims import criteria
from accel_bench.claims.verdict import COMPILED, MEASURED, Evidence
from accel_bench.comparison import Source
from accel_bench.derive import Rate
from accel_bench.record import Record


@dataclass(frozen=True)
class Row:
    """An `ok` record and the letter of the source it is from."""

    letter: str
    record: Record

    @property
    def compiled(self) -> bool:
        """Whether it was compiled and not run."""
        return derive.is_compiled(self.record)

    @property
    def platform(self) -> str:
        """`cpu`, `gpu` or `tpu`."""
        return str(self.record.target.get("platform"))

    @property
    def where(self) -> str:
        """The machine or the target, in words."""
        name = derive.target_name(self.record) or derive.machine(self.record)
        return f"{self.letter} ({name})"

    @property
    def case(self) -> str:
        """The case in a few words."""
        parts = [self.record.workload, derive.label(self.record)]
        return " ".join([*parts, derive.precision_shown(self.record)]).strip()

    @property
    def seconds(self) -> float | None:
        """Measured seconds of a step, where they decide anything; None otherwise."""
        step = derive.time(self.record)
        certain = step is not None and step.half_width <= criteria.TELLING
        if not certain or not derive.ranked(self.record):
            return None
        return step.value if step else None

    def rate(self, quantity: str) -> Rate | None:
        """Work of a kind per second and jax device, where the time decides anything."""
        found = derive.rate(self.record, quantity) if self.seconds else None
        if found is None or self.platform == "cpu":  # devices of a CPU share it
            return found
        count = self.record.target.get("num_devices") or 1
        return Rate(found.value / count, found.low / count, found.high / count, found.unit)

    def fact(self, *names: str) -> Any:
        """The fact below these names; None where there is none."""
        found: Any = self.record.facts
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def evidence(self, text: str) -> Evidence:
        """A sentence that rests on this row."""
        return Evidence(COMPILED if self.compiled else MEASURED, text, self.letter)


class Rows:
    """What the sources of a report hold.

    Attributes:
      all: every `ok` record.
      too_big: those that a compiler found not to fit its target.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        held = [Row(source.letter, record) for source in sources for record in source.records]
        self.all = [row for row in held if row.record.status == "ok"]
        self.too_big = [row for row in held if row.record.status == "oom_compile"]

    def find(
        self,
        workload: str,
        platform: str = "",
        compiled: bool | None = False,
        precision: str = "",
        implementation: str = "",
        **params: Any,
    ) -> list[Row]:
        """Rows of a workload; what is empty or None may be anything."""
        return [
            row
            for row in self.all
            if row.record.workload == workload
            and (not platform or row.platform == platform)
            and (compiled is None or row.compiled == compiled)
            and (not precision or row.record.precision == precision)
            and (not implementation or row.record.implementation == implementation)
            and all(row.record.params.get(name) == value for name, value in params.items())
        ]

    def accelerators(self, workload: str, **chosen: Any) -> list[Row]:
        """Measured rows of GPUs and TPUs."""
        return [row for row in self.find(workload, **chosen) if row.platform != "cpu"]


def both(first: Row, second: Row, text: str) -> Evidence:
    """A sentence that rests on two rows of one kind."""
    if first.compiled != second.compiled:
        raise ValueError(f"measured and compiled rows in one sentence: {text}")
    letters = ", ".join(dict.fromkeys((first.letter, second.letter)))
    return Evidence(first.evidence(text).kind, text, letters)


def fastest(rows: Sequence[Row], quantity: str) -> tuple[Row, Rate] | None:
    """The row of the highest rate per device, and that rate; None where none decides anything."""
    rated = [(row, rate) for row in rows if (rate := row.rate(quantity))]
    return max(rated, key=lambda pair: pair[1].value, default=None)


def pairs(rows: Sequence[Row], one: str, other: str) -> Iterator[tuple[Row, Row]]:
    """Rows that differ in their precision alone: that of `one` and that of `other`."""
    held: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        record = row.record
        where = (row.letter, derive.target_name(record), derive.machine(record), repr(record.mesh))
        key = (*where, record.workload, derive.label(record), record.implementation)
        held.setdefault(key, {})[record.precision] = row
    for group in held.values():
        if one in group and other in group:
            yield group[one], group[other]
