"""What a study of numerics computes with a tiny model, and the same in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from accel_bench.workloads.base import make_mesh
from accel_bench.workloads.model import with_precision
from accel_bench.workloads.model_inputs import Batch, draw_tokens, in_float64, initial_weights
from accel_bench.workloads.numerics_inputs import Operand, shaped
from accel_bench.workloads.numerics_ops import MODEL, Operation, on_host
from accel_bench.workloads.numerics_params import Numerics
from models import loss_scaling, train_step
from models.sizes import ModelConfig

_SEQUENCES = 2
_INITIAL_STD = 0.02


def _weights(config: ModelConfig, values: str, seed: int) -> Any:
    """Initial weights, drawn by the host's CPU in fp32, in a range of values and as stored."""
    cpu = jax.local_devices(backend="cpu")[0]
    with jax.default_device(cpu):
        drawn = initial_weights(MODEL, make_mesh([cpu], {}))(jax.random.key(seed))
    rng = np.random.default_rng(seed)

    def stored(leaf: jax.Array) -> np.ndarray:
        leaf_32 = np.array(leaf)
        if values == "normal" or np.all(leaf_32 == 1):  # the scale of a norm
            return leaf_32.astype(jnp.dtype(config.param_dtype))
        terms = max(leaf_32.shape[-2:])
        operand = Operand(leaf_32.shape, config.param_dtype, factors=2, terms=terms)
        unit = leaf_32 if values == "mixed" else leaf_32 / _INITIAL_STD
        return shaped(rng, unit, operand, values)

    return jax.tree.map(stored, drawn)


def _loss(config: ModelConfig, weights, tokens):
    return {"forward": train_step.loss_fn(config, weights, tokens)}


def _loss_and_gradient(config: ModelConfig, weights, tokens):
    loss, found = jax.value_and_grad(partial(train_step.loss_fn, config))(weights, tokens)
    return {"forward": loss, "gradient": found}


def _train_step(config: ModelConfig, weights, tokens):
    """The weights after AdamW's first step."""
    start = train_step.optimizer().init(weights)
    state: train_step.State = train_step.TrainState(jnp.zeros((), jnp.int32), weights, start)
    if config.loss_scaling:
        state = loss_scaling.ScaledState(*state, loss_scaling.start())
    return {"forward": train_step.train_step(config, state, tokens)[0].params}


def _scaled_gradient(config: ModelConfig, weights, tokens, scale):
    """The gradient of the loss times a scale."""

    def scaled(weights):
        return train_step.loss_fn(config, weights, tokens) * scale

    return {"gradient": jax.grad(scaled)(weights)}


OPS: dict[str, Callable[..., Mapping[str, Any]]] = {
    "loss": _loss,
    "gradient": _loss_and_gradient,
    "train_step": _train_step,
    "loss_scale": _scaled_gradient,
}


@functools.cache
def _exact(op: str) -> Callable[..., Any]:
    return on_host(partial(OPS[op], in_float64(MODEL)))


def operation(params: Numerics, precision: str) -> Operation:
    """One of `OPS` in a precision; raises `UnsupportedCase` for one without gradients."""
    config = with_precision(MODEL, precision)

    def drawn(seed: int) -> tuple:
        tokens = draw_tokens(Batch(_SEQUENCES, params.size), config, seed, extra=1)
        scale = (np.float32(1),) if params.op == "loss_scale" else ()
        return (_weights(config, params.range, seed), tokens, *scale)

    return Operation(partial(OPS[params.op], config), _exact(params.op), drawn)
