"""Inputs are the same on every number of devices and mesh, and their checksum says so."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from accel_bench import checksum
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.base import fetch, make_mesh, place
from accel_bench.workloads.model_inputs import Batch, draw_tokens, initial_weights
from models import portable_random, quantised
from models.sharding import batch_sharding
from models.sizes import SIZES

MESHES = [{}, {"data": 8}, {"fsdp": 4, "model": 2}, {"data": 2, "fsdp": 2, "model": 2}]
MODEL = {"model": "tiny", "batch": 8, "length": 32}


def drawn(workload: str, params: dict, axes: dict, seed: int = 0):
    spec = WORKLOADS[workload]
    mesh = make_mesh(jax.devices(), axes) if axes else make_mesh(jax.devices()[:1], {})
    built = spec.builder()(spec.params(**params), "fp32", mesh)
    return built.drawn(built.init(seed)[0])


def bits(arguments):
    return [fetch(leaf).tobytes() for leaf in jax.tree.leaves(arguments)]


def test_parameters_and_tokens_are_the_same_bits_on_every_mesh():
    config = dataclasses.replace(SIZES["tiny"], activation="gelu", tied_embedding=True)
    size = Batch(8, 32)

    def made(axes, seed=0):
        mesh = make_mesh(jax.devices(), axes) if axes else make_mesh(jax.devices()[:1], {})
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        return weights, place(draw_tokens(size, config, seed), batch_sharding(mesh))

    found = [made(axes) for axes in MESHES]
    assert all(bits(args) == bits(found[0]) for args in found)
    assert len({checksum.of_inputs(args) for args in found}) == 1
    assert checksum.of_inputs(made({}, seed=1)) != checksum.of_inputs(found[0])


@pytest.mark.parametrize(
    ("phase", "expected"), [("forward", "wt"), ("prefill", "wt"), ("decode", "wtp")]
)
def test_the_cache_that_a_device_computed_is_no_input(phase, expected):
    spec = WORKLOADS["model"]
    built = spec.builder()(spec.params(phase=phase, **MODEL), "fp32", make_mesh(jax.devices(), {}))
    arguments = {"forward": "wt", "prefill": "wct", "decode": "wctp"}[phase]
    assert built.drawn(tuple(arguments)) == tuple(expected)


@pytest.mark.parametrize(
    ("workload", "params", "axes"),
    [
        ("matmul", {"shape": "64"}, {"data": 2, "fsdp": 2, "model": 2}),
        ("attention", {"model": "tiny", "batch": 4, "length": 16}, {"data": 4, "model": 2}),
    ],
)
def test_operands_are_the_same_bits_on_every_mesh(workload, params, axes):
    whole, divided = (drawn(workload, params, a) for a in ({}, axes))
    assert bits(whole) == bits(divided)
    assert checksum.of_inputs(whole) == checksum.of_inputs(divided)


def test_what_only_moves_memory_has_no_checksum():
    assert drawn("memory", {"op": "copy", "bytes": 1 << 20}, {}) == ()


def test_another_generator_and_another_last_bit_of_a_weight_are_found():
    def weights():
        return {"w": portable_random.normal(jax.random.key(0), (64, 64), 1.0)}

    first = weights()
    with jax.threefry_partitionable(not jax.config.values["jax_threefry_partitionable"]):
        other = weights()
    nearly = {"w": first["w"].at[3, 5].multiply(1 + 2.0**-22)}
    assert len({checksum.of_inputs((w,)) for w in (first, other, nearly)}) == 3
    assert checksum.of_inputs((first,)) == checksum.of_inputs((weights(),))


def test_of_weights_in_8_bits_the_signs_count():
    weights = portable_random.normal(jax.random.key(0), (64, 64), 1.0)
    whole = quantised.quantise(weights, (0,), "int8")
    nearly = dataclasses.replace(whole, scales=whole.scales * (1 + 2.0**-22))
    turned = dataclasses.replace(whole, codes=-whole.codes)
    first, near, other = (checksum.of_inputs(({"w": w},)) for w in (whole, nearly, turned))
    assert first == near != other


def test_every_bit_of_an_operand_and_of_a_result_counts():
    x = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    y = x.copy()
    y.view(np.uint32)[500] ^= 1
    assert checksum.of_inputs((x,)) != checksum.of_inputs((y,))
    assert checksum.of_result(jnp.asarray(x)) != checksum.of_result(jnp.asarray(y))
    assert checksum.of_result(x) != checksum.of_result(x.reshape(10, 100))
    assert checksum.of_result(x.astype(jnp.bfloat16)) == checksum.of_result(x.astype(jnp.bfloat16))


def test_of_a_large_array_a_sample_counts_wherever_it_lies(monkeypatch):
    monkeypatch.setattr(checksum, "WHOLE_BYTES", 1 << 10)
    x = np.arange(2048, dtype=np.float32).reshape(4, 512)
    mesh = make_mesh(jax.devices(), {"data": 8})
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "data"))
    divided = jax.device_put(x, where)
    assert checksum.of_result(x) == checksum.of_result(divided)
    assert checksum.of_result(x) == checksum.of_result(jnp.asarray(x))
    x[:, 8] += 1  # one in eight counts
    assert checksum.of_result(x) != checksum.of_result(divided)
