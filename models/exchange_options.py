"""How replicas of a model exchange what they learnt; imports neither jax nor flax.

`models.exchange` carries it out.
"""

import dataclasses
from collections.abc import Mapping

from models.costs import param_count
from models.sizes import ModelConfig

FORMATS = ("none", "fp32", "bf16", "int8")
CODE_BYTES = {"bf16": 2, "int8": 1}  # of one value of a compressed format
SCALED_BLOCK = 2048  # int8: values that share one fp32 scale


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What relieves a slow network in data-parallel training.

    format: how gradients travel. 'none': not at all, each replica goes on with its own, which
      trains nothing worth having but tells what the exchange costs; 'fp32'; 'bf16'; 'int8'.
    accumulate: micro-batches whose gradients are summed before they are used.
    local_steps: optimizer steps that every replica takes on its own part of the data before
      parameters and AdamW's moments are averaged (local SGD, arXiv 1805.09767). With 1 gradients
      are averaged instead.

    Raises:
      ValueError: one line that names the field, if an option or a combination makes no sense.
    """

    format: str
    accumulate: int = 1
    local_steps: int = 1

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"format={self.format!r} is not one of {', '.join(FORMATS)}")
        for name in ("accumulate", "local_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.local_steps > 1 and self.compressed:
            raise ValueError(
                f"format={self.format!r} compresses gradients, but with "
                f"local_steps={self.local_steps} parameters travel: it must be 'fp32' or 'none'"
            )

    @property
    def compressed(self) -> bool:
        return self.format in CODE_BYTES

    def check(self, batch: int, axes: Mapping[str, int]) -> None:
        """Checks that a step of `batch` sequences divides over a mesh, size by name of its axes.

        Raises:
          ValueError: one line with the names and the sizes.
        """
        if "data" not in axes:
            raise ValueError(f"an exchange needs mesh axis 'data', not only {', '.join(axes)}")
        for axis, size in axes.items():
            if axis != "data" and size > 1:
                raise ValueError(
                    f"an exchange needs replicas that are one device each: mesh axis {axis!r} "
                    f"must be of size 1, not {size}"
                )
        parts = axes["data"] * self.accumulate * self.local_steps
        if batch % parts:
            raise ValueError(
                f"batch={batch} does not divide over mesh axis 'data' of size {axes['data']} x "
                f"accumulate={self.accumulate} x local_steps={self.local_steps}"
            )


def padded_length(exchange: Exchange, values: int, replicas: int) -> int:
    """Length of the vector that a compressed format sends: each replica's part in whole blocks."""
    block = SCALED_BLOCK if exchange.format == "int8" else 1
    return -(-values // (replicas * block)) * replicas * block


def wire_bytes(config: ModelConfig, exchange: Exchange, replicas: int) -> int:
    """Bytes that each of n replicas sends per call of the step, at least.

    P parameters, of which N after padding, and 4 bytes of the loss:

      none  0
      fp32  2 (n-1)/n 4 (P + 1): a ring all-reduce (Patarasuk and Yuan 2009); 3 P for P with
            local steps, whose moments travel too
      bf16  2 (n-1)/n (2 N + 4): all-to-all of the codes, then all-gather
      int8  2 (n-1)/n (N + 4 N / 2048 + 4): the same, with the scales
    """
    if exchange.format == "none":
        return 0
    values = param_count(config) * (3 if exchange.local_steps > 1 else 1)
    sizes = [4 * values]
    if exchange.compressed:
        values = padded_length(exchange, values, replicas)
        sizes = [CODE_BYTES[exchange.format] * values]
    if exchange.format == "int8":
        sizes.append(4 * values // SCALED_BLOCK)
    loss = 4
    return sum(2 * size * (replicas - 1) // replicas for size in (*sizes, loss))
