"""The environment of a run: what a reader needs to know to believe or repeat a number."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from accel_bench import detect

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "libtpu")
# Settings that change what a back end does or how fast.
_SETTINGS = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_PLATFORMS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "TF_GPU_ALLOCATOR",
    "JAX_ENABLE_X64",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_THREEFRY_PARTITIONABLE",
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_DEBUG_NANS",
    "JAX_DISABLE_JIT",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The suite's own commit; a `+` behind it means uncommitted changes."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=5
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    if commit is None or git("ls-files", "--error-unmatch", "env.py") is None:
        return None  # installed inside somebody else's repository
    return commit + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def _nvidia_driver() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    match = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return match.group(1) if match else None


def _tcp_congestion_control() -> str | None:
    """How the kernel shares a link among flows: what gloo over a slow network depends on."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return None


def capture() -> dict[str, Any]:
    """What can be known without jax: versions, machine, settings. Strict JSON."""
    plugins = {
        name: distribution.version
        for distribution in importlib.metadata.distributions()
        if re.fullmatch(r"jax-(cuda|rocm)\d*-(plugin|pjrt)", name := distribution.name or "")
    }
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES} | plugins,
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "driver": _nvidia_driver(),
        "cpu": {
            "model": detect.cpu_model(),
            "cores": detect.cpu_cores(),
            "caches": detect.cpu_caches(),
            "flags": sorted(
                flag
                for flag in detect.cpu_flags()
                if re.match(r"avx|amx|fma|bf16|asimd|sve|i8mm|fphp", flag)
            ),
            "load_at_start": load,
        },
        "memory_available": detect.memory_available(),
        "settings": {name: os.environ[name] for name in _SETTINGS if name in os.environ},
        "tcp_congestion_control": _tcp_congestion_control(),
        "git_commit": _git_commit(),
    }
