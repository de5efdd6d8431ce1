"""The record: one line of strict JSON per case, and the file of them.

Raw samples and facts are kept; rates and percentiles are derived later (`accel_bench.derive`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
FILE_NAME = "records.jsonl"
STATUSES = (
    "ok",
    "unsupported",
    "skipped",
    "oom",
    "oom_compile",
    "timeout",
    "crashed",
    "nonfinite",
    "invalid",
    "failed",
)
# A row of this status means that something went wrong, not only that something is not to be had.
FAILURES = frozenset(STATUSES) - {"ok", "unsupported", "skipped"}

# Flag in `facts.flags` -> what it means.
FLAGS = {
    "emulated": "the hardware has no unit for this precision",
    "dispatch-bound": "a step takes under 10 launches: this times the launch, not the work",
    "cache-resident": "the working set is under 4 caches: not main memory",
    "drift": "the samples' median moved by over 5 % from the first third to the last",
    "noisy": "the 95 % interval of the median is wider than 5 % on either side",
    "few-samples": "under 6 samples: too few for a 95 % interval, so nothing is claimed from it",
    "not-autotuned": "compiled without a GPU to try kernels on: another may be chosen there",
    "over-default-share": "needs more than the 75 % of a GPU's memory that jax takes by default "
    "(XLA_PYTHON_CLIENT_MEM_FRACTION)",
    "nonlinear": "twice the calls did not take about twice as long",
}


@dataclass
class Record:
    """What became of one case.

    Attributes:
      run_id: of the process that wrote it.
      config_hash: `accel_bench.config.config_hash` of the experiment.
      workload, params, precision, implementation: the case.
      mesh: axis -> size; empty for one device.
      target: where it ran: kind (`measured` or `compiled`), platform, device_kind, chip (a name in
        the chip table or None), num_devices, num_chips (None where the chip is unknown), attached.
      status: one of `STATUSES`; everything but `ok` has a `reason` that a person can act on.
      samples_s: seconds per step, one entry per sample; empty where nothing was measured.
      compile_s, first_call_s: seconds to compile, and for the first call after it.
      facts: what else is known: analytic work, error, memory, flags (see docs/records.md).
      env: versions, machine and settings, captured when the worker started.
    """

    run_id: str
    config_hash: str
    workload: str
    params: Mapping[str, Any]
    precision: str
    mesh: Mapping[str, int]
    target: Mapping[str, Any]
    status: str
    env: Mapping[str, Any]
    reason: str | None = None
    implementation: str = "xla"
    samples_s: list[float] = field(default_factory=list)
    compile_s: float | None = None
    first_call_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r} is none of {', '.join(STATUSES)}")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"a record with status {self.status} needs a reason")
        if not self.env:
            raise ValueError("a record needs the environment it was made in")


def strict(value: Any) -> Any:
    """The value with infinities and NaN as None: strict JSON knows neither."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_line(record: Record) -> str:
    """The record as one line of JSON, without the line's end."""
    return json.dumps(strict(dataclasses.asdict(record)), allow_nan=False)


def from_dict(plain: Mapping[str, Any]) -> Record:
    """The record that a line holds. Fields that this version does not know are left out.

    Raises:
      ValueError: it is not a record.
    """
    if not isinstance(plain, Mapping):
        raise ValueError("not a JSON object")
    known = {f.name for f in dataclasses.fields(Record)}
    try:
        record = Record(**{key: value for key, value in plain.items() if key in known})
    except TypeError as error:
        raise ValueError(str(error).replace("Record.__init__() ", "")) from error
    _check_types(record)
    return record


def _number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # JSON's whole numbers have no end
        return False


def _numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_number(item) for item in value.values())


def _times(value: Any) -> bool:
    return isinstance(value, list) and all(_number(item) and item > 0 for item in value)


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _number_or_none(value: Any) -> bool:
    return value is None or _number(value)


def _tallies(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(item, Mapping) and _number_or_none(item.get("executed"))
        for item in value.values()
    )


def _collectives(value: Any) -> bool:
    """Entries as `accel_bench.hlo.collectives` makes them."""
    return isinstance(value, list) and all(
        isinstance(entry, Mapping)
        and isinstance(entry.get("kind"), str)
        and (entry.get("axes", 0) is None or _words(entry.get("axes")))
        and all(_number_or_none(entry.get(name, "")) for name in ("bytes", "calls", "wire_bytes"))
        for entry in value
    )


