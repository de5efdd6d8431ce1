"""From a request to a plan: what is wrong with it is found here, before any back end starts."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from accel_bench import config as configs
from accel_bench import detect, mesh
from accel_bench.cases import XLA, Case, expand
from accel_bench.config import Config
from accel_bench.detect import Attached
from accel_bench.errors import RequestError

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
_HUGE_PAGES = "glibc.malloc.hugetlb=1"
_DEVICE_COUNT = "--xla_force_host_platform_device_count"


@dataclass(frozen=True)
class Plan:
    """A request that was found to be right.

    Attributes:
      config: the resolved experiment.
      platform: what to measure on.
      choice: a sentence that says so.
      axes: the mesh.
      cases: what to run, in order.
      isolated: whether cases run in a worker process.
    """

    config: Config
    platform: str
    choice: str
    axes: Mapping[str, int]
    cases: list[Case]
    isolated: bool


def make_plan(config: Config, found: Attached | None = None) -> Plan:
    """Checks a request against what is attached, without starting a back end.

    Raises:
      RequestError: it cannot be carried out.
    """
    found = found or detect.attached()
    configs.check(config)
    _check_run_fields(config)
    platform, choice = detect.choose(config.device, found)
    if config.fake_devices and platform != "cpu":
        raise RequestError(
            f"--fake_devices={config.fake_devices} makes virtual CPU devices: add --device=cpu"
        )
    count = cpu_devices(config) if platform == "cpu" else found.counts[platform]
    # A TPU chip may be two jax devices; the worker, which knows, checks again.
    known = count if platform == "cpu" else None
    axes = mesh.check(config.mesh, known, f"{platform}: {found.name[platform]}")
    cases = expand(config, platform, axes)
    if platform != "cpu" and not axes and count > 1:
        choice += f"; on one of them: --mesh=data:{count} uses all"
    isolated = config.isolation == "process" or (
        config.isolation == "auto" and not _holds_accelerator()
    )
    if not isolated:
        if config.deterministic and platform == "gpu":
            raise RequestError(
                "--deterministic must be set before the back end starts, and this process has "
                "started it: use --isolation=process"
            )
        if config.isolation == "auto":
            choice += "; in this process, which holds the accelerator already"
        if config.huge_pages and platform == "cpu":
            choice += "; with this process's own settings: no huge pages are asked for"
    return Plan(config, platform, choice, axes, cases, isolated)


def worker_environ(plan: Plan, case: Case) -> dict[str, str]:
    """Settings that the worker of a case needs from before its back end starts."""
    config = plan.config
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
    if config.fake_devices:
        flags = [flag for flag in flags if not flag.startswith(_DEVICE_COUNT)]
        flags.append(f"{_DEVICE_COUNT}={config.fake_devices}")
    if config.deterministic and plan.platform == "gpu":
        # Autotuning picks other kernels, with other rounding, from run to run.
        flags += ["--xla_gpu_deterministic_ops=true", "--xla_gpu_autotune_level=0"]
    if flags:
        environ["XLA_FLAGS"] = " ".join(flags)
    return environ


def cpu_devices(config: Config) -> int:
    """How many devices the CPU will show: virtual ones, from the flag or from XLA_FLAGS, or 1."""
    if config.fake_devices:
        return config.fake_devices
    match = re.search(rf"{_DEVICE_COUNT}=(\d+)", os.environ.get("XLA_FLAGS", ""))
    return int(match[1]) if match else 1


def _check_run_fields(config: Config) -> None:
    if config.isolation not in ("auto", "process", "none"):
        raise RequestError(f"unknown isolation {config.isolation!r}: choose auto, process or none")
    if not 0 <= config.fake_devices <= MAX_FAKE_DEVICES:
        raise RequestError(
            f"--fake_devices={config.fake_devices}: choose from 1 to {MAX_FAKE_DEVICES} devices"
        )
    if not (config.timeout_s > 0 and math.isfinite(config.timeout_s)):
        raise RequestError(f"--timeout_s={config.timeout_s}: a number of seconds above 0")
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
