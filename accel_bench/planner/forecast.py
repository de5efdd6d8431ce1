"""From a step to a training: days, chip-hours, energy and money, and the range that is left.

Four origins of a step's time stand side by side and are never mixed: the bound of the program as it
was compiled, the compiler's own count of cycles (TPUs), the share of the peak that published
trainings reached, and the share that given records show.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accel_bench import chips, precision, units
from accel_bench.planner import published
from accel_bench.planner.measured import Measured
from accel_bench.planner.request import Request
from accel_bench.planner.search import Found, Tried

DAY_S = 86_400.0


@dataclass(frozen=True)
class Total:
    """A training by one origin of a step's time.

    Attributes:
      origin: `bound`, `compiler`, `published` or `measured`.
      says: where the figure is from, in words.
      step_low_s, step_high_s: seconds of a batch; the second is None for a bound.
      days_low, days_high, chip_hours_low, chip_hours_high: of the whole training.
      mwh_low, mwh_high: energy of the boards; None where their power is not known.
      money_low, money_high: None where no price was given.
      mfu_low, mfu_high: the share of the peak that the times stand for; None where the chip has no
        published peak for the precision.
    """

    origin: str
    says: str
    step_low_s: float
    step_high_s: float | None
    days_low: float
    days_high: float | None
    chip_hours_low: float
    chip_hours_high: float | None
    mwh_low: float | None
    mwh_high: float | None
    money_low: float | None
    money_high: float | None
    mfu_low: float | None
    mfu_high: float | None


@dataclass(frozen=True)
class Forecast:
    """What is said of one target.

    Attributes:
      found: what was searched.
      precision: of the train step.
      verdict: whether it fits, in a sentence.
      fits: the same; None where that is not known.
      totals: by origin.
      step_flops: model FLOPs of a batch.
      at_peak_s: what they take at 100 % of the published peak; None without one.
      watts: of one board; None where not known, and `watts_reason`.
      assumed: what the figures rest on beside the request.
    """

    found: Found
    precision: str
    verdict: str
    fits: bool | None
    totals: tuple[Total, ...]
    step_flops: float
    at_peak_s: float | None
    watts: float | None
    watts_reason: str | None
    assumed: tuple[str, ...]

    @property
    def compiled(self) -> bool:
        """Whether anything rests on a compiled program."""
        return bool(self.found.tried)


def forecast(request: Request, found: Found, measured: Measured | None) -> Forecast:
    """What a search, the published range and the given records say of a target."""
    target = found.target
    named = request.precision_on(target.chip)
    flops = float(request.flops_of_step())
    peak = chips.peak_flops(target.chip, named)
    at_peak_s = flops / (peak[0] * target.num_chips) if peak else None
    fits, verdict = _verdict(request, found)
    totals: list[Total] = []
    if fits is not False:
        totals = _totals(request, found, at_peak_s, measured)
    watts = target.chip.watts
    reason = None if watts else f"no board power of {target.name} is in the chip table"
    return Forecast(
        found, named, verdict, fits, tuple(totals), flops, at_peak_s, watts, reason,
        tuple(_assumed(request, found, at_peak_s, measured)),
    )  # fmt: skip


def _totals(
    request: Request, found: Found, at_peak_s: float | None, measured: Measured | None
) -> list[Total]:
    best, totals = found.best, []
    if best and best.bound_s is None:
        best = None  # its time is not known at all
    bound_s = best.bound_s if best else at_peak_s
    if bound_s:
        says = "the program as compiled, at the chip table's rates" if best else (
            "analytic, of no compiled program: model FLOPs at 100 % of the published peak"
        )  # fmt: skip
        totals.append(_total(request, found, at_peak_s, "bound", says, bound_s, None))
    if best and best.estimate_s:
        says = "the compiler's cycles, and the network that nothing hides"
        step = best.estimate_s
        totals.append(_total(request, found, at_peak_s, "compiler", says, step, step))
    if at_peak_s is None:
        return totals
    floor = bound_s or 0.0
    share = published.efficiency(found.target.name)
    low, high = at_peak_s / share.high, at_peak_s / share.low
    says = (
        f"{units.percent(share.low)} ({share.lowest}) to {units.percent(share.high)} "
        f"({share.highest}) of the peak, the ends of {share.among}"
    )
    if low < floor:
        says += "; no shorter than the bound of this program"
    totals.append(
        _total(request, found, at_peak_s, "published", says, max(low, floor), max(high, floor))
    )
    if measured:
        says = f"{units.percent(measured.value)} of the peak: {measured.row}"
        low, high = at_peak_s / measured.high, at_peak_s / measured.low
        if low < floor:
            says += "; no shorter than the bound of this program"
        totals.append(
            _total(request, found, at_peak_s, "measured", says, max(low, floor), max(high, floor))
        )
    return totals


def _total(
    request: Request,
    found: Found,
    at_peak_s: float | None,
    origin: str,
    says: str,
    low: float,
    high: float | None,
) -> Total:
    target = found.target
    price = request.prices.get(target.name)

    def days(step: float) -> float:
        return step * request.steps / DAY_S

    def hours(step: float) -> float:
        return days(step) * 24 * target.num_chips

    def mwh(step: float) -> float | None:
        return hours(step) * target.chip.watts / 1e6 if target.chip.watts else None

    def money(step: float) -> float | None:
        return hours(step) * price if price else None

    def share(step: float | None) -> float | None:
        return at_peak_s / step if at_peak_s and step else None

    return Total(
        origin, says, low, high,
        days(low), None if high is None else days(high),
        hours(low), None if high is None else hours(high),
        mwh(low), None if high is None else mwh(high),
        money(low), None if high is None else money(high),
        share(high), share(low),
    )  # fmt: skip


def _gib(size: float) -> str:
    return f"{units.digits(size / 2**30)} GiB"


def _verdict(request: Request, found: Found) -> tuple[bool | None, str]:
    """Whether the step fits, and how that is known."""
    target, best = found.target, found.best
    if best:
        of = f"the best of {sum(bool(t.fits) for t in found.tried)} that fit"
        return True, (
            f"fits with {best.candidate.label}: {_gib(best.needed or 0)} of "
            f"{_gib(best.usable or 0)} on each device ({of}, of {len(found.tried)} compiled)"
        )
    too_big = [t for t in found.tried if t.fits is False and t.needed and t.usable]
    if too_big:
        nearest = min(too_big, key=lambda t: (t.needed or 0) - (t.usable or 0))
        return _not_at_all(found, nearest)
    if found.tried:
        first = found.tried[0].record
        return None, f"not known: the compiler ended as {first.status} ({first.reason})"
    rungs = [rung for ladder in found.enumeration.ladders for rung in ladder.rungs]
    if rungs:
        smallest = min(rungs, key=lambda rung: rung.memory.needed)
        fits = smallest.memory.excess <= 0
        word = "should fit" if fits else "may not fit"
        return (True if fits else None), (
            f"{word}, by formulas alone: {_gib(smallest.memory.needed)} of "
            f"{_gib(smallest.memory.usable)} on each device with {smallest.label}"
        )
    if found.enumeration.hopeless:
        return _hopeless(found)
    why = found.enumeration.impossible[0] if found.enumeration.impossible else "no mesh"
    return False, f"cannot be divided over {target.num_devices} devices: {why}"


def _hopeless(found: Found) -> tuple[bool | None, str]:
    """Nothing was worth compiling: certain where weights and moments alone are too large."""
    target, candidates = found.target, found.enumeration.hopeless
    smallest = min(candidates, key=lambda candidate: candidate.memory.needed)
    memory, shards = smallest.memory, smallest.mesh
    whole = memory.state * shards.get("fsdp", 1) * shards.get("model", 1)
    chips_filled = math.ceil(whole / (memory.usable * target.chip.devices_per_chip))
    certain = all(candidate.memory.state > candidate.memory.usable for candidate in candidates)
    return False if certain else None, (
        f"{'does not fit' if certain else 'not known, and not compiled for it is far too large'}: "
        f"{_gib(memory.state)} of weights and moments on each device and, by formulas, "
        f"{_gib(memory.needed)} in all, where {_gib(memory.usable)} can be used: "
        f"{_gib(memory.excess)} too much ({smallest.label}); weights and moments alone fill "
        f"{chips_filled} chips of {target.name}"
    )


def _not_at_all(found: Found, nearest: Tried) -> tuple[bool | None, str]:
    """None of what was compiled fits; whether nothing does depends on what was left out."""
    needed, usable = nearest.needed or 0.0, nearest.usable or 0.0
    text = (
        f"of {len(found.tried)} compiled the nearest, {nearest.candidate.label}, needs "
        f"{_gib(needed)} on each device, where {_gib(usable)} can be used: {_gib(needed - usable)} "
        "too much"
    )
    if found.stopped:
        return None, f"not known: {text}; {found.stopped} are spent"
    return False, f"does not fit: {text}"


def _assumed(
    request: Request, found: Found, at_peak_s: float | None, measured: Measured | None
) -> list[str]:
    """What the figures rest on, in words."""
    target, best = found.target, found.best
    lines = []
    if best and best.candidate.passes > 1:
        lines.append(
            f"a batch is {best.candidate.passes} passes of {best.candidate.micro} sequences a "
            "replica, each timed with an update of its own; their summed gradients are added to "
            "the compiled memory"
        )
    if best and best.estimate_s is None:
        lines.append(
            "this compiler gives no time and tried no kernels: candidates are ranked by bounds"
        )
    alike = len(found.fastest)
    if alike > 1:
        lines.append(
            f"{alike} candidates are alike to a per cent: taken is the one whose compute, traffic "
            "and network add up to the least"
        )
    if best and best.candidate.vocab_size:
        lines.append(f"the vocabulary is filled up to {best.candidate.vocab_size:,} entries")
    if at_peak_s is None:
        lines.append(
            f"{target.name} has no published peak for {request.precision_on(target.chip)}: no "
            "share of it can be assumed"
        )
    elif precision.lookup(request.precision_on(target.chip)).unit not in ("bf16", "fp16"):
        lines.append("published shares are of trainings that multiplied in 16 bits")
    if measured and measured.chips != target.num_chips:
        lines.append(
            f"the measured share is of {measured.chips} chips and is taken for "
            f"{target.num_chips}: what the network adds is not in it"
        )
    return lines
