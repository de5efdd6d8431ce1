"""The suite's model in Flax NNX: a decoder-only Transformer with rotary positions.

Pre-RMSNorm, grouped-query attention, GELU or SwiGLU, no biases, tied or untied embedding.

What stays in fp32 whatever `config.dtype` is (this list is the one place that says so; fp64 where
that is fp64, as in a reference to check against):
  - RMSNorm: its mean square and the scaling;
  - rotary angles and the rotation;
  - attention scores, their softmax, and the sum over values before it is rounded;
  - logits (the unembedding's output) and all of the loss.
Everything else, so every operand of every matmul, is in `config.dtype`; weights are stored in
`config.param_dtype` and cast where they are used. `config.dot_precision` goes to every dot.
With `config.weight_dtype` the layers' weights, and the operands of their products, are in 8 bits
with scales (models/quantised.py).

Names of dimensions: B batch, T length, D width, L layers, K key-value heads, G query heads per
key-value head, C = G + 2 (a group's queries, its key and its value), Q head size, F MLP width,
V vocabulary, S length of the cache.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from models import portable_random
from models.attention import attention, rotary_tables, rotate
from models.layers import (
    activate_and_project,
    dot,
    norm_and_project,
    rms_norm,
    wide_einsum,
)
from models.sharding import LogicalAxes, constrain
from models.sizes import ModelConfig

Cache = dict[str, jax.Array]  # 'k' and 'v', each (L, B, K, S, Q)


def weight(
    rngs: nnx.Rngs, shape: tuple[int, ...], axes: LogicalAxes, std: float, config: ModelConfig
) -> nnx.Param:
    """Normal initial values, drawn in fp32; the logical axes travel with the parameter."""
    value = portable_random.normal(rngs.params(), shape, std)
    return nnx.Param(value.astype(config.param_dtype), logical_axes=axes)


def scale(shape: tuple[int, ...], axes: LogicalAxes, config: ModelConfig) -> nnx.Param:
    """A norm's scale, all ones."""
    return nnx.Param(jnp.ones(shape, config.param_dtype), logical_axes=axes)


