"""The parent's side of a worker: starts it, asks, watches the clock, and survives its end.

A worker is one process, or several that run each case together (`accel_bench.group`). Of several,
the first one's figures count; what any of them ends in ends the case.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from accel_bench.members import Listener, Member

# A back end that has not started by then never will; TPU runtimes may take a minute.
START_TIMEOUT_S = 300.0
# Several processes start together, which takes its time, however short a case may be.
MIN_GROUP_START_S = 30.0
# How long the others may take to end as the first of them did.
GRACE_S = 5.0

# Starts process number so and so, which tells the listener what it says.
Starter: TypeAlias = Callable[[Listener], Member]


@dataclass(frozen=True)
class WorkerSpec:
    """How a worker is started; cases of equal specs share one.

    Attributes:
      platform: `cpu`, `gpu` or `tpu`.
      axes: the mesh, for a compiler; what measures is told with each case.
      environ: settings that must be in force before the back end starts.
      target: what the worker compiles for; empty where it measures.
      hidden: modules that it must not import.
      processes: how many run each case together.
      link: rate of the network link that each of several on this machine gets; empty: no network.
    """

    platform: str
    axes: Mapping[str, int]
    environ: Mapping[str, str]
    target: str = ""
    hidden: tuple[str, ...] = ()
    processes: int = 1
    link: str = ""


@dataclass(frozen=True)
class Reply:
    """How a case ended, seen from outside: an outcome, or why there is none."""

    status: str
    reason: str | None
    measurement: dict[str, Any]
    target: dict[str, Any] | None
    env: dict[str, Any]


class StartError(Exception):
    """The worker's back end did not start; the text says why.

    Attributes:
      env: the environment, where a back end said in order that it cannot be started.
      status: what cases end in that needed it.
    """

    def __init__(
        self, reason: str, env: Mapping[str, Any] | None = None, status: str | None = None
    ) -> None:
        super().__init__(reason)
        self.env = dict(env or {})
        self.status = status or ("failed" if env else "crashed")


class Worker:
    """One or several processes. Not restarted by itself: `execute` after an end raises."""

    def __init__(self, spec: WorkerSpec, starters: Mapping[str, Starter]) -> None:
        """Starts the processes; `wait_ready` waits until their back ends are up.

        Args:
          spec: how they are started.
          starters: the processes by name, such as `process 1 on node7`; the first one leads.
        """
        self.spec = spec
        self.env: dict[str, Any] = {}
        self.target: dict[str, Any] = {}
        self._names = list(starters)
        self._messages: queue.Queue[tuple[int, dict[str, Any] | None]] = queue.Queue()
        self._members: list[Member] = []
        try:
            for index, start in enumerate(starters.values()):
                self._members.append(start(self._listener(index)))
        except BaseException:
            self.kill()
            raise

    def _listener(self, index: int) -> Listener:
        return lambda message: self._messages.put((index, message))

    def _next(self, deadline: float) -> tuple[int, dict[str, Any] | None]:
        """The next message and whose it is; None at a stream's end. Raises `TimeoutError`."""
        try:
            return self._messages.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Waits for the back ends.

        Raises:
          StartError: one did not start; none runs any more.
        """
        deadline = time.monotonic() + timeout_s
        ready: dict[int, dict[str, Any]] = {}
        while len(ready) < len(self._members):
            try:
                index, message = self._next(deadline)
            except TimeoutError:
                late = self._listed(i for i in range(len(self._members)) if i not in ready)
                self.kill()
                said = f"the back end {late}did not start within {timeout_s:.0f} s"
                raise StartError(
                    said, status="timeout" if len(self._members) > 1 else None
                ) from None
            if message is None:
                how = self._members[index].how_it_ended()
                self.kill()
                raise StartError(f"the worker {self._of(index)}ended while starting: {how}")
            if message["event"] == "failed":
                self.kill()
                raise StartError(f"{self._say(index)}{message['reason']}", message["env"])
            ready[index] = message
        self.env, self.target = dict(ready[0]["env"]), ready[0]["target"]
        if len(ready) > 1:
            self.env["processes"] = _differences([ready[i]["env"] for i in sorted(ready)])

    def execute(
        self, request: Mapping[str, Any], timeout_s: float, on_stage: Callable[[str], None]
    ) -> Reply:
        """Runs one case; a worker that hangs or dies becomes a `timeout` or `crashed` reply.

        Args:
          request: what `accel_bench.worker` reads.
          timeout_s: when to give up.
          on_stage: told what the worker is doing.
        """
        deadline = time.monotonic() + timeout_s
        stages = ["starting"] * len(self._members)
        replies: dict[int, dict[str, Any]] = {}
        for member in self._members:
            member.send(request)
        try:
            while len(replies) < len(self._members):
                index, message = self._next(deadline)
                if message is None:
                    how = self._members[index].how_it_ended()
                    if len(self._members) > 1:  # the others would wait for it
                        self.kill()
                    reason = f"the worker {self._of(index)}ended while {stages[index]}: {how}"
                    return Reply("crashed", reason, {}, None, self.env)
                if message["event"] == "done":
                    replies[index] = message
                    if message["status"] != "ok":
                        deadline = min(deadline, time.monotonic() + GRACE_S)
                else:
                    stages[index] = message["text"]
                    if index == 0:
                        on_stage(stages[0])
        except TimeoutError:
            self.kill()
            if not any(message["status"] != "ok" for message in replies.values()):
                waiting = self._listed(i for i in range(len(self._members)) if i not in replies)
                stage = stages[next(i for i in range(len(self._members)) if i not in replies)]
                reason = (
                    f"{waiting}still {stage} after --timeout_s={timeout_s:g} seconds; the worker "
                    "was ended"
                )
                return Reply("timeout", reason, {}, None, self.env)
        return self._together(replies)

    def _together(self, replies: Mapping[int, dict[str, Any]]) -> Reply:
        """What several processes said, as one: the first, or what ended it for one of them."""
        ends = {index: (r["status"], r["reason"]) for index, r in replies.items()}
        decisive = next((i for i, (status, _) in ends.items() if status != "ok"), 0)
        message = replies[decisive]
        reason = message["reason"]
        agreed = len(set(ends.values())) == 1 and len(ends) == len(self._members)
        if len(self._members) > 1:
            if not agreed:
                reason = f"{self._say(decisive)}{reason}"
            if not agreed or message["status"] in ("failed", "oom"):
                self.kill()  # what they hold, and how far each got, is not known any more
        measured = replies.get(0, message)["measurement"]
        return Reply(message["status"], reason, measured, message["target"], self.env)

    def _of(self, index: int) -> str:
        return f"of {self._names[index]} " if len(self._members) > 1 else ""

    def _say(self, index: int) -> str:
        return f"{self._names[index]}: " if len(self._members) > 1 else ""

    def _listed(self, indices: Any) -> str:
        names = [self._names[i] for i in indices]
        return f"of {', '.join(names)} " if len(self._members) > 1 else ""

    @property
    def alive(self) -> bool:
        """Whether the processes can take another case."""
        return all(member.alive for member in self._members)

    def kill(self) -> None:
        """Ends the processes and all that they started."""
        for member in self._members:
            member.kill()

    def close(self) -> None:
        """Lets the processes end, and makes sure of it."""
        for member in self._members:
            member.hang_up()
        for member in self._members:
            member.close()


def _differences(environments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each process's environment, of which only what differs from the first one's is repeated."""
    first = environments[0]
    return [
        {key: value for key, value in one.items() if key == "host" or first.get(key) != value}
        for one in environments
    ]
