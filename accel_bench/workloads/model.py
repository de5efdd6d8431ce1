"""The Transformer: forward pass, train step, prefill and decode as workloads."""

from __future__ import annotations

import dataclasses

from jax.sharding import Mesh

from accel_bench.precision import lookup
from accel_bench.workloads import data_parallel, inference, training
from accel_bench.workloads.base import PRODUCTS, UnsupportedCase, Workload
from accel_bench.workloads.model_inputs import Batch
from accel_bench.workloads.params import Model
from models import costs
from models.inference import Sampling
from models.sizes import WEIGHT_DTYPES, ModelConfig

# Rounding of a product spreads through the layers; what the logits show is at most about this.
_DEPTH_FACTOR = 10
# In 8 bits only some of the products are rounded so coarsely, and each row and column has a scale.
_DEPTH_FACTOR_8_BITS = 3


def with_precision(config: ModelConfig, precision: str) -> ModelConfig:
    """The model computed and stored as a precision says.

    Raises:
      UnsupportedCase: a precision of 8 bits; see `with_scaled_weights`.
    """
    entry = lookup(precision)
    if not entry.compute.startswith(("float32", "bfloat16", "float16")):
        raise UnsupportedCase(
            f"{precision} needs scaled operands, which only products with the model's weights have,"
            " in phases forward, prefill and decode"
        )
    return dataclasses.replace(
        config, dtype=entry.compute, param_dtype=entry.storage, dot_precision=entry.dot
    )


def with_scaled_weights(config: ModelConfig, precision: str) -> ModelConfig:
    """The model with its layers' weights and their products in 8 bits, all else in bf16.

    Raises:
      UnsupportedCase: a precision of 8 bits that is not for weights.
    """
    entry = lookup(precision)
    if entry.storage not in WEIGHT_DTYPES:
        raise UnsupportedCase(f"{precision} has too few digits for weights: use fp8_e4m3 or int8")
    return dataclasses.replace(
        config, dtype="bfloat16", param_dtype="bfloat16", weight_dtype=entry.storage
    )


def configured(
    config: ModelConfig, precision: str, mesh: Mesh, length: int, trains: bool = True
) -> ModelConfig:
    """The model as it is to be computed here, with sequences of this length.

    Raises:
      UnsupportedCase: that cannot be done.
    """
    if lookup(precision).bits == 8 and not trains:
        config = with_scaled_weights(config, precision)
    else:
        config = with_precision(config, precision)
        if trains and config.param_dtype == "float16":
            raise UnsupportedCase(
                f"{precision} cannot train: AdamW's epsilon, 1e-8, is 0 in fp16; mixed_fp16 keeps "
                "fp32 weights and scales the loss"
            )
    if config.attention == "cudnn" and mesh.devices.flat[0].platform != "gpu":
        raise UnsupportedCase("cudnn attention runs on NVIDIA GPUs only")
    return dataclasses.replace(config, context=max(config.context, length))


def build(params: Model, precision: str, mesh: Mesh) -> Workload:
    """One phase of the model; see `accel_bench.workloads.params.Model` for its parameters.

    The mesh axes divide the model as `models.sharding` says. Tokens are uniformly random.

    Raises:
      UnsupportedCase: a precision the model cannot be computed in.
    """
    size = Batch(params.sequences(mesh.shape), params.length)
    trains = params.phase == "train_step"
    config = configured(params.config, precision, mesh, size.length, trains)
    if params.explicit:
        if config.loss_scaling:
            raise UnsupportedCase(f"{precision} scales its loss, which only exchange=auto does")
        step = data_parallel.build(size, config, params.explicit, mesh)
    elif params.phase == "decode":
        sampling = Sampling(params.sampling, params.temperature, params.top_k)
        step = inference.decode(size, config, mesh, sampling)
    else:
        phases = {
            "forward": inference.forward,
            "train_step": training.build,
            "prefill": inference.prefill,
        }
        step = phases[params.phase](size, config, mesh)
    return _described(step, config, precision)


def _described(workload: Workload, config: ModelConfig, precision: str) -> Workload:
    """The workload with what all phases have in common."""
    factor = _DEPTH_FACTOR_8_BITS if config.weight_dtype else _DEPTH_FACTOR
    scaled = {"weight_dtype": config.weight_dtype} if config.weight_dtype else {}
    return dataclasses.replace(
        workload,
        max_error=workload.max_error + factor * lookup(precision).max_error,
        holds=PRODUCTS,
        facts={
            "inputs": {"distribution": "uniform tokens, initial weights"},
            "attention": config.attention,
            "compute_dtype": config.dtype,
            "param_dtype": config.param_dtype,
            **scaled,
            "params": costs.param_count(config),
            **workload.facts,
        },
    )
