"""The model's physics: causality, cache against full pass, precision, implementations."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import attention, rotary_tables, rotate
from models.costs import kv_cache_bytes
from models.inference import abstract_cache, decode_step, init_cache, prefill
from models.sizes import SIZES, ModelConfig
from models.train_step import abstract_train_state, create_train_state, forward

TINY = SIZES["tiny"]
MULTI_HEAD_GELU = dataclasses.replace(
    TINY, num_kv_heads=4, activation="gelu", tied_embedding=True, scan_layers=False
)
MULTI_QUERY = dataclasses.replace(TINY, num_kv_heads=1)
CONFIGS = {"grouped": TINY, "multi-head": MULTI_HEAD_GELU, "multi-query": MULTI_QUERY}


run_forward = jax.jit(forward, static_argnums=0)
run_prefill = jax.jit(prefill, static_argnums=0)
run_decode = jax.jit(decode_step, static_argnums=0)


@functools.cache
def params_of(config: ModelConfig):
    return create_train_state(config, seed=0).params


def random_tokens(batch: int, length: int, seed: int = 0) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (batch, length), 0, TINY.vocab_size, jnp.int32)


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=list(CONFIGS))
def config_and_params(request):
    return request.param, params_of(request.param)


def test_prefill_and_decode_give_the_logits_of_the_full_pass(config_and_params):
    config, params = config_and_params
    batch, prompt, length = 2, 5, 12
    tokens_BT = random_tokens(batch, length)
    expected_BTV = run_forward(config, params, tokens_BT)

    # Rubbish in the cache shows whether a position that is not yet written is ever seen.
    cache = jax.tree.map(lambda x: x + 7.0, init_cache(config, batch, length))
    logits_BV, cache = run_prefill(config, params, cache, tokens_BT[:, :prompt])
    for position in range(prompt, length + 1):
        np.testing.assert_allclose(logits_BV, expected_BTV[:, position - 1], rtol=1e-4, atol=1e-5)
        assert (logits_BV.argmax(-1) == expected_BTV[:, position - 1].argmax(-1)).all()
        if position < length:
            logits_BV, cache = run_decode(
                config, params, cache, tokens_BT[:, position], jnp.int32(position)
            )


def test_later_tokens_have_no_influence(config_and_params):
    """The gradient of one position's logits reaches that position and earlier ones, no other."""
    config, params = config_and_params
    tokens_BT = jnp.arange(10, dtype=jnp.int32)[None]  # each position has its own embedding row
    position = 6

    def logit_sum(embedding_VD):
        return forward(config, {**params, "embedding_VD": embedding_VD}, tokens_BT)[
            0, position
        ].sum()

    # Through the look-up only: for a tied embedding the unembedding's share is the same in all rows
    # not looked up, and is taken off.
    gradient_VD = jax.jit(jax.grad(logit_sum))(params["embedding_VD"])
    gradient_VD = gradient_VD - gradient_VD[-1]
    reached = jnp.abs(gradient_VD[:10]).max(axis=-1) > 1e-6
    assert reached.tolist() == [True] * (position + 1) + [False] * (9 - position)


