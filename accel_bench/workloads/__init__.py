"""The workloads by name. To add one, add a parameter class, a build function and an entry here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accel_bench.workloads import numerics_params, params, training_params


@dataclass(frozen=True)
class Spec:
    """Where a workload is and what its rows mean.

    Attributes:
      params: the class of its parameters.
      build: `module:function` of the function that makes it; imported when first needed, because
        it imports jax and, for models, flax.
      rate: the quantity in `facts.work` whose rate is the row's headline: `flops`, `bytes`,
        `tokens`; or `time`, where the time of one step itself is.
      uses_precision: whether it runs once per requested precision, or once, in fp32.
      summary: one line for `list workloads`.
    """

    params: type
    build: str
    rate: str
    uses_precision: bool
    summary: str

    def builder(self) -> Callable[..., Any]:
        """Imports and returns the build function."""
        module, _, function = self.build.partition(":")
        return getattr(importlib.import_module(module), function)


_HERE = "accel_bench.workloads"

WORKLOADS: dict[str, Spec] = {
    "matmul": Spec(
        params.Matmul, f"{_HERE}.matmul:build", "flops", True,
        "matrix product: square, batched, or the shapes of a model",
    ),
    "dispatch": Spec(
        params.Dispatch, f"{_HERE}.dispatch:build", "time", False,
        "what launching a program costs when it computes nothing to speak of",
    ),
    "memory": Spec(
        params.Memory, f"{_HERE}.memory:build", "bytes", False,
        "STREAM copy, scale, add, triad, dot, and dependent-load latency",
    ),
    "transfer": Spec(
        params.Transfer, f"{_HERE}.transfer:build", "bytes", False,
        "host to device, device to host, and how much of it computing hides",
    ),
    "collective": Spec(
        params.Collective, f"{_HERE}.collective:build", "bytes", False,
        "all_reduce, all_gather, reduce_scatter, all_to_all, ppermute along a mesh axis",
    ),
    "attention": Spec(
        params.Attention, f"{_HERE}.attention:build", "flops", True,
        "causal self-attention over sequence lengths",
    ),
    "model": Spec(
        params.Model, f"{_HERE}.model:build", "tokens", True,
        "the Transformer: forward, train step, prefill and decode",
    ),
    "numerics": Spec(
        numerics_params.Numerics, f"{_HERE}.numerics:build", "time", True,
        "errors against float64 over ranges of values, overflow, underflow, loss scaling",
    ),
    "training": Spec(
        training_params.Training, f"{_HERE}.learning:build", "tokens", True,
        "the Transformer learns to tell handwritten digits, or the next byte of a text",
    ),
}  # fmt: skip
