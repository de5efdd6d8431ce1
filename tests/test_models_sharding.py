"""Shardings on eight virtual devices: complete, of the right rank, and without effect on values."""

import dataclasses
import functools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from quick_jit import jit

from models.inference import abstract_cache, decode_step, init_cache, prefill
from models.sharding import batch_sharding, make_mesh, partition_spec
from models.sizes import SIZES
from models.train_step import (
    LEARNING_RATE,
    abstract_train_state,
    create_train_state,
    forward,
    loss_fn,
    state_shardings,
    train_step,
)

TINY = SIZES["tiny"]
MESHES = {
    "data, fsdp, model": {"data": 2, "fsdp": 2, "model": 2},
    "fsdp, seq, model": {"fsdp": 2, "seq": 2, "model": 2},
    "data": {"data": 8},
    "fsdp": {"fsdp": 8},
    "seq": {"seq": 8},
    "data, model": {"data": 4, "model": 2},
    "data, seq": {"data": 4, "seq": 2},
}

pytestmark = pytest.mark.skipif(
    jax.device_count() < 8, reason="needs --xla_force_host_platform_device_count=8"
)


def configured(tied: bool):
    return dataclasses.replace(TINY, tied_embedding=tied)


@functools.cache
def state_alone(tied: bool = False) -> Any:
    """On the host, where no donation reaches it."""
    return jax.device_get(create_train_state(configured(tied), 0))


def tokens_BT(batch: int = 8, length: int = 17) -> jax.Array:
    return jax.random.randint(jax.random.key(1), (batch, length), 0, TINY.vocab_size, jnp.int32)


@functools.cache
def alone(tied: bool) -> tuple[Any, Any, list[float]]:
    """On one device: the logits, the state after one step, and the losses of 20 steps."""
    config, state, tokens = configured(tied), state_alone(tied), tokens_BT()
    logits_BTV = jit(partial(forward, config))(state.params, tokens)
    step = jit(partial(train_step, config))
    first, losses = None, []
    for _ in range(20):
        state, metrics = step(state, tokens)
        first = first or state
        losses.append(float(metrics["loss"]))
    return logits_BTV, first, losses


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(MESHES["data, fsdp, model"], jax.devices()[:8])


@pytest.mark.parametrize("name", ["tiny", "gpt2_char", "llama2_70b"])
def test_every_leaf_has_a_sharding_of_its_own_rank(mesh, name: str):
    config = SIZES[name]
    state = abstract_train_state(config, mesh)
    for leaf in jax.tree.leaves(state):
        assert isinstance(leaf.sharding, NamedSharding)
        assert len(leaf.sharding.spec) == leaf.ndim
    # Moments lie where their parameters lie.
    moments = state.opt_state[0]
    for tree in (moments.mu, moments.nu):
        assert jax.tree.map(lambda x: x.sharding, tree) == jax.tree.map(
            lambda x: x.sharding, state.params
        )


def test_the_weights_are_divided_as_the_table_says(mesh):
    blocks = state_shardings(TINY, mesh).params["blocks"]
    assert blocks["qkv_DKCQ"].spec == PartitionSpec(None, "fsdp", "model", None, None)
    assert blocks["out_KGQD"].spec == PartitionSpec(None, "model", None, None, "fsdp")
    assert blocks["up_DF"].spec == PartitionSpec(None, "fsdp", "model")
    assert blocks["down_FD"].spec == PartitionSpec(None, "model", "fsdp")
    assert blocks["mlp_norm_D"].spec == PartitionSpec(None, None)
    assert batch_sharding(mesh).spec == PartitionSpec(("data", "fsdp"), None)


def test_axes_the_mesh_lacks_divide_nothing():
    mesh = make_mesh({"data": 8}, jax.devices()[:8])
    assert partition_spec(("batch", "length", "vocab"), mesh) == PartitionSpec("data", None, None)
    assert mesh.axis_types == (AxisType.Auto,)


def test_random_weights_are_the_same_wherever_they_are_drawn(mesh):
    jax.tree.map(np.testing.assert_array_equal, state_alone(), create_train_state(TINY, 0, mesh))


def worst_difference(actual, expected) -> float:
    """Largest difference in any leaf, as a part of that leaf's largest value."""
    parts = jax.tree.map(
        lambda a, e: np.max(np.abs(np.asarray(a) - np.asarray(e))) / np.max(np.abs(e)),
        actual,
        expected,
    )
    return max(jax.tree.leaves(parts))


@pytest.mark.parametrize("name", MESHES)
def test_training_on_a_mesh_is_training_on_one_device(name: str):
    tied = name == "fsdp, seq, model"
    config, mesh = configured(tied), make_mesh(MESHES[name], jax.devices()[:8])
    expected_BTV, expected, expected_losses = alone(tied)
    state = jax.device_put(state_alone(tied), state_shardings(config, mesh))
    batch = jax.device_put(tokens_BT(), batch_sharding(mesh))

    logits_BTV = jit(partial(forward, config, mesh=mesh))(state.params, batch)
    assert worst_difference(logits_BTV, expected_BTV) < 1e-5

    step = jit(partial(train_step, config, mesh=mesh), donate_argnums=0)
    compiled = step.lower(abstract_train_state(config, mesh), batch).compile()
    losses = []
    for count in range(20):
        # The output is laid out as the input was: the compiled step takes it without a word.
        state, metrics = compiled(state, batch)
        losses.append(float(metrics["loss"]))
        if count == 0:
            # The first moment is the gradient but for a factor.
            assert worst_difference(state.opt_state[0].mu, expected.opt_state[0].mu) < 1e-5
            # Adam's first step is the learning rate times the gradient's sign: where a gradient is
            # nearly nothing, rounding can turn it, so weights are compared to a part of the rate.
            jax.tree.map(
                partial(np.testing.assert_allclose, rtol=1e-5, atol=0.1 * LEARNING_RATE),
                state.params,
                expected.params,
            )
    assert losses[-1] < 0.95 * losses[0]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)


@pytest.mark.parametrize("name", ["data, fsdp, model", "seq"])
def test_a_loss_on_the_last_token_on_a_mesh_is_that_on_one_device(name: str):
    """Also where there are fewer predicted tokens than parts of the sequence."""
    mesh = make_mesh(MESHES[name], jax.devices()[:8])
    params, batch = state_alone().params, tokens_BT()
    expected = jit(partial(loss_fn, TINY, predicted=1))(params, batch)
    params = jax.device_put(params, state_shardings(TINY, mesh).params)
    batch = jax.device_put(batch, batch_sharding(mesh))
    loss = jit(partial(loss_fn, TINY, mesh=mesh, predicted=1))(params, batch)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_decoding_on_a_mesh_is_decoding_on_one_device(mesh):
    params, cache = state_alone().params, init_cache(TINY, 8, 16)
    _, cache = jit(partial(prefill, TINY))(params, cache, tokens_BT(length=6))
    expected_BV, _ = jit(partial(decode_step, TINY))(params, cache, tokens_BT()[:, 6], jnp.int32(6))

    params = jax.device_put(params, state_shardings(TINY, mesh).params)
    cache = init_cache(TINY, 8, 16, mesh)
    assert cache["k"].sharding == abstract_cache(TINY, 8, 16, mesh)["k"].sharding
    _, cache = jit(partial(prefill, TINY, mesh=mesh))(params, cache, tokens_BT(length=6))
    logits_BV, _ = jit(partial(decode_step, TINY, mesh=mesh))(
        params, cache, tokens_BT()[:, 6], jnp.int32(6)
    )
    np.testing.assert_allclose(logits_BV, expected_BV, rtol=1e-4, atol=1e-5)
