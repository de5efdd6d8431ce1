"""From a request to a plan: what is wrong with it is found here, before any back end starts."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from accel_bench import cluster as clusters
from accel_bench import compilers, detect, mesh
from accel_bench import config as configs
from accel_bench import target as targets
from accel_bench.cases import XLA, Case, expand, own_axes
from accel_bench.cluster import Cluster
from accel_bench.config import Config
from accel_bench.detect import PLATFORMS, Attached
from accel_bench.errors import RequestError, unknown
from accel_bench.target import Target
from accel_bench.workloads.params import MAX_LOCAL_PROCESSES, Placed

# What makes a library's one-thread baseline one.
BASELINE_ENVIRON = {
    "numpy_1thread": {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "VECLIB_MAXIMUM_THREADS": "1",
    }
}
# Far more than make sense on one machine; each costs threads and memory.
MAX_FAKE_DEVICES = 1024
_MAX_TIMEOUT_S = 1e6
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
# Autotuning picks other kernels, with other rounding, from run to run.
_DETERMINISTIC_GPU = ("--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0")
_DEVICE_COUNT = "--xla_force_host_platform_device_count"


@dataclass(frozen=True)
class Processes:
    """Processes that run a case together.

    Attributes:
      count: how many.
      link: rate of the network link that each gets, on one machine; empty: no network of its own.
    """

    count: int = 1
    link: str = ""


@dataclass(frozen=True)
class Job:
    """A case and where it goes; it ends in one record.

    Attributes:
      case: what to do.
      axes: the mesh.
      target: what to compile it for; None measures it on what is attached.
      refusal: status and reason, where it is known beforehand that it cannot be done.
      searched: the search for the smallest fit that tries it, its largest target and mesh; empty
        where none does.
      processes: who measures it.
    """

    case: Case
    axes: Mapping[str, int]
    target: Target | None = None
    refusal: tuple[str, str] | None = None
    searched: str = ""
    processes: Processes = Processes()

    @property
    def started_here(self) -> bool:
        """Whether the case brings its own processes, on this machine."""
        typed = self.case.typed_params()
        return isinstance(typed, Placed) and typed.processes > 1

    @property
    def label(self) -> str:
        """What a person calls it."""
        return f"{self.target} {self.case.label}" if self.target else self.case.label


@dataclass(frozen=True)
class Plan:
    """A request that was found to be right.

    Attributes:
      config: the resolved experiment.
      platform: what to measure on; None measures nothing.
      choice: a sentence that says so.
      axes: the mesh over what is measured on.
      jobs: what to do, in order: first what is measured.
      searches: for each search for the smallest fit its jobs, from the smallest target to the
        largest.
      isolated: whether cases are measured in a worker process.
      cluster: which of several processes this is, where a run is more than one.
    """

    config: Config
    platform: str | None
    choice: str
    axes: Mapping[str, int]
    jobs: list[Job]
    searches: list[list[Job]]
    isolated: bool
    cluster: Cluster | None = None

    @property
    def experiment(self) -> str:
        """What all processes of a cluster must have been asked for, in equal words."""
        plain = configs.to_plain(self.config)
        asked = [plain[name] for name in ("precision", "measure", "fake_devices", "profile")]
        return repr((configs.config_hash(self.config), asked, dict(self.axes), self.platform))


def make_plan(config: Config, found: Attached | None = None) -> Plan:
    """Checks a request against what is attached, without starting a back end.

    Raises:
      RequestError: it cannot be carried out.
    """
    found = found or detect.attached()
    configs.check(config)
    check_run_fields(config)
    jobs: list[Job] = []
    platform, choice, axes, isolated, cluster = None, "measuring nothing", {}, True, None
    if config.device != "none":
        platform, choice = detect.choose(config.device, found)
        cluster = clusters.find(config, found.counts["tpu"])
        count = cluster.num_processes if cluster else clusters.local_processes(config)
        axes, isolated, notes = _measured(config, platform, found, cluster, count)
        choice += notes
        devices = mesh.size(axes) if axes else _devices(config, platform, found)
        cases = expand(config, platform, axes, devices)
        jobs = [_measuring(case, axes, count, isolated) for case in cases]
        if config.mesh and all(_is_placed(job.case) for job in jobs):
            raise RequestError(
                f"--mesh={config.mesh} divides nothing: every case of this config has a mesh or "
                "processes of its own"
            )
        # Starting processes takes seconds: those that share them follow each other.
        groups = list(dict.fromkeys(job.processes for job in jobs))
        jobs.sort(key=lambda job: groups.index(job.processes))
    elif config.fake_devices:
        raise RequestError("--fake_devices makes virtual CPU devices to measure on: not with none")
    chosen, note = _targets(config)
    choice += note
    per_target = [_compiled(config, target, platform) for target in chosen]
    searches = [search for found in per_target for search in found if len(search) > 1]
    jobs += [search[0] for found in per_target for search in found if len(search) == 1]
    if not jobs and not searches:
        raise RequestError("no case of this config has a program to compile: choose another")
    return Plan(config, platform, choice, axes, jobs, searches, isolated, cluster)


def _devices(config: Config, platform: str, found: Attached) -> int:
    return cpu_devices(config) if platform == "cpu" else found.counts[platform]


def _is_placed(case: Case) -> bool:
    typed = case.typed_params()
    return isinstance(typed, Placed) and typed.placed


def _measuring(case: Case, axes: Mapping[str, int], count: int, isolated: bool) -> Job:
    """The job that measures a case: where the run is, or in the case's own place.

    Raises:
      RequestError: the case starts processes, and the run is several already or starts none.
    """
    typed = case.typed_params()
    job = Job(case, own_axes(typed, axes), processes=Processes(count))
    if not job.started_here:
        return job
    if count > 1:
        raise RequestError(
            f"config.cases.{case.name} starts processes of its own: leave --num_processes out"
        )
    if not isolated:
        raise RequestError(
            f"config.cases.{case.name} starts processes of its own: it needs --isolation=process"
        )
    return dataclasses.replace(job, processes=Processes(typed.processes, typed.link))


def _measured(
    config: Config, platform: str, found: Attached, cluster: Cluster | None, processes: int
) -> tuple[dict[str, int], bool, str]:
    """The mesh over what is measured on, whether a worker does it, and notes for a person.

    Raises:
      RequestError: the devices are not what was asked for.
    """
    if config.fake_devices and platform != "cpu":
        raise RequestError(
            f"--fake_devices={config.fake_devices} makes virtual CPU devices: add --device=cpu"
        )
    if processes > MAX_LOCAL_PROCESSES and not cluster:
        raise RequestError(
            f"--num_processes={processes} are too many for one machine: at most "
            f"{MAX_LOCAL_PROCESSES}, or name a --coordinator"
        )
    if processes > 1 and not cluster and platform != "cpu":
        raise RequestError(
            f"--num_processes={processes} without --coordinator starts processes on this machine's "
            "CPU: add --device=cpu"
        )
    count = cpu_devices(config) if platform == "cpu" else found.counts[platform]
    if cluster and cluster.local_devices and platform != "cpu":
        count = len(cluster.local_devices)
    count *= processes
    axes, notes = mesh.parse(config.mesh), ""
    where = f"{platform}: {found.name[platform]}"
    if processes > 1:
        where = f"{processes} processes, {platform}"
        notes = f"; as {processes} processes"
        if not axes:
            axes = {"data": count}
            notes += f" over --mesh=data:{count}"
    # A TPU chip may be two jax devices; the worker, which knows, checks again.
    if config.mesh and (platform == "cpu" or mesh.REST in axes.values()):
        axes = mesh.check(config.mesh, count, where)
    if platform != "cpu" and not axes and count > 1:
        notes += f"; on one of them: --mesh=data:{count} uses all"
    isolated = config.isolation == "process" or (
        config.isolation == "auto" and not _holds_accelerator()
    )
    if not isolated:
        if processes > 1:
            raise RequestError("several processes need --isolation=process")
        if config.deterministic and platform == "gpu":
            raise RequestError(
                "--deterministic must be set before the back end starts, and this process has "
                "started it: use --isolation=process"
            )
        if config.isolation == "auto":
            notes += "; in this process, which holds the accelerator already"
        if config.huge_pages and platform == "cpu":
            notes += "; with this process's own settings: no huge pages are asked for"
    return axes, isolated, notes


def _targets(config: Config) -> tuple[list[Target], str]:
    """What to compile for, each once, and a note for a person.

    Raises:
      RequestError: a target that does not exist, or nothing to do at all.
    """
    names = [name.strip() for entry in config.targets for name in str(entry).split(",")]
    chosen: dict[Target, None] = {}
    note = ""
    for name in filter(None, names):
        if name == "auto":
            for target in map(targets.parse, targets.AUTO):
                compiler = compilers.find(target)
                if compiler.mismatch:
                    note += f"; not compiling for {target}: {compiler.mismatch}"
                elif compiler.missing:
                    note += f"; to compile for {target} too: {compilers.INSTALL}"
                else:
                    chosen[target] = None
        else:
            chosen[targets.parse(name)] = None
    if config.device == "none" and not chosen:
        raise RequestError(
            "--device=none measures nothing: name what to compile for, as in "
            f"--targets={','.join(targets.AUTO)}{note}"
        )
    if config.find_smallest_fit:
        if not chosen:
            raise RequestError("--find_smallest_fit needs --targets: the largest to try")
        if config.mesh and mesh.REST not in mesh.parse(config.mesh).values():
            raise RequestError(
                f"--find_smallest_fit tries several sizes, and --mesh={config.mesh} fits one: "
                "write * for an axis that takes what the others leave, as in fsdp:*,model:8"
            )
    if chosen:
        note += f"; compiling for {', '.join(map(str, chosen))}"
    return list(chosen), note


def _compiled(config: Config, target: Target, platform: str | None) -> list[list[Job]]:
    """For each case the jobs that compile it for a target; several where a search tries them.

    Beside a measurement the cases are those that are measured, so that they stand side by side.

    Raises:
      RequestError: the mesh does not fit the target, a case does not fit the mesh, or the compiler
        does not match jax.
    """
    compiler = compilers.find(target)
    if compiler.mismatch:
        raise RequestError(f"--targets={target}: {compiler.mismatch}")
    refusal = ("unsupported", compiler.missing) if compiler.missing else None
    axes = _target_axes(config, target)
    searched = bool(config.find_smallest_fit)
    cases = expand(config, platform or target.platform, axes if config.mesh else {})
    found = []
    for case in cases:
        if config.compile_cases and case.name not in config.compile_cases:
            continue
        if case.implementation != XLA or not case.typed_params().has_program:
            continue
        jobs = []
        for size in targets.smaller(target) if searched else [target]:
            try:
                size_axes = _target_axes(config, size)
                case.typed_params().check(size_axes)
            except RequestError as error:
                if size == target:  # the mesh is ours: nobody asked for this division
                    job = Job(case, axes, target, refusal or ("skipped", str(error)))
                    jobs.append(job)
                continue
            search = f"{target} over {config.mesh or 'data:*'}"
            jobs.append(Job(case, size_axes, size, refusal, search if searched else ""))
        if refusal or len(jobs) == 1:  # nothing to choose from
            jobs = [dataclasses.replace(jobs[-1], searched="")]
        found.append(jobs)
    return found


def _target_axes(config: Config, target: Target) -> dict[str, int]:
    """The mesh over a target's devices: as asked for, else all of them along `data`."""
    if config.mesh:
        return mesh.check(config.mesh, target.num_devices, f"{target}")
    return {"data": target.num_devices} if target.num_devices > 1 else {}


