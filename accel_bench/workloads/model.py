"""The Transformer: forward pass, train step, prefill and decode as workloads."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from accel_bench.precision import lookup
from accel_bench.workloads.base import PRODUCTS, UnsupportedCase, Workload, relative_error, sharding
from accel_bench.workloads.params import Model
from models import costs, train_step
from models.sharding import batch_sharding
from models.sizes import ModelConfig

# A float64 forward pass of one sequence on the host takes seconds up to about here.
_CHECKED_PARAMS = 3e8
# And a whole step, forward and backward over the batch, up to about here.
_CHECKED_STEP_FLOPS = 4e11
# Weights of each kind whose first update is looked at.
_SAMPLED = 4096
# Rounding of a product spreads through the layers; what the logits show is at most about this.
_DEPTH_FACTOR = 10


class Batch(NamedTuple):
    """Sequences over all devices, and tokens in each."""

    batch: int
    length: int


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
    phases = {
        "forward": _forward,
        "train_step": _train_step,
        "prefill": _prefill,
        "decode": _decode,
    }
    workload = phases[params.phase](size, config, mesh)
    return dataclasses.replace(
        workload,
        max_error=_DEPTH_FACTOR * lookup(precision).max_error,
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


def _static_mesh(mesh: Mesh) -> Mesh | None:
    """The mesh as the model's functions take it: none for one device."""
    return mesh if mesh.size > 1 else None


def _tokens(size: Batch, config: ModelConfig, seed: int, extra: int = 0) -> np.ndarray:
    shape = (size.batch, size.length + extra)
    return np.random.default_rng(seed).integers(0, config.vocab_size, shape, dtype=np.int32)


def _abstract_tokens(size: Batch, mesh: Mesh, extra: int = 0) -> jax.ShapeDtypeStruct:
    shape = (size.batch, size.length + extra)
    return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch_sharding(mesh))


@functools.cache
def _weights(config: ModelConfig, mesh: Mesh) -> Callable[[Any], Any]:
    """A function from a key to initial weights; compiled once for all phases of a model."""
    shardings = train_step.param_shardings(config, mesh)
    return jax.jit(partial(train_step.init_params, config), out_shardings=shardings)


def _wide(config: ModelConfig) -> ModelConfig:
    """The same model in float64 throughout."""
    return dataclasses.replace(
        config, dtype="float64", param_dtype="float64", attention="einsum", dot_precision="highest"
    )


def _on_host_in_float64(run: Callable[..., Any], weights: Any, tokens: np.ndarray) -> Any:
    """What a function of weights and tokens gives on the host's CPU in float64, as NumPy arrays."""
    weights = jax.tree.map(np.asarray, weights)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        weights = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), weights)
        return jax.tree.map(np.asarray, jax.jit(run)(weights, tokens))


def _reference_logits(config: ModelConfig, weights: Any, tokens_T: np.ndarray) -> Any:
    """Logits (T, V) of one sequence by the host's CPU, in float64; None for a large model."""
    if costs.param_count(config) > _CHECKED_PARAMS:
        return None
    run = partial(train_step.forward, _wide(config))
    return _on_host_in_float64(run, weights, tokens_T[None])[0]


def _logit_error(expected: np.ndarray | None, logits: jax.Array) -> float | None:
    if expected is None:
        return None
    return relative_error(np.asarray(logits.astype(jnp.float32)), expected)


def _unchecked(config: ModelConfig) -> dict[str, str]:
    if costs.param_count(config) <= _CHECKED_PARAMS:
        return {}
    return {"unchecked": "the model is too large for a float64 reference on the host"}


