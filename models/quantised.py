"""Weights in 8 bits with scales, and products of activations with them; for inference.

Each output channel of a weight has a scale, found once; each row of the activations (a token) has
one, found anew in every product. With c codes and s scales

    x_NM ~ s_N1 c_NM,   w_MN ~ c_MN s_1N,   x w ~ s_N1 (c_NM c_MN) s_1N

so that the sum runs over products of codes alone: exact in int32 for int8, in fp32 for fp8. The
largest magnitude of a row or channel becomes the largest code, 127 or 448. (LLM.int8(), arXiv
2208.07339, section 2, calls it vector-wise.) Only products with the layers' weights are taken so.

Names of dimensions as in models/transformer.py.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from models.sizes import ModelConfig

# Dimensions of the stacked weights that a product sums over; the others are layers and channels.
CONTRACTED = {
    "qkv_DKCQ": (1,),
    "out_KGQD": (1, 2, 3),
    "up_DF": (1,),
    "gate_DF": (1,),
    "down_FD": (1,),
}
LARGEST_CODE = {"int8": 127.0, "float8_e4m3fn": 448.0}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Scaled:
    """An array as codes times scales, which are 1 long where a product sums. Or both's shardings.

    It stands where a weight stands in the model, and is asked for no more than these.
    """

    codes: Any
    scales: Any  # fp32

    @property
    def shape(self) -> tuple[int, ...]:
        return self.codes.shape

    def __getitem__(self, index: Any) -> "Scaled":
        assert index is Ellipsis
        return self

    def reshape(self, *shape: int) -> "Scaled":
        """As a matrix, (summed over, output channels)."""
        return Scaled(self.codes.reshape(*shape), self.scales.reshape(1, -1))


def is_scaled(node: Any) -> bool:
    """Whether this is an array of 8 bits with scales: a leaf, to functions of trees."""
    return isinstance(node, Scaled)


def quantise(x: jax.Array, contracted: tuple[int, ...], dtype: str) -> Scaled:
    """The nearest codes; the error of a number is half a step of its scale (int8), or 2^-4 of it.

    Args:
      x: any floating type.
      contracted: dimensions that share a scale.
      dtype: a key of `LARGEST_CODE`.
    """
    x = x.astype(jnp.float32)
    largest = jnp.max(jnp.abs(x), axis=contracted, keepdims=True)
    scales = jnp.where(largest > 0, largest / LARGEST_CODE[dtype], 1.0)
    codes = x / scales
    if dtype == "int8":
        codes = jnp.rint(codes)
    return Scaled(codes.astype(dtype), scales)


def scaled_dot(x_xM: jax.Array, w_MN: Scaled, config: ModelConfig) -> jax.Array:
    """Product with a weight in its type of 8 bits; the result is in the compute dtype."""
    dtype = w_MN.codes.dtype
    x_NM = quantise(x_xM.reshape(-1, x_xM.shape[-1]), (1,), dtype.name)
    sums = jnp.int32 if dtype == jnp.int8 else jnp.float32
    sum_NN = jnp.matmul(x_NM.codes, w_MN.codes, preferred_element_type=sums)
    out_NN = sum_NN.astype(jnp.float32) * x_NM.scales * w_MN.scales
    return out_NN.astype(config.dtype).reshape(*x_xM.shape[:-1], -1)


def stored(config: ModelConfig, params: dict[str, Any]) -> dict[str, Any]:
    """Parameters as `config` stores them, from those of the same model as trained.

    With `config.weight_dtype` the layers' weights become codes with scales; all others are rounded
    to `config.param_dtype`.
    """
    blocks = params["blocks"]
    if config.weight_dtype is not None:
        blocks = {
            name: quantise(leaf, CONTRACTED[name], config.weight_dtype)
            if name in CONTRACTED
            else leaf
            for name, leaf in blocks.items()
        }
    return jax.tree.map(
        lambda leaf: leaf if is_scaled(leaf) else leaf.astype(config.param_dtype),
        {**params, "blocks": blocks},
        is_leaf=is_scaled,
    )


def scaled_shardings(plain: dict[str, Any]) -> dict[str, Any]:
    """Shardings of quantised parameters, from those of plain ones: codes alike, scales where long.

    Scales lie with the channels that they belong to.
    """

    def both(name: str, leaf: NamedSharding) -> Scaled:
        spec = (None if i in CONTRACTED[name] else axis for i, axis in enumerate(leaf.spec))
        return Scaled(leaf, NamedSharding(leaf.mesh, PartitionSpec(*spec)))

    blocks = {
        name: both(name, leaf) if name in CONTRACTED else leaf
        for name, leaf in plain["blocks"].items()
    }
    return {**plain, "blocks": blocks}
