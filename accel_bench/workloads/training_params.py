"""What a training may be asked for, checked without jax."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from accel_bench.data import digits, text
from accel_bench.errors import RequestError
from accel_bench.precision import lookup
from accel_bench.workloads.params import (
    Exchanged,
    Placed,
    divisible,
    one_of,
    only_axes,
    positive,
    resolve_model,
)
from models.sizes import WEIGHT_DTYPES, ModelConfig

TASKS = ("digits", "text")


@dataclass(frozen=True)
class Training(Placed, Exchanged):
    """The Transformer of `models/transformer.py`, trained until it can do something.

    Steps are those of the optimizer: AdamW, its rate rising over `warmup` steps to `learning_rate`
    and falling to 0 along a cosine.

    Attributes:
      task: one of `TASKS`: to classify handwritten digits, or to predict the bytes of a text.
      model: a name in `models.sizes.SIZES`.
      batch: sequences of a step; with an exchange, of a micro-batch over all replicas.
      steps: how many.
      learning_rate, warmup: see above.
      weight_decay: AdamW's.
      clip: norm that gradients are scaled down to; 0 leaves them as they are.
      file: the text; empty: one that comes with Python.
      length: of the windows of a text, in bytes.
      shifts: whether each digit is learnt from its four copies, moved by a pixel, as well.
      eval_every: steps between looks at the held-out data; there is one after the last step.
      checkpoint_every: steps between checkpoints; 0 for none.
      also_in: precisions, with commas between, in which what was learnt is looked at in the end.
      overrides: fields of the model that the config changes.
    """

    task: str
    model: str
    batch: int
    steps: int
    learning_rate: float
    warmup: int = 0
    weight_decay: float = 0.1
    clip: float = 1.0
    file: str = ""
    length: int = 0
    shifts: bool = False
    eval_every: int = 50
    checkpoint_every: int = 100
    also_in: str = ""
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def has_program(self) -> bool:
        """Its step is compiled for an absent accelerator as phase `train_step` of `model`."""
        return False

    @property
    def config(self) -> ModelConfig:
        return resolve_model(self.model, self.overrides)

    @property
    def tokens(self) -> int:
        """Tokens that go into the model of each sequence."""
        return digits.PIXELS if self.task == "digits" else self.length

    @property
    def looked_at_in(self) -> list[str]:
        """Precisions of `also_in`."""
        return [name.strip() for name in self.also_in.split(",") if name.strip()]

    @property
    def step_rows(self) -> int:
        """Sequences of one step of the optimizer."""
        return self.batch * self.accumulate

    def check(self, axes: Mapping[str, int]) -> None:
        one_of("training task", self.task, TASKS)
        for name in ("batch", "steps", "eval_every"):
            positive(f"training {name}", getattr(self, name))
        for name in ("warmup", "checkpoint_every"):
            if getattr(self, name) != 0:
                positive(f"training {name}, if not 0,", getattr(self, name))
        self._check_numbers()
        if self.steps < 2 * self.local_steps:
            raise RequestError(
                f"training steps={self.steps} is too few: of two calls at least, with "
                f"local_steps={self.local_steps} each, the first one is not timed"
            )
        if self.warmup >= self.steps:
            raise RequestError(
                f"training warmup={self.warmup} takes all of steps={self.steps}: the rate rises "
                "first and falls then"
            )
        for name in self.looked_at_in:
            if lookup(name).bits == 8 and lookup(name).storage not in WEIGHT_DTYPES:
                raise RequestError(
                    f"training also_in={name}: too few digits for weights; use fp8_e4m3 or int8"
                )
        only_axes("training", axes, ("data", "fsdp", "model", "seq"))
        config = self.config
        self._check_task(config)
        self.check_exchange("training", self.batch, axes)
        for name in ("steps", "eval_every", "checkpoint_every"):
            if getattr(self, name) % self.local_steps:
                raise RequestError(
                    f"training {name}={getattr(self, name)} is no multiple of "
                    f"local_steps={self.local_steps}"
                )
        divisible("training", config, self.batch, self.tokens, axes)

    def _check_numbers(self) -> None:
        for name in ("learning_rate", "weight_decay", "clip"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            least = "above 0" if name == "learning_rate" else "of at least 0"
            if (
                not number
                or not math.isfinite(value)
                or value < 0
                or (name == "learning_rate" and value == 0)
            ):
                raise RequestError(f"training {name} must be a number {least}, got {value!r}")
        if not isinstance(self.shifts, bool):
            raise RequestError(f"training shifts must be true or false, got {self.shifts!r}")
        if not isinstance(self.file, str):
            raise RequestError(f"training file must be a path, got {self.file!r}")
        if not isinstance(self.also_in, str):
            raise RequestError(
                f'training also_in must be precisions as in "int8,bf16", got {self.also_in!r}'
            )

    def _check_task(self, config: ModelConfig) -> None:
        """The task's own parameters, and whether the model knows its tokens."""
        vocabulary = digits.VOCAB_SIZE
        if self.task == "digits":
            if self.file:
                raise RequestError(f"training file={self.file!r} is for task text, not digits")
            if self.length not in (0, digits.PIXELS):
                raise RequestError(
                    f"training length={self.length}: a digit has {digits.PIXELS} pixels; leave it "
                    "out"
                )
        else:
            vocabulary = text.VOCAB_SIZE
            if self.shifts:
                raise RequestError("training shifts is for task digits, not text")
            positive("training length", self.length)
            text.check(self.file, self.length)
        if config.vocab_size < vocabulary:
            raise RequestError(
                f"training {self.task} has {vocabulary} tokens, and model {self.model} knows "
                f"{config.vocab_size} (vocab_size)"
            )
