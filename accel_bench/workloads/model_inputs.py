"""What all phases of the model start from: weights, tokens, and their float64 reference."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from accel_bench.workloads.base import fetch
from models import train_step
from models.sharding import batch_sharding
from models.sizes import ModelConfig


class Batch(NamedTuple):
    """Sequences over all devices, and tokens in each."""

    batch: int
    length: int


def static_mesh(mesh: Mesh) -> Mesh | None:
    """The mesh as the model's functions take it: none for one device."""
    return mesh if mesh.size > 1 else None


def with_data_axis(mesh: Mesh) -> Mesh:
    """The mesh itself; of one device without an axis to speak of, one along `data`."""
    return mesh if "data" in mesh.axis_names else Mesh(mesh.devices.reshape(1), ("data",))


def draw_tokens(size: Batch, config: ModelConfig, seed: int, extra: int = 0) -> np.ndarray:
    """Uniformly random tokens (batch, length + extra), int32."""
    shape = (size.batch, size.length + extra)
    return np.random.default_rng(seed).integers(0, config.vocab_size, shape, dtype=np.int32)


def abstract_tokens(size: Batch, mesh: Mesh, extra: int = 0) -> jax.ShapeDtypeStruct:
    """What `draw_tokens` draws, with its sharding."""
    shape = (size.batch, size.length + extra)
    return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=batch_sharding(mesh))


@functools.cache
def initial_weights(config: ModelConfig, mesh: Mesh) -> Callable[[Any], Any]:
    """A function from a key to initial weights; compiled once for all phases of a model."""
    shardings = train_step.param_shardings(config, mesh)
    return jax.jit(partial(train_step.init_params, config), out_shardings=shardings)


def in_float64(config: ModelConfig) -> ModelConfig:
    """The same model in float64 throughout."""
    return dataclasses.replace(
        config,
        dtype="float64",
        param_dtype="float64",
        weight_dtype=None,
        attention="einsum",
        dot_precision="highest",
    )


def on_host_in_float64(run: Callable[..., Any], weights: Any, tokens: np.ndarray) -> Any:
    """What a function of weights and tokens gives on the host's CPU in float64, as NumPy arrays."""
    weights = jax.tree.map(fetch, weights)
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        weights = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), weights)
        return jax.tree.map(np.asarray, jax.jit(run)(weights, tokens))
