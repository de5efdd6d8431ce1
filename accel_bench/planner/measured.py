"""The share of the peak that trainings measured by this suite reached on a chip."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accel_bench import derive, workdir
from accel_bench.errors import RequestError
from accel_bench.record import Record
from models import costs
from models.sizes import SIZES, ModelConfig


@dataclass(frozen=True)
class Measured:
    """A row that a plan rests on.

    Attributes:
      low, value, high: MFU of the row by the convention of `facts.work.flops`: at the interval's
        ends, and at the median time.
      row: which one, in words.
      chips: on how many it was measured.
    """

    low: float
    value: float
    high: float
    row: str
    chips: int


def read(paths: Sequence[Path]) -> list[tuple[Path, Record]]:
    """Train steps that were measured, with where each was read.

    Raises:
      RequestError: there is nothing to read at a path.
    """
    found: list[tuple[Path, Record]] = []
    for path in paths:
        held = workdir.read_records(path)
        for problem in held.problems:
            print(f"{path}: {problem}", file=sys.stderr)
        steps = [(path, record) for record in held.records if _trains(record)]
        if not steps:
            raise RequestError(
                f"--records={path} holds no train step that was measured well enough: run "
                "--config=configs/model.py on that chip"
            )
        found += steps
    return found


def _trains(record: Record) -> bool:
    trains = record.workload == "training" or record.params.get("phase") == "train_step"
    measured = record.target.get("kind") == "measured" and not derive.is_compiled(record)
    return trains and measured and derive.ranked(record)


def on_chip(
    rows: Sequence[tuple[Path, Record]], chip: str, precision: str, model: str
) -> Measured | None:
    """What the nearest row on a chip shows; None where there is none.

    Nearest is the same precision, then the model with the most similar number of parameters, then
    the most chips.
    """
    wanted = costs.param_count(SIZES[model])
    found = []
    for path, record in rows:
        share = derive.fraction_of_peak(record, {})
        rate = derive.rate(record, "flops")
        if record.target.get("chip") != chip or share is None or rate is None:
            continue
        if share.value > 1:  # nothing is: the row is wrong about its chip or its work
            continue
        size = SIZES.get(str(record.params.get("model")))
        distance = _distance(size, wanted)
        chips = record.target.get("num_chips") or 1
        order = (record.precision != precision, distance, -chips, -share.value)
        per_rate = share.value / rate.value
        row = f"{derive.label(record)} {record.precision} on {derive.machine(record)} in {path}"
        found.append(
            (order, Measured(rate.low * per_rate, share.value, rate.high * per_rate, row, chips))
        )
    return min(found, key=lambda entry: entry[0])[1] if found else None


def _distance(size: ModelConfig | None, wanted: int) -> float:
    """How far apart two models' sizes are, as a factor's logarithm."""
    if size is None:
        return math.inf
    return abs(math.log(costs.param_count(size) / wanted))