class Block(nnx.Module):
    """Weights of all layers, stacked; with the stack sliced off, one layer to be called."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs, mesh: Mesh | None = None):
        c = config
        L, D, K, Q, F = c.num_layers, c.width, c.num_kv_heads, c.head_size, c.mlp_width
        G = c.queries_per_kv_head
        std = 0.02
        out_std = std / (2 * L) ** 0.5  # each layer adds twice to the residual stream (GPT-2)
        self.config, self.mesh = c, mesh
        self.attention_norm_D = scale((L, D), ("layers", "norm"), c)
        self.mlp_norm_D = scale((L, D), ("layers", "norm"), c)
        self.qkv_DKCQ = weight(
            rngs, (L, D, K, G + 2, Q), ("layers", "embed", "kv_heads", None, None), std, c
        )
        self.out_KGQD = weight(
            rngs, (L, K, G, Q, D), ("layers", "kv_heads", None, None, "embed"), out_std, c
        )
        self.up_DF = weight(rngs, (L, D, F), ("layers", "embed", "mlp"), std, c)
        if c.activation == "swiglu":
            self.gate_DF = weight(rngs, (L, D, F), ("layers", "embed", "mlp"), std, c)
        self.down_FD = weight(rngs, (L, F, D), ("layers", "mlp", "embed"), out_std, c)

    def __call__(
        self,
        x_BTD: jax.Array,
        rotary: tuple[jax.Array, jax.Array],
        first_position: jax.Array | int = 0,
        cache: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """One layer. Returns its output and the keys and values, (B, K, T, Q), of its input.

        Without a cache the T positions attend to each other. With one (keys and values,
        (B, K, S, Q)) T is 1, and all of it is attended to with `first_position` replaced.
        """
        c = self.config
        B, T, D = x_BTD.shape
        K, C, Q = self.qkv_DKCQ.shape[1:]
        qkv_DN = self.qkv_DKCQ[...].reshape(D, -1)
        (qkv_BTN,) = norm_and_project(x_BTD, self.attention_norm_D[...], (qkv_DN,), c)
        qkv_BKCTQ = qkv_BTN.reshape(B, T, K, C, Q).transpose(0, 2, 3, 1, 4)
        q_BKGTQ, k_BK1TQ, v_BK1TQ = jnp.split(qkv_BKCTQ, (C - 2, C - 1), axis=2)
        q_BKGTQ = rotate(q_BKGTQ, *rotary)
        k_BKTQ = rotate(k_BK1TQ[:, :, 0], *rotary)
        v_BKTQ = v_BK1TQ[:, :, 0]
        q_BKGTQ = constrain(q_BKGTQ, ("batch", "kv_heads", None, "length", None), self.mesh)
        k_BKTQ = constrain(k_BKTQ, ("batch", "kv_heads", None, None), self.mesh)
        v_BKTQ = constrain(v_BKTQ, ("batch", "kv_heads", None, None), self.mesh)
        k_BKSQ, v_BKSQ = k_BKTQ, v_BKTQ
        if cache is not None:
            # By selection, not by an update: it can be fused into whatever reads the cache.
            is_new_S1 = jnp.arange(cache[0].shape[2])[:, None] == first_position
            k_BKSQ = jnp.where(is_new_S1, k_BKTQ, cache[0])
            v_BKSQ = jnp.where(is_new_S1, v_BKTQ, cache[1])
        mixed_BKGTQ = attention(q_BKGTQ, k_BKSQ, v_BKSQ, first_position, c)
        mixed_BTN = mixed_BKGTQ.transpose(0, 3, 1, 2, 4).reshape(B, T, -1)
        x_BTD = x_BTD + dot(mixed_BTN, self.out_KGQD[...].reshape(-1, D), c)
        x_BTD = constrain(x_BTD, ("batch", "length", None), self.mesh)

        weights_DF = (self.up_DF[...],)
        if c.activation == "swiglu":
            weights_DF += (self.gate_DF[...],)
        inputs_BTF = norm_and_project(x_BTD, self.mlp_norm_D[...], weights_DF, c)
        inputs_BTF = tuple(
            constrain(x_BTF, ("batch", "length", "mlp"), self.mesh) for x_BTF in inputs_BTF
        )
        x_BTD = x_BTD + activate_and_project(inputs_BTF, self.down_FD[...], c)
        x_BTD = constrain(x_BTD, ("batch", "length", None), self.mesh)
        return x_BTD, (k_BKTQ, v_BKTQ)


class Transformer(nnx.Module):
    """Token ids in, logits out; layers stacked and run by one `lax.scan`."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs, mesh: Mesh | None = None):
        c = config
        self.config, self.mesh = c, mesh
        table = (c.vocab_size, c.width)
        self.embedding_VD = weight(rngs, table, ("vocab", "embed"), 0.02, c)
        self.blocks = Block(c, rngs, mesh)
        self.final_norm_D = scale((c.width,), ("norm",), c)
        if not c.tied_embedding:
            self.unembedding_VD = weight(rngs, table, ("vocab", "embed"), 0.02, c)

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """Logits (B, T, V), fp32."""
        x_BTD, _ = self._layers(self._embed(tokens_BT))
        return self._unembed(x_BTD)

    def prefill(self, tokens_BT: jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
        """Logits (B, V) after the last token, and the cache with positions 0 to T-1 filled."""
        x_BTD, kv = self._layers(self._embed(tokens_BT), keep_kv=True)
        return self._unembed(x_BTD[:, -1:])[:, 0], self._store(cache, kv, 0)

    def decode_step(
        self, tokens_B: jax.Array, cache: Cache, position: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """Logits (B, V) after one more token each, at `position`, and the cache with it."""
        x_BTD = self._embed(tokens_B[:, None])
        x_BTD, kv = self._layers(x_BTD, position, cache, keep_kv=True)
        return self._unembed(x_BTD)[:, 0], self._store(cache, kv, position)

    def _embed(self, tokens_BT: jax.Array) -> jax.Array:
        # Looked up in rows that are whole: rows divided over the batch's own axes cannot be brought
        # to the batch's sharding without replicating the result.
        table_VD = self.embedding_VD[...].astype(self.config.dtype)
        x_BTD = constrain(table_VD, ("vocab", None), self.mesh)[tokens_BT]
        return constrain(x_BTD, ("batch", "length", None), self.mesh)

    def _unembed(self, x_BTD: jax.Array) -> jax.Array:
        table = self.embedding_VD if self.config.tied_embedding else self.unembedding_VD
        x_BTD = rms_norm(x_BTD, self.final_norm_D[...], self.config)
        table_VD = table[...].astype(self.config.dtype)
        flat_ND = x_BTD.reshape(-1, x_BTD.shape[-1])
        logits_NV = wide_einsum("nd,vd->nv", flat_ND, table_VD, self.config)
        logits_BTV = logits_NV.reshape(*x_BTD.shape[:-1], -1)
        return constrain(logits_BTV, ("batch", "length", "vocab"), self.mesh)

    def _store(self, cache: Cache, kv: tuple[jax.Array, jax.Array], position) -> Cache:
        """Puts the new keys and values, (L, B, K, T, Q), in: one write, in place if donated."""
        start = (0, 0, 0, position, 0)
        axes = CACHE_AXES
        return {
            name: constrain(jax.lax.dynamic_update_slice(cache[name], new, start), axes, self.mesh)
            for name, new in zip(("k", "v"), kv, strict=True)
        }

    def _layers(
        self,
        x_BTD: jax.Array,
        first_position: jax.Array | int = 0,
        cache: Cache | None = None,
        keep_kv: bool = False,
    ) -> tuple[jax.Array, Any]:
        """All layers; with `keep_kv` also every layer's keys and values, stacked."""
        c = self.config
        rotary = rotary_tables(first_position + jnp.arange(x_BTD.shape[1]), c)
        graph, stacked = nnx.split(self.blocks)

        def layer(x_BTD, layer_inputs):
            block = nnx.merge(graph, layer_inputs["weights"])
            kv_cache = None if cache is None else (layer_inputs["k"], layer_inputs["v"])
            x_BTD, kv = block(x_BTD, rotary, first_position, kv_cache)
            return x_BTD, kv if keep_kv else None

        if c.remat != "none":
            policy = {
                "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
                "full": None,
            }[c.remat]
            # A scan's body is its own computation already; unrolled, only the barriers that
            # prevent_cse puts in keep the compiler from undoing the recomputation.
            layer = jax.checkpoint(layer, policy=policy, prevent_cse=not c.scan_layers)
        inputs = {"weights": stacked, **(cache or {})}
        # With a cache always a loop. A token a sequence takes little more than reading weights and
        # cache once, and XLA on CPU would copy every layer's part of them to fresh memory.
        is_loop = c.scan_layers or cache is not None
        return jax.lax.scan(layer, x_BTD, inputs, unroll=1 if is_loop else c.num_layers)


CACHE_AXES: LogicalAxes = ("layers", "batch", "kv_heads", None, None)
