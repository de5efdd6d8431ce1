"""The Transformer: forward pass, train step, prefill and decode as workloads."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.precision import lookup
from accel_bench.workloads import data_parallel, training
from accel_bench.workloads.base import (
    PRODUCTS,
    UnsupportedCase,
    Workload,
    fetch,
    place,
    relative_error,
    sharding,
)
from accel_bench.workloads.model_inputs import (
    Batch,
    abstract_tokens,
    draw_tokens,
    in_float64,
    initial_weights,
    on_host_in_float64,
    static_mesh,
)
from accel_bench.workloads.params import Model
from models import costs, train_step
from models.sharding import batch_sharding
from models.sizes import ModelConfig

# A float64 forward pass of one sequence on the host takes seconds up to about here.
_CHECKED_PARAMS = 3e8
# Rounding of a product spreads through the layers; what the logits show is at most about this.
_DEPTH_FACTOR = 10


def with_precision(config: ModelConfig, precision: str) -> ModelConfig:
    """The model computed and stored as a precision says.

    Raises:
      UnsupportedCase: a precision of 8 bits, for which the model has no scaling.
    """
    entry = lookup(precision)
    if not entry.compute.startswith(("float32", "bfloat16", "float16")):
        raise UnsupportedCase(
            f"{precision} needs scaled operands, which the model does not have: use matmul"
        )
    return dataclasses.replace(
        config, dtype=entry.compute, param_dtype=entry.storage, dot_precision=entry.dot
    )


def build(params: Model, precision: str, mesh: Mesh) -> Workload:
    """One phase of the model; see `accel_bench.workloads.params.Model` for its parameters.

    The mesh axes divide the model as `models.sharding` says. Tokens are uniformly random.

    Raises:
      UnsupportedCase: a precision the model cannot be computed in.
    """
    size = Batch(params.sequences(mesh.shape), params.length)
    config = with_precision(params.config, precision)
    if config.attention == "cudnn" and mesh.devices.flat[0].platform != "gpu":
        raise UnsupportedCase("cudnn attention runs on NVIDIA GPUs only")
    config = dataclasses.replace(config, context=max(config.context, size.length))
    if params.explicit:
        step = data_parallel.build(size, config, params.explicit, mesh)
        return _described(step, config, precision)
    phases = {
        "forward": _forward,
        "train_step": training.build,
        "prefill": _prefill,
        "decode": _decode,
    }
    return _described(phases[params.phase](size, config, mesh), config, precision)


def _described(workload: Workload, config: ModelConfig, precision: str) -> Workload:
    """The workload with what all phases have in common."""
    return dataclasses.replace(
        workload,
        max_error=workload.max_error + _DEPTH_FACTOR * lookup(precision).max_error,
        holds=PRODUCTS,
        facts={
            "inputs": {"distribution": "uniform tokens, initial weights"},
            "attention": config.attention,
            "compute_dtype": config.dtype,
            "param_dtype": config.param_dtype,
            "params": costs.param_count(config),
            **workload.facts,
        },
    )


def _reference_logits(config: ModelConfig, weights: Any, tokens_T: np.ndarray) -> Any:
    """Logits (T, V) of one sequence by the host's CPU, in float64; None for a large model."""
    if costs.param_count(config) > _CHECKED_PARAMS:
        return None
    run = partial(train_step.forward, in_float64(config))
    return on_host_in_float64(run, weights, tokens_T[None])[0]


def _logit_error(expected: np.ndarray | None, logits: jax.Array) -> float | None:
    if expected is None:
        return None
    return relative_error(fetch(logits.astype(jnp.float32)), expected)


def _unchecked(config: ModelConfig) -> dict[str, str]:
    if costs.param_count(config) <= _CHECKED_PARAMS:
        return {}
    return {"unchecked": "the model is too large for a float64 reference on the host"}


def _forward(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    def init(seed: int) -> tuple[tuple, Any]:
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        tokens = draw_tokens(size, config, seed)
        expected = _reference_logits(config, weights, tokens[0])
        return (weights, place(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(train_step.forward, config, mesh=static_mesh(mesh)),
        inputs=(
            train_step.abstract_train_state(config, mesh).params,
            abstract_tokens(size, mesh),
        ),
        init=init,
        work={
            "flops": costs.forward_flops(config, size.batch, size.length),
            "flops_causal": costs.forward_flops(config, size.batch, size.length, causal=True),
            "tokens": size.batch * size.length,
        },
        error=lambda expected, logits: _logit_error(expected, logits[0]),
        facts=_unchecked(config),
    )


def _prefill(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    def init(seed: int) -> tuple[tuple, Any]:
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        tokens = draw_tokens(size, config, seed)
        expected = _reference_logits(config, weights, tokens[0])
        cache = train_step.init_cache(config, size.batch, size.length, mesh)
        return (weights, cache, place(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(train_step.prefill, config, mesh=static_mesh(mesh)),
        inputs=(
            train_step.abstract_train_state(config, mesh).params,
            train_step.abstract_cache(config, size.batch, size.length, mesh),
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
        error=lambda expected, out: _logit_error(
            None if expected is None else expected[-1], out[0][0]
        ),
        facts={
            "cache_bytes": costs.kv_cache_bytes(config, size.batch, size.length),
            **_unchecked(config),
        },
    )


def _decode(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    """One greedy token per sequence, with a cache of `length` positions that is full but for it."""
    by_sequence, whole = sharding(mesh, ("data", "fsdp")), sharding(mesh)
    static = static_mesh(mesh)

    def decode(weights, cache, tokens_B, position):
        logits, cache = train_step.decode_step(
            config, weights, cache, tokens_B, position, mesh=static
        )
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), cache, logits

    def init(seed: int) -> tuple[tuple, Any]:
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        tokens = draw_tokens(size, config, seed)
        expected = _reference_logits(config, weights, tokens[0])
        cache = train_step.init_cache(config, size.batch, size.length, mesh)
        read = jax.jit(partial(train_step.prefill, config, mesh=static), donate_argnums=1)
        _, cache = read(weights, cache, place(tokens, batch_sharding(mesh)))
        last = place(tokens[:, -1], by_sequence)
        return (weights, cache, last, place(np.int32(size.length - 1), whole)), expected

    return Workload(
        fn=decode,
        inputs=(
            train_step.abstract_train_state(config, mesh).params,
            train_step.abstract_cache(config, size.batch, size.length, mesh),
            jax.ShapeDtypeStruct((size.batch,), jnp.int32, sharding=by_sequence),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=whole),
        ),
        init=init,
        work={
            "flops": costs.decode_flops(config, size.batch, size.length),
            "bytes": costs.decode_bytes(config, size.batch, size.length),
            "tokens": size.batch,
        },
        donate=(1,),
        # The token chosen is read next, at the last place of the cache again.
        feed=lambda args, out: (args[0], out[1], out[0], args[3]),
        error=lambda expected, out: _logit_error(
            None if expected is None else expected[-1], out[2][0]
        ),
        facts={
            "cache_bytes": costs.kv_cache_bytes(config, size.batch, size.length),
            **_unchecked(config),
        },
    )
