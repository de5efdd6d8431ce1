"""A train step whose exchange of gradients is a choice, and where its time goes.

Beside the step as a whole its parts are timed: what each replica computes, its waiting until all
have done so, the exchange, the update; and the same step without the exchange, in which replicas
learn apart. The difference to that one is what communication costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from accel_bench import agree
from accel_bench.workloads.base import Workload, fetch, place
from accel_bench.workloads.model_inputs import (
    Batch,
    abstract_tokens,
    draw_tokens,
    initial_weights,
    with_data_axis,
)
from accel_bench.workloads.training import FirstStep, is_checked, step_facts, work_of
from models import exchange
from models.exchange_options import Exchange, wire_bytes
from models.sharding import batch_sharding
from models.sizes import ModelConfig

# Relative error of a gradient that was encoded twice: half a step of 2^-8, and of 1 / 127 of the
# largest value of a block, which is some ten times a usual one.
_FORMAT_ERROR = {"fp32": 0.0, "bf16": 2 * 2**-9, "int8": 0.1}


def build(size: Batch, config: ModelConfig, options: Exchange, mesh: Mesh) -> Workload:
    """A train step over the mesh axis `data`; `size` is that of a micro-batch over all replicas.

    With local steps a call takes several optimizer steps, and figures are of one of them.
    """
    mesh = with_data_axis(mesh)
    replicas, calls_steps = mesh.shape["data"], options.local_steps
    whole = Batch(size.batch * options.accumulate * calls_steps, size.length)
    step = Batch(size.batch * options.accumulate, size.length)
    checked = is_checked(step, config)

    def init(seed: int) -> tuple[tuple, FirstStep]:
        tokens = draw_tokens(whole, config, seed, extra=1)
        weights = initial_weights(config, mesh)(jax.random.key(seed))
        first = tokens.reshape(replicas, calls_steps, -1, tokens.shape[-1])[:, 0]
        first = first.reshape(step.batch, -1) if checked else None
        expected = FirstStep.of(config, weights, first, calls_steps)
        state = exchange.create_state(config, options, weights, mesh)
        return (state, place(tokens, batch_sharding(mesh))), expected

    return Workload(
        fn=partial(exchange.train_step, config, options, mesh=mesh),
        inputs=(
            exchange.abstract_state(config, options, mesh),
            abstract_tokens(whole, mesh, extra=1),
        ),
        init=init,
        work=work_of(step, config),
        donate=(0,),
        feed=lambda args, out: (out[0], args[1]),
        inner=calls_steps,
        falls=lambda out: float(fetch(out[1]["loss"])),
        error=lambda expected, out: expected.error(out[0], out[1]["loss"]),
        max_error=_FORMAT_ERROR[options.format],
        parts=_Parts(config, options, mesh) if mesh.size > 1 else None,
        facts={
            **step_facts(config, checked, "gradient" if calls_steps == 1 else "loss"),
            "data_parallel": exchange_facts(config, options, replicas),
        },
    )


def exchange_facts(config: ModelConfig, options: Exchange, replicas: int) -> dict[str, Any]:
    """What a record says of an exchange."""
    return {
        "replicas": replicas,
        "format": options.format,
        "accumulate": options.accumulate,
        "local_steps": options.local_steps,
        # What each replica sends in an optimizer step, and would without relief.
        "sent_bytes": wire_bytes(config, options, replicas) / options.local_steps,
        "plain_bytes": wire_bytes(config, Exchange("fp32"), replicas),
    }


class _Parts:
    """Times a step in pieces, each by itself, per optimizer step.

    A time is the mean over processes; waiting is there with several of them only.
    """

    def __init__(self, config: ModelConfig, options: Exchange, mesh: Mesh) -> None:
        self._steps = options.local_steps
        pieces = exchange.pieces(config, options, mesh)
        self._compute = jax.jit(pieces.compute)
        self._exchange = jax.jit(pieces.exchange, donate_argnums=1)
        self._update = jax.jit(pieces.update, donate_argnums=0)
        apart = Exchange("none", options.accumulate, options.local_steps)
        self._apart = jax.jit(
            partial(exchange.train_step, config, apart, mesh=mesh), donate_argnums=0
        )
        self._learnt_apart: Any = None
        everywhere = NamedSharding(mesh, PartitionSpec("data"))
        self._ones = place(np.ones(mesh.size, np.float32), everywhere)
        self._meet = jax.jit(jnp.sum)

    def __call__(self, args: tuple) -> tuple[Mapping[str, float], tuple]:
        state, tokens = args
        if self._learnt_apart is None:
            plain = state._replace(residual=())
            self._learnt_apart = jax.tree.map(jnp.copy, plain)
        seconds: dict[str, float] = {}
        self._meet(self._ones).block_until_ready()

        def timed(name: str, run: Callable[[], Any]) -> Any:
            start = time.perf_counter()
            out = jax.block_until_ready(run())
            seconds[name] = (time.perf_counter() - start) / self._steps
            return out

        own, _ = timed("compute", lambda: self._compute(state, tokens))
        if jax.process_count() > 1:
            timed("waiting", lambda: self._meet(self._ones))
        mean, residual = timed("exchange", lambda: self._exchange(own, state.residual))
        state = timed("update", lambda: self._update(state._replace(residual=residual), mean))
        self._meet(self._ones).block_until_ready()
        self._learnt_apart, _ = timed(
            "without_exchange", lambda: self._apart(self._learnt_apart, tokens)
        )
        return {name: agree.mean(value) for name, value in seconds.items()}, (state, tokens)
