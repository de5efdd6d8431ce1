"""What a model is trained on: sequences, held-out ones, and which of their tokens count."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accel_bench.data import digits, text
from accel_bench.workloads.training_params import Training

# Held-out windows of a text that are looked at, evenly spread; an image is never left out.
_MAX_TEST_WINDOWS = 256


@dataclass(frozen=True)
class Task:
    """Sequences of `length` + 1 tokens, int32.

    Attributes:
      train: to learn from, by number.
      test: held out, (N, length + 1).
      predicted: how many of a sequence's last tokens count, as `models.train_step.loss_fn` takes
        it; None for all. Where it is 1 a sequence ends in its class, and accuracy has a meaning.
      sha256: of all sequences, in order.
    """

    train: np.ndarray | text.Windows
    test: np.ndarray
    predicted: int | None
    sha256: str

    @property
    def facts(self) -> dict[str, int | str]:
        """What a record says of the data."""
        return {"train": len(self.train), "held_out": len(self.test), "sha256": self.sha256}


def load(params: Training) -> Task:
    """The data that a training asks for; the same for all seeds.

    Raises:
      RequestError: it cannot be read, or scikit-learn is not installed.
    """
    if params.task == "digits":
        data = digits.load()
        train = digits.with_shifts(data.train) if params.shifts else data.train
        return Task(train, data.test, 1, _digest([train, data.test]))
    train, held_out = text.load(params.file, params.length)
    count = min(len(held_out), _MAX_TEST_WINDOWS)
    chosen = np.linspace(0, len(held_out) - 1, count).astype(int)
    test = np.stack([held_out[int(index)] for index in chosen])
    return Task(train, test, None, _digest([train.text, held_out.text]))


def _digest(arrays: list[np.ndarray]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def padded_batches(test: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The held-out sequences in batches of one size, and weights (B,), 0 for what pads the last."""
    for start in range(0, len(test), size):
        rows = test[start : start + size]
        weights = (np.arange(size) < len(rows)).astype(np.float32)
        yield np.concatenate([rows, np.repeat(rows[:1], size - len(rows), axis=0)]), weights
