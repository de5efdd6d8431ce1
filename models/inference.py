"""Inference: a key-value cache, reading a prompt, one more token, and how a token is chosen.

Plain functions of plain pytrees like those of `models.train_step`; bind `config` and `mesh` first.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from models.sharding import named_sharding
from models.sizes import ModelConfig
from models.train_step import Params, bind
from models.transformer import CACHE_AXES, Cache


def abstract_cache(
    config: ModelConfig, batch: int, length: int, mesh: Mesh | None = None
) -> dict[str, jax.ShapeDtypeStruct]:
    """Key-value cache for `length` positions as `ShapeDtypeStruct`s, in the compute dtype."""
    shape = (config.num_layers, batch, config.num_kv_heads, length, config.head_size)
    sharding = None if mesh is None else named_sharding(CACHE_AXES, mesh)
    leaf = jax.ShapeDtypeStruct(shape, jnp.dtype(config.dtype), sharding=sharding)
    return {"k": leaf, "v": leaf}


def init_cache(config: ModelConfig, batch: int, length: int, mesh: Mesh | None = None) -> Cache:
    """An empty key-value cache."""
    return jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype, device=leaf.sharding),
        abstract_cache(config, batch, length, mesh),
    )


def prefill(
    config: ModelConfig,
    params: Params,
    cache: Cache,
    tokens_BT: jax.Array,
    *,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, Cache]:
    """Reads a prompt. Returns the logits (B, V) after its last token, and the cache."""
    return bind(config, params, mesh).prefill(tokens_BT, cache)


def decode_step(
    config: ModelConfig,
    params: Params,
    cache: Cache,
    tokens_B: jax.Array,
    position: jax.Array,
    *,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, Cache]:
    """Reads one more token per sequence, at `position` (int32 scalar, traced).

    Returns the logits (B, V) after it, and the cache, which may be donated. Attention runs over
    the whole static length of the cache with later positions masked.
    """
    return bind(config, params, mesh).decode_step(tokens_B, cache, position)


class Sampling(NamedTuple):
    """How the next token is chosen from its logits.

    Attributes:
      method: `greedy`, the most likely one; or `top_k`, drawn from the k most likely ones.
      temperature: divides the logits before they become probabilities.
      top_k: k; all of the vocabulary where it is not that large.
    """

    method: str = "greedy"
    temperature: float = 1.0
    top_k: int = 50


def choose(sampling: Sampling, logits_BV: jax.Array, key: jax.Array) -> jax.Array:
    """The next token of each sequence, (B,) int32; the same for a key whatever the mesh.

    A token is drawn by Gumbel's trick: the largest of logit / temperature + noise has the
    probability that the softmax gives it.
    """
    if sampling.method == "greedy":
        return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    k = min(sampling.top_k, logits_BV.shape[-1])
    likely_Bk, token_Bk = jax.lax.top_k(logits_BV, k)
    drawn_B = jax.random.categorical(key, likely_Bk / sampling.temperature)
    return jnp.take_along_axis(token_Bk, drawn_B[:, None], axis=-1)[:, 0].astype(jnp.int32)


def next_token(
    config: ModelConfig,
    sampling: Sampling,
    params: Params,
    cache: Cache,
    tokens_B: jax.Array,
    position: jax.Array,
    key_data: jax.Array,
    *,
    mesh: Mesh | None = None,
) -> tuple[jax.Array, Cache, jax.Array, jax.Array]:
    """`decode_step`, and the token chosen after it.

    Args:
      key_data: of a jax.random key, as `jax.random.key_data` gives it; greedy leaves it alone.

    Returns:
      The chosen tokens (B,), the cache, the logits (B, V), and the next step's `key_data`.
    """
    logits_BV, cache = decode_step(config, params, cache, tokens_B, position, mesh=mesh)
    key = jax.random.wrap_key_data(key_data)
    if sampling.method != "greedy":
        key, draw = jax.random.split(key)
        return choose(sampling, logits_BV, draw), cache, logits_BV, jax.random.key_data(key)
    return choose(sampling, logits_BV, key), cache, logits_BV, key_data
