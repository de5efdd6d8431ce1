"""Several processes that make one run: which one this is, and where the first one listens.

Either flags say so, or a launcher does: SLURM, Open MPI, a Cloud TPU pod, GKE; whatever
`jax.distributed.initialize` would find by itself is found here, by jax's own rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accel_bench.config import Config
from accel_bench.errors import RequestError

MAX_PROCESSES = 65536
# Variables of which a launcher that jax knows sets at least one in each process: only where there
# is one of them is jax imported, which takes half a second, and asked.
_LAUNCHERS = (
    "SLURM_PROCID",
    "OMPI_MCA_orte_hnp_uri",
    "TPU_WORKER_HOSTNAMES",
    "TPU_PROCESS_ADDRESSES",
    "MEGASCALE_COORDINATOR_ADDRESS",
    "JOB_COMPLETION_INDEX",
)


@dataclass(frozen=True)
class Cluster:
    """This process's place among those of a run.

    Attributes:
      host, port: where process 0 listens for the others.
      num_processes: how many there are.
      process_id: which one this is, from 0.
      local_devices: numbers of the GPUs that are this process's own; None takes all of the host's.
    """

    host: str
    port: int
    num_processes: int
    process_id: int
    local_devices: tuple[int, ...] | None = None

    @property
    def address(self) -> str:
        """`HOST:PORT`."""
        return address(self.host, self.port)


def address(host: str, port: int) -> str:
    """`HOST:PORT`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_processes(config: Config) -> int:
    """How many processes to start on this machine; 1 without `--num_processes`, or in a cluster."""
    return max(1, config.num_processes) if not config.coordinator else 1


def find(config: Config, tpus: int = 0) -> Cluster | None:
    """The cluster that this process belongs to; None where it is alone.

    Args:
      config: what flags say; see there.
      tpus: TPU chips on this host: those of a pod slice are found through them.

    Raises:
      RequestError: flags that make no cluster.
    """
    count, number = config.num_processes, config.process_id
    if count < 0 or count > MAX_PROCESSES:
        raise RequestError(f"--num_processes={count}: choose from 1 to {MAX_PROCESSES}")
    if not config.coordinator:
        if number >= 0:
            raise RequestError(
                f"--process_id={number} needs --coordinator=HOST:PORT, where process 0 listens, "
                "and --num_processes"
            )
        return None if count else _launched(tpus)
    host, port = _address(config.coordinator)
    if not count or number < 0:
        missing = "--num_processes" if not count else "--process_id"
        raise RequestError(f"--coordinator={config.coordinator} needs {missing} too")
    if number >= count:
        raise RequestError(
            f"--process_id={number} with --num_processes={count}: choose from 0 to {count - 1}"
        )
    return Cluster(host, port, count, number) if count > 1 else None


def _address(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:\[\]]+)):([0-9]{1,5})", text)
    if not match or not 0 < int(match[3]) < 65536:
        raise RequestError(f"--coordinator={text} is no address: write HOST:PORT, as in node1:9901")
    return match[1] or match[2], int(match[3])


def _launched(tpus: int) -> Cluster | None:
    """What a launcher says of this process; None without one, or where it is the only one."""
    said = any(name in os.environ for name in _LAUNCHERS)
    if not said and not tpus:
        return None
    try:
        parameters = _jax_finds()
    except RequestError:
        if said:
            raise
        # TPU chips and no word of a pod: one host, as on Colab. On a pod that hides itself libtpu
        # would wait for the other hosts, and say so.
        return None
    if parameters is None:
        return None
    address, count, number, devices = parameters
    if count < 2:
        return None
    host, port = _address(address)
    return Cluster(host, port, count, number, tuple(devices) if devices else None)


def _jax_finds() -> tuple[str, int, int, Any] | None:
    """Coordinator, number of processes, this one's and its devices, by jax; None if there is none.

    jax has no public way to ask without starting its own service there and then.
    """
    try:
        from jax._src.clusters import ClusterEnv

        detect: Callable[..., Any] = ClusterEnv.auto_detect_unset_distributed_params
    except (ImportError, AttributeError):
        return None
    try:
        found = detect(None, None, None, None, None, 60)
    except Exception as error:  # a metadata server that is away, a variable that is no number
        raise RequestError(
            f"the launcher of this process is not understood ({type(error).__name__}: {error}): "
            "name --coordinator, --num_processes and --process_id, or --num_processes=1"
        ) from error
    return None if None in found[:3] else found
