"""The parent's side of a worker: starts it, asks, watches the clock, and survives its end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

# A back end that has not started by then never will; TPU runtimes may take a minute.
START_TIMEOUT_S = 300.0
# What libtpu says on every machine without a TPU.
_START_NOISE = re.compile(r"worker hostname|accelerator type|before InitGoogle|Source Location")


@dataclass(frozen=True)
class WorkerSpec:
    """How a worker is started; cases of equal specs share one.

    Attributes:
      platform: `cpu`, `gpu` or `tpu`.
      axes: the mesh.
      environ: settings that must be in force before the back end starts.
      target: what the worker compiles for; empty where it measures.
      hidden: modules that it must not import.
    """

    platform: str
    axes: Mapping[str, int]
    environ: Mapping[str, str]
    target: str = ""
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """How a case ended, seen from outside: an outcome, or why there is none."""

    status: str
    reason: str | None
    measurement: dict[str, Any]
    target: dict[str, Any] | None
    env: dict[str, Any]


class StartError(Exception):
    """The worker's back end did not start; the text says why."""

    def __init__(self, reason: str, env: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.env = dict(env or {})


class Worker:
    """One worker process. Not restarted by itself: `execute` after its end raises."""

    def __init__(self, spec: WorkerSpec, log: IO[bytes]) -> None:
        """Starts the process; `wait_ready` waits until its back end is up."""
        self.spec = spec
        self.env: dict[str, Any] = {}
        self.target: dict[str, Any] = {}
        self._log = log
        self._log_start = log.seek(0, os.SEEK_END)
        arguments = json.dumps(
            {
                "platform": spec.platform,
                "axes": dict(spec.axes),
                "target": spec.target,
                "hidden": spec.hidden,
            }
        )
        root = Path(__file__).resolve().parent.parent
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            # -P: a folder `models` where the user stands is not ours.
            [sys.executable, "-P", "-m", "accel_bench.worker", arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": path, **spec.environ},
            start_new_session=True,
        )
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        assert self._process.stdout
        with self._process.stdout as stream:
            for line in stream:
                self._lines.put(line)
        self._lines.put(None)

    def _next(self, deadline: float) -> dict[str, Any] | None:
        """The next message; None at the stream's end. Raises `TimeoutError`."""
        try:
            line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None
        try:
            return None if line is None else json.loads(line)
        except ValueError:  # it ended in the middle of a line
            return None

    def wait_ready(self) -> None:
        """Waits for the back end.

        Raises:
          StartError: it did not start.
        """
        try:
            message = self._next(time.monotonic() + START_TIMEOUT_S)
        except TimeoutError:
            self.kill()
            raise StartError(f"the back end did not start within {START_TIMEOUT_S:.0f} s") from None
        if message is None:
            self._close()
            raise StartError(f"the worker ended while starting: {self._how_it_ended()}")
        if message["event"] == "failed":
            self.kill()
            raise StartError(message["reason"], message["env"])
        self.env, self.target = message["env"], message["target"]

    def execute(
        self, request: Mapping[str, Any], timeout_s: float, on_stage: Callable[[str], None]
    ) -> Reply:
        """Runs one case; a worker that hangs or dies becomes a `timeout` or `crashed` reply.

        Args:
          request: what `accel_bench.worker` reads.
          timeout_s: when to give up.
          on_stage: told what the worker is doing.
        """
        assert self._process.stdin
        deadline = time.monotonic() + timeout_s
        stage = "starting"
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            while (message := self._next(deadline)) is not None:
                if message["event"] == "done":
                    return Reply(
                        message["status"],
                        message["reason"],
                        message["measurement"],
                        message["target"],
                        self.env,
                    )
                stage = message["text"]
                on_stage(stage)
        except TimeoutError:
            self.kill()
            reason = f"still {stage} after --timeout_s={timeout_s:g} seconds; the worker was ended"
            return Reply("timeout", reason, {}, None, self.env)
        except BrokenPipeError:
            pass  # it ended before it could be asked
        reason = f"the worker ended while {stage}: {self._how_it_ended()}"
        return Reply("crashed", reason, {}, None, self.env)

    @property
    def alive(self) -> bool:
        """Whether the process can take another case."""
        return self._process.poll() is None

    def _how_it_ended(self) -> str:
        code = self._process.wait()
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

    def kill(self) -> None:
        """Ends the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def close(self) -> None:
        """Lets the process end, and makes sure of it."""
        self._close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()

    def _close(self) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
