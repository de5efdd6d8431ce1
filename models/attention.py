"""Rotary positions and causal grouped-query attention, with a choice of implementation.

Names of dimensions: B batch, T query positions, S key positions, K key-value heads, G query heads
per key-value head, Q head size. Heads come before positions: the batched matmuls then run over
contiguous matrices, which XLA on CPU needs to be fast and GPU and TPU compilers do not mind.
"""

import jax
import jax.numpy as jnp

from models.layers import wide_einsum
from models.sizes import ModelConfig


def rotary_tables(positions_T: jax.Array, config: ModelConfig) -> tuple[jax.Array, jax.Array]:
    """Cosines and signed sines, each (T, 2, Q/2) in fp32, of the angles of arXiv 2104.09864."""
    half = config.head_size // 2
    frequency = config.rope_base ** (-jnp.arange(half, dtype=config.wide_dtype) / half)
    angle_Tq = positions_T.astype(config.wide_dtype)[:, None] * frequency
    cos_Tq, sin_Tq = jnp.cos(angle_Tq), jnp.sin(angle_Tq)
    tables = jnp.stack([cos_Tq, cos_Tq], axis=1), jnp.stack([-sin_Tq, sin_Tq], axis=1)
    # Behind a barrier, or the compiler may take sines and cosines anew for every head and layer.
    return jax.lax.optimization_barrier(tables)


def rotate(x_xTQ: jax.Array, cos_T2q: jax.Array, sin_T2q: jax.Array) -> jax.Array:
    """Rotates each pair (x[i], x[i + Q/2]) of the head dimension by its angle, in fp32.

    The halves change places by a reversal of an axis of two, which vectorises where a
    concatenation of slices does not.
    """
    x_xT2q = x_xTQ.astype(cos_T2q.dtype).reshape(*x_xTQ.shape[:-1], 2, -1)
    rotated = x_xT2q * cos_T2q + jnp.flip(x_xT2q, axis=-2) * sin_T2q
    return rotated.reshape(x_xTQ.shape).astype(x_xTQ.dtype)


def attention(
    q_BKGTQ: jax.Array,
    k_BKSQ: jax.Array,
    v_BKSQ: jax.Array,
    first_position: jax.Array | int,
    config: ModelConfig,
) -> jax.Array:
    """Causal attention of T queries, at `first_position` and on, over S keys from position 0.

    Returns (B, K, G, T, Q) in the compute dtype. Keys after a query's own position are not seen,
    so a cache may hold anything there.
    """
    if config.attention == "einsum":
        return _einsum_attention(q_BKGTQ, k_BKSQ, v_BKSQ, first_position, config)
    return _library_attention(q_BKGTQ, k_BKSQ, v_BKSQ, first_position, config)


def _einsum_attention(q_BKGTQ, k_BKSQ, v_BKSQ, first_position, config: ModelConfig) -> jax.Array:
    B, K, G, T, Q = q_BKGTQ.shape
    # A group's queries are so many more rows of one matmul: N = G x T.
    q_BKNQ = q_BKGTQ.reshape(B, K, G * T, Q) * jnp.asarray(Q**-0.5, q_BKGTQ.dtype)
    score_BKNS = wide_einsum("bknq,bksq->bkns", q_BKNQ, k_BKSQ, config)
    query_N1 = jnp.tile(first_position + jnp.arange(T), G)[:, None]
    seen_NS = jnp.arange(k_BKSQ.shape[2]) <= query_N1
    score_BKNS = jnp.where(seen_NS, score_BKNS, jnp.finfo(score_BKNS.dtype).min)
    # Softmax with the division moved behind the second matmul: the same function, but both the
    # division and the row sums of its gradient then pass over (N, Q) instead of (N, S) elements.
    top_BKN1 = jax.lax.stop_gradient(score_BKNS.max(axis=-1, keepdims=True))
    weight_BKNS = jnp.exp(score_BKNS - top_BKN1)
    total_BKN1 = weight_BKNS.sum(axis=-1, keepdims=True)
    weight_BKNS = weight_BKNS.astype(config.dtype)
    mixed_BKNQ = wide_einsum("bkns,bksq->bknq", weight_BKNS, v_BKSQ, config)
    return (mixed_BKNQ / total_BKN1).astype(config.dtype).reshape(B, K, G, T, Q)


def _library_attention(q_BKGTQ, k_BKSQ, v_BKSQ, first_position, config: ModelConfig) -> jax.Array:
    """jax.nn.dot_product_attention, by XLA or by cuDNN; it wants positions before heads."""
    B, K, G, T, Q = q_BKGTQ.shape
    S = k_BKSQ.shape[2]
    q_BTHQ = q_BKGTQ.reshape(B, K * G, T, Q).swapaxes(1, 2)
    # It has no precision argument, but its dots take the default in force while it is traced.
    with jax.default_matmul_precision(config.dot_precision):
        mixed_BTHQ = jax.nn.dot_product_attention(
            q_BTHQ,
            k_BKSQ.swapaxes(1, 2),
            v_BKSQ.swapaxes(1, 2),
            is_causal=T > 1,
            key_value_seq_lengths=None if T == S else jnp.full((B,), first_position + T, jnp.int32),
            implementation="cudnn" if config.attention == "cudnn" else "xla",
        )
    return mixed_BTHQ.swapaxes(1, 2).reshape(B, K, G, T, Q)
