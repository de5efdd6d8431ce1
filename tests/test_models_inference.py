"""Generated tokens: as without a cache, as on one device, and drawn as often as they should be."""

import dataclasses
import functools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from scipy import special, stats

from models.inference import Sampling, choose, init_cache, next_token, prefill
from models.sharding import batch_sharding, make_mesh
from models.sizes import SIZES, ModelConfig
from models.train_step import forward, init_params, param_shardings

TINY = SIZES["tiny"]
BF16 = dataclasses.replace(TINY, dtype="bfloat16", param_dtype="bfloat16")
BATCH, PROMPT, NEW = 4, 8, 16
GREEDY, TOP_K = Sampling(), Sampling("top_k", temperature=0.8, top_k=20)
# Compiled soon rather than well.
jit: Any = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def mesh_of(devices: int) -> Mesh | None:
    return make_mesh({"data": 2, "fsdp": 2, "model": 2}, jax.devices()) if devices > 1 else None


@functools.cache
def params_of(config: ModelConfig, devices: int = 1):
    mesh, params = mesh_of(devices), init_params(config, jax.random.key(0))
    return params if mesh is None else jax.device_put(params, param_shardings(config, mesh))


def prompt() -> np.ndarray:
    return np.random.default_rng(0).integers(0, TINY.vocab_size, (BATCH, PROMPT), dtype=np.int32)


@functools.cache
def compiled(config: ModelConfig, sampling: Sampling, devices: int):
    mesh = mesh_of(devices)
    return (
        jit(partial(prefill, config, mesh=mesh), donate_argnums=1),
        jit(partial(next_token, config, sampling, mesh=mesh), donate_argnums=1),
    )


def generated(config: ModelConfig, sampling: Sampling, devices: int = 1, seed: int = 0):
    """Tokens (B, prompt + new), with a cache."""
    mesh, params = mesh_of(devices), params_of(config, devices)
    tokens = prompt() if mesh is None else jax.device_put(prompt(), batch_sharding(mesh))
    read, step = compiled(config, sampling, devices)
    logits_BV, cache = read(params, init_cache(config, BATCH, PROMPT + NEW, mesh), tokens)
    key, first = jax.random.split(jax.random.key(seed))
    last_B, key_data = choose(sampling, logits_BV, first), jax.random.key_data(key)
    found = [last_B]
    for position in range(PROMPT, PROMPT + NEW - 1):
        last_B, cache, _, key_data = step(params, cache, last_B, jnp.int32(position), key_data)
        found.append(last_B)
    return np.concatenate([prompt(), np.stack([np.asarray(x) for x in found], axis=1)], axis=1)


@functools.cache
def full_pass(config: ModelConfig):
    return jit(partial(forward, config))


@pytest.mark.parametrize("devices", [1, 8])
def test_a_cache_gives_the_tokens_of_recomputation(devices):
    tokens = np.zeros((BATCH, PROMPT + NEW), np.int32)
    tokens[:, :PROMPT] = prompt()
    for length in range(PROMPT, PROMPT + NEW):  # what comes later has no influence
        logits_BTV = full_pass(TINY)(params_of(TINY), tokens)
        tokens[:, length] = logits_BTV[:, length - 1].argmax(-1)
    np.testing.assert_array_equal(generated(TINY, GREEDY, devices), tokens)


def test_in_bf16_tokens_differ_only_where_logits_are_tied():
    tokens = generated(BF16, GREEDY)
    logits_BTV = np.asarray(full_pass(BF16)(params_of(BF16), tokens))[:, PROMPT - 1 : -1]
    chosen_BT = np.take_along_axis(logits_BTV, tokens[:, PROMPT:, None], axis=-1)[..., 0]
    behind_BT = logits_BTV.max(-1) - chosen_BT
    tie = 2**-7 * np.abs(logits_BTV).max()
    assert (behind_BT <= tie).all()
    assert (behind_BT == 0).mean() > 0.8


def test_a_seed_draws_the_same_tokens_on_one_device_and_on_eight():
    one, same, other = (generated(TINY, TOP_K, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one, generated(TINY, TOP_K, devices=8))
    assert (one[:, PROMPT:] != other[:, PROMPT:]).mean() > 0.5
    assert len(set(one[:, PROMPT:].ravel())) > NEW  # each sequence, each step draws anew


@pytest.mark.parametrize(
    ("temperature", "top_k"), [(1.0, 8), (0.6, 100), (1.5, 3)], ids=["all", "cold", "hot, three"]
)
def test_tokens_are_drawn_as_often_as_the_softmax_says(temperature, top_k):
    logits = np.random.default_rng(3).normal(size=8)
    draws = 20_000
    sampling = Sampling("top_k", temperature, top_k)
    rows_NV = jnp.broadcast_to(jnp.float32(logits), (draws, 8))
    counts = np.bincount(np.asarray(choose(sampling, rows_NV, jax.random.key(5))), minlength=8)
    kept = np.argsort(logits)[-top_k:]
    expected = draws * special.softmax(logits[kept] / temperature)
    assert counts.sum() == counts[kept].sum() == draws
    assert stats.chisquare(counts[kept], expected).pvalue > 1e-3
    wrong = draws * special.softmax(logits[kept] / (0.8 * temperature))
    assert stats.chisquare(counts[kept], wrong).pvalue < 1e-6


def test_greedy_takes_the_likeliest_and_leaves_the_key_alone():
    logits_BV = jnp.float32([[0, 3, 1], [2, 1, 0]])
    assert choose(GREEDY, logits_BV, jax.random.key(0)).tolist() == [1, 0]
    one = Sampling("top_k", temperature=5.0, top_k=1)
    assert choose(one, logits_BV, jax.random.key(0)).tolist() == [1, 0]