def worker_environ(plan: Plan, job: Job) -> dict[str, str]:
    """Settings that the worker of a job needs from before its back end starts."""
    config, case = plan.config, job.case
    if job.target:
        flags = os.environ.get("XLA_FLAGS", "").split()
        if config.deterministic and job.target.platform == "gpu":
            flags += _DETERMINISTIC_GPU
        return compilers.environ() | ({"XLA_FLAGS": " ".join(flags)} if flags else {})
    assert plan.platform
    environ = {}
    if config.huge_pages and (plan.platform == "cpu" or case.implementation != XLA):
        others = os.environ.get("GLIBC_TUNABLES")
        environ["GLIBC_TUNABLES"] = ":".join(filter(None, [others, _HUGE_PAGES]))
    if case.implementation != XLA:
        # Baselines leave the accelerator to the library: only a CPU back end beside it.
        return {"JAX_PLATFORMS": "cpu", **environ, **BASELINE_ENVIRON.get(case.implementation, {})}
    platforms = {"cpu": "cpu", "gpu": f"{detect.gpu_backend()},cpu", "tpu": "tpu,cpu"}
    environ["JAX_PLATFORMS"] = platforms[plan.platform]
    flags = os.environ.get("XLA_FLAGS", "").split()
    alone = job.started_here  # one device each
    if config.fake_devices or alone:
        flags = [flag for flag in flags if not flag.startswith(_DEVICE_COUNT)]
        flags.append(f"{_DEVICE_COUNT}={1 if alone else config.fake_devices}")
    if config.deterministic and plan.platform == "gpu":
        flags += _DETERMINISTIC_GPU
    if flags:
        environ["XLA_FLAGS"] = " ".join(flags)
    return environ


