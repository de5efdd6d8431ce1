"""Which compilers for accelerators that are not attached are installed. Starts and loads nothing.

A compiler that does not match jax may compile and then fail, or take the process with it, so its
version is looked at before it is loaded.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from accel_bench.target import Target

INSTALL = "pip install -e '.[aot]'"
# CUDA 13 compiles for this compute capability and newer ones.
_OLDEST_OF_CUDA13 = (7, 5)

Version = Callable[[str], str | None]


@dataclass(frozen=True)
class Compiler:
    """What compiles for a target.

    Attributes:
      versions: package -> version of what takes part.
      missing: why there is none, and the command that helps; None where there is one.
      mismatch: why it must not be loaded, and the command that helps; None where it may be.
      hidden: modules that must not be imported, because they are another compiler for the same
        platform.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None
    mismatch: str | None = None
    hidden: tuple[str, ...] = ()


def version(package: str) -> str | None:
    """Version of an installed package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def find(target: Target, installed: Version = version) -> Compiler:
    """The compiler for a target, from the names and versions of installed packages.

    Args:
      target: what to compile for.
      installed: a package's version, or None where it is not installed.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return Compiler(
            missing="compilers for absent accelerators exist for x86-64 Linux only; this is "
            f"{platform.system()} {platform.machine()}"
        )
    return _tpu(installed) if target.platform == "tpu" else _cuda(target, installed)


def _tpu(installed: Version) -> Compiler:
    found, jax = installed("libtpu"), installed("jax")
    if found is None:
        return Compiler(missing=f"the wheel libtpu is not installed: {INSTALL}")
    wanted = _required_libtpu()
    mismatch = None
    if wanted and not (found == wanted or found.startswith(wanted + ".")):
        mismatch = (
            f"libtpu {found} does not match jax {jax}, which needs {wanted}: "
            f"pip install 'jax[tpu]=={jax}'"
        )
    return Compiler({"libtpu": found}, mismatch=mismatch)


def _required_libtpu() -> str | None:
    """The libtpu version, or the beginning of it, that the installed jax asks for."""
    for line in importlib.metadata.requires("jax") or ():
        match = re.match(r"libtpu==([\d.]+?)(?:\.\*)?\s*;.*\btpu\b", line)
        if match:
            return match[1]
    return None


def _cuda(target: Target, installed: Version) -> Compiler:
    capability = tuple(int(part) for part in (target.chip.capability or "0.0").split("."))
    majors = [major for major in (13, 12) if installed(f"jax-cuda{major}-plugin")]
    if not majors:
        return Compiler(missing=f"the wheel jax-cuda13-plugin is not installed: {INSTALL}")
    # The older compiler where the newer one has dropped the chip.
    if capability < _OLDEST_OF_CUDA13:
        majors.reverse()
    major, *others = majors
    tools = {13: ("nvidia-cuda-nvcc", "nvidia-nvvm"), 12: ("nvidia-cuda-nvcc-cu12",)}[major]
    plugin, runtime = f"jax-cuda{major}-plugin", f"jax-cuda{major}-pjrt"
    versions = {name: installed(name) for name in (plugin, runtime, *tools)}
    absent = [name for name, found in versions.items() if found is None]
    if _has_toolkit():
        absent = [name for name in absent if name not in tools]
    if absent:
        return Compiler(
            missing=f"the wheel {' and '.join(absent)} is not installed: pip install "
            f"{' '.join(absent)}"
        )
    jaxlib = installed("jaxlib")
    wrong = [f"{name} {versions[name]}" for name in (plugin, runtime) if versions[name] != jaxlib]
    mismatch = None
    if wrong:
        mismatch = (
            f"{' and '.join(wrong)} does not match jaxlib {jaxlib}: pip install "
            f"{plugin}=={jaxlib} {runtime}=={jaxlib}"
        )
    return Compiler(
        {name: found for name, found in versions.items() if found},
        mismatch=mismatch,
        hidden=_hidden(major, others),
    )


def _hidden(major: int, others: Sequence[int]) -> tuple[str, ...]:
    """Both plugins call themselves cuda, and jax takes the tools of CUDA 13 where it finds them."""
    tools = ("nvidia.cu13",) if major == 12 and others else ()
    return (*(f"jax_plugins.xla_cuda{other}" for other in others), *tools)


def hidden_from_gpus(installed: Version = version) -> tuple[str, ...]:
    """Of two CUDA plugins the module of the one that is there to compile only.

    jax takes the first it finds, whichever has the libraries that a GPU needs.
    """
    plugins = {
        f"jax_plugins.xla_cuda{major}": bool(installed(f"nvidia-cudnn-cu{major}"))
        for major in (12, 13)
        if installed(f"jax-cuda{major}-plugin")
    }
    if sorted(plugins.values()) != [False, True]:
        return ()
    return tuple(module for module, complete in plugins.items() if not complete)


def _has_toolkit() -> bool:
    """Whether ptxas and libdevice are there without the wheels."""
    return bool(shutil.which("ptxas")) or Path("/usr/local/cuda/nvvm/libdevice").is_dir()


def environ() -> dict[str, str]:
    """Settings of a process that only compiles."""
    return {
        # jax must not start a plugin whose hardware is absent, or take one that is attached.
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
        # libtpu asks Google's metadata server for the machine's TPU, and lets one process load it:
        # neither has a meaning where nothing is attached.
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }


def settings() -> dict[str, str]:
    """What a user has set that changes what a compiler makes."""
    prefixes = ("XLA_", "LIBTPU_", "JAX_", "NVIDIA_TF32")
    return {name: value for name, value in os.environ.items() if name.startswith(prefixes)}
