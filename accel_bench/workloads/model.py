"""The Transformer: forward pass, train step, prefill and decode as workloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.precision import lookup
from accel_bench.workloads.base import UnsupportedCase, Workload, relative_error, sharding
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
    config = with_precision(params.config, precision)
    if config.attention == "cudnn" and mesh.devices.flat[0].platform != "gpu":
        raise UnsupportedCase("cudnn attention runs on NVIDIA GPUs only")
    config = dataclasses.replace(config, context=max(config.context, params.length))
    phases = {
        "forward": _forward,
        "train_step": _train_step,
        "prefill": _prefill,
        "decode": _decode,
    }
    workload = phases[params.phase](params, config, mesh)
    return dataclasses.replace(
        workload,
        max_error=_DEPTH_FACTOR * lookup(precision).max_error,
        holds=(r"\bdot\(", r"\bconvolution\(", r"custom-call", r"__triton", r"__ynn"),
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


def _tokens(params: Model, config: ModelConfig, extra: int = 0) -> Callable[[int], jax.Array]:
    shape = (params.batch, params.length + extra)
    return lambda seed: jax.random.randint(
        jax.random.fold_in(jax.random.key(seed), 1), shape, 0, config.vocab_size, jnp.int32
    )


def _abstract(make: Callable[..., Any], place: Any) -> jax.ShapeDtypeStruct:
    shape = jax.eval_shape(make, 0)
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=place)


def _reference_logits(config: ModelConfig, tokens: Callable[[int], jax.Array], seed: int) -> Any:
    """float64 logits (T, V) of the first sequence, by the host's CPU; None for a large model."""
    if costs.param_count(config) > _CHECKED_PARAMS:
        return None
    wide = dataclasses.replace(
        config, dtype="float64", param_dtype="float64", attention="einsum", dot_precision="highest"
    )
    # The initial weights are drawn in fp32 and rounded to the stored type in every precision.
    drawn = dataclasses.replace(config, param_dtype="float32")
    weights = jax.jit(partial(train_step.init_params, drawn))(jax.random.key(seed))
    first = np.asarray(tokens(seed)[:1])
    weights = jax.tree.map(np.asarray, weights)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        weights = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), weights)
        logits = jax.jit(partial(train_step.forward, wide))(weights, first)
        return np.asarray(logits[0])


def _logit_error(expected: np.ndarray | None, logits: jax.Array) -> float | None:
    if expected is None:
        return None
    return relative_error(np.asarray(logits.astype(jnp.float32)), expected)


def _unchecked(config: ModelConfig) -> dict[str, str]:
    if costs.param_count(config) <= _CHECKED_PARAMS:
        return {}
    return {"unchecked": "the model is too large for a float64 reference on the host"}


def _forward(params: Model, config: ModelConfig, mesh: Mesh) -> Workload:
    tokens = _tokens(params, config)
    place = batch_sharding(mesh)
    state = train_step.abstract_train_state(config, mesh)

    def init(seed: int) -> tuple:
        make = partial(train_step.init_params, config)
        weights = jax.jit(make, out_shardings=train_step.param_shardings(config, mesh))
        return weights(jax.random.key(seed)), jax.device_put(tokens(seed), place)

    return Workload(
        fn=partial(train_step.forward, config, mesh=_static_mesh(mesh)),
        inputs=(state.params, _abstract(tokens, place)),
        init=init,
        work={
            "flops": costs.forward_flops(config, params.batch, params.length),
            "flops_causal": costs.forward_flops(config, params.batch, params.length, causal=True),
            "tokens": params.batch * params.length,
        },
        reference=partial(_reference_logits, config, tokens),
        error=lambda expected, logits: _logit_error(expected, logits[0]),
        facts=_unchecked(config),
    )


