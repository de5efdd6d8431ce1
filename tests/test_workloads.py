"""Each workload computes what it says, costs what it says, and is the same on every mesh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from accel_bench.precision import PRECISIONS
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads import matmul as matmul_module
from accel_bench.workloads.base import (
    HostWorkload,
    SkippedCase,
    UnsupportedCase,
    Workload,
    host_array,
    make_mesh,
)
from accel_bench.workloads.params import Memory

ONE = make_mesh(jax.devices(), {})
MODEL = {"model": "tiny", "batch": 2, "length": 32}


def build(workload: str, params: dict, precision: str = "fp32", mesh=ONE):
    spec = WORKLOADS[workload]
    return spec.builder()(spec.params(**params), precision, mesh)


def first_result(workload: Workload, seed: int = 0):
    """Result of the first call, and what it is expected to be."""
    arguments, expected = workload.init(seed)
    for real, abstract in zip(
        jax.tree.leaves(arguments), jax.tree.leaves(workload.inputs), strict=True
    ):
        assert (real.shape, real.dtype) == (abstract.shape, abstract.dtype)
        assert real.sharding.is_equivalent_to(abstract.sharding, real.ndim)
    return jax.jit(workload.fn)(*arguments), expected


def error_of(workload: Workload) -> float:
    assert workload.error
    result, expected = first_result(workload)
    error = workload.error(expected, result)
    assert error is not None
    return error


CASES = [
    ("matmul", {"shape": "96x128x160"}),
    ("matmul", {"shape": "3x32x64x48"}),
    ("dispatch", {"mode": "queued"}),
    *(("memory", {"op": op, "bytes": 3 << 16}) for op in ("copy", "scale", "add", "triad", "dot")),
    ("memory", {"op": "latency", "bytes": 1 << 16}),
    ("attention", {"model": "tiny", "batch": 2, "length": 48}),
    ("attention", {"model": "tiny", "batch": 2, "length": 48, "implementation": "jax"}),
    *(("model", {"phase": p, **MODEL}) for p in ("forward", "train_step", "prefill", "decode")),
]


@pytest.mark.parametrize(("name", "params"), CASES, ids=lambda value: str(value))
def test_fp32_results_agree_with_float64(name, params):
    workload = build(name, params)
    error = error_of(workload)
    assert error <= workload.max_error
    assert error < 1e-5


@pytest.mark.parametrize("shape", ["128x256x512", "4x64x128x32"])
def test_matmul_flops_are_those_that_xla_counts(shape):
    workload = build("matmul", {"shape": shape})
    counted = jax.jit(workload.fn).lower(*workload.inputs).compile().cost_analysis() or {}
    assert workload.work["flops"] == counted["flops"]
    assert workload.work["bytes"] == counted["bytes accessed"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_is_delivered_or_said_to_be_unsupported(precision):
    """The error of each format on 512 terms: within its bound, and not that of a finer one."""
    try:
        workload = build("matmul", {"shape": "64x512x64"}, precision)
    except UnsupportedCase as error:
        assert precision == "tf32"
        assert "not supported by dot_general on CPU" in str(error)
        return
    error = error_of(workload)
    assert error <= workload.max_error
    rounding = {"bf16": 2e-3, "mixed_bf16": 1e-3, "fp16": 1e-4, "int8": 5e-3, "fp8_e4m3": 2e-2}
    assert error >= rounding.get(precision, 0.0)


def test_a_coarser_product_does_not_pass_for_fp32():
    fp32, bf16 = (build("matmul", {"shape": "256"}, p) for p in ("fp32", "bf16"))
    assert error_of(bf16) > 50 * fp32.max_error


@pytest.mark.parametrize(
    "axes", [{"data": 8}, {"fsdp": 8}, {"model": 8}, {"data": 2, "fsdp": 2, "model": 2}], ids=str
)
@pytest.mark.parametrize("shape", ["64x128x32", "8x64x128x32"])
def test_a_sharded_product_agrees_with_one_device(axes, shape):
    mesh = make_mesh(jax.devices(), axes)
    sharded, whole = build("matmul", {"shape": shape}, mesh=mesh), build("matmul", {"shape": shape})
    (result, _), (same, _) = first_result(sharded), first_result(whole)
    np.testing.assert_allclose(result, same, rtol=1e-5, atol=1e-5)
    for abstract in sharded.inputs:
        assert len(abstract.sharding.spec) <= len(abstract.shape)
    assert sharded.work == whole.work


@pytest.mark.parametrize("op", ["copy", "triad", "dot"])
def test_sharded_memory_kernels_agree(op):
    mesh = make_mesh(jax.devices(), {"data": 4, "model": 2})
    workload = build("memory", {"op": op, "bytes": 3 << 16}, mesh=mesh)
    assert error_of(workload) <= workload.max_error


@pytest.mark.parametrize("phase", ["forward", "train_step", "prefill", "decode"])
def test_sharded_models_agree_with_float64(phase):
    mesh = make_mesh(jax.devices(), {"data": 2, "fsdp": 2, "model": 2})
    params = {"phase": phase, "model": "tiny", "batch": 4, "length": 32}
    workload = build("model", params, mesh=mesh)
    assert error_of(workload) < 1e-5


@pytest.mark.parametrize("op", ["copy", "scale", "add", "triad", "dot", "latency"])
def test_twice_the_passes_go_on_where_the_first_stopped(op):
    workload = build("memory", {"op": op, "bytes": 3 << 14})
    assert workload.doubled
    arguments, _ = workload.init(0)
    once = jax.jit(workload.fn)(*arguments)
    then = jax.jit(workload.fn)(*workload.feed(arguments, once))
    twice = jax.jit(workload.doubled)(*arguments)
    jax.tree.map(np.testing.assert_array_equal, then, twice)


def test_the_chain_of_loads_goes_through_every_line():
    workload = build("memory", {"op": "latency", "bytes": 100 * Memory.LINE})
    (start, chain), _ = workload.init(0)
    seen, at = set(), int(start)
    for _ in range(100):
        seen.add(at)
        at = int(chain[at, 0])
    assert seen == set(range(100))
    assert at == int(start)


@pytest.mark.parametrize(
    ("op", "arrays"), [("copy", 2), ("scale", 2), ("add", 3), ("triad", 3), ("dot", 2)]
)
def test_stream_bytes_are_the_working_set(op, arrays):
    """BabelStream's counting: each array read or written once a pass."""
    workload = build("memory", {"op": op, "bytes": 3 << 20})
    assert workload.work["bytes"] == workload.facts["length"] * 4 * arrays
    assert workload.work["bytes"] == pytest.approx(3 << 20, rel=1e-3)
    assert workload.working_set == workload.work["bytes"]


