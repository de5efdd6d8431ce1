"""What was compiled once is not compiled again: records of compiled cases, kept on disk.

A record is kept under a hash of all that makes the program and its compiler what they are: the
case, mesh and target, the source code that builds and reads programs, the versions of jax and the
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
from collections.abc import Mapping
from pathlib import Path

from accel_bench import compilers
from accel_bench.jobs import job_key, record_key
from accel_bench.plan import Job
from accel_bench.record import Record, from_dict, to_line

# Records that say something of the program; the others may be the machine's or the hour's fault.
_KEPT = ("ok", "oom_compile", "unsupported")
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
_HERE = Path(__file__).resolve().parent
# What builds a program and what reads it.
_SOURCES = (
    "workloads/*.py", "../models/*.py", "hlo/*.py", "chip_table.py", "chips.py", "compile.py",
    "network.py", "precision.py", "program.py", "roofline.py", "target.py",
)  # fmt: skip


def directory(setting: str) -> Path | None:
    """The cache's place: `auto` for the user's cache directory; None for `off`."""
    if setting == "off":
        return None
    try:
        if setting != "auto":
            return Path(setting).expanduser()
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # nobody's home is known
        return None
    return Path(base) / "accel_bench" / "compiled"


@functools.cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    for pattern in _SOURCES:
        for path in sorted(_HERE.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key(job: Job, environ: Mapping[str, str]) -> str:
    """Equal for jobs that end in the same program, and for no others.

    Args:
      job: what is compiled.
      environ: settings that the worker is given beside the user's.
    """
    assert job.target
    compiler = compilers.find(job.target)
    parts = [
        job.case.key,
        list(job.axes.items()),
        str(job.target),
        dict(compiler.versions),
        {name: compilers.version(name) for name in _PACKAGES},
        platform.python_version(),
        {**compilers.settings(), **environ},
        _source_hash(),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def load(place: Path, job: Job, environ: Mapping[str, str]) -> Record | None:
    """The kept record of a job; None where there is none that can be believed."""
    try:
        record = from_dict(json.loads((place / f"{key(job, environ)}.json").read_text()))
    except (OSError, ValueError, RecursionError):
        return None
    if record.status not in _KEPT or record_key(record) != job_key(job):
        return None
    # Nothing was compiled now; what it took then stands in the facts.
    cache = {"hit": True, "compile_s": record.compile_s}
    return dataclasses.replace(record, compile_s=None, facts={**record.facts, "cache": cache})


def save(place: Path, job: Job, environ: Mapping[str, str], record: Record) -> None:
    """Keeps a record that is worth it. A cache that cannot be written is no reason to fail."""
    if record.status not in _KEPT:
        return
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place, delete=False) as file:
            try:
                file.write(to_line(record))
                file.flush()
                os.replace(file.name, place / f"{key(job, environ)}.json")
            except OSError:
                os.unlink(file.name)
                raise
