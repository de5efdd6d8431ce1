"""A train step as a workload, and what it is checked against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from accel_bench.workloads.base import Workload, fetch, place
from accel_bench.workloads.model_inputs import (
    Batch,
    abstract_tokens,
    draw_tokens,
    in_float64,
    initial_weights,
    on_host_in_float64,
    static_mesh,
)
from models import costs, train_step
from models.sharding import batch_sharding
from models.sizes import ModelConfig

# A whole step in float64, forward and backward over the batch, takes the host seconds up to here.
_CHECKED_STEP_FLOPS = 4e11
# Weights of each kind whose first update is looked at.
_SAMPLED = 4096


def work_of(size: Batch, config: ModelConfig, predicted: int | None = None) -> dict[str, float]:
    """What one step does: FLOPs by both conventions, and tokens."""
    flops = partial(costs.train_flops, config, size.batch, size.length, predicted=predicted)
    return {
        "flops": flops(),
        "flops_causal": flops(causal=True),
        "tokens": size.batch * size.length,
    }


def is_checked(size: Batch, config: ModelConfig) -> bool:
    """Whether the host can do the step in float64 in seconds."""
    return costs.train_flops(config, size.batch, size.length) <= _CHECKED_STEP_FLOPS


def step_facts(config: ModelConfig, checked: bool, error_of: str) -> dict[str, Any]:
    """What a record says of a step, however it is divided."""
    return {
        "optimizer": "adamw",
        "state_bytes": costs.train_state_bytes(config),
        "error_of": error_of,
        **({} if checked else {"unchecked": "the step is too long for a float64 reference"}),
    }


def build(size: Batch, config: ModelConfig, mesh: Mesh) -> Workload:
    """A step of AdamW, divided over the mesh as the compiler sees fit; always the same tokens."""
    checked = is_checked(size, config)

    def init(seed: int) -> tuple[tuple, Any]:
        tokens = draw_tokens(size, config, seed, extra=1)
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        expected = FirstStep.of(config, weights, tokens if checked else None)
        state = train_step.state_with(config, weights, mesh)
        return (state, place(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(train_step.train_step, config, mesh=static_mesh(mesh)),
        inputs=(
            train_step.abstract_train_state(config, mesh),
            abstract_tokens(size, mesh, extra=1),
        ),
        init=init,
        work=work_of(size, config),
        donate=(0,),
        feed=lambda args, out: (out[0], args[1]),
        falls=lambda out: float(fetch(out[1]["loss"])),
        error=lambda expected, out: expected.error(out[0], out[1]["loss"]),
        facts={
            "weight_bytes": costs.param_bytes(config),
            **step_facts(config, checked, "gradient"),
        },
    )


@dataclass(frozen=True)
class FirstStep:
    """What the first step must come to.

    Attributes:
      loss: before it, in float64; None where that was too long to compute.
      gradients: its gradients, in float64; None where they are not, or not to be looked at.
      before: the first weights of each kind before it.
      steps: how many steps of the optimizer it is; of several, no gradient can be told.
    """

    loss: float | None
    gradients: list[np.ndarray] | None
    before: list[np.ndarray]
    steps: int = 1

    @classmethod
    def of(
        cls, config: ModelConfig, weights: Any, tokens: np.ndarray | None, steps: int = 1
    ) -> FirstStep:
        """By the host's CPU in float64; without tokens only the weights are kept."""
        before = [_sampled(leaf) for leaf in _leaves(weights)]
        if tokens is None:
            return cls(None, None, before, steps)
        run = jax.value_and_grad(partial(train_step.loss_fn, in_float64(config)))
        loss, found = on_host_in_float64(run, weights, tokens)
        return cls(float(loss), _leaves(found) if steps == 1 else None, before, steps)

    def error(self, state: Any, loss: jax.Array) -> float | None:
        """The larger relative error of loss and gradient; infinite where no weight moved."""
        if not _moved_as_adamw_does(self.before, state.params, self.steps):
            return float("inf")
        if self.loss is None:
            return None
        of_loss = abs(float(fetch(loss)) / self.loss - 1)
        if self.gradients is None:
            return of_loss
        # After the first step the first moment is (1 - b1) times the gradient.
        moments = optax.tree.get(state.opt_state, "mu")
        found = [fetch(x).astype(np.float32) / (1 - train_step.ADAM_B1) for x in _leaves(moments)]
        pairs = list(zip(found, self.gradients, strict=True))
        differing = sum(np.sum((f - g) ** 2) for f, g in pairs)
        whole = sum(np.sum(g**2) for g in self.gradients)
        return max(of_loss, float(np.sqrt(differing / whole)))


def _sampled(leaf: jax.Array) -> np.ndarray:
    """The first weights of an array, in fp32."""
    return fetch(leaf.ravel()[:_SAMPLED]).astype(np.float32)


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree)


def _moved_as_adamw_does(before: list[np.ndarray], params: Any, steps: int) -> bool:
    """Whether weights moved by at most the learning rate a step, and most of them by about it.

    AdamW's first step is the learning rate times the sign of the gradient, and a little decay. A
    weight whose format is too coarse for that, or that had no gradient, may stay.
    """
    rate = train_step.LEARNING_RATE * steps
    moved = []
    for old, leaf in zip(before, _leaves(params), strict=True):
        new = _sampled(leaf)
        spacing = np.abs(old) * float(jnp.finfo(leaf.dtype).eps)
        distance = np.abs(new - old)
        if np.any(distance > 1.5 * rate * (1 + np.abs(old)) + spacing):
            return False
        moved.append(np.mean(distance))
    return max(moved) > 0.1 * rate
