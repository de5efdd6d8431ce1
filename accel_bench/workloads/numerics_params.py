"""The parameters of a study of numerics. Imports no jax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from accel_bench.errors import RequestError
from accel_bench.workloads.params import one_of, positive

OPS = (
    "matmul", "dot", "sum", "softmax", "norm", "attention",
    "loss", "gradient", "train_step", "loss_scale",
)  # fmt: skip
RANGES = ("normal", "tiny", "huge", "mixed", "denormal")


@dataclass(frozen=True)
class Numerics:
    """How exact an operation is.

    Attributes:
      op: one of `OPS`. `matmul` is a square product, `dot` and `sum` add up many terms; `softmax`,
        `norm` and `attention` are the model's; `loss`, `gradient` and `train_step` are those of a
        tiny model, and `loss_scale` is its gradient for many scales of the loss.
      size: width of a product, of the rows of `softmax` and `norm`; terms of `dot` and `sum`, a
        power of 2; positions of `attention` and of the model's sequences.
      range: one of `RANGES`: usual numbers; those whose products are denormal; those whose results
        are near overflow; terms that cancel all but for their last bits; denormal numbers.
    """

    op: str
    size: int
    range: str = "normal"

    has_program = False

    def check(self, axes: Mapping[str, int]) -> None:
        """Raises `RequestError` for what does not exist, and on a mesh of several devices."""
        one_of("numerics op", self.op, OPS)
        one_of("numerics range", self.range, RANGES)
        positive(f"numerics {self.op}: size", self.size)
        if self.op in ("dot", "sum") and self.size & (self.size - 1):
            raise RequestError(f"numerics {self.op}: size={self.size} is no power of 2")
        if math.prod(axes.values()) > 1:
            raise RequestError("numerics runs on one device: leave --mesh out")
