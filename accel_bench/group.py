"""Starts the processes that run a case together: one, several on this machine, or a cluster's.

Several on this machine stand for as many hosts. With a link between them (`accel_bench.netns`) each
is in a network namespace of its own, behind a card of that rate, and has its share of the cores.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import partial
from typing import IO, Any

from accel_bench.cluster import address
from accel_bench.lead import Lead, Peer, RemoteMember
from accel_bench.members import Listener, LocalMember, Member
from accel_bench.netns import Network, NetworkError, unavailable
from accel_bench.supervisor import (
    MIN_GROUP_START_S,
    START_TIMEOUT_S,
    Starter,
    StartError,
    Worker,
    WorkerSpec,
)

# Free in a namespace that was just made.
_PORT = 9901


class Group:
    """Starts workers, and keeps the network that they run in while it serves."""

    def __init__(self, log: IO[bytes], timeout_s: float, lead: Lead | None) -> None:
        """Takes what all workers share.

        Args:
          log: takes what libraries print.
          timeout_s: within which several processes must have started.
          lead: the other processes of a cluster; None where there are none.
        """
        self._log, self._lead = log, lead
        self._timeout_s = min(START_TIMEOUT_S, timeout_s)
        self._network: Network | None = None

    def start(self, spec: WorkerSpec) -> Worker:
        """A worker whose back ends are up.

        Raises:
          StartError: there is none; nothing of it runs any more.
        """
        if spec.processes == 1 or spec.target:
            return self._ready(spec, {"the worker": partial(self._local, spec)}, START_TIMEOUT_S)
        starters = self._cluster(spec) if self._lead else self._here(spec)
        return self._ready(spec, starters, max(MIN_GROUP_START_S, self._timeout_s))

    def _ready(self, spec: WorkerSpec, starters: dict[str, Starter], timeout_s: float) -> Worker:
        worker = Worker(spec, starters)
        try:
            worker.wait_ready(timeout_s)
        except StartError:
            raise
        except BaseException:  # interrupted: leave no process behind
            worker.kill()
            raise
        return worker

    def _local(
        self,
        spec: WorkerSpec,
        listener: Listener,
        together: dict[str, Any] | None = None,
        prefix: Sequence[str] = (),
    ) -> Member:
        return LocalMember(_arguments(spec, together), spec.environ, self._log, listener, prefix)

    def _here(self, spec: WorkerSpec) -> dict[str, Starter]:
        """Processes on this machine, by name."""
        network = self._joined(spec) if spec.link else None
        coordinator = f"{network.addresses[0]}:{_PORT}" if network else f"127.0.0.1:{_free_port()}"
        starters: dict[str, Starter] = {}
        for i in range(spec.processes):
            together = self._together(spec, coordinator, i, hosts=1)
            if network:
                together["cores"] = _share_of_cores(i, spec.processes)
            prefix = network.command(i) if network else ()
            starters[f"process {i}"] = partial(self._local, spec, together=together, prefix=prefix)
        return starters

    def _joined(self, spec: WorkerSpec) -> Network:
        """The network that processes with a link need; the one that is there, if it is the same."""
        network = self._network
        if network and (network.link, len(network.addresses)) == (spec.link, spec.processes):
            return network
        self.close()
        reason = unavailable()
        if reason:
            raise StartError(f"no limited network here: {reason}", status="unsupported")
        try:
            self._network = Network(spec.processes, spec.link)
        except NetworkError as error:
            raise StartError(f"no limited network here: {error}", status="failed") from error
        return self._network

    def _cluster(self, spec: WorkerSpec) -> dict[str, Starter]:
        """This process and the others of the cluster, by name."""
        assert self._lead
        cluster = self._lead.cluster
        peers = self._lead.wait(self._timeout_s)
        hosts = len({socket.gethostname(), *(peer.host for peer in peers.values())})
        coordinator = address(cluster.host, _free_port())
        ours = self._together(spec, coordinator, 0, hosts)
        ours["local_devices"] = cluster.local_devices
        starters: dict[str, Starter] = {"process 0": partial(self._local, spec, together=ours)}
        for i in sorted(peers):
            theirs = self._together(spec, coordinator, i, hosts)
            name = f"process {i} on {peers[i].host}"
            starters[name] = partial(self._remote, spec, peers[i], theirs)
        return starters

    def _remote(
        self, spec: WorkerSpec, peer: Peer, together: dict[str, Any], listener: Listener
    ) -> Member:
        together["local_devices"] = peer.local_devices
        start = {"arguments": _arguments(spec, together), "environ": dict(spec.environ)}
        return RemoteMember(peer, start, listener)

    def _together(
        self, spec: WorkerSpec, coordinator: str, number: int, hosts: int
    ) -> dict[str, Any]:
        """What `accel_bench.execute.start` needs to know of the others."""
        return {
            "coordinator": coordinator,
            "num_processes": spec.processes,
            "process_id": number,
            "local_devices": None,
            "hosts": hosts,
            "timeout_s": int(max(MIN_GROUP_START_S, self._timeout_s)),
            "cores": None,
        }

    def close(self) -> None:
        """Takes the network away, and what is left in it."""
        if self._network:
            self._network.close()
            self._network = None


def _arguments(spec: WorkerSpec, together: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "platform": spec.platform,
        "axes": dict(spec.axes),
        "target": spec.target,
        "hidden": spec.hidden,
        "together": together,
    }


def _share_of_cores(index: int, count: int) -> list[int] | None:
    """Cores for one of several processes that must not take each other's; None: no such choice."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    if count >= len(cores):
        return [cores[index % len(cores)]]
    return cores[index * len(cores) // count : (index + 1) * len(cores) // count]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]