def test_scanned_and_unrolled_layers_agree_on_the_same_parameters():
    params = params_of(TINY)
    unrolled = dataclasses.replace(TINY, scan_layers=False)
    np.testing.assert_allclose(
        run_forward(TINY, params, random_tokens(2, 16)),
        run_forward(unrolled, params, random_tokens(2, 16)),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("scan_layers", [True, False])
def test_a_decode_step_makes_no_second_copy_of_the_cache(scan_layers):
    """At most a layer's part at a time: the donated cache is written in place."""
    config = dataclasses.replace(TINY, num_layers=8, scan_layers=scan_layers)
    cache = abstract_cache(config, batch=4, length=256)
    params = abstract_train_state(config).params
    tokens_B, position = jax.ShapeDtypeStruct((4,), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
    step = jax.jit(partial(decode_step, config), donate_argnums=1)
    memory = step.lower(params, cache, tokens_B, position).compile().memory_analysis()
    assert memory is not None
    assert memory.alias_size_in_bytes == kv_cache_bytes(config, 4, 256)
    assert memory.temp_size_in_bytes < kv_cache_bytes(config, 4, 256) / 4


@pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
def test_the_library_attention_agrees_with_ours(config):
    library = dataclasses.replace(config, attention="jax")
    params = params_of(config)
    tokens_BT = random_tokens(2, 16)
    expected_BTV = run_forward(config, params, tokens_BT)
    np.testing.assert_allclose(
        run_forward(library, params, tokens_BT), expected_BTV, rtol=1e-4, atol=1e-5
    )
    cache = init_cache(config, 2, 16)
    _, cache = run_prefill(library, params, cache, tokens_BT[:, :9])
    logits_BV, _ = run_decode(library, params, cache, tokens_BT[:, 9], jnp.int32(9))
    np.testing.assert_allclose(logits_BV, expected_BTV[:, 9], rtol=1e-4, atol=1e-5)


def test_attention_is_the_softmax_it_should_be():
    """One head, against the definition written out in float64."""
    rng = np.random.default_rng(0)
    T, Q = 7, 8
    q, k, v = rng.normal(size=(3, T, Q))
    score = np.where(np.tril(np.ones((T, T), bool)), q @ k.T / Q**0.5, -np.inf)
    weight = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
    config = dataclasses.replace(TINY, head_size=Q)
    mixed = attention(
        jnp.float32(q)[None, None, None], jnp.float32(k)[None, None], jnp.float32(v)[None, None],
        0, config,
    )  # fmt: skip
    np.testing.assert_allclose(mixed[0, 0, 0], weight @ v, rtol=1e-4, atol=1e-5)


def test_rotary_keeps_lengths_and_depends_on_distance_only():
    config = TINY
    q_Q, k_Q = jax.random.normal(jax.random.key(0), (2, config.head_size))

    def at(x_Q, position):
        return rotate(x_Q[None], *rotary_tables(jnp.array([position]), config))[0]

    np.testing.assert_allclose(jnp.linalg.norm(at(q_Q, 11)), jnp.linalg.norm(q_Q), rtol=1e-5)
    near = at(q_Q, 3) @ at(k_Q, 1)
    np.testing.assert_allclose(at(q_Q, 40) @ at(k_Q, 38), near, rtol=1e-4)
    assert abs(at(q_Q, 3) @ at(k_Q, 2) - near) > 1e-3
    np.testing.assert_array_equal(at(q_Q, 0), q_Q)


def test_low_precision_computes_in_16_bits_and_ends_in_fp32():
    config = dataclasses.replace(TINY, dtype="bfloat16")
    params = params_of(TINY)
    tokens_BT = random_tokens(2, 16)
    exact_BTV = run_forward(TINY, params, tokens_BT)
    logits_BTV = run_forward(config, params, tokens_BT)
    assert logits_BTV.dtype == jnp.float32
    error = jnp.abs(logits_BTV - exact_BTV).max() / jnp.abs(exact_BTV).max()
    assert 1e-4 < error < 3e-2


def dots_of(jaxpr):
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            yield eqn
        for value in eqn.params.values():
            value = getattr(value, "jaxpr", value)
            if hasattr(value, "eqns"):
                yield from dots_of(value)


@pytest.mark.parametrize("attention", ["einsum", "jax"])
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        (None, None),
        ("highest", (jax.lax.Precision.HIGHEST,) * 2),
        ("BF16_BF16_F32_X3", jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3),
    ],
)
def test_the_precision_reaches_every_dot_and_its_gradient(attention, name, precision):
    config = dataclasses.replace(TINY, dot_precision=name, attention=attention)
    params = params_of(TINY)
    loss = jax.grad(lambda params: forward(config, params, random_tokens(1, 4)).sum())
    dots = list(dots_of(jax.make_jaxpr(loss)(params).jaxpr))
    assert len(dots) == 3 * 8  # seven in the layer (scanned, so once) and the unembedding
    assert {dot.params["precision"] for dot in dots} == {precision}


def test_every_dots_operands_are_in_the_compute_dtype():
    config = dataclasses.replace(TINY, dtype="bfloat16")
    params = params_of(TINY)
    loss = jax.grad(lambda params: forward(config, params, random_tokens(1, 4)).sum())
    for program in (partial(forward, config, tokens_BT=random_tokens(1, 4)), loss):
        jaxpr = jax.make_jaxpr(program)(params).jaxpr
        operands = [v.aval.dtype for dot in dots_of(jaxpr) for v in dot.invars]
        assert operands and set(operands) == {jnp.dtype("bfloat16")}