def _forward(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    def init(seed: int) -> tuple[tuple, Any]:
        weights = _weights(config, mesh)(jax.random.key(seed))
        tokens = _tokens(size, config, seed)
        expected = _reference_logits(config, weights, tokens[0])
        return (weights, jax.device_put(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(train_step.forward, config, mesh=_static_mesh(mesh)),
        inputs=(
            train_step.abstract_train_state(config, mesh).params,
            _abstract_tokens(size, mesh),
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


def _state_of(config: ModelConfig, weights: Any, mesh: Mesh) -> train_step.TrainState:
    """The train state before the first step, with these weights."""
    places = train_step.state_shardings(config, mesh)
    start = jax.jit(train_step.optimizer().init, out_shardings=places.opt_state)
    return train_step.TrainState(jax.device_put(np.int32(0), places.step), weights, start(weights))


def _train_step(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    work = {
        "flops": costs.train_flops(config, size.batch, size.length),
        "flops_causal": costs.train_flops(config, size.batch, size.length, causal=True),
        "tokens": size.batch * size.length,
    }
    checked = work["flops"] <= _CHECKED_STEP_FLOPS

    def init(seed: int) -> tuple[tuple, Any]:
        tokens = _tokens(size, config, seed, extra=1)
        weights = _weights(config, mesh)(jax.random.key(seed))
        expected = _reference_step(config, weights, tokens) if checked else None
        sample = [np.asarray(leaf.ravel()[:_SAMPLED], np.float32) for leaf in _leaves(weights)]
        state = _state_of(config, weights, mesh)
        return (state, jax.device_put(tokens, batch_sharding(mesh))), (expected, sample)

    def error(expected: tuple, out: Any) -> float | None:
        state, metrics = out
        reference, before = expected
        if not _moved_as_adamw_does(before, state.params):
            return float("inf")
        if reference is None:
            return None
        loss, gradients = reference
        # After the first step the first moment is (1 - b1) times the gradient.
        moments = optax.tree.get(state.opt_state, "mu")
        found = [np.asarray(x, np.float32) / (1 - train_step.ADAM_B1) for x in _leaves(moments)]
        differing = sum(np.sum((f - g) ** 2) for f, g in zip(found, gradients, strict=True))
        whole = sum(np.sum(g**2) for g in gradients)
        return max(abs(float(metrics["loss"]) / loss - 1), float(np.sqrt(differing / whole)))

    return Workload(
        fn=partial(train_step.train_step, config, mesh=_static_mesh(mesh)),
        inputs=(
            train_step.abstract_train_state(config, mesh),
            _abstract_tokens(size, mesh, extra=1),
        ),
        init=init,
        work=work,
        donate=(0,),
        feed=lambda args, out: (out[0], args[1]),
        falls=lambda out: float(out[1]["loss"]),
        error=error,
        facts={
            "optimizer": "adamw",
            "state_bytes": costs.train_state_bytes(config),
            "error_of": "gradient",
            **({} if checked else {"unchecked": "the step is too long for a float64 reference"}),
        },
    )


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree)


def _reference_step(
    config: ModelConfig, weights: Any, tokens: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    """Loss and gradient of a step, by the host's CPU in float64."""
    run = jax.value_and_grad(partial(train_step.loss_fn, _wide(config)))
    loss, gradients = _on_host_in_float64(run, weights, tokens)
    return float(loss), _leaves(gradients)


def _moved_as_adamw_does(before: list[np.ndarray], params: Any) -> bool:
    """Whether weights moved by at most the learning rate, and most of them by about it.

    AdamW's first step is the learning rate times the sign of the gradient, and a little decay. A
    weight whose format is too coarse for that, or that had no gradient, may stay.
    """
    rate = train_step.LEARNING_RATE
    moved = []
    for old, leaf in zip(before, _leaves(params), strict=True):
        new = np.asarray(leaf.ravel()[:_SAMPLED], np.float32)
        spacing = np.abs(old) * float(jnp.finfo(leaf.dtype).eps)
        distance = np.abs(new - old)
        if np.any(distance > 1.5 * rate * (1 + np.abs(old)) + spacing):
            return False
        moved.append(np.mean(distance))
    return max(moved) > 0.1 * rate


def _prefill(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    def init(seed: int) -> tuple[tuple, Any]:
        weights = _weights(config, mesh)(jax.random.key(seed))
        tokens = _tokens(size, config, seed)
        expected = _reference_logits(config, weights, tokens[0])
        cache = train_step.init_cache(config, size.batch, size.length, mesh)
        return (weights, cache, jax.device_put(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(train_step.prefill, config, mesh=_static_mesh(mesh)),
        inputs=(
            train_step.abstract_train_state(config, mesh).params,
            train_step.abstract_cache(config, size.batch, size.length, mesh),
            _abstract_tokens(size, mesh),
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
    place, whole = sharding(mesh, ("data", "fsdp")), sharding(mesh)
    static = _static_mesh(mesh)

    def decode(weights, cache, tokens_B, position):
        logits, cache = train_step.decode_step(
            config, weights, cache, tokens_B, position, mesh=static
        )
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), cache, logits

    def init(seed: int) -> tuple[tuple, Any]:
        weights = _weights(config, mesh)(jax.random.key(seed))
        tokens = _tokens(size, config, seed)
        expected = _reference_logits(config, weights, tokens[0])
        cache = train_step.init_cache(config, size.batch, size.length, mesh)
        read = jax.jit(partial(train_step.prefill, config, mesh=static), donate_argnums=1)
        _, cache = read(weights, cache, jax.device_put(tokens, batch_sharding(mesh)))
        last = jax.device_put(tokens[:, -1], place)
        return (weights, cache, last, jax.device_put(np.int32(size.length - 1), whole)), expected

    return Workload(
        fn=decode,
        inputs=(
            train_step.abstract_train_state(config, mesh).params,
            train_step.abstract_cache(config, size.batch, size.length, mesh),
            jax.ShapeDtypeStruct((size.batch,), jnp.int32, sharding=place),
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
