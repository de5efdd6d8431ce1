"""What a model does once it is trained, as workloads: forward pass, prefill and decode."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.workloads.base import Workload, fetch, place, relative_error, sharding
from accel_bench.workloads.model_inputs import (
    Batch,
    abstract_tokens,
    draw_tokens,
    in_float64,
    initial_weights,
    on_host_in_float64,
    static_mesh,
)
from models import costs, inference, train_step
from models.inference import Sampling
from models.sharding import batch_sharding
from models.sizes import ModelConfig

# A float64 forward pass of one sequence on the host takes seconds up to about here.
_CHECKED_PARAMS = 3e8
# Decode steps that are timed one by one: of so many the 99th percentile is the second largest.
SINGLE_STEPS = 128


def _reference_logits(config: ModelConfig, mesh: Mesh, seed: int, tokens_T: np.ndarray) -> Any:
    """Logits (T, V) of one sequence by the host's CPU, in float64; None for a large model.

    Of weights in 8 bits it takes those that they were made from: their rounding is an error.
    """
    if costs.param_count(config) > _CHECKED_PARAMS:
        return None
    if config.weight_dtype is not None:
        config = dataclasses.replace(config, weight_dtype=None, param_dtype="float32")
    weights = initial_weights(config, mesh)(jax.random.key(seed))
    run = partial(train_step.forward, in_float64(config))
    return on_host_in_float64(run, weights, tokens_T[None])[0]


def _logit_error(expected: np.ndarray | None, logits: jax.Array) -> float | None:
    if expected is None:
        return None
    return relative_error(fetch(logits.astype(jnp.float32)), expected)


def _facts(config: ModelConfig) -> dict[str, Any]:
    facts: dict[str, Any] = {"weight_bytes": costs.param_bytes(config)}
    if costs.param_count(config) > _CHECKED_PARAMS:
        facts["unchecked"] = "the model is too large for a float64 reference on the host"
    return facts


def _cache_facts(size: Batch, config: ModelConfig) -> dict[str, Any]:
    return {
        "cache_bytes": costs.kv_cache_bytes(config, size.batch, size.length),
        **_facts(config),
    }


def _same_everywhere(config: ModelConfig, weights: Any) -> tuple:
    """Weights whose signs are the same on every machine; codes are rounded, so theirs are not."""
    return () if config.weight_dtype else (weights,)


def forward(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    """Logits of every position."""

    def init(seed: int) -> tuple[tuple, Any]:
        tokens = draw_tokens(size, config, seed)
        expected = _reference_logits(config, mesh, seed, tokens[0])
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        return (weights, place(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(train_step.forward, config, mesh=static_mesh(mesh)),
        inputs=(train_step.abstract_params(config, mesh), abstract_tokens(size, mesh)),
        init=init,
        work={
            "flops": costs.forward_flops(config, size.batch, size.length),
            "flops_causal": costs.forward_flops(config, size.batch, size.length, causal=True),
            "tokens": size.batch * size.length,
        },
        drawn=lambda args: (*_same_everywhere(config, args[0]), args[1]),
        error=lambda expected, logits: _logit_error(expected, logits[0]),
        facts=_facts(config),
    )


def prefill(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    """Reading a prompt into the cache; logits of its last position."""

    def init(seed: int) -> tuple[tuple, Any]:
        tokens = draw_tokens(size, config, seed)
        expected = _reference_logits(config, mesh, seed, tokens[0])
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        cache = inference.init_cache(config, size.batch, size.length, mesh)
        return (weights, cache, place(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(inference.prefill, config, mesh=static_mesh(mesh)),
        inputs=(
            train_step.abstract_params(config, mesh),
            inference.abstract_cache(config, size.batch, size.length, mesh),
            abstract_tokens(size, mesh),
        ),
        init=init,
        work={
            "flops": costs.prefill_flops(config, size.batch, size.length),
            "flops_causal": costs.prefill_flops(config, size.batch, size.length, causal=True),
            "tokens": size.batch * size.length,
        },
        donate=(1,),
        feed=lambda args, out: (args[0], out[1], args[2]),
        drawn=lambda args: (*_same_everywhere(config, args[0]), args[2]),
        error=lambda expected, out: _logit_error(
            None if expected is None else expected[-1], out[0][0]
        ),
        facts=_cache_facts(size, config),
    )


def decode(size: Batch, config: ModelConfig, mesh: Mesh, sampling: Sampling) -> Workload:
    """One token per sequence, with a cache of `length` positions that is full but for it."""
    by_sequence, whole = sharding(mesh, ("data", "fsdp")), sharding(mesh)
    static = static_mesh(mesh)

    def step(weights, cache, tokens_B, position, key_data):
        tokens_B, cache, logits_BV, key_data = inference.next_token(
            config, sampling, weights, cache, tokens_B, position, key_data, mesh=static
        )
        if static is not None:
            tokens_B = jax.lax.with_sharding_constraint(tokens_B, by_sequence)
            key_data = jax.lax.with_sharding_constraint(key_data, whole)
        return tokens_B, cache, logits_BV, key_data

    def init(seed: int) -> tuple[tuple, Any]:
        tokens = draw_tokens(size, config, seed)
        expected = _reference_logits(config, mesh, seed, tokens[0])
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        cache = inference.init_cache(config, size.batch, size.length, mesh)
        read = jax.jit(partial(inference.prefill, config, mesh=static), donate_argnums=1)
        _, cache = read(weights, cache, place(tokens, batch_sharding(mesh)))
        last = place(tokens[:, -1], by_sequence)
        position = place(np.int32(size.length - 1), whole)
        key_data = place(np.asarray(_key_data(seed)), whole)
        return (weights, cache, last, position, key_data), expected

    key_data = jax.eval_shape(partial(_key_data, 0))
    return Workload(
        fn=step,
        inputs=(
            train_step.abstract_params(config, mesh),
            inference.abstract_cache(config, size.batch, size.length, mesh),
            jax.ShapeDtypeStruct((size.batch,), jnp.int32, sharding=by_sequence),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=whole),
            jax.ShapeDtypeStruct(key_data.shape, key_data.dtype, sharding=whole),
        ),
        init=init,
        work={
            "flops": costs.decode_flops(config, size.batch, size.length),
            "bytes": costs.decode_bytes(config, size.batch, size.length),
            "tokens": size.batch,
        },
        donate=(1,),
        # The token chosen is read next, at the last place of the cache again.
        feed=lambda args, out: (args[0], out[1], out[0], args[3], out[3]),
        single_steps=SINGLE_STEPS,
        # The cache is what the device computed.
        drawn=lambda args: (*_same_everywhere(config, args[0]), *args[2:]),
        error=lambda expected, out: _logit_error(
            None if expected is None else expected[-1], out[2][0]
        ),
        facts=_cache_facts(size, config),
    )


def _key_data(seed: int) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed))
