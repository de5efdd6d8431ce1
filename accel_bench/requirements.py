"""What the suite needs, brought to a notebook's runtime without touching the jax that is there.

A runtime's jax fits its accelerator: Colab's TPU runtimes bring jax with libtpu, its GPU runtimes
with the CUDA plugin. Another version of one of them leaves a jax that does not start, or one that
measures on the CPU. Imports only what every notebook has: it runs before anything is installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accel_bench import compilers, detect
from accel_bench.errors import RequestError
from accel_bench.target import AUTO, parse

if TYPE_CHECKING:
    from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
_OLDEST_PYTHON = (3, 11)
_JAX = r"jax|jaxlib|jax-(cuda|rocm)\d*-(plugin|pjrt)|libtpu"
# What is never replaced: jax and what belongs to it, the CUDA libraries that a runtime's other
# packages load as well, and numpy, which a running kernel has often imported already.
_KEPT = rf"{_JAX}|nvidia-.+|numpy"


def install(with_compilers: bool = False, upgrade_jax: bool = False) -> list[str]:
    """Installs with pip what the suite needs and the runtime does not have.

    Inside the suite's own checkout nothing is installed: that environment is its user's to change.

    Args:
      with_compilers: bring those compilers for absent TPUs and GPUs, too, that are missing.
      upgrade_jax: replace the runtime's jax, and what belongs to it, where it is too old.

    Returns:
      Sentences that say what was done.

    Raises:
      RequestError: the runtime cannot be used as it is, or pip failed.
    """
    if sys.version_info < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        raise RequestError(
            f"this runtime has Python {sys.version.split()[0]}, and the suite needs {oldest} or "
            "newer: choose a newer runtime"
        )
    project = _project()
    needed = _missing(project["dependencies"])
    replaced = any(r.name == "jax" for r in needed) and compilers.version("jax") is not None
    if replaced and not upgrade_jax:
        wanted = next(r.specifier for r in needed if r.name == "jax")
        raise RequestError(
            f"this runtime's jax {compilers.version('jax')} is too old: the suite needs "
            f"jax{wanted} and replaces a runtime's jax only if asked to; choose a newer runtime "
            "version, or UPGRADE_JAX = True"
        )
    extra = _missing_compilers(project["optional-dependencies"]["aot"]) if with_compilers else []
    done = []
    if Path.cwd().resolve().is_relative_to(ROOT):
        if needed:
            names = ", ".join(map(str, needed))
            raise RequestError(f"this environment lacks {names}: pip install -e {ROOT}")
        done.append(f"This notebook is in a checkout, {ROOT}: nothing was installed.")
    elif needed or extra:
        done.append(_pip([*map(_with_plugin, needed), *extra], _JAX if replaced else ""))
    else:
        done.append("All that the suite needs is there: nothing was installed.")
    if with_compilers:
        done += [f"No compiler for {name}: {why}" for name, why in _without_compiler().items()]
    return done


def _project() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _missing(lines: Iterable[str]) -> list[Requirement]:
    """Requirements for this platform that no installed version satisfies."""
    from packaging.requirements import Requirement

    found = []
    for requirement in map(Requirement, lines):
        version = compilers.version(requirement.name)
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            found.append(requirement)
    return found


def _with_plugin(requirement: Requirement) -> Requirement:
    """jax with the plugin that this runtime has, or needs for what is attached."""
    if requirement.name == "jax":
        counts = detect.attached().counts
        if compilers.version("libtpu") or counts["tpu"]:
            requirement.extras = {"tpu"}
        elif compilers.version("jax-cuda12-plugin"):
            requirement.extras = {"cuda12"}
        elif compilers.version("jax-cuda13-plugin") or counts["gpu"]:
            requirement.extras = {"cuda13"}
    return requirement


def _without_compiler() -> dict[str, str]:
    """Platform -> why nothing can be compiled for it; those that can are left out."""
    found = {target.platform: compilers.find(target) for target in map(parse, AUTO)}
    return {name: compiler.missing for name, compiler in found.items() if compiler.missing}


def _missing_compilers(lines: Iterable[str]) -> list[Requirement]:
    """Of the `aot` requirements those of compilers that the runtime does not bring itself."""
    from packaging.requirements import Requirement

    absent = _without_compiler()
    # A CUDA plugin of the runtime's own that lacks a tool is not joined by a second one.
    if any(compilers.version(f"jax-cuda{major}-plugin") for major in (12, 13)):
        absent.pop("gpu", None)
    found = []
    for requirement in map(Requirement, lines):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if requirement.name == "jax":
            wanted = {"tpu": "tpu", "cuda": "gpu"}
            requirement.extras = {
                extra
                for extra in requirement.extras
                if wanted[re.match(r"[a-z]+", extra)[0]] in absent  # type: ignore[index]
            }
            if requirement.extras:
                found.append(requirement)
        elif "gpu" in absent:
            found.append(requirement)
    return found


def _kept(free: str) -> dict[str, str]:
    """Installed packages that stay as they are, with their versions; `free` may change."""
    named = ((d.metadata["Name"] or "", d.version) for d in importlib.metadata.distributions())
    kept = ((name.lower().replace("_", "-"), version) for name, version in named)
    return {
        name: version
        for name, version in kept
        if re.fullmatch(_KEPT, name) and not (free and re.fullmatch(rf"{free}|nvidia-.+", name))
    }


def _pip(needed: Sequence[Requirement], free: str) -> str:
    """Installs; returns a sentence on it. Raises `RequestError` where that cannot be."""
    names = ", ".join(sorted(_name(r) for r in needed))
    print(f"pip installs {names}: a minute or two.", flush=True)
    before, loaded = _kept(free), _versions_of_loaded()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.writelines(f"{name}=={version}\n" for name, version in before.items())
        constraints.flush()
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--constraint", constraints.name, *map(str, needed)],
            capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        why = (said or done.stderr.splitlines() or ["no reason given"])[0].removeprefix("ERROR: ")
        raise RequestError(f"pip could not install {names}: {why}")
    importlib.invalidate_caches()
    changed = _differing(before, _kept(free))
    if changed:
        raise RequestError(
            f"pip has changed {changed}, which this runtime needs as it was: start a new runtime"
        )
    stale = _differing(loaded, _versions_of_loaded())
    if stale:
        raise RequestError(
            f"installed, but {stale} was in use already: restart the session (Runtime > Restart "
            "session) and run all cells again"
        )
    return f"Installed: {names}. jax is {compilers.version('jax')}{'' if free else ' as before'}."


def _name(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return requirement.name + extras


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Which packages are of another version now, in words; empty where none is."""
    return ", ".join(
        f"{name} {version} to {after.get(name)}"
        for name, version in before.items()
        if after.get(name) != version
    )


def _versions_of_loaded() -> dict[str, str]:
    """Installed packages of which this process has imported something, with their versions."""
    modules = importlib.metadata.packages_distributions()
    names = {name for module in modules if module in sys.modules for name in modules[module]}
    return {name: version for name in names if (version := compilers.version(name))}