# Field, or field.field, -> what its value must be where it is there.
_SHAPES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        ("run_id", "config_hash", "workload", "precision", "status", "implementation", "reason",
         "target.platform", "target.device_kind", "target.kind", "target.chip"),
        lambda value: isinstance(value, str),
    ),
    **dict.fromkeys(
        ("params", "mesh", "target", "env", "facts", "env.cpu", "env.packages", "env.settings",
         "facts.device_trace", "facts.companions_s", "facts.estimate", "facts.memory",
         "facts.program", "facts.code", "facts.code.copies", "facts.code.prefetches",
         "facts.code.layouts", "facts.program.flops_by_type"),
        lambda value: isinstance(value, Mapping),
    ),
    **dict.fromkeys(
        ("schema_version", "compile_s", "first_call_s", "facts.error", "facts.working_set",
         "facts.steps_per_call", "target.num_devices", "target.num_chips",
         "facts.estimate.compiler_s", "facts.estimate.bound_s", "facts.estimate.compute_s",
         "facts.estimate.memory_s", "facts.estimate.network_s", "facts.memory.needed",
         "facts.memory.usable", "facts.memory.temporaries", "facts.program.flops_vs_work"),
        _number,
    ),
    **dict.fromkeys(
        ("facts.code.fusions", "facts.code.kernels", "facts.code.custom_calls"), _tallies
    ),
    "facts.collectives": _collectives,
    "facts.estimate.binds": lambda value: isinstance(value, str),
    **dict.fromkeys(("mesh", "facts.work", "env.cpu.caches"), _numbers),
    "samples_s": _times,
    "facts.flags": _words,
}  # fmt: skip
_NULLABLE = ("reason", "compile_s", "first_call_s", "facts.error", "target.chip",
             "target.num_chips", "facts.program.flops_by_type", "facts.collectives",
             "facts.program.flops_vs_work", "facts.estimate.binds")  # fmt: skip
_REQUIRED = ("run_id", "config_hash", "workload", "params", "precision", "mesh", "target", "env",
             "implementation", "samples_s", "facts")  # fmt: skip


def _check_types(record: Record) -> None:
    """Raises `ValueError` for a record whose fields hold something else than they should."""
    for name in _REQUIRED:
        if getattr(record, name) is None:
            raise ValueError(f"{name} is null")
    absent = object()
    for path, fits in _SHAPES.items():
        first, *rest = path.split(".")
        value = getattr(record, first)
        for name in rest:
            value = value.get(name, absent) if isinstance(value, Mapping) else absent
        nullable = path in _NULLABLE or path.startswith(("facts.estimate.", "facts.memory."))
        if value is absent or (value is None and nullable):
            continue
        if not fits(value):
            raise ValueError(f"{path} holds {value!r:.40}")
    for samples in record.facts.get("companions_s", {}).values():
        if not _times(samples):
            raise ValueError(f"facts.companions_s holds {samples!r:.40}")
    compiled = record.target.get("kind") == "compiled"
    if record.status == "ok" and not record.samples_s and not compiled:
        raise ValueError("status ok without samples")
    if record.samples_s and compiled:
        raise ValueError("a compiled record with samples")


@dataclass(frozen=True)
class ReadResult:
    """Records of a file, what could not be read, and where the last whole line ends.

    Attributes:
      records: in the file's order.
      problems: one line of text for each line that is not a record.
      good_bytes: offset behind the last whole line.
    """

    records: list[Record]
    problems: list[str]
    good_bytes: int


def read(path: Path) -> ReadResult:
    """Reads a file of records; a line that is none is named and does not stop the rest.

    Raises:
      OSError: the file cannot be read.
    """
    data = path.read_bytes()
    records, problems = [], []
    good_bytes = data.rfind(b"\n") + 1
    for number, line in enumerate(data[:good_bytes].splitlines(), start=1):
        try:
            records.append(from_dict(json.loads(line)))
        except (ValueError, RecursionError) as error:
            problems.append(f"{path}:{number}: not a record: {error}")
    if good_bytes != len(data):
        problems.append(f"{path}: the last line is torn: the run was stopped while writing it")
    return ReadResult(records, problems, good_bytes)


class JournalError(OSError):
    """A record could not be written."""


class Journal:
    """Appends records to a file, each one whole and on the disk before the next case starts."""

    def __init__(self, path: Path, good_bytes: int = 0) -> None:
        """Opens the file for appending and cuts off what stands behind `good_bytes`."""
        # Unbuffered, so that a write that found no room leaves nothing behind to be tried again.
        self._file = path.open("ab", buffering=0)
        self._file.truncate(good_bytes)
        self._size = good_bytes

    def append(self, record: Record) -> None:
        """Writes one line.

        Raises:
          JournalError: it could not be written (a full disk); the file is as it was before.
        """
        line = to_line(record).encode() + b"\n"
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:]) or 0
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(self._size)
            raise JournalError(error.errno, error.strerror) from error
        self._size += len(line)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
