"""Runs one case on the back end of this process and says how it ended.

This is the part of a run that happens inside a worker process (or, with `--isolation=none`, in the
caller's own). Nothing here writes files or knows of other cases.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax

from accel_bench import checks, detect, measure, timing
from accel_bench.baselines import build_baseline
from accel_bench.cases import XLA, Case
from accel_bench.chips import CHIPS, find_chip
from accel_bench.measure import Measurement
from accel_bench.profile import trace
from accel_bench.timing import Budget
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.base import Device, HostWorkload, SkippedCase, UnsupportedCase, make_mesh


@dataclass
class Session:
    """A started back end and what was learnt about it once.

    Attributes:
      devices: the devices to use.
      axes: the mesh over them; empty for one device.
      target: the record's `target`.
      launch: what a launch costs.
    """

    devices: list[Device]
    axes: Mapping[str, int]
    target: dict[str, Any]
    launch: timing.Launch

    def facts(self) -> dict[str, Any]:
        """What every row of this session shares."""
        return {"launch_queued_s": self.launch.queued, "launch_blocking_s": self.launch.blocking}


@dataclass
class Outcome:
    """How a case ended: the part of a record that the worker knows."""

    status: str
    reason: str | None
    measurement: Measurement
    target: dict[str, Any]


def start(platform: str, axes: Mapping[str, int]) -> Session:
    """Starts the back end of this platform.

    Args:
      platform: `cpu`, `gpu` or `tpu`.
      axes: mesh axes and sizes.

    Raises:
      RuntimeError: the back end cannot be started, or is another one than was asked for.
    """
    devices = jax.devices(platform)
    first = devices[0]
    if first.platform != platform and not (
        platform == "gpu" and first.platform in ("cuda", "rocm")
    ):
        raise RuntimeError(f"asked for {platform}, jax started {first.platform}")
    # jax calls every CPU "cpu".
    kind = detect.cpu_model() if platform == "cpu" else first.device_kind
    target = measured_target(platform, kind, len(devices) if axes else 1, len(devices))
    return Session(devices, axes, target, timing.launch_cost(first))


def measured_target(platform: str, device_kind: str, used: int, attached: int) -> dict[str, Any]:
    """The record's `target` for so many devices used of those attached.

    CPU devices beyond the first are virtual: they share the same cores.
    """
    chip = find_chip(device_kind)
    return {
        "kind": "measured",
        "platform": platform,
        "device_kind": device_kind,
        "chip": chip,
        "num_devices": used,
        "num_chips": used / CHIPS[chip].devices_per_chip if chip else None,
        "attached": attached,
        "virtual": platform == "cpu" and attached > 1,
    }


def execute(
    session: Session,
    case: Case,
    seed: int,
    budget: Budget,
    profile_dir: Path | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Outcome:
    """Builds, measures and checks one case; whatever goes wrong becomes its status."""
    outcome = Outcome("ok", None, Measurement(facts=session.facts()), session.target)
    try:
        on_stage("building")
        _measure(session, case, seed, budget, profile_dir, on_stage, outcome)
    except UnsupportedCase as error:
        outcome.status, outcome.reason = "unsupported", str(error)
    except SkippedCase as error:
        outcome.status, outcome.reason = "skipped", str(error)
    except (measure.OutOfMemory, MemoryError) as error:
        outcome.status, outcome.reason = "oom", str(error) or "out of host memory"
    except measure.NonFinite as error:
        outcome.status, outcome.reason = "nonfinite", str(error)
    except (measure.Invalid, checks.Untrue) as error:
        outcome.status, outcome.reason = "invalid", str(error)
    except Exception as error:  # one case costs its own row only
        outcome.status, outcome.reason = classify(error)
        traceback.print_exc()  # goes to the worker's log
    finally:
        gc.collect()
    return outcome


def _measure(
    session: Session,
    case: Case,
    seed: int,
    budget: Budget,
    profile_dir: Path | None,
    on_stage: Callable[[str], None],
    outcome: Outcome,
) -> None:
    available = measure.available_device_bytes(session.devices[0])
    if case.implementation == XLA:
        mesh = make_mesh(session.devices, session.axes)
        build = WORKLOADS[case.workload].builder()
        workload = build(case.typed_params(), case.precision, mesh)
    else:
        workload, platform, device_kind = build_baseline(case)
        outcome.target = measured_target(platform, device_kind, used=1, attached=1)
    outcome.measurement.facts |= {"work": dict(workload.work), **workload.facts}
    if workload.working_set:
        outcome.measurement.facts["working_set"] = workload.working_set
    result = outcome.measurement
    if isinstance(workload, HostWorkload):
        measure.measure_host(workload, seed, budget, available, result, on_stage)
    else:
        profile = partial(trace, directory=profile_dir / case.key) if profile_dir else None
        measure.measure(
            workload, seed, budget, session.launch, available, result, on_stage, profile
        )
    checks.check(case, outcome.target, result)


def classify(error: Exception) -> tuple[str, str]:
    """Status and reason for an exception that a library raised."""
    text = str(error).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    if "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return "oom", line
    if "UNIMPLEMENTED" in text or isinstance(error, NotImplementedError):
        return "unsupported", line
    return "failed", f"{type(error).__name__}: {line}"
