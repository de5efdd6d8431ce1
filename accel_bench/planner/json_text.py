"""Plans and published trainings as JSON, for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from accel_bench import chips
from accel_bench.planner import published
from accel_bench.planner.candidates import Candidate
from accel_bench.planner.forecast import Forecast
from accel_bench.planner.request import Request
from accel_bench.planner.search import Tried
from accel_bench.planner.show import ASSUMED, not_come_to, predicted
from accel_bench.record import strict_json


def plan_text(request: Request, forecasts: Sequence[Forecast]) -> str:
    """A plan as strict JSON: seconds, bytes, days, chip-hours, MWh; null where not known."""
    plain = {
        "request": {
            "model": request.model, "tokens": request.tokens, "steps": request.steps,
            "batch_tokens": request.batch_tokens, "length": request.length,
            "prices": dict(request.prices), "not_asked_for": list(request.defaults),
        },
        "targets": [_target_json(forecast) for forecast in forecasts],
        "assumed": list(ASSUMED),
    }  # fmt: skip
    return strict_json(plain)


def _target_json(forecast: Forecast) -> dict[str, Any]:
    found = forecast.found
    tried = [_tried_json(each, each is found.best) for each in found.tried]
    left = [*not_come_to(found), *found.enumeration.hopeless]
    return {
        "target": str(found.target),
        "precision": forecast.precision,
        "chips": found.target.num_chips,
        "fits": forecast.fits,
        "verdict": forecast.verdict,
        "compiled": forecast.compiled,
        "why_not_compiled": found.refusal or None,
        "stopped_by": found.stopped or None,
        "step_flops": forecast.step_flops,
        "step_at_peak_s": forecast.at_peak_s,
        "board_watts": forecast.watts,
        "board_watts_reason": forecast.watts_reason,
        "totals": [dataclasses.asdict(total) for total in forecast.totals],
        "candidates": tried + [_candidate_json(each) for each in left],
        "left_out": list(found.enumeration.impossible),
        "assumed": list(forecast.assumed),
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "mesh": candidate.mesh, "remat": candidate.remat, "micro": candidate.micro,
        "passes": candidate.passes, "formula_bytes": candidate.memory.needed,
        "status": "not compiled", "fits": None,
    }  # fmt: skip


def _tried_json(tried: Tried, best: bool) -> dict[str, Any]:
    return _candidate_json(tried.candidate) | {
        "status": tried.record.status,
        "reason": tried.record.reason,
        "fits": tried.fits,
        "best": best,
        "needed_bytes": tried.needed,
        "usable_bytes": tried.usable,
        "bound_s": tried.bound_s,
        "estimate_s": tried.estimate_s,
        "estimate_parts": tried.record.facts.get("estimate"),
    }


def published_text() -> str:
    """The published trainings as strict JSON."""
    rows = []
    for run in published.RUNS:
        found = predicted(run)
        rows.append(
            dataclasses.asdict(run)
            | {
                "chip_hours_at_peak": published.hours_at_peak(run),
                "implied_mfu": published.implied(run),
                "others_mfu": dataclasses.asdict(published.leave_one_out(run)),
                "predicted_chip_hours": list(found) if found else None,
            }
        )
    ranges = {name: dataclasses.asdict(published.efficiency(name)) for name in chips.CHIPS}
    return strict_json({"published": rows, "assumed_by_chip": ranges})