def cpu_devices(config: Config) -> int:
    """How many devices the CPU will show: virtual ones, from the flag or from XLA_FLAGS, or 1."""
    if config.fake_devices:
        return config.fake_devices
    match = re.search(rf"{_DEVICE_COUNT}=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(match[1]) if match else 1


def check_run_fields(config: Config) -> None:
    """Raises `RequestError` for values that no run can be made with."""
    if config.device not in ("auto", "none", *PLATFORMS):
        raise RequestError(f"unknown device {config.device!r}: choose auto, cpu, gpu, tpu or none")
    if config.isolation not in ("auto", "process", "none"):
        raise RequestError(f"unknown isolation {config.isolation!r}: choose auto, process or none")
    if not 0 <= config.fake_devices <= MAX_FAKE_DEVICES:
        raise RequestError(
            f"--fake_devices={config.fake_devices}: choose from 1 to {MAX_FAKE_DEVICES} devices"
        )
    if not 0 < config.timeout_s <= _MAX_TIMEOUT_S:
        raise RequestError(
            f"--timeout_s={config.timeout_s}: a number of seconds above 0, up to {_MAX_TIMEOUT_S:g}"
        )
    if not config.compile_cache.strip() or config.compile_cache.lower() in ("none", "no", "false"):
        raise RequestError(
            f"--compile_cache={config.compile_cache}: choose auto, off, or a directory"
        )
    if config.compile_cache not in ("auto", "off"):
        place = Path(config.compile_cache).absolute()
        there = next(p for p in (place, *place.parents) if p.exists())
        if not there.is_dir():
            raise RequestError(
                f"--compile_cache={config.compile_cache}: {there} is no directory; choose another"
            )
    for name in config.compile_cases:
        if name not in config.cases:
            raise unknown("case in config.compile_cases:", str(name), config.cases)
    measure = config.measure
    if not (
        0 < measure.target < 1
        and measure.max_samples >= measure.min_samples >= 3
        and measure.max_seconds > 0
    ):
        raise RequestError(
            "config.measure needs 0 < target < 1, max_samples >= min_samples >= 3, max_seconds > 0"
        )


def _holds_accelerator() -> bool:
    """Whether this very process has a GPU's or TPU's back end running."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: False)
    return bool(started()) and jax.default_backend() != "cpu"
