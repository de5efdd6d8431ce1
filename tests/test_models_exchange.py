"""The exchange between replicas, on virtual devices: what arrives, what travels, what stays."""

import dataclasses
import functools
import subprocess
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick_jit import jit

from accel_bench.hlo.analysis import analyse
from models import exchange as ex
from models import train_step as plain
from models.costs import param_count
from models.exchange_options import FORMATS, SCALED_BLOCK, Exchange, padded_length, wire_bytes
from models.sharding import batch_sharding, make_mesh
from models.sizes import SIZES

# One layer: nothing here depends on how many there are.
MODEL = dataclasses.replace(SIZES["tiny"], num_layers=1, scan_layers=False)
BATCH = 16

pytestmark = pytest.mark.skipif(
    jax.device_count() < 8, reason="needs --xla_force_host_platform_device_count=8"
)


def mesh_of(replicas: int) -> jax.sharding.Mesh:
    return make_mesh({"data": replicas}, jax.devices()[:replicas])


def tokens_BT(batch: int = BATCH, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(MODEL.vocab_size, size=(batch, 17), dtype=np.int32)


@functools.cache
def initial_params():
    return jax.tree.map(np.asarray, jit(partial(plain.init_params, MODEL))(jax.random.key(0)))


def initial_state(exchange: Exchange, replicas: int) -> ex.ExchangeState:
    return ex.create_state(MODEL, exchange, initial_params(), mesh_of(replicas))


def on_mesh(tokens: np.ndarray, replicas: int) -> jax.Array:
    return jax.device_put(tokens, batch_sharding(mesh_of(replicas)))


@functools.cache
def compiled(exchange: Exchange, replicas: int) -> Any:
    """The step for a batch of 16, its old state donated."""
    mesh = mesh_of(replicas)
    step = jit(partial(ex.train_step, MODEL, exchange, mesh=mesh), donate_argnums=0)
    tokens = jax.ShapeDtypeStruct((BATCH, 17), jnp.int32, sharding=batch_sharding(mesh))
    return step.lower(ex.abstract_state(MODEL, exchange, mesh), tokens).compile()


def collectives(exchange: Exchange, replicas: int) -> list[dict]:
    facts = analyse(compiled(exchange, replicas).as_text(), {"data": replicas})
    assert facts["unknown"] == []
    return facts["collectives"]


plain_step = jit(partial(plain.train_step, MODEL))


@functools.cache
def fresh() -> plain.TrainState:
    params = jax.tree.map(jnp.asarray, initial_params())
    return plain.TrainState(jnp.int32(0), params, jit(plain.optimizer().init)(params))


def steps_alone(batches) -> tuple[plain.TrainState, list[float]]:
    """Plain steps on one device, one on each batch."""
    state = fresh()
    losses = []
    for tokens in batches:
        state, metrics = plain_step(state, tokens)
        losses.append(float(metrics["loss"]))
    return state, losses


@functools.cache
def alone(steps: int):
    return steps_alone([tokens_BT()] * steps)


@functools.cache
def exchanged(exchange: Exchange, steps: int, replicas: int = 8):
    """The same with replicas that exchange; the first loss comes first."""
    state, tokens = initial_state(exchange, replicas), on_mesh(tokens_BT(), replicas)
    losses = []
    for _ in range(steps):
        state, metrics = compiled(exchange, replicas)(state, tokens)
        losses.append(float(metrics["loss"]))
    return state, losses


def worst_difference(actual, expected) -> float:
    """Largest difference in any leaf, as a part of that leaf's largest value."""
    parts = jax.tree.map(
        lambda a, e: np.max(np.abs(np.asarray(a) - np.asarray(e))) / np.max(np.abs(e)),
        actual,
        expected,
    )
    return max(jax.tree.leaves(parts))


def gradient_error(state, expected) -> float:
    """L2 error of the first step's mean gradient, which is the first moment but for a factor."""

    def norm(leaves) -> float:
        return float(np.sqrt(sum(np.sum(np.square(x)) for x in leaves)))

    found, true = (
        [np.asarray(x) for x in jax.tree.leaves(s.opt_state[0].mu)] for s in (state, expected)
    )
    return norm([a - b for a, b in zip(found, true, strict=True)]) / norm(true)


def random_vectors(replicas: int = 8, length: int = 5000) -> np.ndarray:
    """One vector per replica, no whole number of blocks, of sizes from 1e-6 to 1."""
    draw = np.random.default_rng(2)
    sizes = 10.0 ** draw.integers(-6, 1, size=(replicas, length))
    return (draw.normal(size=(replicas, length)) * sizes).astype(np.float32)


def exchange_of(exchange: Exchange, replicas: int = 8):
    return jit(ex.pieces(MODEL, exchange, mesh_of(replicas)).exchange)


def no_residual(exchange: Exchange, length: int, replicas: int = 8) -> jax.Array:
    return jnp.zeros((replicas, padded_length(exchange, length, replicas)))


def assert_lies_as_described(state: ex.ExchangeState, exchange: Exchange, replicas: int) -> None:
    described = ex.abstract_state(MODEL, exchange, mesh_of(replicas))
    assert jax.tree.structure(state) == jax.tree.structure(described)
    for leaf, shape in zip(jax.tree.leaves(state), jax.tree.leaves(described), strict=True):
        assert (leaf.shape, leaf.dtype) == (shape.shape, shape.dtype)
        assert leaf.sharding.is_equivalent_to(shape.sharding, leaf.ndim)


@pytest.mark.parametrize("format", ["fp32", "int8"])
def test_the_state_is_what_its_description_says(format: str):
    state = initial_state(Exchange(format), 8)
    assert_lies_as_described(state, Exchange(format), 8)
    assert len(jax.tree.leaves(state.residual)) == (format == "int8")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_fp32_exchange_is_a_step_on_one_device(accumulate: int):
    """Also where the batch comes in parts: their gradients' mean is the whole batch's gradient."""
    expected, (expected_loss,) = alone(1)
    state, (loss,) = exchanged(Exchange("fp32", accumulate), 1)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert worst_difference(state.opt_state[0].mu, expected.opt_state[0].mu) < 5e-6
    # Adam's first step is the rate times the gradient's sign, which rounding may turn.
    jax.tree.map(
        partial(np.testing.assert_allclose, atol=0.1 * plain.LEARNING_RATE, rtol=1e-5),
        state.params,
        expected.params,
    )
    assert int(state.step) == int(state.opt_state[0].count) == 1


def test_four_micro_batches_are_one_batch():
    """A fp32 mean of two replicas, each in four parts of two sequences."""
    expected, _ = alone(1)
    state, _ = exchanged(Exchange("fp32", 4), 1, replicas=2)
    assert worst_difference(state.opt_state[0].mu, expected.opt_state[0].mu) < 5e-6


@pytest.mark.parametrize(("format", "bound"), [("fp32", 1e-5), ("bf16", 1e-5), ("int8", 2e-3)])
def test_loss_curves_coincide(format: str, bound: float):
    expected, losses = alone(20)[1], exchanged(Exchange(format), 20)[1]
    assert expected[-1] < 0.95 * expected[0]
    np.testing.assert_allclose(losses, expected, rtol=bound)


@pytest.mark.parametrize("replicas", [2, 8])
def test_what_a_format_loses_of_a_gradient(replicas: int):
    expected, _ = alone(1)
    error = {f: gradient_error(exchanged(Exchange(f), 1, replicas)[0], expected) for f in FORMATS}
    assert error["fp32"] < 1e-6
    # Two roundings of at most 2^-9 each, of which one is of terms larger than their mean.
    assert 2**-11 < error["bf16"] < 2**-8
    # A first step has no residual yet.
    assert 2**-8 < error["int8"] < 2**-4
    # A part of the batch has a gradient of its own.
    assert error["none"] > 0.5


def test_int8_is_off_by_no_more_than_its_quanta():
    """Half a quantum of each replica's block, averaged, and half a quantum of the mean's."""
    own_nN = random_vectors()
    exchange = Exchange("int8")
    mean_N, _ = exchange_of(exchange)({"w": own_nN}, no_residual(exchange, own_nN.shape[1]))

    def largest(x_N: np.ndarray) -> np.ndarray:
        padded = np.pad(x_N, (0, -x_N.size % SCALED_BLOCK)).reshape(-1, SCALED_BLOCK)
        return np.abs(padded).max(axis=1)

    error = largest(np.asarray(mean_N["w"]) - own_nN.mean(axis=0))
    own = np.mean([largest(x_N) for x_N in own_nN], axis=0) / 254
    mean = (largest(own_nN.mean(axis=0)) + own) / 254
    assert np.all(error <= 1.0001 * (own + mean))
    assert np.all(error > 0.1 * own)


@pytest.mark.parametrize("replicas", [2, 8])
def test_error_feedback_loses_nothing(replicas: int):
    """Gradients below half a quantum vanish without it; with it they arrive in the long run."""
    length, steps = 3000, 100
    # No two replicas' gradients are alike, or the codes of one would fit the mean of all.
    own_nN = np.full((replicas, length), 8e-4 / replicas, np.float32)
    own_nN *= 1 + np.arange(replicas, dtype=np.float32)[:, None]
    own_nN[:, ::SCALED_BLOCK] = 1.0
    true_N = own_nN.astype(np.float64).mean(axis=0)
    is_small, quantum = true_N < 0.5, 1.0 / 127
    assert own_nN[:, is_small].max() < quantum / 2
    exchange = Exchange("int8")
    run, nothing = exchange_of(exchange, replicas), no_residual(exchange, length, replicas)

    arrived, residual, off = np.zeros(length), nothing, []
    for step in range(steps):
        mean_N, residual = run({"w": own_nN}, residual)
        arrived += np.asarray(mean_N["w"], np.float64)
        off.append(np.abs(arrived - (step + 1) * true_N).max())
    # All that did not arrive is in the residuals, also what the second encoding lost.
    late_N = np.asarray(residual, np.float64).mean(axis=0)[:length]
    np.testing.assert_allclose(arrived + late_N, steps * true_N, rtol=1e-4)
    assert max(off) < 2 * quantum < steps * true_N[is_small].min() / 2
    assert max(off[steps // 2 :]) < 1.5 * max(off[: steps // 2])

    without_N, _ = run({"w": own_nN}, nothing)
    assert not np.asarray(without_N["w"])[is_small].any()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_stays_so(format: str, bad: float):
    exchange = Exchange(format)
    residual = no_residual(exchange, 5000) if format == "int8" else ()
    # The first replica's: with 'none' it is the only one that a reader sees.
    own_nN = random_vectors()
    own_nN[0, 4321] = bad
    mean, _ = exchange_of(exchange)({"w": own_nN}, residual)
    assert not np.isfinite(mean["w"][4321])


def test_local_steps_on_the_same_data_are_plain_steps():
    batches = [tokens_BT(4, seed) for seed in (1, 2)]
    expected, losses = steps_alone(batches)
    own = np.concatenate(batches)
    exchange = Exchange("fp32", local_steps=2)
    state, metrics = compiled(exchange, 2)(
        initial_state(exchange, 2), on_mesh(np.concatenate([own, own]), 2)
    )
    assert int(state.step) == int(state.opt_state[0].count) == 2
    assert float(metrics["loss"]) == pytest.approx(losses[0], rel=1e-6)
    assert worst_difference(state.opt_state[0].mu, expected.opt_state[0].mu) < 1e-4
    jax.tree.map(
        partial(np.testing.assert_allclose, atol=0.1 * plain.LEARNING_RATE, rtol=1e-5),
        state.params,
        expected.params,
    )


def test_local_steps_end_in_the_mean_of_what_replicas_reach_alone():
    exchange = Exchange("fp32", local_steps=2)
    ends, losses = zip(
        *(steps_alone(np.split(own, 2)) for own in np.split(tokens_BT(), 2)), strict=True
    )
    state, metrics = compiled(exchange, 2)(initial_state(exchange, 2), on_mesh(tokens_BT(), 2))
    assert float(metrics["loss"]) == pytest.approx(np.mean([x[0] for x in losses]), rel=1e-6)
    for name in ("mu", "nu"):
        found, one, other = (getattr(s.opt_state[0], name) for s in (state, *ends))
        mean = jax.tree.map(lambda a, b: (a + b) / 2, one, other)
        assert worst_difference(found, mean) < 1e-4
    mean = jax.tree.map(lambda a, b: (a + b) / 2, ends[0].params, ends[1].params)
    assert worst_difference(ends[0].params, mean) > 1e-3  # they did part
    jax.tree.map(
        partial(np.testing.assert_allclose, atol=0.1 * plain.LEARNING_RATE, rtol=1e-5),
        state.params,
        mean,
    )
    for leaf in jax.tree.leaves(state):
        one, other = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("replicas", [2, 8])
@pytest.mark.parametrize("format", FORMATS)
def test_bytes_on_the_wire_are_those_of_the_program(format: str, replicas: int):
    exchange = Exchange(format)
    found = collectives(exchange, replicas)
    assert sum(one["wire_bytes"] for one in found) == wire_bytes(MODEL, exchange, replicas)
    assert all(one["axes"] == ["data"] for one in found)
    if format == "none":
        assert found == []
    elif format != "fp32":
        code = {"bf16": "u16", "int8": "s8"}[format]
        kinds = {one["kind"] for one in found if one["dtype"] == code}
        # Two replicas send each other all they have.
        assert kinds == ({"all-gather"} if replicas == 2 else {"all-to-all", "all-gather"})
        # In fp32 travel the loss and the scales.
        wide = sum(one["bytes"] for one in found if one["dtype"] == "f32")
        assert wide < 4 * param_count(MODEL) / 100


def test_bytes_on_the_wire_with_local_steps_are_those_of_the_program():
    exchange = Exchange("fp32", local_steps=2)
    found = sum(one["wire_bytes"] for one in collectives(exchange, 2))
    assert found == wire_bytes(MODEL, exchange, 2)
    # Parameters and two moments, but for the loss.
    assert found - 4 == 3 * (wire_bytes(MODEL, Exchange("fp32"), 2) - 4)


def test_compression_saves_what_it_should():
    fp32, bf16, int8 = (wire_bytes(SIZES["gpt2_124m"], Exchange(f), 8) for f in FORMATS[1:])
    assert fp32 / bf16 == pytest.approx(2, rel=1e-4)
    assert fp32 / int8 == pytest.approx(4 / (1 + 4 / SCALED_BLOCK), rel=1e-3)
    assert wire_bytes(MODEL, Exchange("int8"), 1) == 0


@pytest.mark.parametrize("exchange", [Exchange("int8"), Exchange("fp32", 1, 2)], ids=str)
def test_the_pieces_make_up_the_step(exchange: Exchange):
    parts = ex.pieces(MODEL, exchange, mesh_of(2))
    compute, mean_of, update = jit(parts.compute), jit(parts.exchange), jit(parts.update)
    state, tokens = initial_state(exchange, 2), on_mesh(tokens_BT(), 2)
    whole = initial_state(exchange, 2)
    for _ in range(2):
        own, losses_n = compute(state, tokens)
        assert losses_n.shape == (2,)
        for leaf in jax.tree.leaves(own):
            assert leaf.shape[0] == 2
            assert leaf.sharding.spec[0] == "data"
        mean, residual = mean_of(own, state.residual)
        state = update(state._replace(residual=residual), mean)
        whole, metrics = compiled(exchange, 2)(whole, tokens)
        assert float(metrics["loss"]) == pytest.approx(float(losses_n.mean()), rel=1e-6)
    assert int(state.step) == int(whole.step) == 2 * exchange.local_steps
    assert worst_difference(state.opt_state[0].mu, whole.opt_state[0].mu) < 1e-4
    jax.tree.map(
        partial(np.testing.assert_allclose, atol=0.1 * plain.LEARNING_RATE, rtol=1e-5),
        state.params,
        whole.params,
    )
    if exchange.format == "int8":
        assert worst_difference(state.residual, whole.residual) < 0.02


def test_a_step_takes_what_it_gave():
    """With a schedule, a loss on one token and an old state that is donated."""
    exchange, mesh = Exchange("int8"), mesh_of(2)
    schedule = optax.linear_schedule(1e-3, 0.0, 2)
    step = partial(ex.train_step, MODEL, exchange, mesh=mesh, learning_rate=schedule, predicted=1)
    state, tokens = initial_state(exchange, 2), on_mesh(tokens_BT(), 2)
    # Compiled ahead, it refuses a state that lies otherwise than the one it was compiled for.
    step = jit(step, donate_argnums=0).lower(state, tokens).compile()
    first = jit(partial(plain.loss_fn, MODEL, predicted=1))(initial_params(), tokens_BT())
    losses = []
    for _ in range(4):
        old = state
        state, metrics = step(old, tokens)
        losses.append(float(metrics["loss"]))
        assert all(leaf.is_deleted() for leaf in jax.tree.leaves(old))
        assert_lies_as_described(state, exchange, 2)
    assert losses[0] == pytest.approx(float(first), rel=1e-6)
    # Two steps at a rate above 0, and then none.
    assert losses[0] > losses[1] > losses[2] == losses[3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "fp8"}, "format='fp8' is not one of none, fp32, bf16, int8"),
        ({"format": "fp32", "accumulate": 0}, "accumulate must be at least 1, not 0"),
        ({"format": "fp32", "local_steps": 0}, "local_steps must be at least 1, not 0"),
        ({"format": "int8", "local_steps": 2}, "it must be 'fp32' or 'none'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Exchange(**options)


@pytest.mark.parametrize(
    ("batch", "axes", "message"),
    [
        (8, {"fsdp": 8}, "needs mesh axis 'data', not only fsdp"),
        (8, {"data": 2, "model": 2}, "mesh axis 'model' must be of size 1, not 2"),
        (20, {"data": 2}, "batch=20 .* 'data' of size 2 x accumulate=4 x local_steps=2"),
    ],
)
def test_a_batch_or_a_mesh_that_does_not_fit_is_refused(batch: int, axes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Exchange("fp32", accumulate=4, local_steps=2).check(batch, axes)
    Exchange("fp32", accumulate=4, local_steps=2).check(16, {"data": 2, "model": 1})


def test_the_step_checks_its_batch():
    state = ex.abstract_state(MODEL, Exchange("fp32"), mesh_of(8))
    tokens = jax.ShapeDtypeStruct((12, 17), jnp.int32)
    with pytest.raises(ValueError, match="batch=12 does not divide over mesh axis 'data'"):
        jax.eval_shape(
            partial(ex.train_step, MODEL, Exchange("fp32"), mesh=mesh_of(8)), state, tokens
        )


def test_options_are_planned_with_where_there_is_no_jax():
    code = "import sys, models.exchange_options; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("format", ["bf16", "int8"])
def test_a_replica_that_is_alone_encodes_nothing(format: str):
    exchange, own_1N = Exchange(format), random_vectors(replicas=1)
    mean_N, _ = exchange_of(exchange, 1)({"w": own_1N}, no_residual(exchange, own_1N.shape[1], 1))
    np.testing.assert_array_equal(mean_N["w"], own_1N[0])
