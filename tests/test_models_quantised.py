"""Weights in 8 bits: codes, scales, what is multiplied in them and what is not."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_models_costs import BATCH, LENGTH, dot_flops, leaf_bytes
from test_models_transformer import dots_of

from models import costs
from models.inference import abstract_cache, decode_step
from models.quantised import (
    LARGEST_CODE,
    Scaled,
    is_scaled,
    quantise,
    scaled_dot,
    stored,
)
from models.sharding import make_mesh
from models.sizes import SIZES, WEIGHT_DTYPES
from models.train_step import (
    abstract_params,
    abstract_train_state,
    forward,
    init_params,
    param_shardings,
    train_step,
)

TINY = SIZES["tiny"]
EIGHT_BITS = {
    dtype: dataclasses.replace(TINY, dtype="bfloat16", param_dtype="bfloat16", weight_dtype=dtype)
    for dtype in WEIGHT_DTYPES
}
TOKENS = np.random.default_rng(0).integers(0, TINY.vocab_size, (BATCH, LENGTH), dtype=np.int32)


@functools.cache
def params_of(config):
    return init_params(config, jax.random.key(0))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_codes_times_scales_are_the_numbers_again(dtype):
    x = normal(16, 64) * np.logspace(-6, 6, 16, dtype=np.float32)[:, None]
    x[3] = 0
    found = quantise(jnp.asarray(x), (1,), dtype)
    codes, scales = (np.asarray(part, np.float64) for part in (found.codes, found.scales))
    assert scales.shape == (16, 1)
    step = scales / 2 if dtype == "int8" else np.maximum(abs(x) * 2**-4, scales * 2**-10)
    assert (abs(codes * scales - x) <= step * 1.001).all()
    largest = abs(codes).max(axis=1)
    assert (np.delete(largest, 3) == LARGEST_CODE[dtype]).all()
    assert largest[3] == 0


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_a_product_sums_codes_exactly_and_scales_the_sum(dtype):
    x = quantise(jnp.asarray(normal(8, 96)), (1,), dtype)
    w = quantise(jnp.asarray(normal(96, 48)), (0,), dtype)
    config = dataclasses.replace(EIGHT_BITS[dtype], dtype="float32")
    found = scaled_dot(jnp.asarray(normal(2, 4, 96).reshape(2, 4, 96)), w, config)
    exact = np.asarray(x.codes, np.float64) @ np.asarray(w.codes, np.float64)
    expected = exact * np.asarray(x.scales, np.float64) * np.asarray(w.scales, np.float64)
    assert found.shape == (2, 4, 48)
    np.testing.assert_allclose(np.asarray(found).reshape(8, 48), expected, rtol=1e-4, atol=1e-4)


def test_a_matrix_keeps_the_scale_of_each_of_its_columns():
    weight = jnp.asarray(normal(3, 2, 5, 7))
    scaled = quantise(weight, (0, 1), "int8").reshape(6, -1)
    assert isinstance(scaled, Scaled) and scaled.shape == (6, 35)
    np.testing.assert_allclose(
        scaled.codes * scaled.scales, weight.reshape(6, 35), atol=float(scaled.scales.max()) / 2
    )


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_only_products_with_the_layers_weights_are_in_8_bits(dtype):
    config = EIGHT_BITS[dtype]
    jaxpr = jax.make_jaxpr(partial(forward, config))(abstract_params(config), TOKENS).jaxpr
    operands = [tuple(v.aval.dtype.name for v in dot.invars) for dot in dots_of(jaxpr)]
    assert sorted(operands) == sorted(5 * [(dtype,) * 2] + 3 * [("bfloat16",) * 2])
    assert dot_flops(jaxpr) == costs.forward_flops(config, BATCH, LENGTH)


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_bytes_are_those_of_the_leaves(dtype):
    config = EIGHT_BITS[dtype]
    plain = dataclasses.replace(config, weight_dtype=None)
    assert leaf_bytes(abstract_params(config)) == costs.param_bytes(config)
    spared = costs.param_bytes(plain) - costs.param_bytes(config)
    assert costs.decode_bytes(plain, 1, 8) - costs.decode_bytes(config, 1, 8) == spared > 0
    large = dataclasses.replace(SIZES["llama3_8b"], param_dtype="bfloat16", weight_dtype=dtype)
    assert leaf_bytes(abstract_params(large)) == costs.param_bytes(large) < 9.2e9


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_logits_are_near_those_of_the_weights_as_trained(dtype):
    config, run = EIGHT_BITS[dtype], jax.jit(forward, static_argnums=0)
    exact = np.asarray(run(TINY, params_of(TINY), TOKENS))
    quantised = stored(config, params_of(TINY))
    found = np.asarray(run(config, quantised, TOKENS))
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 4e-3 < error < 0.03
    jax.tree.map(np.testing.assert_array_equal, quantised, params_of(config))


def test_a_mesh_divides_codes_and_scales_and_gives_the_same():
    config = EIGHT_BITS["int8"]
    mesh = make_mesh({"data": 2, "fsdp": 2, "model": 2}, jax.devices())
    places = param_shardings(config, mesh)
    up, down = places["blocks"]["up_DF"], places["blocks"]["down_FD"]
    assert tuple(up.codes.spec) == (None, "fsdp", "model")
    assert tuple(up.scales.spec) == (None, None, "model")
    assert tuple(down.scales.spec) == (None, None, "fsdp")
    params = jax.device_put(params_of(config), places)
    found = jax.jit(partial(forward, config, mesh=mesh))(params, TOKENS)
    expected = np.asarray(jax.jit(partial(forward, config))(params_of(config), TOKENS))
    error = np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected)
    assert error < 0.01


def test_decoding_takes_the_same_weights():
    config = EIGHT_BITS["int8"]
    cache = abstract_cache(config, BATCH, LENGTH)
    token = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    logits, _ = jax.eval_shape(
        partial(decode_step, config), abstract_params(config), cache, token, jnp.int32(3)
    )
    assert (logits.shape, logits.dtype) == ((BATCH, TINY.vocab_size), jnp.float32)


def test_training_is_refused_in_one_line():
    config = EIGHT_BITS["int8"]
    state = abstract_train_state(dataclasses.replace(config, weight_dtype=None))
    for attempt in (
        partial(abstract_train_state, config),
        partial(jax.eval_shape, partial(train_step, config), state, TOKENS),
    ):
        with pytest.raises(ValueError, match=r"^weights in int8 are for inference: train in 16"):
            attempt()
    assert any(is_scaled(leaf) for leaf in abstract_params(config)["blocks"].values())
    with pytest.raises(ValueError, match="weight_dtype='int4' is not one of int8, float8_e4m3fn"):
        dataclasses.replace(TINY, weight_dtype="int4")
