"""Dynamic loss scaling: training whose gradients pass through fp16 (arXiv 1710.03740, section 3.2).

fp16 holds nothing below 6e-8, where many gradients lie. The loss is multiplied by a scale before
its gradient is taken, and the gradient, in the dtype of the weights, divided by it afterwards. A
scale that is too large shows in a gradient that is not finite: that step is not taken, and the
scale halved. After so many finite steps in a row it is doubled again.

optax has no such thing; flax.training.dynamic_scale has, but waits a step more, knows no largest
scale (at which it would stay infinite) and leaves it to its caller to skip the step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

FIRST_SCALE = 2.0**15
SMALLEST_SCALE, LARGEST_SCALE = 1.0, 2.0**24
GROWTH_INTERVAL = 2000


class LossScaling(NamedTuple):
    """The scale, a power of two, so that scaling itself rounds nothing."""

    scale: Any  # fp32
    finite_steps: Any  # int32, in a row, since the scale last changed


class ScaledState(NamedTuple):
    """A `models.train_step.TrainState`, and the scaling of its loss."""

    step: Any  # int32, steps taken: one that was skipped is none
    params: Any
    opt_state: Any
    scaling: LossScaling


def start() -> LossScaling:
    """Before the first step."""
    return LossScaling(jnp.float32(FIRST_SCALE), jnp.int32(0))


def value_and_grad(loss_of: Callable[..., jax.Array], scaling: LossScaling) -> Callable[..., Any]:
    """As `jax.value_and_grad`: loss and gradient, taken of the scaled loss and scaled back."""

    def scaled(params, *args):
        loss = loss_of(params, *args)
        return loss * scaling.scale, loss

    def run(params, *args):
        (_, loss), grads = jax.value_and_grad(scaled, has_aux=True)(params, *args)
        return loss, jax.tree.map(lambda g: g * (1 / scaling.scale).astype(g.dtype), grads)

    return run


def is_finite(grads: Any) -> jax.Array:
    """Whether all numbers of a tree are, as one bool."""
    return jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)]).all()


def adjusted(scaling: LossScaling, finite: jax.Array) -> LossScaling:
    """The scaling after a step whose gradient was, or was not, finite."""
    steps = jnp.where(finite, scaling.finite_steps + 1, 0)
    grown = steps >= GROWTH_INTERVAL
    factor = jnp.where(finite, jnp.where(grown, 2.0, 1.0), 0.5)
    scale = jnp.clip(scaling.scale * factor, SMALLEST_SCALE, LARGEST_SCALE)
    return LossScaling(scale, jnp.where(grown, 0, steps))


def updated(state: ScaledState, grads: Any, apply: Callable[[Any, Any], Any]) -> ScaledState:
    """The state after a step; where the gradient is not finite all but the scaling is as it was.

    Args:
      state: before.
      grads: scaled back.
      apply: from state and gradient to step, params and opt_state after the optimizer's step.
    """
    finite = is_finite(grads)
    taken = apply(state, grads)
    step, params, opt_state = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old), tuple(taken[:3]), tuple(state[:3])
    )
    return ScaledState(step, params, opt_state, adjusted(state.scaling, finite))
