"""Dots, norms and the MLP as plain functions, with what each keeps for its backward pass.

`jax.checkpoint` here wraps elementwise work together with the dot that follows it. A dot's gradient
needs its input and not its output, so the dot itself is never repeated (the compiler sees no second
one); what is repeated are a few operations per element, in the fusion that feeds the gradient's
dot. The alternative is to keep every intermediate value in memory, which is slower on any device
whose memory is slower than its arithmetic. So this is not what `config.remat` calls recomputation.

Names of dimensions as in models/transformer.py; x stands for any leading ones.
"""

from functools import partial

import jax
import jax.numpy as jnp

from models.quantised import Scaled, scaled_dot
from models.sizes import ModelConfig


def dot(x_xM: jax.Array, w_MN: jax.Array | Scaled, config: ModelConfig) -> jax.Array:
    """Product with a weight, in the compute dtype and the chosen precision, or in 8 bits."""
    if isinstance(w_MN, Scaled):
        return scaled_dot(x_xM, w_MN, config)
    flat_NM = x_xM.reshape(-1, x_xM.shape[-1]).astype(config.dtype)
    out = jnp.matmul(
        flat_NM,
        w_MN.astype(config.dtype),
        precision=config.dot_precision,
        preferred_element_type=jnp.dtype(config.dtype),
    )
    return out.reshape(*x_xM.shape[:-1], -1)


def wide_einsum(spec: str, a: jax.Array, b: jax.Array, config: ModelConfig) -> jax.Array:
    """Product of operands in the compute dtype that is not rounded to it: fp32 (`wide_dtype`).

    The gradient's dots have both operands in the compute dtype too. By jax's own rule the fp32
    cotangent would make them fp32 products, which matrix units multiply several times slower.
    """
    narrow, wide = jnp.dtype(config.dtype), jnp.dtype(config.wide_dtype)
    product = partial(jnp.einsum, spec, precision=config.dot_precision)
    if narrow == wide:
        return product(a, b)

    @jax.custom_vjp
    def rule(a, b):
        return product(a, b, preferred_element_type=wide)

    def backward(operands, cotangent):
        a, b = operands
        cotangent = cotangent.astype(narrow)
        (to_a,) = jax.linear_transpose(lambda a: product(a, b), a)(cotangent)
        (to_b,) = jax.linear_transpose(lambda b: product(a, b), b)(cotangent)
        return to_a, to_b

    rule.defvjp(lambda a, b: (rule(a, b), (a, b)), backward)
    return rule(a, b)


def rms_norm(x_BTD: jax.Array, scale_D: jax.Array, config: ModelConfig) -> jax.Array:
    """arXiv 1910.07467, in fp32; the result is in the compute dtype."""
    x_BTD, scale_D = x_BTD.astype(config.wide_dtype), scale_D.astype(config.wide_dtype)
    mean_square_BT1 = jnp.mean(jnp.square(x_BTD), axis=-1, keepdims=True)
    root_BT1 = jax.lax.rsqrt(mean_square_BT1 + config.norm_epsilon)
    return (x_BTD * root_BT1 * scale_D).astype(config.dtype)


def norm_and_project(
    x_BTD: jax.Array, scale_D: jax.Array, weights: tuple[jax.Array, ...], config: ModelConfig
) -> tuple[jax.Array, ...]:
    """The normed input times each weight (D, N): a tuple of (B, T, N). Keeps x_BTD only."""

    @jax.checkpoint
    def project(x_BTD, scale_D, weights):
        h_BTD = rms_norm(x_BTD, scale_D, config)
        return tuple(dot(h_BTD, w_DN, config) for w_DN in weights)

    return project(x_BTD, scale_D, weights)


def activate_and_project(
    inputs: tuple[jax.Array, ...], down_FD: jax.Array, config: ModelConfig
) -> jax.Array:
    """The MLP's second half, (B, T, D), from (up,) for GELU or (up, gate) for SwiGLU.

    GELU with tanh, as GPT-2 has it (arXiv 1606.08415); SwiGLU is arXiv 2002.05202.
    """

    @jax.checkpoint
    def project(inputs, down_FD):
        if config.activation == "swiglu":
            up_BTF, gate_BTF = inputs
            return dot(jax.nn.silu(gate_BTF) * up_BTF, down_FD, config)
        (up_BTF,) = inputs
        return dot(jax.nn.gelu(up_BTF, approximate=True), down_FD, config)

    return project(inputs, down_FD)
