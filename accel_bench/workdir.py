"""The working directory of a run: its config, its records, its log, and who may write there.

config.json      the resolved config; `run --config=DIR/config.json` repeats the run
records.jsonl    one line per finished case
worker.log       what libraries printed
traces/          device traces (`--profile`)
hlo/             texts of compiled programs (`--dump_hlo`)
checkpoints/     of trainings, a folder for each case (`Case.key`); they stay when its record is
                 written, and `--resume` carries on from them while there is none
.lock            held while a run writes; the file itself stays
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from accel_bench import config as configs
from accel_bench import record
from accel_bench.config import Config
from accel_bench.errors import RequestError
from accel_bench.record import Journal, ReadResult, Record

CONFIG_NAME = "config.json"
LOG_NAME = "worker.log"
LOCK_NAME = ".lock"
CHECKPOINTS_NAME = "checkpoints"


def default_path(config: Config) -> Path:
    """`runs/DATE-TIME-NAME-HASH` below the current directory."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^\w.-]", "_", config.name)  # a name is no path
    return Path("runs") / f"{now}-{name}-{configs.config_hash(config)}"


class Workdir:
    """An opened working directory that this run alone writes to.

    Attributes:
      path: the directory.
      earlier: records that were there before.
      problems: lines of the records file that could not be read.
    """

    def __init__(
        self, path: Path, config: Config, meshes: Sequence[Mapping[str, int]], resume: bool
    ) -> None:
        """Opens the directory, creating it where it is not there.

        Args:
          path: the directory.
          config: the resolved experiment.
          meshes: those that cases are measured on.
          resume: whether to carry on where records are there already.

        Raises:
          RequestError: it holds records and `resume` is not set, holds those of another
            experiment, is in use, or cannot be written. What was there is unchanged.
        """
        self.path = path
        self._created = [p for p in (path, *path.parents) if not p.exists()]
        found = self._read(resume, config, [dict(axes) for axes in meshes])
        self.earlier: list[Record] = found.records
        self.problems = found.problems
        self._files: list[IO | Journal] = []
        names = (CONFIG_NAME, record.FILE_NAME, LOG_NAME, LOCK_NAME)
        self._new_files = [path / name for name in names if not (path / name).exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock()
            self.log: IO[bytes] = (path / LOG_NAME).open("ab+")
            self._files.append(self.log)
            if not self.earlier:
                configs.write_json(config, path / CONFIG_NAME)
            self.journal = Journal(path / record.FILE_NAME, found.good_bytes)
            self._files.append(self.journal)
        except OSError as error:
            self.discard()
            raise RequestError(
                f"cannot write to --workdir={path}: {error.strerror or error}; choose another one"
            ) from error

    def _read(self, resume: bool, config: Config, meshes: list[dict[str, int]]) -> ReadResult:
        file = self.path / record.FILE_NAME
        try:
            if not file.exists() or not file.stat().st_size:
                self._refuse_checkpoints(resume, config)
                return ReadResult([], [], 0)
            found = record.read(file)
        except OSError as error:
            raise RequestError(
                f"cannot read --workdir={self.path}: {error.strerror or error}"
            ) from error
        wanted = configs.config_hash(config)
        others = [r for r in found.records if r.config_hash != wanted]
        if others:
            raise RequestError(
                f"--workdir={self.path} holds {_records(len(others))} of another experiment "
                f"({self._difference(config)}): choose another --workdir"
            )
        measured = [r for r in found.records if r.target.get("kind") != "compiled"]
        others = [dict(r.mesh) for r in measured if dict(r.mesh) not in meshes]
        if others:
            raise RequestError(
                f"--workdir={self.path} holds records of another mesh ({others[0]} against "
                f"{meshes[0]}): choose another --workdir, and compare the two"
            )
        if not resume:
            raise RequestError(
                f"--workdir={self.path} holds {_records(len(found.records))} already: add --resume "
                "to carry on there, or choose another --workdir"
            )
        return found

    def _refuse_checkpoints(self, resume: bool, config: Config) -> None:
        """Raises `RequestError` where a training was stopped here and is not to be carried on."""
        folder = self.path / CHECKPOINTS_NAME
        if not folder.exists():
            return
        if not folder.is_dir():
            raise RequestError(f"{folder} is no folder, and checkpoints go there: move it away")
        if not any(folder.iterdir()):
            return
        if not resume:
            raise RequestError(
                f"--workdir={self.path} holds checkpoints of a run that was stopped: add --resume "
                "to carry on there, or choose another --workdir"
            )
        held = plain_config(self.path)
        if held and configs.config_hash(held) != configs.config_hash(config):
            raise RequestError(
                f"--workdir={self.path} holds checkpoints of another experiment "
                f"({self._difference(config)}): choose another --workdir"
            )

    def _difference(self, config: Config) -> str:
        with contextlib.suppress(RequestError):
            held = configs.experiment(configs.read_json(self.path / CONFIG_NAME))
            lines = configs.differing_fields(held, configs.experiment(config))
            if lines:
                more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
                return f"{lines[0]}{more}"
        return "its config is not there to compare"

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not on Windows; two runs in one directory are on the user there
            return
        lock = (self.path / LOCK_NAME).open("w")
        self._files.append(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            self._files.clear()
            raise RequestError(
                f"another run is writing to --workdir={self.path}: wait for it, or choose another"
            ) from error

    def make_folder(self, name: str) -> None:
        """Makes a folder in it; raises `RequestError` where something else is in the way."""
        try:
            (self.path / name).mkdir(exist_ok=True)
        except OSError as error:
            self.discard()
            raise RequestError(
                f"cannot make the folder {self.path / name}: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        """Closes the files; the lock goes with them."""
        for file in self._files:
            file.close()
        self._files.clear()

    def discard(self) -> None:
        """Removes what this run has put there, where that is nothing but empty files."""
        with contextlib.suppress(OSError):
            self.close()
            if not self.earlier:
                for file in self._new_files:
                    file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    (self.path / "hlo").rmdir()
                for directory in self._created:
                    directory.rmdir()


def _records(count: int) -> str:
    return f"{count} record{'s' if count != 1 else ''}"


def find_config(path: Path) -> Path:
    """The file with the config that a run left in its working directory.

    Raises:
      RequestError: there is none.
    """
    if not (path / CONFIG_NAME).is_file():
        raise RequestError(
            f"--resume without --config needs a run to carry on, but there is no {CONFIG_NAME} in "
            f"--workdir={path}"
        )
    return path / CONFIG_NAME


def read_records(path: Path) -> ReadResult:
    """Records of a working directory or of a records file.

    Raises:
      RequestError: there are none to read.
    """
    file = path / record.FILE_NAME if path.is_dir() else path
    try:
        return record.read(file)
    except OSError as error:
        raise RequestError(
            f"cannot read records from {path}: {error.strerror or error}; give a workdir of a run"
        ) from error


def plain_config(path: Path) -> dict | None:
    """The plain config beside the records at `path`; None where there is none to read."""
    file = (path if path.is_dir() else path.parent) / CONFIG_NAME
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None
