"""What the rows of a study of numerics hold, for tables, comparisons and sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench import accuracy, units
from accel_bench.record import Record

WORKLOAD = "numerics"
PARTS = ("forward", "gradient")
# Ulps of a correctly rounded result, and what the reference's own rounding may add.
_ROUNDED = 0.501
ROUNDED = "so exactly that only the rounding of the result shows"
HIDDEN = "in an order that the rounding of the result hides"


def study(record: Record) -> Mapping[str, Any]:
    """The record's `facts.numerics`; empty where there is none."""
    return record.facts.get("numerics") or {} if record.status == "ok" else {}


def part(record: Record, name: str) -> Mapping[str, Any]:
    """The errors of a record's result (`forward`) or `gradient`; empty where there are none."""
    return study(record).get(name) or {}


def total(record: Record, name: str) -> int:
    """A count over result and gradient together, such as `nonfinite`."""
    return sum(part(record, which).get(name) or 0 for which in PARTS)


def named(record: Record) -> str:
    """Operation and size: `matmul 512`."""
    return f"{record.params.get('op')} {record.params.get('size')}"


def values(record: Record) -> str:
    """The range of its inputs."""
    return str(record.params.get("range", "normal"))


def _error(name: str) -> Callable[..., str]:
    def cell(record: Record, best: Any = None) -> str:
        error = part(record, name).get("error")
        return "" if error is None else f"{error:.1e}"

    return cell


def _ulps(name: str, which: str) -> Callable[..., str]:
    def cell(record: Record, best: Any = None) -> str:
        found = (part(record, name).get("ulps") or {}).get(which)
        return "" if found is None else ulps_text(found)

    return cell


def ulps_text(value: float) -> str:
    """Ulps with two digits; very many with a power of 10, very few as none."""
    if value >= 1e5:
        return f"{value:.1e}"
    return units.digits(value, 2) if value >= 0.001 else "0"


def _count(name: str) -> Callable[..., str]:
    def cell(record: Record, best: Any = None) -> str:
        count = total(record, name)
        return str(count) if count else ""

    return cell


# Title of a column of a table -> its cell, empty for rows of other workloads.
CELLS: dict[str, Callable[..., str]] = {
    "median ulps": _ulps("forward", "median"),
    "99 %": _ulps("forward", "p99"),
    "max": _ulps("forward", "max"),
    "gradient error": _error("gradient"),
    "gradient ulps": _ulps("gradient", "median"),
    "of 99 %": _ulps("gradient", "p99"),
    "not finite": _count("nonfinite"),
    "flushed": _count("flushed"),
    "lost": _count("lost"),
}


def value_text(record: Record) -> str:
    """A row's value in a comparison: `2.1e-07 (0.25 ulps)`; empty for other workloads."""
    if not study(record):
        return ""
    error = record.facts.get("error")
    shown = "no finite error" if error is None else f"{error:.1e}"
    ulps = next((u["median"] for p in PARTS if (u := part(record, p).get("ulps"))), None)
    counts = [f"{count} {words}" for words, count in _losses(record).items() if count]
    told = [*([f"{ulps_text(ulps)} ulps"] if ulps is not None else []), *counts]
    return f"{shown} ({', '.join(told)})" if told else shown


def _losses(record: Record) -> dict[str, int]:
    words = {"nonfinite": "not finite", "flushed": "flushed", "lost": "lost"}
    return {text: total(record, name) for name, text in words.items()}


@dataclass(frozen=True)
class Growth:
    """How the error of a sum grows with the number of its terms: error ~ terms^exponent.

    Attributes:
      op: of what.
      precisions: in which ones; several where all figures are the same.
      smallest, largest: numbers of terms.
      exponent: measured.
      orders: order of summation -> the exponent where the same terms are added up in it.
      ratios: order -> the measured error over that of the order, at most terms.
      rounded_once: whether every result is the exact sum, rounded: half an ulp off at most.
    """

    op: str
    precisions: tuple[str, ...]
    smallest: int
    largest: int
    exponent: float
    orders: Mapping[str, float]
    ratios: Mapping[str, float]
    rounded_once: bool = False

    @property
    def looks_like(self) -> str:
        """The order that the error at most terms is that of.

        With rounding errors that are independent of each other, those of a sum grow as the root of
        the number of terms one after the other, and as the root of its logarithm in pairs (Higham
        and Mary 2019, doi 10.1137/18M1226312); the worst case of the first is the number itself.
        """
        if self.rounded_once:
            return ROUNDED
        after, pairs = self.ratios.get("sequential"), self.ratios.get("pairwise")
        if after is None or pairs is None:
            return "in an order that cannot be told"
        if after > 3:
            return HIDDEN
        if after > 0.5:
            return "one after the other"
        if pairs > 3:
            return "in blocks, or by several accumulators"
        return "in pairs or many blocks"


def growths(records: Iterable[Record]) -> list[Growth]:
    """Of each sum and precision with errors at three numbers of terms or more."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if study(record).get("orders") and values(record) == "normal":
            key = str(record.params.get("op")), record.precision
            groups.setdefault(key, []).append(record)
    found: list[Growth] = []
    for (op, precision), group in groups.items():
        growth = _growth(op, group)
        same = [n for n, f in enumerate(found) if dataclasses.replace(f, precisions=()) == growth]
        if growth and same:
            names = (*found[same[0]].precisions, precision)
            found[same[0]] = dataclasses.replace(growth, precisions=names)
        elif growth:
            found.append(dataclasses.replace(growth, precisions=(precision,)))
    return found


def _growth(op: str, group: Sequence[Record]) -> Growth | None:
    rows = sorted(group, key=lambda r: r.params["size"])
    sizes = [r.params["size"] for r in rows]
    errors = [part(r, "forward").get("error") or 0.0 for r in rows]
    exponent = accuracy.growth(sizes, errors)
    if exponent is None:
        return None
    orders, ratios = {}, {}
    for order in accuracy.ORDERS:
        figures = [study(r)["orders"].get(order) or 0.0 for r in rows]
        own = accuracy.growth(sizes, figures)
        if own is not None:
            orders[order] = own
        if figures[-1] and errors[-1]:
            ratios[order] = errors[-1] / figures[-1]
    most = [(part(r, "forward").get("ulps") or {}).get("max") for r in rows]
    rounded = all(ulps is not None and ulps < _ROUNDED for ulps in most)
    return Growth(op, (), sizes[0], sizes[-1], exponent, orders, ratios, rounded)
