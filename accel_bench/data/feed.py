"""The order of training data, and batches made ahead of the steps that take them.

The order is a function of the seed alone: every epoch is shuffled anew, and batch number i is the
same sequences on any mesh, from any number of processes, whether or not the batches before it were
ever asked for. So a training is carried on at any step without going through the data before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import grain
import numpy as np

# Batches that are made ahead, by so many threads.
_AHEAD = 4
_THREADS = 2


def batches(
    source: Sequence[np.ndarray] | Any, rows: int, seed: int, count: int
) -> grain.MapDataset:
    """Batches (rows, T+1) by number, `count` of them or more.

    Each epoch has every sequence once; a batch may lie across two.
    """
    epochs = 1 + count * rows // len(source)
    return grain.MapDataset.source(source).seed(seed).shuffle().repeat(epochs).batch(rows)


def dealt(tokens: np.ndarray, replicas: int, local_steps: int) -> np.ndarray:
    """A batch of several local steps, so laid out that each step takes its rows in order.

    `models.exchange` gives each replica a run of rows and divides that into steps; so the rows of
    the first step, which the replicas share, come first in each replica's run.
    """
    steps = tokens.reshape(local_steps, replicas, -1, tokens.shape[-1])
    return steps.swapaxes(0, 1).reshape(tokens.shape)


class Feed:
    """Gives one batch after the other, on the devices.

    Attributes:
      wait_s: seconds that were spent waiting for batches that were not ready.
    """

    def __init__(
        self,
        source: Sequence[np.ndarray] | Any,
        rows: int,
        seed: int,
        numbers: range,
        place: Callable[[np.ndarray], Any],
    ) -> None:
        """Starts to make batches.

        Args:
          source: sequences by number.
          rows: of a batch.
          seed: of the order.
          numbers: of the batches that will be asked for.
          place: puts a batch on the devices; called ahead of time, in threads.
        """
        order = batches(source, rows, seed, numbers.stop)
        wanted = order.slice(slice(numbers.start, numbers.stop)).map(place)
        options = grain.ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_AHEAD)
        self._iterator = iter(wanted.to_iter_dataset(options))
        self.wait_s = 0.0

    def next(self) -> Any:
        """The next batch."""
        start = time.perf_counter()
        batch = next(self._iterator)
        self.wait_s += time.perf_counter() - start
        return batch

    def close(self) -> None:
        """Stops making batches."""
        close = getattr(self._iterator, "close", None)
        if close:
            close()
