"""Train state and step: learning, structure, sizes too big to hold."""

import dataclasses
import functools
import resource
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_models_costs import dot_flops

from models.costs import forward_flops, train_flops, train_state_bytes
from models.sizes import SIZES
from models.train_step import abstract_train_state, create_train_state, forward, loss_fn, train_step

TINY = SIZES["tiny"]


gradient = jax.jit(jax.grad(loss_fn, argnums=1), static_argnums=0)


@functools.cache
def initial_state(seed: int = 0):
    return create_train_state(TINY, seed)


def random_tokens(batch: int, length: int) -> jax.Array:
    return jax.random.randint(jax.random.key(1), (batch, length), 0, TINY.vocab_size, jnp.int32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_batch_is_learnt_by_heart(dtype: str):
    config = dataclasses.replace(TINY, dtype=dtype)
    step = jax.jit(partial(train_step, config, learning_rate=3e-3))
    state, batch = initial_state(), random_tokens(4, 17)
    losses = []
    for _ in range(20):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    # Untrained, the model knows nothing: the loss is that of a uniform guess.
    assert losses[0] == pytest.approx(np.log(TINY.vocab_size), rel=0.05)
    assert losses[-1] < 0.5 * losses[0]
    assert int(state.step) == 20


def test_loss_is_the_mean_of_minus_log_probability():
    params = initial_state().params
    tokens = random_tokens(3, 9)
    logp_BTV = np.asarray(
        jax.nn.log_softmax(jax.jit(partial(forward, TINY))(params, tokens[:, :-1])), np.float64
    )
    picked_BT = np.take_along_axis(logp_BTV, np.asarray(tokens[:, 1:, None]), axis=-1)
    assert float(jax.jit(partial(loss_fn, TINY))(params, tokens)) == pytest.approx(
        -picked_BT.mean(), rel=1e-5
    )


@pytest.mark.parametrize("predicted", [1, 3, 8])
def test_a_loss_on_a_part_is_the_mean_over_the_last_tokens(predicted: int):
    params, tokens = initial_state().params, random_tokens(3, 9)
    logits_BTV = jax.jit(partial(forward, TINY))(params, tokens[:, :-1])
    loss_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV, tokens[:, 1:])
    loss = jax.jit(partial(loss_fn, TINY, predicted=predicted))(params, tokens)
    assert float(loss) == pytest.approx(float(loss_BT[:, -predicted:].mean()), rel=1e-6)


def test_only_predicted_tokens_are_unembedded():
    state, tokens = abstract_train_state(TINY), jax.ShapeDtypeStruct((2, 33), jnp.int32)

    def counted(fn, *args):
        return dot_flops(jax.make_jaxpr(partial(fn, TINY, predicted=1))(*args).jaxpr)

    assert counted(train_step, state, tokens) == train_flops(TINY, 2, 32, predicted=1)
    assert counted(loss_fn, state.params, tokens) == forward_flops(TINY, 2, 32, predicted=1)
    skipped = train_flops(TINY, 2, 32) - train_flops(TINY, 2, 32, predicted=1)
    assert skipped == 6 * 2 * 31 * TINY.width * TINY.vocab_size


@pytest.mark.parametrize("predicted", [0, 9])
def test_more_predicted_tokens_than_there_are_is_refused(predicted: int):
    with pytest.raises(ValueError, match=f"predicted={predicted} is not within 1 and length=8"):
        loss_fn(TINY, initial_state().params, random_tokens(3, 9), predicted=predicted)


def test_a_learning_rate_may_be_traced_or_a_schedule():
    """All three ways give the same steps, and a state of the same structure."""
    rates = (1e-3, 5e-4)
    tokens = random_tokens(2, 9)
    schedule = optax.linear_schedule(rates[0], 0.0, 2)

    scheduled = traced = initial_state()
    # Compiled soon rather than well.
    jit: Any = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
    by_schedule = jit(partial(train_step, TINY, learning_rate=schedule))
    by_number = jit(partial(train_step, TINY))
    for rate in rates:
        scheduled, _ = by_schedule(scheduled, tokens)
        traced, _ = by_number(traced, tokens, learning_rate=rate)
    assert jax.tree.structure(scheduled) == jax.tree.structure(initial_state())
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7), scheduled.params, traced.params
    )
    assert by_number._cache_size() == 1
    start = initial_state().params["embedding_VD"]
    assert np.max(np.abs(traced.params["embedding_VD"] - start)) > 1e-3


@pytest.mark.parametrize("scan_layers", [True, False])
@pytest.mark.parametrize("remat", ["dots", "full"])
def test_recomputation_changes_no_gradient(remat: str, scan_layers: bool):
    config = dataclasses.replace(TINY, remat=remat, scan_layers=scan_layers)
    params, tokens = initial_state().params, random_tokens(2, 17)
    expected = gradient(TINY, params, tokens)
    actual = gradient(config, params, tokens)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6), actual, expected)


@pytest.mark.parametrize(
    "options",
    [{}, {"predicted": 1}, {"learning_rate": optax.constant_schedule(1e-3)}],
    ids=["plain", "predicted", "schedule"],
)
def test_the_step_gives_back_what_it_takes(options: dict):
    """Same structure, shapes and dtypes, so that the step can be fed its own donated output."""
    config = dataclasses.replace(TINY, param_dtype="bfloat16")
    state = abstract_train_state(config)
    new_state, _ = jax.eval_shape(
        partial(train_step, config, **options), state, jax.ShapeDtypeStruct((2, 9), jnp.int32)
    )
    assert jax.tree.structure(new_state) == jax.tree.structure(state)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), new_state) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )


def test_seeds_fix_the_parameters():
    jax.tree.map(np.testing.assert_array_equal, create_train_state(TINY, 0), initial_state())
    table_VD, other_VD = (initial_state(seed).params["embedding_VD"] for seed in (0, 1))
    assert (table_VD != other_VD).mean() > 0.99


@pytest.mark.parametrize("name", ["llama2_70b", "gpt3_175b"])
def test_an_abstract_state_costs_no_memory(name: str):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = abstract_train_state(SIZES[name])
    grown_bytes = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)]
    assert sum(sizes) == train_state_bytes(SIZES[name]) > 800e9
    assert grown_bytes < 200e6
