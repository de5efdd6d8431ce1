"""The suite against a plain timing loop for the same shapes, in one process.

    python benchmarks/against_hand_written.py

Prints, for each shape, the suite's median rate over that of a loop written by hand (jit, warm-up,
calls in a row, wait for the last): over the best of its runs, and over their median. Near 1 is
right: more would be a lie, less overhead.
The two take turns, so that a change in the machine's speed hits both.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("JAX_PLATFORMS", "")

import jax

from accel_bench import measure, timing
from accel_bench.measure import Measurement
from accel_bench.timing import Budget
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.base import Workload, make_mesh

ROUNDS = 5
BUDGET = Budget(target=0.01, max_samples=50, max_seconds=1.5, min_samples=10)
CASES = [
    *(("matmul", {"shape": str(size)}) for size in (512, 1024, 2048, 4096)),
    ("memory", {"op": "triad", "bytes": 768 << 20}),
]


def by_hand(workload: Workload) -> list[float]:
    """Seconds per step of a plain loop: jit, warm-up, five runs of at least 0.2 s."""
    run = jax.jit(workload.fn, donate_argnums=workload.donate)
    state = [workload.init(0)[0]]

    def loop(calls: int) -> float:
        arguments, out = state[0], None
        start = time.perf_counter()
        for _ in range(calls):
            out = run(*arguments)
            arguments = workload.feed(arguments, out)
        jax.block_until_ready(out)
        state[0] = arguments
        return (time.perf_counter() - start) / calls / workload.inner

    loop(1)
    calls = max(1, round(0.2 / (loop(2) * workload.inner)))
    return [loop(calls) for _ in range(5)]


def by_suite(workload: Workload, launch: timing.Launch) -> float:
    """Median seconds per step as the suite measures it."""
    result = Measurement()
    measure.measure(workload, 0, BUDGET, launch, None, result)
    return statistics.median(result.samples_s)


def main() -> None:
    """Prints the ratios."""
    device = jax.devices()[0]
    mesh = make_mesh([device], {})
    launch = timing.launch_cost(device)
    print(f"{device.device_kind}, jax {jax.__version__}; rate of the suite / by hand: best, median")
    for name, params in CASES:
        spec = WORKLOADS[name]
        workload = spec.builder()(spec.params(**params), "fp32", mesh)
        pairs = [(by_hand(workload), by_suite(workload, launch)) for _ in range(ROUNDS)]
        best = statistics.median(min(hand) / suite for hand, suite in pairs)
        typical = statistics.median(statistics.median(hand) / suite for hand, suite in pairs)
        amount = workload.work[spec.rate] / min(suite for _, suite in pairs)
        print(
            f"{name:8} {params!s:42} {best:6.3f} {typical:6.3f}   "
            f"fastest {amount / 1e9:7.1f} G{spec.rate}/s"
        )


if __name__ == "__main__":
    main()
