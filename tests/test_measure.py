"""Workloads that cheat, in each way that benchmarks are known to; and one that does not."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from accel_bench import measure, timing
from accel_bench.measure import Invalid, Measurement, NonFinite, OutOfMemory
from accel_bench.timing import Budget, Launch
from accel_bench.workloads.base import HostCall, HostWorkload, Workload

pytestmark = pytest.mark.alone  # rates are held against each other

BUDGET = Budget(target=0.2, max_samples=10, max_seconds=0.3, min_samples=5)
LAUNCH = Launch(queued=5e-6, blocking=10e-6)
N = 256


def run(workload: Workload, available: int | None = None) -> Measurement:
    result = Measurement()
    measure.measure(workload, 0, BUDGET, LAUNCH, available, result)
    return result


def square(fn, **fields) -> Workload:
    shape = jax.ShapeDtypeStruct((N, N), jnp.float32)
    defaults = {
        "inputs": (shape, shape),
        "init": lambda seed: ((jnp.ones((N, N)), jnp.ones((N, N))), float(N)),
        "work": {"flops": 2 * N**3},
        "holds": (r"\bdot\(",),
    }
    return Workload(fn=fn, **(defaults | fields))


def test_an_honest_workload_gives_samples_and_separate_times():
    result = run(square(lambda a, b: a @ b))
    assert len(result.samples_s) >= 5
    assert all(0 < s < 1 for s in result.samples_s)
    assert result.compile_s is not None
    assert result.first_call_s is not None
    assert result.facts["calls_per_sample"] >= 1
    assert 1.3 < result.facts["linearity"] < 3


def test_samples_are_long_against_a_launch():
    result = run(square(lambda a, b: a @ b))
    sample_s = np.median(result.samples_s) * result.facts["calls_per_sample"]
    assert sample_s > 0.5 * timing.MIN_SAMPLE_S


def test_single_steps_are_timed_one_by_one_where_they_are_asked_for():
    result = run(square(lambda a, b: a @ b, single_steps=7))
    assert len(result.facts["single_steps_s"]) == 7
    assert min(result.facts["single_steps_s"]) > 0.5 * min(result.samples_s)
    assert "single_steps_s" not in run(square(lambda a, b: a @ b)).facts


def test_a_product_that_the_compiler_dropped_is_found():
    with pytest.raises(Invalid, match="^folded"):
        run(square(lambda a, b: (a @ b, a + b)[1]))


def test_a_product_that_does_not_change_in_its_loop_is_found_hoisted():
    def fn(steps, a, b):
        return lax.fori_loop(0, steps, lambda _, total: total + jnp.sum(a @ b), 0.0)

    workload = square(
        functools.partial(fn, 50), inner=50, doubled=functools.partial(fn, 100), holds=()
    )
    with pytest.raises(Invalid, match="^hoisted"):
        run(workload)


def test_a_loop_whose_steps_depend_on_each_other_is_not_hoisted():
    def fn(steps, a, b):
        return lax.fori_loop(0, steps, lambda _, x: (x @ b) * (1 / N), a)

    result = run(square(functools.partial(fn, 20), inner=20, doubled=functools.partial(fn, 40)))
    assert 1.5 < result.facts["doubling"] < 2.7


def test_a_fast_wrong_answer_is_no_result():
    workload = square(
        lambda a, b: a @ b * 1.01,
        error=lambda expected, out: abs(float(out[0, 0]) / expected - 1),
        max_error=1e-5,
    )
    with pytest.raises(Invalid, match="wrong result: relative error 0.01 against float64"):
        run(workload)


def test_an_error_that_is_not_a_number_is_no_small_error():
    workload = square(lambda a, b: a @ b, error=lambda expected, out: float("nan"), max_error=1e9)
    with pytest.raises(Invalid, match="relative error nan"):
        run(workload)


def test_a_nan_in_the_result_is_nonfinite():
    with pytest.raises(NonFinite):
        run(square(lambda a, b: a @ b * jnp.where(a[0, 0] > 0, jnp.nan, 1.0)))


def test_a_state_that_overflows_on_the_way_is_nonfinite():
    workload = square(
        lambda a, b: a @ b, donate=(0,), feed=lambda args, out: (out, args[1])
    )  # each call multiplies by 256
    with pytest.raises(NonFinite):
        run(workload)


def test_a_step_that_does_not_learn_is_no_result():
    workload = square(lambda a, b: a @ b, falls=lambda out: 1.0)
    with pytest.raises(Invalid, match="does not learn: the loss went from 1 to 1"):
        run(workload)


def test_what_does_not_fit_is_found_before_it_is_allocated():
    """256 GiB of arguments: nothing of it is ever made."""
    huge = jax.ShapeDtypeStruct((1 << 18, 1 << 17), jnp.float32)
    workload = square(lambda a, b: a + b, inputs=(huge, huge), holds=(), init=pytest.fail)
    with pytest.raises(OutOfMemory, match=r"needs 384.00 GiB, 8.00 GiB are free"):
        run(workload, available=8 << 30)


def test_donated_state_is_fed_back():
    workload = square(lambda a, b: a @ b / N, donate=(0,), feed=lambda args, out: (out, args[1]))
    assert run(workload).samples_s


def test_a_host_transfer_inside_the_timed_code_is_refused():
    workload = square(
        lambda a, b: a @ b, feed=lambda args, out: (args[0] + np.ones((N, N)), args[1])
    )
    with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
        run(workload)


def test_facts_survive_a_failure():
    result = Measurement()
    with pytest.raises(NonFinite):
        measure.measure(square(lambda a, b: a @ b * jnp.nan), 0, BUDGET, LAUNCH, None, result)
    assert result.facts["memory"]["arguments"] == 2 * N * N * 4
    assert result.compile_s is not None


def test_host_calls_are_timed_in_turn_with_their_companions():
    calls = []
    workload = HostWorkload(
        setup=lambda seed: {
            "main": HostCall(lambda _: calls.append("main")),
            "other": HostCall(lambda _: calls.append("other")),
        },
        work={},
        needed_bytes=0,
    )
    result = Measurement()
    measure.measure_host(workload, 0, BUDGET, None, result)
    assert len(result.facts["companions_s"]["other"]) == len(result.samples_s)
    assert set(calls) == {"main", "other"}


def test_host_results_are_checked():
    workload = HostWorkload(
        setup=lambda seed: {"copy": HostCall(lambda _: 1, error=lambda out: 1.0)},
        work={},
        needed_bytes=0,
    )
    with pytest.raises(Invalid, match="wrong result of copy"):
        measure.measure_host(workload, 0, BUDGET, None, Measurement())


def test_launching_costs_something_and_waiting_more():
    launch = timing.launch_cost(jax.devices()[0])
    assert 1e-7 < launch.queued < 1e-2
    assert launch.blocking > 0.5 * launch.queued
