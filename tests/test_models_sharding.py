"""Shardings on eight virtual devices: complete, of the right rank, and without effect on values."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from models.sharding import batch_sharding, make_mesh, partition_spec
from models.sizes import SIZES
from models.train_step import (
    abstract_cache,
    abstract_train_state,
    create_train_state,
    decode_step,
    init_cache,
    prefill,
    state_shardings,
    train_step,
)

TINY = SIZES["tiny"]
MESHES = {
    "data, fsdp, model": {"data": 2, "fsdp": 2, "model": 2},
    "fsdp, seq, model": {"fsdp": 2, "seq": 2, "model": 2},
}

pytestmark = pytest.mark.skipif(
    jax.device_count() < 8, reason="needs --xla_force_host_platform_device_count=8"
)


@functools.cache
def params_alone():
    return create_train_state(TINY, 0).params


def tokens_BT(batch: int = 8, length: int = 17) -> jax.Array:
    return jax.random.randint(jax.random.key(1), (batch, length), 0, TINY.vocab_size, jnp.int32)


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


@pytest.mark.parametrize(
    ("shape", "tied"), [(MESHES["data, fsdp, model"], False), (MESHES["fsdp, seq, model"], True)]
)
def test_a_step_on_a_mesh_is_a_step_on_one_device(shape, tied: bool):
    config = dataclasses.replace(TINY, tied_embedding=tied)
    mesh = make_mesh(shape, jax.devices()[:8])
    initial, state = create_train_state(config, 0), create_train_state(config, 0, mesh)
    # Random initial values are the same wherever they are drawn.
    jax.tree.map(np.testing.assert_array_equal, initial, state)
    expected, expected_metrics = jax.jit(partial(train_step, config))(initial, tokens_BT())

    batch = jax.device_put(tokens_BT(), batch_sharding(mesh))
    step = jax.jit(partial(train_step, config, mesh=mesh), donate_argnums=0)
    compiled = step.lower(abstract_train_state(config, mesh), batch).compile()
    state, metrics = compiled(state, batch)

    np.testing.assert_allclose(metrics["loss"], expected_metrics["loss"], rtol=1e-5)
    # Adam's first step is the learning rate times the gradient's sign: where a gradient is nearly
    # nothing, rounding can turn it, so moments are compared closely and weights to a part of it.
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6),
        state.opt_state[0].mu,
        expected.opt_state[0].mu,
    )
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), state.params, expected.params
    )
    # The output is laid out as the input was: the compiled step takes it without a word.
    state, metrics = compiled(state, batch)
    assert float(metrics["loss"]) < float(expected_metrics["loss"])


def test_decoding_on_a_mesh_is_decoding_on_one_device(mesh):
    params, cache = params_alone(), init_cache(TINY, 8, 16)
    _, cache = jax.jit(partial(prefill, TINY))(params, cache, tokens_BT(length=6))
    expected_BV, _ = jax.jit(partial(decode_step, TINY))(
        params, cache, tokens_BT()[:, 6], jnp.int32(6)
    )

    params = jax.device_put(params, state_shardings(TINY, mesh).params)
    cache = init_cache(TINY, 8, 16, mesh)
    assert cache["k"].sharding == abstract_cache(TINY, 8, 16, mesh)["k"].sharding
    _, cache = jax.jit(partial(prefill, TINY, mesh=mesh))(params, cache, tokens_BT(length=6))
    logits_BV, _ = jax.jit(partial(decode_step, TINY, mesh=mesh))(
        params, cache, tokens_BT()[:, 6], jnp.int32(6)
    )
    np.testing.assert_allclose(logits_BV, expected_BV, rtol=1e-4, atol=1e-5)
