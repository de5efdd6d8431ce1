"""Causal self-attention by itself, in the layout in which the model calls it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.precision import lookup
from accel_bench.workloads.base import UnsupportedCase, Workload, relative_error, sharding
from accel_bench.workloads.model import with_precision
from accel_bench.workloads.params import Attention
from models.attention import attention
from models.sizes import ModelConfig

_CHECKED_QUERIES = 16


def flops(config: ModelConfig, batch: int, length: int, *, causal: bool) -> int:
    """4 B H T^2 Q for the two products, half of it where only seen positions count."""
    full = 4 * batch * config.num_heads * length**2 * config.head_size
    return full // 2 if causal else full


def build(params: Attention, precision: str, mesh: Mesh) -> Workload:
    """Attention of `length` queries over as many keys; `data` divides the batch, `model` heads.

    Queries are (B,K,G,T,Q), keys and values (B,K,T,Q): K key-value heads, G queries for each, T
    positions, Q head size. The FLOPs of the headline are those that causality asks for, so that an
    implementation that computes masked positions gains nothing by it.

    Raises:
      UnsupportedCase: a precision that attention has no meaning in, or cuDNN elsewhere than on an
        NVIDIA GPU.
    """
    config = with_precision(params.config, precision)
    if config.attention == "cudnn" and mesh.devices.flat[0].platform != "gpu":
        raise UnsupportedCase("cudnn attention runs on NVIDIA GPUs only")
    config = dataclasses.replace(config, context=max(config.context, params.length))
    entry = lookup(precision)
    heads, groups = config.num_kv_heads, config.queries_per_kv_head
    q_shape = (params.batch, heads, groups, params.length, config.head_size)
    kv_shape = (params.batch, heads, params.length, config.head_size)
    place = sharding(mesh, "data", "model")
    dtype = jnp.dtype(config.dtype)

    def run(q_BKGTQ, k_BKTQ, v_BKTQ):
        return attention(q_BKGTQ, k_BKTQ, v_BKTQ, 0, config)

    def values(seed: int) -> tuple[jax.Array, ...]:
        keys = jax.random.split(jax.random.key(seed), 3)
        return tuple(
            jax.random.normal(key, shape)
            for key, shape in zip(keys, (q_shape, kv_shape, kv_shape), strict=True)
        )

    def reference(seed: int) -> np.ndarray:
        q_TQ, k_TQ, v_TQ = (
            np.asarray(x[(0,) * (x.ndim - 2)], np.float64) for x in jax.jit(values)(seed)
        )
        chosen = _queries(params.length)
        scores = q_TQ[chosen] @ k_TQ.T / np.sqrt(config.head_size)
        scores[np.arange(params.length) > chosen[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True) @ v_TQ

    def error(expected: np.ndarray, out: jax.Array) -> float:
        rows = out[0, 0, 0][_queries(params.length)].astype(jnp.float32)
        return relative_error(np.asarray(rows), expected)

    return Workload(
        fn=run,
        inputs=tuple(
            jax.ShapeDtypeStruct(shape, dtype, sharding=place)
            for shape in (q_shape, kv_shape, kv_shape)
        ),
        init=jax.jit(
            lambda seed: tuple(x.astype(dtype) for x in values(seed)), out_shardings=(place,) * 3
        ),
        work={
            "flops": flops(config, params.batch, params.length, causal=True),
            "bytes": (2 * np.prod(q_shape) + 2 * np.prod(kv_shape)).item() * dtype.itemsize,
            "tokens": params.batch * params.length,
        },
        reference=reference,
        error=error,
        max_error=2 * entry.max_error,
        holds=(r"\bdot\(", r"\bconvolution\(", r"custom-call", r"__triton", r"__ynn"),
        facts={
            "inputs": {"distribution": "normal(0, 1)", "checked": "queries of one head"},
            "attention": config.attention,
            "compute_dtype": config.dtype,
            "flops_full": flops(config, params.batch, params.length, causal=False),
        },
    )


def _queries(length: int) -> np.ndarray:
    """Positions to check, the last among them."""
    return np.unique(np.linspace(0, length - 1, min(_CHECKED_QUERIES, length)).astype(int))
