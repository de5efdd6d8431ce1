"""Who runs the cases: worker processes, or this process itself.

Both are told to `start`, then to `execute` one case after the other, then to `close`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from accel_bench import compilers, detect, env, mesh, workdir
from accel_bench.cases import XLA
from accel_bench.errors import RequestError
from accel_bench.group import Group
from accel_bench.lead import Lead
from accel_bench.plan import Job, Plan, worker_environ
from accel_bench.progress import Progress
from accel_bench.supervisor import Reply, StartError, Worker, WorkerSpec
from accel_bench.workdir import Workdir

# After so many failed starts in a row the back end is taken to be broken.
MAX_FAILED_STARTS = 3


class Executor:
    """Runs cases in worker processes: one for all cases that can share it."""

    def __init__(self, plan: Plan, place: Workdir, lead: Lead | None = None) -> None:
        self._plan, self._place = plan, place
        self._group = Group(place.log, plan.config.timeout_s, lead)
        self._worker: Worker | None = None
        self._failing: WorkerSpec | None = None
        self._failed_starts: list[StartError] = []
        self._env: dict[str, Any] = {}

    def start(self, job: Job) -> None:
        """Starts the worker for a first measurement.

        Raises:
          RequestError: the back end says that it cannot be started.
        """
        try:
            self._ensure(self._spec(job))
        except StartError as error:
            if error.env:  # it ended in order: what was asked for cannot be had
                raise RequestError(self._explain(error, job)) from error
            return  # it died, or a peer did not come: each case says so in its row
        if self._worker and job.case.implementation == XLA and not job.started_here:
            _check_devices(self._plan, self._worker.target)

    def execute(self, job: Job, progress: Progress) -> Reply:
        """Does one job; never raises for what the case does."""
        try:
            worker = self._ensure(self._spec(job))
        except StartError as error:
            reason = self._explain(error, job)
            return Reply(error.status, reason, {}, None, self._environment(error))
        return worker.execute(self._request(job), self._plan.config.timeout_s, progress.stage)

    def _request(self, job: Job) -> dict[str, Any]:
        """What the worker is asked for; see `accel_bench.worker`."""
        config, path = self._plan.config, self._place.path.resolve()
        request: dict[str, Any] = {"case": dataclasses.asdict(job.case)}
        if job.target:
            name = re.sub(r"[^\w.-]+", "_", f"{job.label}_{mesh.text(job.axes)}")
            return request | {
                "hlo_file": str(path / "hlo" / f"{name}.txt") if config.dump_hlo else None
            }
        return request | {
            "axes": dict(job.axes),
            "seed": config.seed,
            "budget": dict(config.measure),
            "profile_dir": str(path / "traces") if config.profile else None,
            "checkpoint_dir": str(path / workdir.CHECKPOINTS_NAME),
        }

    @property
    def target(self) -> dict[str, Any]:
        """What the worker's back end runs on; empty where that is not known."""
        worker = self._worker
        same = worker and worker.spec.platform == self._plan.platform and not worker.spec.target
        return worker.target if worker and same else {}

    def close(self) -> None:
        """Ends the worker."""
        if self._worker:
            self._worker.close()
        self._group.close()

    def _ensure(self, spec: WorkerSpec) -> Worker:
        worker = self._worker
        if worker and worker.alive and worker.spec == spec:
            return worker
        if worker:
            worker.close()
            self._worker = None
        if spec != self._failing:
            self._failing = spec
            self._failed_starts.clear()
        if len(self._failed_starts) >= MAX_FAILED_STARTS:
            raise self._failed_starts[-1]
        try:
            worker = self._group.start(spec)
        except StartError as error:
            self._failed_starts.append(error)
            raise
        self._failed_starts.clear()
        self._worker, self._env = worker, worker.env
        return worker

    def _spec(self, job: Job) -> WorkerSpec:
        environ = worker_environ(self._plan, job)
        if job.target:
            hidden = compilers.find(job.target).hidden
            return WorkerSpec(job.target.platform, job.axes, environ, str(job.target), hidden)
        assert self._plan.platform
        if job.case.implementation != XLA:
            return WorkerSpec("cpu", {}, environ)
        hidden = compilers.hidden_from_gpus() if self._plan.platform == "gpu" else ()
        return WorkerSpec(
            self._plan.platform, {}, environ, "", hidden, job.processes.count, job.processes.link
        )

    def _explain(self, error: StartError, job: Job) -> str:
        text = str(error)
        if error.status in ("timeout", "unsupported"):
            return text
        if job.target:
            return f"the compiler for {job.target} did not start: {text}"
        if self._plan.platform == "tpu" and (holders := detect.tpu_holders()):
            text += f"; the TPU is in use by {', '.join(holders)}"
        return f"the {self._plan.platform} back end did not start: {text}"

    def _environment(self, error: StartError) -> dict[str, Any]:
        if not (error.env or self._env):
            self._env = env.capture()
        return error.env or self._env


class InProcess:
    """Runs cases in this process, for a caller who holds the accelerator already."""

    def __init__(self, plan: Plan, place: Workdir) -> None:
        self._plan, self._place = plan, place
        self._session: Any = None
        self._env: dict[str, Any] = {}

    def start(self, job: Job) -> None:
        """Takes the back end that this process has, or starts it.

        Raises:
          RequestError: it is not the one that was asked for.
        """
        del job
        assert self._plan.platform
        from accel_bench import execute

        _expect_no_accelerator()
        self._env = env.capture()
        self._env["isolation"] = "none"  # settings are the caller's, not the experiment's
        try:
            self._session = execute.start(self._plan.platform)
        except RuntimeError as error:
            raise RequestError(f"--isolation=none: {str(error).splitlines()[0]}") from error
        _check_devices(self._plan, self._session.target)

    def execute(self, job: Job, progress: Progress) -> Reply:
        """Runs one case; a crash of it is a crash of this process."""
        from accel_bench import execute
        from accel_bench.timing import Budget

        config = self._plan.config
        outcome = execute.execute(
            self._session,
            job.case,
            job.axes,
            config.seed,
            Budget(**config.measure),
            self._place.path / "traces" if config.profile else None,
            progress.stage,
            self._place.path.resolve() / workdir.CHECKPOINTS_NAME,
        )
        measured = dataclasses.asdict(outcome.measurement)
        return Reply(outcome.status, outcome.reason, measured, outcome.target, self._env)

    @property
    def target(self) -> dict[str, Any]:
        """What this process's back end runs on."""
        return self._session.target

    def close(self) -> None:
        """Nothing to end: the back end is the caller's."""


def _expect_no_accelerator() -> None:
    """Keeps jax from starting compilers for accelerators as if those were attached.

    Where nothing is attached a plugin that is installed to compile only would fail, and say so.
    """
    import jax

    counts = detect.attached().counts
    if not (counts["gpu"] or counts["tpu"]) and not jax.config.values["jax_platforms"]:
        jax.config.update("jax_platforms", "cpu")


def _check_devices(plan: Plan, target: dict[str, Any]) -> None:
    """Checks the devices that a back end has against those that were asked for.

    Raises:
      RequestError: they are others.
    """
    attached = target["attached"]
    wanted = plan.config.fake_devices * target.get("processes", 1)
    if wanted and attached != wanted:
        raise RequestError(
            f"--fake_devices={plan.config.fake_devices}, but the back end has {attached} devices: "
            "it was started before; use --isolation=process"
        )
    mesh.check(mesh.text(plan.axes), attached, f"{plan.platform}: {target['device_kind']}")
