"""Process 0 of a cluster: takes the others in, and gives each of them a worker to run.

The others (`accel_bench.follower`) connect to the coordinator's port. What they are told and say
passes through that connection; the workers' own traffic, jax's, does not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from accel_bench.cluster import Cluster
from accel_bench.errors import RequestError
from accel_bench.lines import Line
from accel_bench.members import Listener
from accel_bench.supervisor import StartError

_HELLO_TIMEOUT_S = 10.0


class Peer:
    """One other process of the run."""

    def __init__(self, line: Line, hello: Mapping[str, Any]) -> None:
        self.line = line
        self.host = str(hello.get("host", "?"))
        self.local_devices = hello.get("local_devices")
        self.gone = False
        self._listeners: dict[int, Listener] = {}
        self._lock = threading.Lock()

    def listen(self, generation: int, listener: Listener) -> None:
        """Has a listener told what the worker of this start says."""
        with self._lock:
            if not self.gone:
                self._listeners[generation] = listener
                return
        listener(None)

    def pump(self) -> None:
        """Passes messages on until the connection ends."""
        while (message := self.line.receive()) is not None:
            listener = self._listeners.get(message.get("start", -1))
            if listener:
                listener(message.get("says"))
        with self._lock:
            self.gone = True
            listeners = list(self._listeners.values())
        for listener in listeners:
            listener(None)


class RemoteMember:
    """A worker process that a peer runs; the peer is asked through its connection."""

    _starts = itertools.count()

    def __init__(self, peer: Peer, start: Mapping[str, Any], listener: Listener) -> None:
        """Has the peer start it, in the place of the one before."""
        self._peer, self._start = peer, next(self._starts)
        self._end: str | None = None
        self._listener = listener
        peer.listen(self._start, self._hear)
        peer.line.send({"start": self._start, "worker": start})

    def _hear(self, message: dict[str, Any] | None) -> None:
        if message is not None and message.get("event") == "ended":
            self._end = message["how"]
            message = None
        elif message is None and self._end is None:
            self._end = "its connection ended: the process, its host or the network is gone"
        self._listener(message)

    def send(self, request: Mapping[str, Any]) -> None:
        self._peer.line.send({"start": self._start, "ask": request})

    def how_it_ended(self) -> str:
        return self._end or "it fell silent"

    @property
    def alive(self) -> bool:
        return self._end is None and not self._peer.gone

    def hang_up(self) -> None:
        self._peer.line.send({"start": self._start, "end": "close"})

    def kill(self) -> None:
        self._peer.line.send({"start": self._start, "end": "kill"})

    def close(self) -> None:
        """The peer sees to it."""


class Lead:
    """Listens for the others, for as long as the run takes."""

    def __init__(self, cluster: Cluster, experiment: str) -> None:
        """Listens.

        Args:
          cluster: the address and how many there are.
          experiment: what all of them must have been asked for, in equal words.

        Raises:
          RequestError: nobody can listen there.
        """
        self.cluster, self._experiment = cluster, experiment
        self._peers: dict[int, Peer] = {}
        self._refused: dict[int, str] = {}
        self._changed = threading.Condition()
        try:
            family, _, _, _, address = socket.getaddrinfo(
                cluster.host, cluster.port, type=socket.SOCK_STREAM
            )[0]
            self._socket = socket.create_server(
                address[:2], family=family, backlog=min(1024, cluster.num_processes)
            )
        except OSError as error:
            raise RequestError(
                f"process 0 cannot listen at --coordinator={cluster.address}: "
                f"{_words(error)}; choose a free port of this very host"
            ) from error
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        """Takes a process in, or tells it why not."""
        line = Line(connection)
        hello = line.receive(_HELLO_TIMEOUT_S) or {}
        number = hello.get("process_id")
        peer = Peer(line, hello)
        with self._changed:
            refusal = self._refusal(hello, number)
            if isinstance(number, int):
                if refusal:
                    self._refused[number] = refusal
                else:
                    self._peers[number] = peer
            self._changed.notify_all()
        if refusal:
            line.send({"refused": refusal})
            line.close()
        else:
            line.send({"welcome": True})
            peer.pump()
            line.close()

    def _refusal(self, hello: Mapping[str, Any], number: Any) -> str | None:
        count = self.cluster.num_processes
        if hello.get("num_processes") != count:
            return (
                f"process 0 was started with --num_processes={count}, this one with "
                f"{hello.get('num_processes')}: start all with the same"
            )
        if not isinstance(number, int) or not 0 < number < count:
            return f"there is no process {number} among {count}"
        held = self._peers.get(number)
        if held and not held.gone:
            return (
                f"--process_id={number} is taken by a process on {held.host}: give each one its own"
            )
        if hello.get("experiment") != self._experiment:
            return (
                "process 0 was asked for something else: start all with the same config, flags and "
                "version of the suite"
            )
        return None

    def wait(self, timeout_s: float) -> dict[int, Peer]:
        """The other processes by number, once all are there.

        Raises:
          StartError: one is not, or is there no longer.
        """
        deadline = time.monotonic() + timeout_s
        numbers = range(1, self.cluster.num_processes)
        with self._changed:
            while missing := [n for n in numbers if n not in self._peers]:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise StartError(
                        f"of {self.cluster.num_processes} processes {_few(missing)} did not come "
                        f"to {self.cluster.address} within {timeout_s:.0f} s"
                        + "".join(
                            f"; {n} came and was refused: {self._refused[n]}"
                            for n in missing
                            if n in self._refused
                        ),
                        status="timeout",
                    )
            gone = [n for n in numbers if self._peers[n].gone]
            if gone:
                raise StartError(f"of {self.cluster.num_processes} processes {_few(gone)} is gone")
            return dict(self._peers)

    def close(self) -> None:
        """Tells the others that the run is over."""
        # Wakes the thread that accepts, which a mere close would not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._changed:
            for peer in self._peers.values():
                peer.line.send({"over": True})


def _words(error: OSError) -> str:
    # A name that is not known has a number of its own kind; Python adds words to the others.
    known = isinstance(error, socket.gaierror) or not error.errno
    return str(error.strerror or error) if known else os.strerror(error.errno or 0)


def _few(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
