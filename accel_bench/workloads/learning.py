"""A training as a workload: the model, its data, the step, the look at what was held out.

The step itself is the one that `model` times, with a schedule and a task of its own; what goes on
around it is in `accel_bench.train`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from accel_bench import detect, train
from accel_bench.data import feed, tasks
from accel_bench.measure import Measurement
from accel_bench.workloads.base import (
    PRODUCTS,
    CourseWorkload,
    UnsupportedCase,
    Workload,
    fetch,
    place,
    sharding,
)
from accel_bench.workloads.data_parallel import exchange_facts
from accel_bench.workloads.model import configured
from accel_bench.workloads.model_inputs import (
    Batch,
    abstract_tokens,
    initial_weights,
    static_mesh,
    with_data_axis,
)
from accel_bench.workloads.training import work_of
from accel_bench.workloads.training_params import Training
from models import costs, exchange, quantised, train_step
from models.sharding import batch_sharding
from models.sizes import ModelConfig


def schedule(params: Training) -> Callable[[Any], Any]:
    """The learning rate of each step, counted from 0: up to `learning_rate`, then down to 0."""
    return optax.warmup_cosine_decay_schedule(
        0.0, params.learning_rate, params.warmup, params.steps
    )


def build(params: Training, precision: str, mesh: Mesh) -> CourseWorkload:
    """A training; see `Training` for its parameters.

    Raises:
      UnsupportedCase: a precision the model cannot be computed in.
      RequestError: the data cannot be read.
    """
    mesh = with_data_axis(mesh) if params.explicit else mesh
    config = configured(params.config, precision, mesh, params.tokens)
    if params.explicit and config.loss_scaling:
        raise UnsupportedCase(f"{precision} scales its loss, which only exchange=auto does")
    task = tasks.load(params)
    looks = {
        name: configured(params.config, name, mesh, params.tokens, trains=False)
        for name in params.looked_at_in
    }
    setup = _Setup(params, precision, config, mesh, task, looks)
    exchanged = {}
    if params.explicit:
        replicas = mesh.shape["data"]
        exchanged["data_parallel"] = exchange_facts(config, params.explicit, replicas)
    return CourseWorkload(
        run=setup.run,
        work=work_of(Batch(params.step_rows, params.tokens), config, task.predicted),
        facts={
            "inputs": {"distribution": f"{params.task}, initial weights"},
            "attention": config.attention,
            "compute_dtype": config.dtype,
            "param_dtype": config.param_dtype,
            "params": costs.param_count(config),
            "optimizer": "adamw",
            "weight_bytes": costs.param_bytes(config),
            "state_bytes": costs.train_state_bytes(config),
            "unchecked": "a training is judged by what it has learnt",
            "data": task.facts,
            **exchanged,
        },
    )


@dataclass(frozen=True)
class _Setup:
    """All that a training is made of.

    Attributes:
      looks: precision -> the model in it, for those that what was learnt is looked at in.
    """

    params: Training
    precision: str
    config: ModelConfig
    mesh: Mesh
    task: tasks.Task
    looks: Mapping[str, ModelConfig]

    def run(
        self,
        seed: int,
        available_bytes: int | None,
        folder: Path | None,
        result: Measurement,
        on_stage: Callable[[str], None],
    ) -> None:
        """Trains; see `CourseWorkload.run`."""
        params = self.params
        training = train.Training(
            step=self.step(),
            create=self.create,
            inputs=partial(self.inputs, seed),
            evaluate=self.evaluator(self.config),
            feed=partial(self.feed, seed),
            about=self.about(seed),
            place=self.place(),
            steps=params.steps,
            steps_per_call=params.local_steps,
            eval_every=params.eval_every,
            checkpoint_every=params.checkpoint_every,
            tokens_per_step=params.step_rows * params.tokens,
        )
        state = train.train(training, seed, available_bytes, folder, result, on_stage)
        if self.looks:
            result.facts["also_in"] = {}
        for name, config in self.looks.items():
            on_stage(f"looking at what was learnt in {name}")
            loss, accuracy = self.evaluator(config)(state)
            result.facts["also_in"][name] = {
                "test_loss": loss if math.isfinite(loss) else None,  # fp16 may overflow
                "accuracy": accuracy,
                "weight_bytes": costs.param_bytes(config),
            }

    def step(self) -> Workload:
        """A call of the step: as many optimizer steps as are taken between two exchanges."""
        params, config, mesh = self.params, self.config, self.mesh
        update = train_step.Update(
            learning_rate=schedule(params), weight_decay=params.weight_decay, clip=params.clip
        )
        predicted = self.task.predicted
        options = params.explicit
        if options:
            fn = partial(
                exchange.train_step, config, options, mesh=mesh, predicted=predicted, **update
            )
            state = exchange.abstract_state(config, options, mesh)
        else:
            fn = partial(
                train_step.train_step,
                config,
                mesh=static_mesh(mesh),
                predicted=predicted,
                **update,
            )
            state = train_step.abstract_train_state(config, mesh)
        tokens = abstract_tokens(Batch(self._rows, params.tokens), mesh, extra=1)
        return Workload(
            fn, (state, tokens), init=lambda seed: ((), None), work={}, donate=(0,), holds=PRODUCTS
        )

    @property
    def _rows(self) -> int:
        """Sequences that a call of the step takes."""
        return self.params.step_rows * self.params.local_steps

    def create(self, seed: int) -> Any:
        """The state before the first step; the same on every mesh."""
        config, mesh, options = self.config, self.mesh, self.params.explicit
        if not options:
            return train_step.create_train_state(config, seed, mesh)
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        return exchange.create_state(config, options, weights, mesh)

    def inputs(self, seed: int, state: Any) -> tuple:
        """The first weights, the numbers of the sequences that come first and last, the data."""
        numbers, calls = np.arange(len(self.task.train)), self._calls(0)
        order = feed.batches(numbers, self._rows, seed, len(calls))
        data = np.frombuffer(bytes.fromhex(self.task.sha256), np.uint8)
        return state, order[0], order[len(calls) - 1], data

    def _calls(self, first_step: int) -> range:
        """The calls of the step that are left, by number."""
        local_steps = self.params.local_steps
        return range(first_step // local_steps, self.params.steps // local_steps)

    def feed(self, seed: int, first_step: int) -> feed.Feed:
        """Batches from this step on."""
        params, where = self.params, batch_sharding(self.mesh)
        replicas = self.mesh.shape.get("data", 1)

        def put(tokens: Any) -> Any:
            return place(feed.dealt(tokens, replicas, params.local_steps), where)

        return feed.Feed(self.task.train, self._rows, seed, self._calls(first_step), put)

    def evaluator(self, config: ModelConfig) -> Callable[[Any], tuple[float, float | None]]:
        """From a state to its loss on what was held out and, where there are classes, accuracy.

        Weights are rounded to what `config` stores.
        """
        mesh, by_row = self.mesh, sharding(self.mesh, ("data", "fsdp"))
        score = partial(
            train_step.scores,
            config,
            mesh=static_mesh(mesh),
            predicted=self.task.predicted,
        )

        @partial(jax.jit, out_shardings=sharding(mesh))
        def totals(weights: Any, tokens: jax.Array, counted_B: jax.Array) -> jax.Array:
            figures = score(quantised.stored(config, weights), tokens)
            return jnp.stack([jnp.sum(figure * counted_B) for figure in figures])

        batches = [
            (place(tokens, batch_sharding(mesh)), place(counted, by_row))
            for tokens, counted in tasks.padded_batches(self.task.test, self.params.batch)
        ]

        def evaluate(state: Any) -> tuple[float, float | None]:
            found = [fetch(totals(state.params, *batch)).astype(float) for batch in batches]
            loss, right = np.sum(found, axis=0) / len(self.task.test)
            return float(loss), float(right) if self.task.predicted == 1 else None

        return evaluate

    def about(self, seed: int) -> Mapping[str, Any]:
        """What the training is, as plain values, wherever it runs."""
        params = dataclasses.asdict(self.params)
        for name in (
            "file",
            "mesh",
            "processes",
            "link",
            "eval_every",
            "checkpoint_every",
            "also_in",
        ):
            del params[name]
        params["overrides"] = dict(params["overrides"])
        more = {"precision": self.precision, "seed": seed, "data": self.task.sha256}
        return {**params, **more, "config": dataclasses.asdict(self.config)}

    def place(self) -> dict[str, Any]:
        """Where it runs: what makes times of steps comparable."""
        device = self.mesh.devices.flat[0]
        return {
            "mesh": {} if self.mesh.size == 1 else dict(self.mesh.shape),
            "device_kind": (detect.cpu_model() if device.platform == "cpu" else device.device_kind),
            "processes": jax.process_count(),
        }
