"""Timing: from a workload to raw samples.

The order of things: lower, compile, make the inputs on the device and the reference, call for the
first time, check the result, warm up, choose how many calls make a sample, take samples. Only
the last is timed for the row, and it runs under a guard that forbids implicit transfers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from accel_bench import agree, checksum, program, stats, timing
from accel_bench.energy import Meter
from accel_bench.timing import Budget, Launch
from accel_bench.workloads.base import Device, HostCall, HostWorkload, Workload, fetch

# Steps that are timed part by part.
_MAX_PARTS = 30


class OutOfMemory(Exception):
    """The case needs more memory than there is; found before it was allocated."""


class Invalid(Exception):
    """The result or the time is not what the workload claims; the text says what is wrong."""


class NonFinite(Exception):
    """The result holds a NaN or an infinity."""


@dataclass
class Measurement:
    """What came out; times in seconds, `samples_s` per step."""

    samples_s: list[float] = field(default_factory=list)
    compile_s: float | None = None
    first_call_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def measure(
    workload: Workload,
    seed: int,
    budget: Budget,
    launch: Launch,
    available_bytes: int | None,
    result: Measurement,
    on_stage: Callable[[str], None] = lambda stage: None,
    profile: Callable[[Callable[[], Any]], dict[str, Any]] | None = None,
    meter: Meter | None = None,
) -> None:
    """Times a compiled workload.

    Args:
      workload: what to time.
      seed: of its inputs.
      budget: when to stop.
      launch: what a launch costs here.
      available_bytes: memory of one device that is free; None if unknown.
      result: filled in step by step, so that a case that fails keeps what was learnt before.
      on_stage: told what is going on, for a person who waits.
      profile: runs a function under a device trace and returns what it read from it.
      meter: takes the energy of further calls, after the timing; None takes none.

    Raises:
      OutOfMemory, Invalid, NonFinite: see there.
    """
    on_stage("compiling")
    compiled = compile_step(workload, available_bytes, result)
    on_stage("making inputs")
    args, expected = workload.init(seed)
    jax.block_until_ready(args)
    drawn = workload.drawn(args)
    if drawn:
        result.facts["inputs_checksum"] = checksum.of_inputs(drawn)
    on_stage("first call")
    start = time.perf_counter()
    out = jax.block_until_ready(compiled(*args))
    result.first_call_s = time.perf_counter() - start
    if drawn:
        result.facts["result_checksum"] = checksum.of_result(out)
    _require_finite(out)
    if workload.error:
        error = workload.error(expected, out)
        result.facts["error"] = error
        result.facts["max_error"] = workload.max_error
        if error is not None and not error <= workload.max_error:
            raise Invalid(
                f"wrong result: relative error {error:.2g} against float64, where an honest one "
                f"has at most {workload.max_error:.2g}"
            )
    start_figure = workload.falls(out) if workload.falls else None
    args = workload.feed(args, out)
    del out

    on_stage("timing")
    timer = _CompiledTimer(compiled, args, workload)
    with jax.transfer_guard("disallow"):
        calls = timing.calibrate(timer.seconds, launch)
        result.samples_s = timing.sample(
            lambda: timer.seconds(calls), calls * workload.inner, budget
        )
        linearity = timing.doubling(lambda: timer.seconds(2 * calls), lambda: timer.seconds(calls))
    _require_finite(timer.args)
    if workload.falls and start_figure is not None:
        end_figure = workload.falls(timer.out)
        result.facts["fell"] = [start_figure, end_figure]
        if not end_figure < start_figure:
            raise Invalid(
                f"does not learn: the loss went from {start_figure:.4g} to {end_figure:.4g}"
            )
    result.facts |= {
        "calls_per_sample": calls,
        "steps_per_call": workload.inner,
        "linearity": linearity,
        "drift": stats.drift(result.samples_s),
    }
    if meter:
        on_stage("taking the energy")
        result.facts["energy"] = _energy(meter, timer, calls)
    if workload.single_steps:
        on_stage("timing single steps")
        result.facts["single_steps_s"] = _time_single(timer, budget)
    if workload.parts:
        on_stage("timing the parts")
        result.facts["parts_s"] = _time_parts(workload.parts, timer, budget)
    if profile:
        on_stage("profiling")
        result.facts["device_trace"] = profile(lambda: timer.seconds(calls)) | {"calls": calls}
    if workload.doubled:
        on_stage("checking the loop")
        _check_doubled(workload, timer, result)


def compile_step(
    workload: Workload, available_bytes: int | None, result: Measurement
) -> jax.stages.Compiled:
    """Compiles a workload's function, and looks at what came out.

    Raises:
      OutOfMemory: it needs more than the `available_bytes` of a device.
      Invalid: the program does not hold what it should.
    """
    jitted = jax.jit(workload.fn, donate_argnums=workload.donate, keep_unused=True)
    start = time.perf_counter()
    lowered = jitted.lower(*workload.inputs)
    result.facts["lower_s"] = time.perf_counter() - start
    start = time.perf_counter()
    compiled = lowered.compile()
    result.compile_s = time.perf_counter() - start

    sizes = program.memory(compiled)
    needed = program.needed_bytes(sizes)
    result.facts["memory"] = {**sizes, "needed": needed}
    if needed is not None and available_bytes is not None and needed > available_bytes:
        raise OutOfMemory(_too_big(needed, available_bytes))
    text = compiled.as_text() or ""
    if not program.holds(text, workload.holds):
        raise Invalid("folded: the optimised program no longer holds the operation")
    result.facts["dot_operands"] = sorted(program.dot_operand_types(text))
    return compiled


def _too_big(needed: int, available: int) -> str:
    return f"needs {needed / 2**30:.2f} GiB, {available / 2**30:.2f} GiB are free"


class _CompiledTimer:
    """Calls a compiled function in a row and keeps the state that runs through the calls.

    The time of several processes is that of the slowest.
    """

    def __init__(self, compiled: Callable[..., Any], args: tuple, workload: Workload) -> None:
        self.compiled, self.args, self.workload = compiled, args, workload
        self.out: Any = None  # of the last call

    def seconds(self, calls: int) -> float:
        """Time of so many calls, to the completion of the last."""
        compiled, feed, wait = self.compiled, self.workload.feed, self.workload.block_each
        args = self.args
        out = None
        start = time.perf_counter()
        for _ in range(calls):
            out = compiled(*args)
            args = feed(args, out)
            if wait:
                jax.block_until_ready(out)
        jax.block_until_ready(out)
        elapsed = time.perf_counter() - start
        self.args, self.out = args, out
        return agree.largest(elapsed)


def _energy(meter: Meter, timer: _CompiledTimer, calls: int) -> dict[str, Any]:
    """Energy of the calls that were timed, by more of them; their times are not kept."""

    def batch() -> int:
        timer.seconds(calls)
        return calls

    with jax.transfer_guard("disallow"):
        return meter.facts(batch, timer.workload.inner, timer.workload.work.get("tokens"))


def _time_parts(
    parts: Callable[[tuple], tuple[Mapping[str, float], tuple]],
    timer: _CompiledTimer,
    budget: Budget,
) -> dict[str, list[float]]:
    """Seconds of each part of a step, over a few steps; the first, which compiles, left out."""
    _, timer.args = parts(timer.args)
    samples: dict[str, list[float]] = {}

    def once() -> float:
        seconds, timer.args = parts(timer.args)
        for name, value in seconds.items():
            samples.setdefault(name, []).append(value)
        return sum(seconds.values())

    timing.sample(once, 1, dataclasses.replace(budget, max_samples=_MAX_PARTS))
    return samples


def _time_single(timer: _CompiledTimer, budget: Budget) -> list[float]:
    """Seconds of single calls, each waited for; fewer of them after four times the budget."""
    wanted = timer.workload.single_steps
    patient = timing.Budget(0.0, wanted, 4 * budget.max_seconds, wanted)
    with jax.transfer_guard("disallow"):
        return timing.sample(lambda: timer.seconds(1), timer.workload.inner, patient)


def _check_doubled(workload: Workload, timer: _CompiledTimer, result: Measurement) -> None:
    """Twice the steps inside the program must take about twice as long."""
    assert workload.doubled is not None
    jitted = jax.jit(workload.doubled, donate_argnums=workload.donate, keep_unused=True)
    twice = _CompiledTimer(jitted.lower(*workload.inputs).compile(), timer.args, workload)
    calls = max(1, result.facts["calls_per_sample"] // 2)
    twice.seconds(1)

    def double() -> float:
        elapsed = twice.seconds(calls)
        timer.args = twice.args
        return elapsed

    def single() -> float:
        elapsed = timer.seconds(calls)
        twice.args = timer.args
        return elapsed

    ratio = timing.doubling(double, single)
    result.facts["doubling"] = ratio
    if not ratio > 1.5:
        raise Invalid(
            f"hoisted: twice the steps take {ratio:.2f} times as long, so the compiler took work "
            "out of the loop"
        )


def _require_finite(tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating) and not _finite(leaf):
            raise NonFinite("the result holds a NaN or an infinity")


@jax.jit
def _all_finite(x: jax.Array) -> jax.Array:
    return jax.numpy.isfinite(x.astype(jax.numpy.float32)).all()


def _finite(leaf: jax.Array) -> bool:
    return bool(fetch(_all_finite(leaf)))


def measure_host(
    workload: HostWorkload,
    seed: int,
    budget: Budget,
    available_bytes: int | None,
    result: Measurement,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> None:
    """Times calls that the host drives, each by itself; companions are timed in turn with it.

    Raises:
      OutOfMemory, Invalid: see there.
    """
    if available_bytes is not None and workload.needed_bytes > available_bytes:
        raise OutOfMemory(_too_big(workload.needed_bytes, available_bytes))
    on_stage("making inputs")
    calls = dict(workload.setup(seed))
    name, main = next(iter(calls.items()))
    on_stage("first call")
    start = time.perf_counter()
    out = main.call(main.prepare())
    result.first_call_s = time.perf_counter() - start
    if main.error:
        error = main.error(out)
        result.facts |= {"error": error, "max_error": workload.max_error}
        if not error <= workload.max_error:
            raise Invalid(f"wrong result of {name}: relative error {error:.2g}")
    del out
    on_stage("timing")
    once = {key: _host_seconds(call, 1) for key, call in calls.items()}
    repeats = {
        key: max(1, min(1000, int(np.ceil(timing.MIN_SAMPLE_S / max(s, 1e-9)))))
        for key, s in once.items()
    }
    samples: dict[str, list[float]] = {key: [] for key in calls}

    def interleaved() -> float:
        for key, call in calls.items():
            samples[key].append(_host_seconds(call, repeats[key]))
        return samples[name][-1]

    result.samples_s = timing.sample(interleaved, 1, budget)
    result.facts |= {
        "calls_per_sample": repeats[name],
        "steps_per_call": 1,
        "drift": stats.drift(result.samples_s),
        "companions_s": {key: values for key, values in samples.items() if key != name},
    }


def _host_seconds(call: HostCall, repeats: int) -> float:
    total = 0.0
    for _ in range(repeats):
        argument = call.prepare()
        start = time.perf_counter()
        call.call(argument)
        total += time.perf_counter() - start
    return agree.largest(total / repeats)


def available_device_bytes(device: Device) -> int | None:
    """Free memory of a device: of its own where it says, else of the host for a CPU.

    Of several processes the one with the least room decides.
    """
    free = _available_bytes(device)
    return None if free is None else int(agree.smallest(free))


def _available_bytes(device: Device) -> int | None:
    try:
        memory_stats: Mapping[str, int] = device.memory_stats() or {}
    except (jax.errors.JaxRuntimeError, NotImplementedError):
        memory_stats = {}
    if "bytes_limit" in memory_stats:
        return memory_stats["bytes_limit"] - memory_stats.get("bytes_in_use", 0)
    if device.platform == "cpu":
        from accel_bench.detect import memory_available

        return memory_available()
    return None
