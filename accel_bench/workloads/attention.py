"""Causal self-attention by itself, in the layout in which the model calls it."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.precision import lookup
from accel_bench.workloads.base import (
    PRODUCTS,
    UnsupportedCase,
    Workload,
    fetch,
    place,
    relative_error,
    sharding,
)
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
    where = sharding(mesh, "data", "model")
    dtype = jnp.dtype(config.dtype)

    def run(q_BKGTQ, k_BKTQ, v_BKTQ):
        return attention(q_BKGTQ, k_BKTQ, v_BKTQ, 0, config)

    def init(seed: int) -> tuple[tuple, np.ndarray]:
        rng = np.random.default_rng(seed)
        drawn = [
            rng.standard_normal(shape, dtype=np.float32) for shape in (q_shape, kv_shape, kv_shape)
        ]
        one_head = (x[(0,) * (x.ndim - 2)].astype(np.float64) for x in drawn)
        return tuple(place(x.astype(dtype), where) for x in drawn), _reference(*one_head)

    def error(expected: np.ndarray, out: jax.Array) -> float:
        rows = out[0, 0, 0][_queries(params.length)].astype(jnp.float32)
        return relative_error(fetch(rows), expected)

    return Workload(
        fn=run,
        inputs=tuple(
            jax.ShapeDtypeStruct(shape, dtype, sharding=where)
            for shape in (q_shape, kv_shape, kv_shape)
        ),
        init=init,
        work={
            "flops": flops(config, params.batch, params.length, causal=True),
            "bytes": (2 * np.prod(q_shape) + 2 * np.prod(kv_shape)).item() * dtype.itemsize,
            "tokens": params.batch * params.length,
        },
        error=error,
        max_error=2 * entry.max_error,
        holds=PRODUCTS,
        facts={
            "inputs": {"distribution": "normal(0, 1)", "checked": "queries of one head"},
            "attention": config.attention,
            "compute_dtype": config.dtype,
            "flops_full": flops(config, params.batch, params.length, causal=False),
        },
    )


def _reference(q_TQ: np.ndarray, k_TQ: np.ndarray, v_TQ: np.ndarray) -> np.ndarray:
    """Causal attention of the chosen queries in float64."""
    length, head_size = q_TQ.shape
    chosen = _queries(length)
    scores = q_TQ[chosen] @ k_TQ.T / np.sqrt(head_size)
    scores[np.arange(length) > chosen[:, None]] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v_TQ


def _queries(length: int) -> np.ndarray:
    """Positions to check, the last among them."""
    return np.unique(np.linspace(0, length - 1, min(_CHECKED_QUERIES, length)).astype(int))
