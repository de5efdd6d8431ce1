"""How long to time: calibration, sampling, and what a launch costs. No workload is known here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from accel_bench import agree, stats
from accel_bench.workloads.base import Device

# A sample is at least this long, and at least so many launches long.
MIN_SAMPLE_S = 5e-3
MIN_SAMPLE_LAUNCHES = 100
MAX_CALLS_PER_SAMPLE = 1 << 16
# Sampling stops calibrating and starts once two batches in a row agree this well.
WARM_WITHIN = 0.05
MAX_WARMUPS = 6
MAX_DOUBLING_TRIES = 20


@dataclass(frozen=True)
class Budget:
    """When to stop sampling, and whether to take energy too (`measure` in `config.base`)."""

    target: float
    max_samples: int
    max_seconds: float
    min_samples: int
    energy: bool = False


@dataclass(frozen=True)
class Launch:
    """What a launch costs on this worker's devices, in seconds.

    Attributes:
      queued: per launch, when many are enqueued before the last is waited for.
      blocking: when each is waited for.
    """

    queued: float
    blocking: float


def launch_cost(device: Device) -> Launch:
    """Measures what launching a program costs that adds 1 to a scalar; best of a few batches."""
    increment = jax.jit(lambda x: x + 1)
    x = increment(jax.device_put(np.float32(0), device)).block_until_ready()

    def batch(wait: bool, count: int = 200) -> float:
        value = x
        start = time.perf_counter()
        for _ in range(count):
            value = increment(value)
            if wait:
                value.block_until_ready()
        value.block_until_ready()
        return (time.perf_counter() - start) / count

    batch(False)
    queued, blocking = (min(batch(wait) for _ in range(5)) for wait in (False, True))
    return Launch(agree.largest(queued), agree.largest(blocking))


def calibrate(seconds: Callable[[int], float], launch: Launch) -> int:
    """Warms up, and returns how many calls make a sample that is long against a launch."""
    wanted = max(MIN_SAMPLE_S, MIN_SAMPLE_LAUNCHES * launch.blocking)
    calls = 1
    previous = seconds(calls)
    for _ in range(MAX_WARMUPS):
        # Long calls are warm after one: there is nothing more to amortise.
        if previous > 0.5:
            break
        needed = int(np.ceil(calls * wanted / max(previous, 1e-9)))
        calls = min(max(calls, needed), MAX_CALLS_PER_SAMPLE)
        now = seconds(calls)
        if calls == 1 or now >= wanted:
            settled = abs(now / max(previous, 1e-9) - 1) < WARM_WITHIN
            previous = now
            if settled:
                break
        previous = now
    return calls


def sample(once: Callable[[], float], steps: int, budget: Budget) -> list[float]:
    """Samples, in seconds per step, until the median is known well enough or time is up."""
    samples: list[float] = []
    deadline = time.perf_counter() + budget.max_seconds
    while len(samples) < budget.max_samples:
        samples.append(once() / steps)
        enough = len(samples) >= budget.min_samples
        late = agree.largest(time.perf_counter() - deadline)
        # Steps that take as long as the whole budget still get a few samples: six have an interval.
        if late > 0 and (enough or len(samples) >= 6 or late > 4 * budget.max_seconds):
            break
        if enough and stats.median(samples).half_width <= budget.target:
            break
    return samples


def doubling(double: Callable[[], float], single: Callable[[], float]) -> float:
    """How many times as long the first takes: of the fastest of each, over more and more tries.

    Other work on the machine only ever adds time, so that the fastest times are the true ones.
    """
    doubles, singles, ratio = [], [], 0.0
    for _ in range(MAX_DOUBLING_TRIES):
        doubles.append(double())
        singles.append(single())
        ratio = min(doubles) / min(singles)
        if 1.6 < ratio < 2.5:
            break
    return ratio
