"""Runs one case on the back end of this process and says how it ended.

This is the part of a run that happens inside a worker process (or, with `--isolation=none`, in the
caller's own). Nothing here writes files or knows of other cases.
"""

from __future__ import annotations

import gc
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh

from accel_bench import checks, detect, energy, energy_counters, measure, timing
from accel_bench.baselines import build_baseline
from accel_bench.cases import XLA, Case
from accel_bench.chips import CHIPS, find_chip
from accel_bench.measure import Measurement
from accel_bench.profile import trace
from accel_bench.study import measure_study
from accel_bench.timing import Budget
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.base import (
    CourseWorkload,
    Device,
    HostWorkload,
    SkippedCase,
    Study,
    UnsupportedCase,
    Workload,
    make_mesh,
)


@dataclass
class Session:
    """A started back end and what was learnt about it once.

    Attributes:
      platform: `cpu`, `gpu` or `tpu`.
      devices: all there are, of all processes.
      hosts: machines that they are on.
      launch: what a launch costs.
    """

    platform: str
    devices: list[Device]
    hosts: int
    launch: timing.Launch

    @property
    def local(self) -> Device:
        """A device of this very process."""
        return _local(self.devices)

    @property
    def target(self) -> dict[str, Any]:
        """The record's `target` for one device."""
        return self.target_of({})

    def target_of(self, axes: Mapping[str, int]) -> dict[str, Any]:
        """The record's `target` for a mesh."""
        first = self.devices[0]
        # jax calls every CPU "cpu".
        kind = detect.cpu_model() if self.platform == "cpu" else first.device_kind
        target = measured_target(
            self.platform, kind, math.prod(axes.values()), len(self.devices), self.hosts
        )
        processes = jax.process_count()
        return target | ({"processes": processes} if processes > 1 else {})

    def mesh(self, axes: Mapping[str, int]) -> Mesh:
        """A mesh over as many devices as it needs, of each process equally many.

        Raises:
          SkippedCase: there are not so many, or the processes cannot give equally many.
        """
        needed, processes = math.prod(axes.values()), jax.process_count()
        if needed > len(self.devices):
            raise SkippedCase(f"needs {needed} devices, there are {len(self.devices)}")
        if not axes and processes == 1:
            return make_mesh(self.devices[:1], {})
        if needed % processes:
            raise SkippedCase(
                f"a mesh of {needed} devices leaves out some of the {processes} processes"
            )
        if needed == len(self.devices):
            return make_mesh(self.devices, axes)
        by_process: dict[int, list[Device]] = {}
        for device in self.devices:
            by_process.setdefault(device.process_index, []).append(device)
        chosen = [d for devices in by_process.values() for d in devices[: needed // processes]]
        return make_mesh(chosen, axes)

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


def start(platform: str, together: Mapping[str, Any] | None = None) -> Session:
    """Starts the back end of this platform.

    Args:
      platform: `cpu`, `gpu` or `tpu`.
      together: how several processes find each other: `coordinator`, `num_processes`,
        `process_id`, `local_devices` and `timeout_s` as `jax.distributed.initialize` takes them,
        and `hosts`, the number of machines; None for one process.

    Raises:
      RuntimeError: the back end cannot be started, or is another one than was asked for.
    """
    if together:
        if platform == "cpu":
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(
            together["coordinator"],
            together["num_processes"],
            together["process_id"],
            together["local_devices"],
            initialization_timeout=together["timeout_s"],
        )
    devices = jax.devices(platform)
    first = devices[0]
    if first.platform != platform and not (
        platform == "gpu" and first.platform in ("cuda", "rocm")
    ):
        raise RuntimeError(f"asked for {platform}, jax started {first.platform}")
    launch = timing.launch_cost(_local(devices))
    return Session(platform, devices, together["hosts"] if together else 1, launch)


def _local(devices: list[Device]) -> Device:
    """The first device of this very process."""
    return next(d for d in devices if d.process_index == jax.process_index())


def measured_target(
    platform: str, device_kind: str, used: int, attached: int, hosts: int = 1
) -> dict[str, Any]:
    """The record's `target` for so many devices used of those attached.

    CPU devices beyond the first of a host are virtual: they share the same cores.
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
        "virtual": platform == "cpu" and attached > hosts,
    }


def execute(
    session: Session,
    case: Case,
    axes: Mapping[str, int],
    seed: int,
    budget: Budget,
    profile_dir: Path | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
    checkpoint_dir: Path | None = None,
) -> Outcome:
    """Builds, measures and checks one case; whatever goes wrong becomes its status.

    Args:
      session: the back end.
      case: what to measure.
      axes: the mesh; empty for one device.
      seed: of its inputs.
      budget: when to stop.
      profile_dir: where a device trace goes; None takes none.
      on_stage: told what is going on.
      checkpoint_dir: where a training's checkpoints go, and are looked for; None for none.
    """
    outcome = Outcome("ok", None, Measurement(facts=session.facts()), session.target_of(axes))
    try:
        on_stage("building")
        _measure(session, case, axes, seed, budget, profile_dir, checkpoint_dir, on_stage, outcome)
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
        # Of all that Python holds, only what large arrays may hang on to is worth the tenth of a
        # second: a study's are small.
        gc.collect(1 if case.workload == "numerics" else 2)
    return outcome


def _measure(
    session: Session,
    case: Case,
    axes: Mapping[str, int],
    seed: int,
    budget: Budget,
    profile_dir: Path | None,
    checkpoint_dir: Path | None,
    on_stage: Callable[[str], None],
    outcome: Outcome,
) -> None:
    if case.implementation == XLA:
        try:
            mesh = session.mesh(axes)
        except SkippedCase:
            outcome.target = session.target  # no such devices were used
            raise
        build = WORKLOADS[case.workload].builder()
        workload = build(case.typed_params(), case.precision, mesh)
    else:
        workload, platform, device_kind = build_baseline(case)
        outcome.target = measured_target(platform, device_kind, used=1, attached=1)
    if budget.energy and not isinstance(workload, Workload):
        outcome.measurement.facts["energy"] = energy.unknown(
            "energy is taken of compiled calls that can be repeated alone: a matmul, a model's step"
        )
    if isinstance(workload, Study):
        outcome.measurement.facts |= dict(workload.facts)
        measure_study(workload, seed, outcome.measurement, on_stage)
        return
    outcome.measurement.facts |= {"work": dict(workload.work), **workload.facts}
    if workload.working_set:
        outcome.measurement.facts["working_set"] = workload.working_set
    result = outcome.measurement
    available = measure.available_device_bytes(session.local)
    if isinstance(workload, HostWorkload):
        measure.measure_host(workload, seed, budget, available, result, on_stage)
    elif isinstance(workload, CourseWorkload):
        folder = checkpoint_dir / case.key if checkpoint_dir else None
        workload.run(seed, available, folder, result, on_stage)
    else:
        profile = partial(trace, directory=profile_dir / case.key) if profile_dir else None
        meter = _meter(session, outcome.target, mesh, on_stage) if budget.energy else None
        measure.measure(
            workload, seed, budget, session.launch, available, result, on_stage, profile, meter
        )
    checks.check(case, outcome.target, result)


def _meter(
    session: Session, target: Mapping[str, Any], mesh: Mesh, on_stage: Callable[[str], None]
) -> energy.Meter:
    """What counts the energy of a mesh's devices, read while nothing runs."""
    on_stage("taking the idle power")
    chip = CHIPS.get(target["chip"] or "")
    ordinals = [device.local_hardware_id for device in mesh.devices.flat]
    processes = jax.process_count()
    find = partial(energy_counters.find, session.platform, ordinals, chip and chip.watts, processes)
    return energy.open_meter(find)


def classify(error: Exception) -> tuple[str, str]:
    """Status and reason for an exception that a library raised."""
    text = str(error).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    if "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return "oom", line
    if "UNIMPLEMENTED" in text or isinstance(error, NotImplementedError):
        return "unsupported", line
    return "failed", f"{type(error).__name__}: {line}"
