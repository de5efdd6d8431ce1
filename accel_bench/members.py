"""One worker process, seen from its parent: it is sent requests and heard until it ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

from accel_bench.errors import RunError

# Told every message of a worker, and None once, when there will be no more.
Listener: TypeAlias = Callable[[dict[str, Any] | None], None]
# What libtpu says on every machine without a TPU,
_START_NOISE = re.compile(
    r"worker hostname|accelerator type|before InitGoogle|Source Location"
    # And gloo on every start, several processes into each other.
    r"|\[Gloo\]|peer ranks|^\d+$"
)
_CLOSE_TIMEOUT_S = 5.0


class Member(Protocol):
    """A worker process, wherever it runs."""

    def send(self, request: Mapping[str, Any]) -> None:
        """Asks for one case; a process that has ended is told nothing."""

    def how_it_ended(self) -> str:
        """In words, once it has."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it can take another case."""
        ...

    def hang_up(self) -> None:
        """Lets it end: it gets no more requests."""

    def kill(self) -> None:
        """Ends it and all that it started."""

    def close(self) -> None:
        """Waits for its end after `hang_up`, and makes sure of it."""


class LocalMember:
    """A worker process on this machine."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        environ: Mapping[str, str],
        log: IO[bytes],
        listener: Listener,
        prefix: Sequence[str] = (),
    ) -> None:
        """Starts the process.

        Args:
          arguments: how it starts; see `accel_bench.worker`.
          environ: settings that must be in force from before its back end starts.
          log: takes what libraries print.
          listener: told what it says, from another thread.
          prefix: a command that starts the command behind it, such as `ip netns exec NAME`.

        Raises:
          RunError: it cannot be started.
        """
        self._log = log
        self._log_start = log.seek(0, os.SEEK_END)
        root = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        try:
            self._process = subprocess.Popen(
                # -P: a folder `models` where the user stands is not ours.
                [*prefix, sys.executable, "-P", "-m", "accel_bench.worker", json.dumps(arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path, **environ},
                start_new_session=True,
            )
        except OSError as error:
            raise RunError(f"cannot start a worker process: {error}") from error
        threading.Thread(target=self._pump, args=(listener,), daemon=True).start()

    def _pump(self, listener: Listener) -> None:
        assert self._process.stdout
        with self._process.stdout as stream:
            for line in stream:
                try:
                    listener(json.loads(line))
                except ValueError:  # it ended in the middle of a line
                    break
        listener(None)

    def send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def how_it_ended(self) -> str:
        try:
            code = self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # its stream is closed, and it goes on: no use
            return "it fell silent"
        if code < 0:
            name = signal.Signals(-code).name
            hint = " (by hand, or by the system for want of memory)" if name == "SIGKILL" else ""
            how = f"signal {name}{hint}"
        else:
            how = f"exit status {code}"
        last = self._last_log_line()
        return f"{how}; its last words: {last}" if last else how

    def _last_log_line(self) -> str:
        self._log.seek(max(self._log_start, self._log.seek(0, os.SEEK_END) - 8192))
        lines = self._log.read().decode(errors="replace").splitlines()
        said = [line.strip() for line in lines if line.strip() and not _START_NOISE.search(line)]
        # A crash prints a stack trace behind the line that says what is wrong.
        errors = [
            line for line in said if line.startswith(("F0", "F1", "ERROR")) or "rror:" in line
        ]
        return (errors or said or [""])[-1][:300]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def hang_up(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.hang_up()

    def close(self) -> None:
        try:
            self._process.wait(timeout=_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
