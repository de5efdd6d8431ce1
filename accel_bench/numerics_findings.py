"""What a study of numerics shows on one machine, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accel_bench import precision, units
from accel_bench.numerics import (
    HIDDEN,
    PARTS,
    ROUNDED,
    growths,
    named,
    part,
    study,
    total,
    ulps_text,
    values,
)
from accel_bench.record import Record

# Precisions of fp32 operands: what their products come out as is the back end's choice.
_CHOSEN = ("fp32_default", "fp32", "tf32", "bf16_3x")
# A smaller share of results that vanish may have cancelled.
_TELLING = 0.01


def sentences(records: Sequence[Record], best: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about the `ok` rows of one machine, most telling first; no ceiling is needed."""
    del best
    yield from _delivered(records)
    yield from _terms(records)
    yield from _scaling(records)
    yield from _not_finite(records)
    yield from _flushed(records)
    yield from _usual(records)
    yield from _cancelling(records)


def _delivered(records: Sequence[Record]) -> Iterator[str]:
    """Which arithmetic each precision of fp32 operands was, by the largest usual product."""
    for name in _CHOSEN:
        rows = [
            r
            for r in records
            if r.precision == name and r.params.get("op") == "matmul" and values(r) == "normal"
        ]
        rows = [r for r in rows if r.facts.get("error") is not None]
        if rows:
            row = max(rows, key=lambda r: r.params["size"])
            error = row.facts["error"]
            yield (
                f"{name} multiplies as {precision.delivered(error)} here: relative error "
                f"{error:.1e} at {named(row)}."
            )


def _terms(records: Sequence[Record]) -> Iterator[str]:
    """How sums are added up; only where the rounding of the result does not hide it."""
    known = {"sequential": "one after the other", "pairwise": "in pairs"}
    exact = []
    for found in growths(records):
        if found.looks_like == HIDDEN:
            continue
        if found.rounded_once:
            exact.append(f"{found.op} in {', '.join(found.precisions)}")
            continue
        orders = [
            f"k^{found.orders[name]:.2f} {words} ({units.digits(found.ratios[name], 2)}x of that "
            "at most terms)"
            for name, words in known.items()
            if name in found.orders and name in found.ratios
        ]
        against = f"; the same terms in their own type: {', '.join(orders)}" if orders else ""
        yield (
            f"{found.op} in {', '.join(found.precisions)}: terms are added up {found.looks_like}. "
            f"The error grows as k^{found.exponent:.2f} from {found.smallest} to {found.largest} "
            f"terms{against}."
        )
    if exact:
        yield f"Terms are added up {ROUNDED} in {'; '.join(exact)}."


def _scaling(records: Sequence[Record]) -> Iterator[str]:
    """What a scale of the loss cures, where it cures something."""
    fine = []
    for record in records:
        rows = study(record).get("scales") or []
        if not rows or values(record) != "normal":
            continue
        rows = sorted(rows, key=lambda row: row["scale"])
        whole = next((row["scale"] for row in rows if not row["zeroed"]), None)
        over = next((row["scale"] for row in rows if row["nonfinite"]), None)
        held = [row["scale"] for row in rows if over is None or row["scale"] < over]
        least = min(rows, key=lambda row: row["zeroed"])
        first = rows[0]
        if whole == first["scale"] and over is None:
            fine.append(record.precision)
            continue
        under = f"{units.percent(first['zeroed'])} of it underflows to 0"
        start = under if first["zeroed"] else "nothing of it underflows"
        cure = "" if whole == first["scale"] else f"; from a scale of {_power(whole)} none does"
        if whole is None:
            cure = f"; at no scale none does ({units.percent(least['zeroed'])} at best)"
        top = f"nothing overflows up to {_power(held[-1])}" if held else "it overflows"
        more = ", the largest tried" if over is None else ""
        yield (f"Gradient of the loss in {record.precision}: unscaled, {start}{cure}; {top}{more}.")
    if fine:
        yield f"No scale of the loss is needed in {', '.join(fine)}, and none tried overflows."


def _power(scale: float | None) -> str:
    return "" if scale is None else f"2^{scale.hex().partition('p')[2].lstrip('+')}"


def _grouped(records: Sequence[Record], name: str) -> dict[tuple[str, str], dict[str, float]]:
    """Operation and range -> precision -> share of numbers that a count counts, where it does."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for record in records:
        numbers = total(record, "count")
        if numbers and total(record, name):
            key = str(record.params.get("op")), values(record)
            share = total(record, name) / numbers
            shares = found.setdefault(key, {})
            shares[record.precision] = max(share, shares.get(record.precision, 0.0))
    return found


def _shares(shares: dict[str, float]) -> str:
    """`100 % in fp32, bf16, 33 % in fp16`."""
    names: dict[str, list[str]] = {}
    for name, share in shares.items():
        names.setdefault(units.percent(share), []).append(name)
    return "; ".join(f"{share} in {', '.join(those)}" for share, those in names.items())


def _not_finite(records: Sequence[Record]) -> Iterator[str]:
    """Results and gradients that overflowed or vanished on the way to a number that fits."""
    kinds = {
        "nonfinite": "Not finite where float64 gives a number that fits",
        "lost": "0 where float64 gives a normal number",
    }
    for name, words in kinds.items():
        said = [
            f"{op} of {spread} numbers ({_shares(large)})"
            for (op, spread), shares in _grouped(records, name).items()
            if (large := {n: s for n, s in shares.items() if s >= _TELLING or name != "lost"})
        ]
        if said:
            yield f"{words}, of results and gradients: {', '.join(said)}."


def _flushed(records: Sequence[Record]) -> Iterator[str]:
    """For each precision the share of denormal results that came out as 0."""
    counts: dict[str, list[int]] = {}
    for record in records:
        if total(record, "denormal"):
            pair = counts.setdefault(record.precision, [0, 0])
            pair[0] += total(record, "flushed")
            pair[1] += total(record, "denormal")
    if counts:
        said = _shares({name: a / b for name, (a, b) in counts.items()})
        yield f"Of results that should be denormal, these came out as 0: {said}."


def _usual(records: Sequence[Record]) -> Iterator[str]:
    """For each precision the range of median errors over operations on usual numbers."""
    for name in dict.fromkeys(r.precision for r in records):
        medians = {}
        for record in records:
            if record.precision != name or values(record) != "normal":
                continue
            for which in PARTS:
                ulps = part(record, which).get("ulps")
                if ulps and part(record, which)["count"] > 1 and not study(record).get("scales"):
                    apart = which == "gradient" and record.params.get("op") != "gradient"
                    of = " gradient" if apart else ""
                    medians[f"{named(record)}{of}"] = ulps["median"]
        if medians:
            low, high = (pick(medians, key=medians.__getitem__) for pick in (min, max))
            yield (
                f"Usual numbers in {name}: the median error is {ulps_text(medians[low])} ulps "
                f"({low}) to {ulps_text(medians[high])} ulps ({high})."
            )


def _cancelling(records: Sequence[Record]) -> Iterator[str]:
    """What cancellation costs products, beside usual numbers of the same size."""
    usual = {(named(r), r.precision): r for r in records if values(r) == "normal"}
    said = []
    for record in records:
        other = usual.get((named(record), record.precision))
        if values(record) != "mixed" or record.params.get("op") != "matmul" or other is None:
            continue
        errors = [r.facts.get("error") for r in (record, other)]
        if all(errors):
            said.append(f"{record.precision} {errors[0]:.1e} instead of {errors[1]:.1e}")
    if said:
        yield f"Where terms cancel, the relative error of a product is {', '.join(said)}."
