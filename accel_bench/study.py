"""Runs a study: a program whose results are looked at and whose speed is not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

from accel_bench import agree, checksum, program
from accel_bench.measure import Measurement
from accel_bench.workloads.base import Study, UnsupportedCase

# Calls that are timed: so few that nothing is claimed from them.
TIMED_CALLS = 3
# Programs that are kept, so that the same one is not compiled for every range of values.
_KEPT = 64
_programs: dict[tuple, Any] = {}


def measure_study(
    study: Study,
    seed: int,
    result: Measurement,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> None:
    """Compiles a study's program unless it is there, calls it and examines what it gives.

    Args:
      study: what to do.
      seed: of its inputs.
      result: filled in step by step. `compile_s` stays None where the program was there.
      on_stage: told what is going on.

    Raises:
      UnsupportedCase: the back end has no such program.
    """
    on_stage("making inputs")
    args, expected = study.init(seed)
    result.facts["inputs_checksum"] = checksum.of_inputs(args)
    on_stage("compiling")
    compiled = _programs.get(study.key)
    if compiled is None:
        compiled = _compile(study, args, result)
        while len(_programs) >= _KEPT:
            del _programs[next(iter(_programs))]
        _programs[study.key] = compiled
    result.facts["dot_operands"] = sorted(program.dot_operand_types(compiled.as_text() or ""))
    on_stage("calling")
    start = time.perf_counter()
    out = jax.block_until_ready(compiled(*args))
    result.first_call_s = time.perf_counter() - start
    result.facts["result_checksum"] = checksum.of_result(out)
    for _ in range(TIMED_CALLS):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        result.samples_s.append(agree.largest(time.perf_counter() - start))
    result.facts |= {"calls_per_sample": 1, "steps_per_call": 1, "flags": []}
    on_stage("examining")
    result.facts |= study.examine(compiled, args, out, expected)


def _compile(study: Study, args: tuple, result: Measurement) -> Any:
    start = time.perf_counter()
    try:
        lowered = jax.jit(study.fn, keep_unused=True).lower(*args)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise UnsupportedCase(str(error).splitlines()[0]) from error
    result.facts["lower_s"] = time.perf_counter() - start
    start = time.perf_counter()
    compiled = lowered.compile()
    result.compile_s = time.perf_counter() - start
    return compiled
