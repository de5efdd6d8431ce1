"""Loss scaling: what overflows costs a step and nothing else, what is tiny survives."""

import dataclasses
import functools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import loss_scaling
from models.costs import train_state_bytes
from models.loss_scaling import LossScaling, ScaledState
from models.sharding import batch_sharding, make_mesh
from models.sizes import SIZES
from models.train_step import abstract_train_state, create_train_state, loss_fn, train_step

TINY = SIZES["tiny"]
MIXED = dataclasses.replace(TINY, dtype="float16")
MESH = {"data": 2, "fsdp": 2, "model": 2}
# Compiled soon rather than well.
jit: Any = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def tokens() -> jax.Array:
    return jax.random.randint(jax.random.key(1), (4, 17), 0, TINY.vocab_size, jnp.int32)


@functools.cache
def step(config=MIXED):
    return jit(partial(train_step, config, learning_rate=3e-3))


@functools.cache
def first_state() -> ScaledState:
    state = create_train_state(MIXED, 0)
    assert isinstance(state, ScaledState)
    return state


def with_scale(scale: float, finite_steps: int = 0) -> ScaledState:
    return first_state()._replace(scaling=LossScaling(jnp.float32(scale), jnp.int32(finite_steps)))


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_an_overflow_skips_the_step_and_halves_the_scale():
    before = with_scale(2.0**24, finite_steps=7)  # 2^24 / 64 tokens is beyond fp16
    after, metrics = step()(before, tokens())
    assert_equal(after[:3], before[:3])
    assert after.scaling == (2.0**23, 0)
    assert np.isfinite(metrics["loss"])


def test_a_finite_step_is_taken_and_counted():
    after, _ = step()(first_state(), tokens())
    assert int(after.step) == int(after.opt_state[0].count) == 1
    assert after.scaling == (2.0**15, 1)


def test_the_scale_doubles_after_enough_finite_steps_in_a_row():
    last = loss_scaling.GROWTH_INTERVAL - 1
    after, _ = step()(with_scale(2.0**10, last), tokens())
    assert after.scaling == (2.0**11, 0)

    def scales(finite: list[bool]) -> np.ndarray:
        def body(scaling, finite):
            scaling = loss_scaling.adjusted(scaling, finite)
            return scaling, scaling.scale

        return np.asarray(jax.lax.scan(body, loss_scaling.start(), jnp.asarray(finite))[1])

    interrupted = scales([True] * 1999 + [False] + [True] * 2000)
    assert set(interrupted[:1999]) == {2.0**15}
    assert set(interrupted[1999:-1]) == {2.0**14}
    assert interrupted[-1] == 2.0**15
    assert scales([False] * 40)[-1] == loss_scaling.SMALLEST_SCALE
    assert scales([True] * 30_000)[-1] == loss_scaling.LARGEST_SCALE


def test_gradients_too_small_for_fp16_survive():
    """Of a loss with a weight of 2^-14, as a token has among as many."""

    def gradient(config, scale):
        def weighted(params):
            return loss_fn(config, params, tokens()) * 2.0**-14

        run = loss_scaling.value_and_grad(weighted, LossScaling(jnp.float32(scale), jnp.int32(0)))
        return np.concatenate(
            [np.ravel(x) for x in jax.tree.leaves(jit(run)(first_state().params)[1])]
        )

    exact = gradient(TINY, 1.0)
    bare, scaled = (np.linalg.norm(gradient(MIXED, s) - exact) for s in (1.0, 2.0**15))
    assert bare > 0.3 * np.linalg.norm(exact)
    assert scaled < 2e-3 * np.linalg.norm(exact)


def test_the_loss_falls_as_it_does_in_fp32():
    curves = []
    for config in (TINY, MIXED):
        state, losses = create_train_state(config, 0), []
        for _ in range(20):
            state, metrics = step(config)(state, tokens())
            losses.append(float(metrics["loss"]))
        curves.append(losses)
    np.testing.assert_allclose(curves[1], curves[0], rtol=5e-3)
    assert curves[1][-1] < 0.5 * curves[1][0]


@pytest.mark.parametrize("scale", [2.0**15, 2.0**24])
def test_a_mesh_takes_and_skips_the_same_steps(scale):
    mesh = make_mesh(MESH, jax.devices())
    state = create_train_state(MIXED, 0, mesh)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    scaling = jax.tree.map(jax.device_put, with_scale(scale).scaling, places.scaling)
    batch = jax.device_put(tokens(), batch_sharding(mesh))
    after, metrics = sharded_step()(state._replace(scaling=scaling), batch)
    expected, same = step()(with_scale(scale), tokens())
    assert after.scaling == expected.scaling
    assert int(after.step) == (scale == 2.0**15)
    assert float(metrics["loss"]) == pytest.approx(float(same["loss"]), rel=1e-4)
    jax.tree.map(
        lambda leaf, place: leaf.sharding.is_equivalent_to(place, leaf.ndim) or pytest.fail(),
        after, places,
    )  # fmt: skip


@functools.cache
def sharded_step():
    mesh = make_mesh(MESH, jax.devices())
    # The state is donated: what comes out must take its place.
    return jit(partial(train_step, MIXED, mesh=mesh, learning_rate=3e-3), donate_argnums=0)


def test_the_abstract_state_is_the_state():
    state, abstract = first_state(), abstract_train_state(MIXED)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(
        lambda x: (x.shape, x.dtype), abstract
    )
    assert sum(x.nbytes for x in jax.tree.leaves(state)) == train_state_bytes(MIXED)
    assert train_state_bytes(MIXED) == train_state_bytes(TINY) + 8


def test_only_fp16_beside_wider_weights_is_scaled():
    for dtype, stored in (("float32", "float32"), ("bfloat16", "float32"), ("float16", "float16")):
        config = dataclasses.replace(TINY, dtype=dtype, param_dtype=stored)
        assert not config.loss_scaling
        assert not isinstance(abstract_train_state(config), ScaledState)