@pytest.mark.parametrize("direction", ["h2d", "d2h", "overlap"])
def test_transfers_move_what_they_say(direction):
    workload = build("transfer", {"direction": direction, "bytes": 1 << 20, "chunks": 4})
    assert isinstance(workload, HostWorkload)
    for call in workload.setup(0).values():
        result = call.call(call.prepare())
        if call.error:
            assert call.error(result) <= workload.max_error


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("transfer", {"direction": "h2d", "bytes": 1 << 20}),
        ("memory", {"op": "latency", "bytes": 1 << 20}),
    ],
)
def test_what_has_no_meaning_on_a_mesh_is_skipped(name, params):
    mesh = make_mesh(jax.devices(), {"data": 8})
    with pytest.raises(SkippedCase, match="it has no mesh"):
        build(name, params, mesh=mesh)


def test_a_transfer_that_moved_nothing_is_found():
    from accel_bench.workloads.transfer import _mismatch

    values = np.arange(4.0)
    assert _mismatch(values, values) == 1
    assert _mismatch(values, values.copy()) == 0
    assert _mismatch(values, values + np.eye(4)[3]) == 0.25


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int8])
def test_a_cpu_device_copies_host_arrays(dtype):
    for length in (1000, 1 << 20, 1 << 24):
        values = host_array((length,), dtype)
        values[:] = 1
        copy = jax.device_put(values, jax.devices()[0]).block_until_ready()
        assert not np.shares_memory(values, np.asarray(copy))
        assert copy.shape == (length,)


def test_inputs_are_random_seeded_and_the_same_on_every_mesh():
    mesh = make_mesh(jax.devices(), {"data": 4, "model": 2})
    one, same, other = (build("matmul", {"shape": "64"}).init(seed)[0][0] for seed in (0, 0, 1))
    sharded = build("matmul", {"shape": "64"}, mesh=mesh).init(0)[0][0]
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one, sharded)
    assert not np.array_equal(one, other)
    assert abs(float(one.std()) - 1) < 0.1


def test_int8_operands_use_the_range():
    stored = build("matmul", {"shape": "256"}, "int8").init(0)[0][0]
    assert stored.dtype == jnp.int8
    assert int(abs(stored).max()) > 80
    assert matmul_module.INT8_RANGE == 5.0


