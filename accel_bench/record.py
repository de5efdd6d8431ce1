"""The record: one line of strict JSON per case, and the file of them.

What a line holds is said by `record.schema.json`; it is checked when written and when read.
Raw samples and facts are kept; rates and percentiles are derived later (`accel_bench.derive`).
"""

from __future__ import annotations

import codecs
import contextlib
import dataclasses
import gc
import json
import marshal
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accel_bench import schema

# Rises when a field changes its meaning, not when one is added (docs/records.md).
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
    "emulated": "the hardware has no unit for this precision, or the compiler widened its operands",
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


FIELDS = tuple(f.name for f in dataclasses.fields(Record))
_KNOWN = frozenset(FIELDS)
# Parts that many records of a file have in common.
_SHARED = (*schema.PARTS, "params", "mesh")


def strict(value: Any) -> Any:
    """The value with infinities and NaN as None: strict JSON knows neither."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def strict_json(plain: Any) -> str:
    """A file of strict JSON, indented."""
    return json.dumps(strict(plain), allow_nan=False, indent=1) + "\n"


class RecordError(ValueError):
    """A record of this suite breaks its own schema: a defect of the suite."""


def to_line(record: Record) -> str:
    """The record as one line of JSON, without the line's end.

    Raises:
      RecordError: it breaks the schema; the text names the field.
    """
    plain = strict(dataclasses.asdict(record))
    try:
        schema.check(plain)
    except ValueError as error:
        what = f"{record.workload} {record.precision}"
        raise RecordError(f"the record of {what} breaks the schema: {error}") from error
    return json.dumps(plain, allow_nan=False)


def from_dict(plain: Mapping[str, Any]) -> Record:
    """The record that a line holds. Fields that this version does not know are left out.

    Raises:
      ValueError: it is not a record; the text names the field.
    """
    schema.check(plain)
    return _build(plain)


def _build(plain: Mapping[str, Any]) -> Record:
    return Record(**{name: plain[name] for name in FIELDS})


@dataclass(frozen=True)
class ReadResult:
    """Records of a file, what could not be read, and where the last whole line ends.

    Attributes:
      records: in the file's order, one that was written twice once. Those of equal `env`, `target`,
        `params` or `mesh` share one object, which is not to be changed.
      problems: one line of text for each line that is not a record, and for each thing that is
        peculiar about the file.
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
    reading = _Reading(path)
    with path.open("rb") as file, _without_collector():
        for line in file:
            reading.take(line)
    return reading.result()


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Keeps Python from looking for garbage again and again among what is only ever added to."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Reading:
    """A file of records as far as it has been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: list[Record] = []
        self._problems: list[str] = []
        self._number = self._good_bytes = self._repeated = self._crlf = 0
        self._torn = False
        self._later: Counter[int] = Counter()  # schema versions that this one does not know
        self._unknown: dict[str, None] = {}  # fields, in the order in which they were met
        self._lines: dict[int, int] = {}  # hash of a line -> number of its record
        self._parts: dict[tuple[str, bytes], Any] = {}

    def take(self, line: bytes) -> None:
        """Reads the next line."""
        self._number += 1
        if not line.endswith(b"\n"):
            self._torn = True
            return
        self._good_bytes += len(line)
        self._crlf += line.endswith(b"\r\n")
        if self._number == 1 and line.startswith(codecs.BOM_UTF8):
            self._problems.append(f"{self._path}:1: begins with a byte order mark: left out")
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            self._record(line)
        except (ValueError, RecursionError) as error:
            self._problems.append(f"{self._path}:{self._number}: not a record: {error}")

    def _record(self, line: bytes) -> None:
        if line.isspace():
            raise ValueError("a blank line")
        plain = _parse(line)
        if not isinstance(plain, dict):
            raise ValueError("not a JSON object")
        self._share(plain)
        schema.check(plain, "rest")
        record = _build(plain)
        first = self._lines.setdefault(hash(line), len(self._records))
        if first < len(self._records) and self._records[first] == record:
            self._repeated += 1
            return
        self._records.append(record)
        if record.schema_version > SCHEMA_VERSION:
            self._later[record.schema_version] += 1
        if len(plain) > len(FIELDS):
            self._unknown |= dict.fromkeys(name for name in plain if name not in _KNOWN)

    def _share(self, plain: dict[str, Any]) -> None:
        """Puts the part that was met before in the place of an equal one; checks a new one."""
        for name in _SHARED:
            if name not in plain:
                continue
            # The second version of the format has no references: equal values, equal bytes.
            key = name, marshal.dumps(plain[name], 2)
            if key not in self._parts:
                if name in schema.PARTS:
                    schema.check(plain[name], name)
                self._parts[key] = plain[name]
            plain[name] = self._parts[key]

    def result(self) -> ReadResult:
        """What was found, what is true of the whole file named once."""
        said = [
            f"{count} records of schema version {version}: read as far as this version "
            f"({SCHEMA_VERSION}) understands them"
            for version, count in sorted(self._later.items())
        ]
        if self._unknown:
            names = list(self._unknown)
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            said.append(f"unknown fields are left out: {', '.join(names[:8])}{more}")
        if self._repeated:
            said.append(f"{self._repeated} lines repeat a line before them: counted once")
        if self._crlf:
            said.append(f"{self._crlf} lines end as on Windows (CR LF): another program wrote here")
        if self._torn:
            said.append("the last line is torn: the run was stopped while writing it")
        problems = [*self._problems, *(f"{self._path}: {text}" for text in said)]
        return ReadResult(self._records, problems, self._good_bytes)


def _parse(line: bytes) -> Any:
    """The JSON value of a line."""
    import orjson

    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        # It knows no lone surrogates, which a broken name of a file is written as.
        return json.loads(line.decode(), parse_constant=_refuse)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


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
          RecordError: it breaks the schema; nothing was written.
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
