"""Is a run slower than another one of the same experiment? A verdict for each case.

A case is slower where its median time grew by more than the threshold and a Mann-Whitney U test of
its samples says that this is no chance. The samples of one run share what that run met (clock,
neighbours, pages), so that two runs of the same code differ by more than a test of samples expects.
How much more, the other cases tell: what they got faster by, which no slowdown explains, is what
chance moves on this machine, and a case must have got slower by more than nearly all of that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from accel_bench import derive
from accel_bench.comparison import Source, pair_key
from accel_bench.record import Record

# A Mann-Whitney test of fewer samples says little.
MIN_SAMPLES = 9
# Of the hypothesis that neither run's samples tend to be larger.
SIGNIFICANCE = 0.001
DEFAULT_THRESHOLD = 5.0
# Of so many cases the changes the other way tell what chance moves; their largest fiftieth is left
# to real changes.
MIN_CASES = 20
_NEARLY_ALL = 0.98
# Errors further apart than this are of another arithmetic.
_SAME_ERROR = 3.0
# Rows that do not say how fast the work is.
_UNCLEAR = frozenset({"noisy", "few-samples", "nonlinear", "drift"})


@dataclass(frozen=True)
class Verdict:
    """What became of one case.

    Attributes:
      label: the case.
      kind: `slower`, `faster`, `same`, `unclear`, `broken` (ok before, not now), `missing` (no
        longer there) or `mended`.
      change: relative change of the median time; None without two times.
      effect: common-language effect size: how likely a sample of the new run is slower than one of
        the old, 0.5 if neither; None without a test.
      p: significance; None without a test.
      reason: in words.
    """

    label: str
    kind: str
    change: float | None = None
    effect: float | None = None
    p: float | None = None
    reason: str = ""

    @property
    def is_regression(self) -> bool:
        """Whether a run with this verdict should fail."""
        return self.kind in ("slower", "broken", "missing")


def verdicts(baseline: Source, new: Source, threshold: float = DEFAULT_THRESHOLD) -> list[Verdict]:
    """One verdict for each case of the baseline.

    Args:
      baseline: the run to hold the new one against.
      new: another run of the same experiment.
      threshold: per cent of the median time; smaller changes are none.
    """
    now = {pair_key(record): record for record in new.records}
    said = [_verdict(old, now.get(pair_key(old)), threshold) for old in baseline.records]
    floors = {"slower": noise(said, -1), "faster": noise(said, 1)}
    return [
        _against_noise(verdict, floors[verdict.kind]) if verdict.kind in floors else verdict
        for verdict in said
    ]


def noise(said: Sequence[Verdict], sign: int) -> float:
    """What nearly all changes of one sign stay below; 0 where there are too few cases to tell.

    Args:
      said: verdicts on all cases.
      sign: 1 of what got slower, -1 of what got faster.
    """
    tested = [v.change for v in said if v.change is not None and v.p is not None]
    moved = sorted(sign * change for change in tested if sign * change > 0)
    if len(tested) < MIN_CASES or not moved:
        return 0.0
    return moved[int(_NEARLY_ALL * (len(moved) - 1))]


def _against_noise(verdict: Verdict, floor: float) -> Verdict:
    if verdict.change is None or abs(verdict.change) > floor:
        return verdict
    reason = f"nearly all cases that moved the other way did so by up to {100 * floor:.2g} %"
    return dataclasses.replace(verdict, kind="unclear", reason=reason)


def _verdict(old: Record, new: Record | None, threshold: float) -> Verdict:
    label = " ".join(filter(None, (old.workload, derive.label(old), derive.precision_shown(old))))
    if old.implementation != "xla":
        label += f" {old.implementation}"
    if new is None:
        return Verdict(label, "missing", reason="the new run has no such case")
    if old.status == "ok" and new.status != "ok":
        return Verdict(label, "broken", reason=f"now {new.status}: {new.reason}")
    if old.status != "ok" and new.status == "ok":
        return Verdict(label, "mended", reason=f"was {old.status}: {old.reason}")
    if old.status != "ok":
        return Verdict(label, "same", reason=f"{old.status} before, {new.status} now")
    if old.facts.get("numerics"):
        return _of_errors(label, old, new)
    before, now = derive.time(old), derive.time(new)
    if before is None or now is None:
        return Verdict(label, "unclear", reason="compiled and not run")
    change = now.value / before.value - 1
    few = min(len(old.samples_s), len(new.samples_s))
    if few < MIN_SAMPLES:
        return Verdict(
            label, "unclear", change, reason=f"{few} samples, a test needs {MIN_SAMPLES} a side"
        )
    effect, p = _test(old.samples_s, new.samples_s)
    marks = sorted(_UNCLEAR & {*derive.flags(old), *derive.flags(new)})
    if marks and abs(change) * 100 > threshold:
        return Verdict(label, "unclear", change, effect, p, f"marked {', '.join(marks)}")
    kind = "same"
    if p < SIGNIFICANCE and abs(change) * 100 > threshold:
        kind = "slower" if change > 0 else "faster"
    return Verdict(label, kind, change, effect, p)


def _of_errors(label: str, old: Record, new: Record) -> Verdict:
    """A study of numerics has no speed: what counts is that its results are as exact as before."""
    one, other = (r.facts.get("error") for r in (old, new))
    same = one == other or (one and other and 1 / _SAME_ERROR < other / one < _SAME_ERROR)
    reason = "" if same else f"no time is compared; relative error {one} before, {other} now"
    return Verdict(label, "same" if same else "unclear", reason=reason)


def _test(old: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """Effect size and two-sided significance of a Mann-Whitney U test."""
    from scipy import stats  # half a second, for a verdict only

    result = stats.mannwhitneyu(new, old, alternative="two-sided")
    return float(result.statistic) / (len(old) * len(new)), float(result.pvalue)