@pytest.mark.parametrize("phase", ["forward", "prefill", "decode"])
@pytest.mark.parametrize("precision", ["fp8_e4m3", "int8"])
def test_eight_bits_are_for_inference(precision, phase):
    """The error counts in the rounding of the weights; one scale that is wrong is found."""
    workload = build("model", {"phase": phase, **MODEL}, precision)
    assert workload.error
    arguments, expected = workload.init(0)
    run = jax.jit(workload.fn)
    error = workload.error(expected, run(*arguments))
    assert error is not None and 3e-3 < error < 0.03 < workload.max_error
    weights = arguments[0]
    up = weights["blocks"]["up_DF"]
    wrong = {**weights["blocks"], "up_DF": dataclasses.replace(up, scales=up.scales * 64)}
    broken = run({**weights, "blocks": wrong}, *arguments[1:])
    assert workload.error(expected, broken) > workload.max_error
    assert workload.facts["weight_dtype"] in ("int8", "float8_e4m3fn")
    assert workload.facts["weight_bytes"] < 0.4 * 4 * workload.facts["params"]


@pytest.mark.parametrize(
    ("name", "params", "precision", "message"),
    [
        ("model", {"phase": "train_step", **MODEL}, "int8", "int8 needs scaled operands, which"),
        ("model", {"phase": "forward", **MODEL}, "fp8_e5m2", "has too few digits for weights"),
        ("attention", {"model": "tiny", "batch": 2, "length": 32}, "int8", "only products with"),
        ("model", {"phase": "train_step", "exchange": "fp32", **MODEL}, "mixed_fp16",
         "scales its loss, which only exchange=auto does"),
    ],
)  # fmt: skip
def test_what_a_precision_is_not_for_is_said_in_one_line(name, params, precision, message):
    with pytest.raises(UnsupportedCase, match=message) as error:
        build(name, params, precision)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("axes", [{}, {"data": 2, "fsdp": 2, "model": 2}], ids=str)
def test_a_step_that_scales_its_loss_has_the_gradient_it_should(axes):
    mesh = make_mesh(jax.devices(), axes)
    params = {"phase": "train_step", "model": "tiny", "batch": 4, "length": 32}
    workload = build("model", params, "mixed_fp16", mesh)
    assert 1e-4 < error_of(workload) < 2e-3 < workload.max_error


@pytest.mark.parametrize("axes", [{}, {"data": 2, "fsdp": 2, "model": 2}], ids=str)
def test_sampled_tokens_are_fed_back_with_the_next_key(axes):
    mesh = make_mesh(jax.devices(), axes)
    params = {"phase": "decode", "model": "tiny", "batch": 4, "length": 32, "sampling": "top_k"}
    workload = build("model", params, mesh=mesh)
    args, _ = workload.init(0)
    step = jax.jit(workload.fn, donate_argnums=1).lower(*workload.inputs).compile()
    drawn = []
    for _ in range(8):
        out = step(*args)
        args = workload.feed(args, out)
        drawn.append(np.asarray(out[0]))
    assert len(np.unique(drawn)) > 8
    assert workload.single_steps >= 100


def test_cudnn_is_for_gpus():
    params = {"model": "tiny", "batch": 2, "length": 32, "implementation": "cudnn"}
    with pytest.raises(UnsupportedCase, match="NVIDIA GPUs only"):
        build("attention", params)


def test_a_step_with_a_broken_optimizer_or_gradient_is_found():
    workload = build("model", {"phase": "train_step", **MODEL})
    (state, tokens), expected = workload.init(0)
    assert workload.error
    after, metrics = jax.jit(workload.fn)(state, tokens)
    assert workload.error(expected, (after, metrics)) < 1e-5
    flat = jax.tree.map(lambda x: jnp.full_like(x, 1e-3), after.params)
    assert workload.error(expected, (after._replace(params=flat), metrics)) == np.inf
    assert workload.error(expected, (after._replace(params=state.params), metrics)) == np.inf
    doubled = jax.tree.map(lambda x: 2 * x, after.opt_state)
    assert workload.error(expected, (after._replace(opt_state=doubled), metrics)) > 0.5


def test_the_loss_falls_while_steps_are_timed():
    workload = build("model", {"phase": "train_step", **MODEL})
    (state, tokens), _ = workload.init(0)
    step = jax.jit(workload.fn)
    assert workload.falls
    first = step(state, tokens)
    second = step(first[0], tokens)
    assert workload.falls(second) < workload.falls(first)


def test_attention_counts_what_causality_asks_for():
    workload = build("attention", {"model": "tiny", "batch": 2, "length": 48})
    assert workload.facts["flops_full"] == 2 * workload.work["flops"]
