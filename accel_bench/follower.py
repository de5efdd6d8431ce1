"""A process of a cluster that is not its first: runs the workers that process 0 asks for."""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from typing import Any

from accel_bench.cluster import Cluster
from accel_bench.errors import RequestError, RunError
from accel_bench.lines import Line
from accel_bench.members import LocalMember

_RETRY_S = 0.5


def follow(cluster: Cluster, experiment: str, timeout_s: float) -> None:
    """Serves process 0 until the run is over.

    Args:
      cluster: where it listens, and who this process is.
      experiment: what this process was asked for.
      timeout_s: how long to try to reach it.

    Raises:
      RequestError: it cannot be reached, or does not take this process in.
      RunError: the connection ended before the run did.
    """
    line = Line(_connect(cluster, timeout_s))
    number = cluster.process_id
    line.send(
        {
            "process_id": number,
            "num_processes": cluster.num_processes,
            "host": socket.gethostname(),
            "local_devices": cluster.local_devices,
            "experiment": experiment,
        }
    )
    answer = line.receive(timeout_s)
    if answer is None or "refused" in answer:
        line.close()
        raise RequestError(
            answer["refused"]
            if answer
            else f"--coordinator={cluster.address}: what listens there is not this suite"
        )
    print(
        f"process {number} of {cluster.num_processes} follows {cluster.address}; records are "
        "written there",
        file=sys.stderr,
    )
    try:
        with tempfile.TemporaryFile() as log:
            _serve(line, log)
    finally:
        line.close()


def _connect(cluster: Cluster, timeout_s: float) -> socket.socket:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            # Neither end may be the other: a connection to oneself is one that nobody else took.
            connection = socket.create_connection((cluster.host, cluster.port), timeout=timeout_s)
            if connection.getsockname() != connection.getpeername():
                connection.settimeout(None)
                return connection
            connection.close()
            reason = "nobody listens"
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() > deadline - _RETRY_S:
            raise RequestError(
                f"--coordinator={cluster.address} was not reached within {timeout_s:.0f} s "
                f"({reason}): start process 0 there, or name the right address"
            )
        time.sleep(_RETRY_S)


def _serve(line: Line, log: Any) -> None:
    worker: LocalMember | None = None
    current = -1
    try:
        while (message := line.receive()) is not None:
            if "over" in message:
                return
            if "worker" in message:
                if worker:
                    worker.kill()
                current = message["start"]
                worker = _start(line, current, message["worker"], log)
            elif worker and message["start"] == current:
                if "ask" in message:
                    worker.send(message["ask"])
                elif message["end"] == "kill":
                    worker.kill()
                else:
                    worker.hang_up()
    finally:
        if worker:
            worker.kill()
    raise RunError("process 0 is gone: the connection to it ended before the run did")


def _start(line: Line, number: int, worker: dict[str, Any], log: Any) -> LocalMember:
    started: list[LocalMember] = []
    there = threading.Event()

    def relay(message: dict[str, Any] | None) -> None:
        if message is None:
            there.wait()
            message = {"event": "ended", "how": started[0].how_it_ended()}
        line.send({"start": number, "says": message})

    started.append(LocalMember(worker["arguments"], worker["environ"], log, relay))
    there.set()
    return started[0]
