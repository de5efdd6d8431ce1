"""What was compiled once is not compiled again: replies of compile-only workers, kept on disk.

A reply is kept under a hash of all that makes the program and its compiler what they are: the case,
mesh and target, the source code that builds and reads programs, the versions of jax and the
compiler, and the settings in force. What comes from here says so in `facts.cache`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from accel_bench import compilers
from accel_bench.plan import Job
from accel_bench.supervisor import Reply

# Replies that say something of the program; the others may be the machine's or the hour's fault.
_KEPT = ("ok", "oom_compile", "unsupported")
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
_HERE = Path(__file__).resolve().parent
# What builds a program and what reads it.
_SOURCES = (
    "workloads/*.py", "../models/*.py", "hlo/*.py", "chips.py", "compile.py", "network.py",
    "precision.py", "program.py", "roofline.py", "target.py",
)  # fmt: skip


def directory(setting: str) -> Path | None:
    """The cache's place: `auto` for the user's cache directory; None for `off`."""
    if setting == "off":
        return None
    if setting != "auto":
        return Path(setting)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "accel_bench" / "compiled"


@functools.cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for path in sorted(_HERE.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(job: Job) -> str:
    """Equal for jobs that end in the same program, and for no others."""
    assert job.target
    compiler = compilers.find(job.target)
    parts = [
        job.case.key,
        list(job.axes.items()),
        str(job.target),
        dict(compiler.versions),
        {name: compilers.version(name) for name in _PACKAGES},
        platform.python_version(),
        compilers.settings(),
        _source_hash(),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def load(place: Path, job: Job) -> Reply | None:
    """The kept reply of a job; None where there is none that can be read."""
    try:
        reply = Reply(**json.loads((place / f"{key(job)}.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    facts = dict(reply.measurement.get("facts", {}))
    facts["cache"] = {"hit": True, "compile_s": reply.measurement.get("compile_s")}
    # Nothing was compiled now; what it took then stands in the facts.
    measurement = {**reply.measurement, "facts": facts, "compile_s": None}
    return dataclasses.replace(reply, measurement=measurement)


def save(place: Path, job: Job, reply: Reply) -> None:
    """Keeps a reply that is worth it. A cache that cannot be written is no reason to fail."""
    if reply.status not in _KEPT:
        return
    plain: dict[str, Any] = dataclasses.asdict(reply)
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place, delete=False) as file:
            json.dump(plain, file)
        os.replace(file.name, place / f"{key(job)}.json")