def _train_step(params: Model, config: ModelConfig, mesh: Mesh) -> Workload:
    tokens = _tokens(params, config, extra=1)
    place = batch_sharding(mesh)
    static = _static_mesh(mesh)

    def init(seed: int) -> tuple:
        state = train_step.create_train_state(config, seed, mesh)
        return state, jax.device_put(tokens(seed), place)

    def reference(seed: int) -> tuple[float, float] | None:
        """Loss of the first sequence: in float64, and as the step computes it."""
        logits = _reference_logits(config, lambda s: tokens(s)[:, :-1], seed)
        if logits is None:
            return None
        first = np.asarray(tokens(seed)[:1])
        top = logits.max(axis=-1)
        log_sum = np.log(np.exp(logits - top[:, None]).sum(axis=-1)) + top
        expected = np.mean(log_sum - logits[np.arange(len(logits)), first[0, 1:]])
        weights = jax.jit(partial(train_step.init_params, config))(jax.random.key(seed))
        loss = jax.jit(partial(train_step.loss_fn, config))(weights, first)
        return float(expected), float(loss)

    def error(expected: tuple[float, float] | None, out: Any) -> float | None:
        if expected is None:
            return None
        exact, computed = expected
        # The step's own loss is the mean over the batch: near the first sequence's at the start.
        whole = abs(float(out[1]["loss"]) / exact - 1)
        return whole if whole > 0.1 else abs(computed / exact - 1)

    def feed(args: tuple, out: Any) -> tuple:
        return out[0], args[1]

    return Workload(
        fn=partial(train_step.train_step, config, mesh=static),
        inputs=(train_step.abstract_train_state(config, mesh), _abstract(tokens, place)),
        init=init,
        work={
            "flops": costs.train_flops(config, params.batch, params.length),
            "flops_causal": costs.train_flops(config, params.batch, params.length, causal=True),
            "tokens": params.batch * params.length,
        },
        donate=(0,),
        feed=feed,
        reference=reference,
        error=error,
        facts={
            "optimizer": "adamw",
            "state_bytes": costs.train_state_bytes(config),
            "error_of": "loss of one sequence",
            **_unchecked(config),
        },
    )


def _prefill(params: Model, config: ModelConfig, mesh: Mesh) -> Workload:
    tokens = _tokens(params, config)
    place = batch_sharding(mesh)
    state = train_step.abstract_train_state(config, mesh)

    def init(seed: int) -> tuple:
        make = partial(train_step.init_params, config)
        weights = jax.jit(make, out_shardings=train_step.param_shardings(config, mesh))
        cache = train_step.init_cache(config, params.batch, params.length, mesh)
        return weights(jax.random.key(seed)), cache, jax.device_put(tokens(seed), place)

    return Workload(
        fn=partial(train_step.prefill, config, mesh=_static_mesh(mesh)),
        inputs=(
            state.params,
            train_step.abstract_cache(config, params.batch, params.length, mesh),
            _abstract(tokens, place),
        ),
        init=init,
        work={
            "flops": costs.prefill_flops(config, params.batch, params.length),
            "tokens": params.batch * params.length,
        },
        donate=(1,),
        feed=lambda args, out: (args[0], out[1], args[2]),
        reference=partial(_reference_logits, config, tokens),
        error=lambda expected, out: _logit_error(
            None if expected is None else expected[-1], out[0][0]
        ),
        facts={
            "cache_bytes": costs.kv_cache_bytes(config, params.batch, params.length),
            **_unchecked(config),
        },
    )


def _decode(params: Model, config: ModelConfig, mesh: Mesh) -> Workload:
    """One greedy token per sequence, with a cache of `length` positions that is full but for it."""
    tokens = _tokens(params, config)
    place = sharding(mesh, ("data", "fsdp"))
    whole = sharding(mesh)
    static = _static_mesh(mesh)
    state = train_step.abstract_train_state(config, mesh)

    def decode(weights, cache, tokens_B, position):
        logits, cache = train_step.decode_step(
            config, weights, cache, tokens_B, position, mesh=static
        )
        return jnp.argmax(logits, axis=-1).astype(jnp.int32), cache, logits

    def init(seed: int) -> tuple:
        make = partial(train_step.init_params, config)
        weights = jax.jit(make, out_shardings=train_step.param_shardings(config, mesh))(
            jax.random.key(seed)
        )
        cache = train_step.init_cache(config, params.batch, params.length, mesh)
        prompt = jax.device_put(tokens(seed), batch_sharding(mesh))
        read = jax.jit(partial(train_step.prefill, config, mesh=static), donate_argnums=1)
        _, cache = read(weights, cache, prompt)
        last = jax.device_put(prompt[:, -1], place)
        return weights, cache, last, jax.device_put(np.int32(params.length - 1), whole)

    return Workload(
        fn=decode,
        inputs=(
            state.params,
            train_step.abstract_cache(config, params.batch, params.length, mesh),
            jax.ShapeDtypeStruct((params.batch,), jnp.int32, sharding=place),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=whole),
        ),
        init=init,
        work={
            "flops": costs.decode_flops(config, params.batch, params.length),
            "bytes": costs.decode_bytes(config, params.batch, params.length),
            "tokens": params.batch,
        },
        donate=(1,),
        # The token chosen is read next, at the last place of the cache again.
        feed=lambda args, out: (args[0], out[1], out[0], args[3]),
        reference=partial(_reference_logits, config, tokens),
        error=lambda expected, out: _logit_error(
            None if expected is None else expected[-1], out[2][0]
        ),
        facts={
            "cache_bytes": costs.kv_cache_bytes(config, params.batch, params.length),
            **_unchecked(config),
        },
    )
