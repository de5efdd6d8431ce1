"""Compiles candidates in order until a budget is spent; the best is the best of those.

Compiling is the runner's (`accel_bench.runner.Work`): in a worker process that is watched, with the
cache of what was compiled before, each case ending in a record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from accel_bench import config as configs
from accel_bench import derive
from accel_bench.cases import Case
from accel_bench.config import Config
from accel_bench.plan import Job
from accel_bench.planner import candidates
from accel_bench.planner.candidates import Candidate, Enumeration
from accel_bench.planner.request import Request
from accel_bench.record import Record
from accel_bench.target import Target

# Times that are no further apart than this say nothing of which is the shorter one.
_ALIKE = 1.01
Do = Callable[[Job], Record]


@dataclass(frozen=True)
class Tried:
    """A candidate that was compiled.

    Attributes:
      candidate: what it is.
      record: what came out, of one pass.
      needed, usable: bytes on a device, with the sum of gradients where several passes make a
        batch; None where the compiler did not say.
    """

    candidate: Candidate
    record: Record
    needed: float | None
    usable: float | None

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where the compiler came to no end."""
        if self.record.status == "oom_compile":
            return False
        if self.record.status != "ok":
            return None
        if self.needed is None or self.usable is None:
            return None
        return self.needed <= self.usable

    @property
    def bound_s(self) -> float | None:
        """Seconds that a whole batch takes at least."""
        bound = self.record.facts.get("estimate", {}).get("bound_s")
        return bound * self.candidate.passes if bound and self.record.status == "ok" else None

    @property
    def estimate_s(self) -> float | None:
        """Seconds that a batch takes by the compiler's count of cycles; None where it has none."""
        found = derive.estimate(self.record)
        if found is None or found.kind != "estimate":
            return None
        return found.seconds * self.candidate.passes

    @property
    def parts_s(self) -> float:
        """Seconds of a batch if compute, traffic and network did not overlap at all; 0 unknown."""
        parts = self.record.facts.get("estimate", {})
        names = ("compute_s", "memory_s", "network_s")
        return sum(parts.get(name) or 0.0 for name in names) * self.candidate.passes

    @property
    def seconds(self) -> float | None:
        """What it is ranked by: the compiler's time, or where there is none the bound."""
        return self.estimate_s or self.bound_s


@dataclass(frozen=True)
class Found:
    """What a search came to.

    Attributes:
      target: for which accelerator.
      tried: in the order in which they were compiled.
      enumeration: all that there was.
      stopped: why not all of it was compiled; empty where it was.
      refusal: why nothing can be compiled; empty where it can.
    """

    target: Target
    tried: tuple[Tried, ...]
    enumeration: Enumeration
    stopped: str = ""
    refusal: str = ""

    @property
    def best(self) -> Tried | None:
        """The fastest of those that fit; of equally fast ones that with the least to overlap."""
        return min(self.fastest, key=lambda t: t.parts_s, default=None)

    @property
    def fastest(self) -> tuple[Tried, ...]:
        """Those that fit and are as fast as any, as far as their figures tell."""
        fitting = [t for t in self.tried if t.fits]
        least = min((t.seconds or math.inf for t in fitting), default=math.inf)
        return tuple(t for t in fitting if (t.seconds or math.inf) <= least * _ALIKE)


def search(request: Request, target: Target, do: Do, clock: Callable[[], float]) -> Found:
    """Goes down the ladders in turn; a ladder ends with its first candidate that fits.

    More sequences in a pass are taken to make no batch slower (the same weights are gathered less
    often), so that what is below is not compiled.

    Args:
      request: what is planned.
      target: for what.
      do: compiles a job.
      clock: seconds; after `budget_s` of them no other compilation starts.
    """
    enumeration = candidates.enumerate_for(request, target)
    rungs = [list(ladder.rungs) for ladder in enumeration.ladders]
    tried: list[Tried] = []
    started, stopped = clock(), ""
    while any(rungs) and not stopped:
        for ladder in rungs:
            if not ladder:
                continue
            if len(tried) >= request.compiles:
                stopped = f"the {request.compiles} compilations of --plan_compiles"
                break
            if clock() - started > request.budget_s:
                stopped = f"the {request.budget_s:g} s of --plan_budget_s"
                break
            candidate = ladder.pop(0)
            record = do(job_of(request, target, candidate))
            if record.status == "unsupported":
                return Found(target, (), enumeration, refusal=record.reason or "")
            found = _read(candidate, record)
            tried.append(found)
            if found.fits:
                ladder.clear()
            elif found.fits is False:
                ladder[:] = [c for c in ladder if _may_fit(c, found)]
    return Found(target, tuple(tried), enumeration, stopped if any(rungs) else "")


def analytic(request: Request, target: Target, refusal: str) -> Found:
    """What there is to say without a compiler."""
    return Found(target, (), candidates.enumerate_for(request, target), refusal=refusal)


def _read(candidate: Candidate, record: Record) -> Tried:
    memory = record.facts.get("memory") or {}
    needed, usable = memory.get("needed"), memory.get("usable")
    whole = needed + candidate.accumulator if needed is not None else None
    return Tried(candidate, record, whole, usable)


def _may_fit(candidate: Candidate, larger: Tried) -> bool:
    """Whether a smaller pass may fit, what is not state taken to shrink as the sequences do."""
    if larger.needed is None or larger.usable is None:
        return True
    fixed = larger.candidate.memory.state + larger.candidate.memory.gradients
    varies = max(larger.needed - fixed, 0.0) / larger.candidate.micro
    return fixed + varies * candidate.micro <= 1.2 * larger.usable


def job_of(request: Request, target: Target, candidate: Candidate) -> Job:
    """The case that compiles one pass of a candidate."""
    overrides: dict[str, object] = {"remat": candidate.remat}
    if candidate.vocab_size:
        overrides["vocab_size"] = candidate.vocab_size
    params = {
        "phase": "train_step",
        "model": request.model,
        "batch": f"{candidate.micro}/replica",
        "length": request.length,
        "overrides": overrides,
    }
    precision = request.precision_on(target.chip)
    return Job(Case("train", "model", params, precision), candidate.mesh, target)


def config_of(request: Request, fields: dict[str, object]) -> Config:
    """The config that the records of a plan are kept under."""
    config = configs.base(f"plan_{request.model}")
    config.device = "none"
    config.targets = tuple(map(str, request.targets))
    config.cases = {
        "train": {
            "workload": "model",
            "phase": "train_step",
            "model": request.model,
            "batch": "1/replica",
            "length": request.length,
        }
    }
    for name, value in fields.items():
        if value is not None:
            config[name] = value
    return config
