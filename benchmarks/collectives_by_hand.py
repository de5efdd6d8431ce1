"""The suite's all_reduce between two processes against a plain loop of the same, through gloo.

    python benchmarks/collectives_by_hand.py

Two processes of this machine, over its loopback. Prints for each size the plain loop's time over
the suite's, of medians and of the fastest: near 1 is right. The two take turns, so that a change in
the machine's speed hits both.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

SIZES = tuple(mib << 20 for mib in (4, 16, 64))
ROUNDS = 5
PROCESSES = 2


def main() -> None:
    """Prints the ratios."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, __file__, coordinator]
    environ = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    started = [
        subprocess.Popen([*command, str(number)], env=environ, stdout=None if not number else -3)
        for number in range(PROCESSES)
    ]
    sys.exit(max(process.wait() for process in started))


def one_of_them(coordinator: str, number: int) -> None:
    """One process: both loops in turn for each size; the first one prints."""
    import jax

    from accel_bench import agree, execute, measure
    from accel_bench.measure import Measurement
    from accel_bench.timing import Budget
    from accel_bench.workloads.collective import build
    from accel_bench.workloads.params import Collective

    session = execute.start(
        "cpu",
        {
            "coordinator": coordinator, "num_processes": PROCESSES, "process_id": number,
            "local_devices": None, "timeout_s": 60, "hosts": 1,
        },
    )  # fmt: skip
    mesh = session.mesh({"data": PROCESSES})
    budget = Budget(target=0.001, max_samples=30, max_seconds=2.0, min_samples=10)
    if not number:
        print(f"jax {jax.__version__}: by hand / suite, medians, and the fastest of each")
    for size in SIZES:
        hand, suite = [], []
        for _ in range(ROUNDS):
            hand.append([agree.largest(seconds) for seconds in by_hand(mesh, size)])
            result = Measurement()
            workload = build(Collective("all_reduce", size, "data"), "fp32", mesh)
            measure.measure(workload, 0, budget, session.launch, None, result)
            suite.append(result.samples_s)
        if not number:
            typical = statistics.median(
                statistics.median(h) / statistics.median(s)
                for h, s in zip(hand, suite, strict=True)
            )
            best = min(map(min, hand)) / min(map(min, suite))
            rate = size / min(map(min, suite))
            print(f"{size >> 20:4} MiB {typical:7.3f} {best:7.3f}   fastest {rate / 1e9:.3f} GB/s")


def by_hand(mesh, size: int) -> list[float]:
    """Seconds of each call of an all-reduce, as one would write it."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    spec = PartitionSpec("data")
    shape = (PROCESSES, size // 4)
    ones = jax.make_array_from_callback(
        shape, NamedSharding(mesh, spec), lambda index: np.ones((1, size // 4), np.float32)
    )
    add = jax.jit(
        jax.shard_map(lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=spec, out_specs=spec)
    )
    add(ones).block_until_ready()
    times = []
    for _ in range(20):
        start = time.perf_counter()
        add(ones).block_until_ready()
        times.append(time.perf_counter() - start)
    return times


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one_of_them(sys.argv[1], int(sys.argv[2]))
    else:
        main()
