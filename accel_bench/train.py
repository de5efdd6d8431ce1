"""The training loop: steps, looks at what was held out, checkpoints, and what all of it took.

The clock runs while the model learns, and only then: from the request of a batch to the end of the
step that takes it. One step is always under way while the next one is being launched, so that a
fast device does not wait for the host; so the time of a step is that between the ends of two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from accel_bench import checksum, measure, stats, units
from accel_bench.checkpoints import Checkpoints
from accel_bench.course import Course
from accel_bench.measure import Measurement
from accel_bench.workloads.base import Workload, fetch

if TYPE_CHECKING:
    from accel_bench.data.feed import Feed

# A person who waits is told at most so often.
_TELL_EVERY_S = 0.5


@dataclass(frozen=True)
class Training:
    """What is to be trained, and how.

    Attributes:
      step: a call of the step, (state, tokens) -> (state, {"loss"}); `init` is not used.
      create: from a seed to the first state.
      inputs: from the first state to what the seed determines, for a checksum.
      evaluate: from a state to loss and accuracy (None without classes) on what was held out.
      feed: from a step to the batches from there on.
      about: what it is a training of, plain values; checkpoints of another one are not taken.
      place: where it runs; see `Course`.
      steps: of the optimizer, all in all; `steps_per_call` of them in one call.
      eval_every, checkpoint_every: steps between; no checkpoints with 0.
      tokens_per_step: that are learnt from.
    """

    step: Workload
    create: Callable[[int], Any]
    inputs: Callable[[Any], tuple]
    evaluate: Callable[[Any], tuple[float, float | None]]
    feed: Callable[[int], Feed]
    about: Mapping[str, Any]
    place: Mapping[str, Any]
    steps: int
    steps_per_call: int
    eval_every: int
    checkpoint_every: int
    tokens_per_step: int


def train(
    training: Training,
    seed: int,
    available_bytes: int | None,
    folder: Path | None,
    result: Measurement,
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Any:
    """Trains from the start, or from the newest checkpoint that can be used; returns the state.

    Args:
      training: what to train.
      seed: of the first weights.
      available_bytes: memory of one device that is free; None if unknown.
      folder: of the checkpoints; None makes and takes none.
      result: filled in.
      on_stage: told of progress.

    Raises:
      OutOfMemory, Invalid, NonFinite: see `accel_bench.measure`.
    """
    on_stage("compiling")
    compiled = measure.compile_step(training.step, available_bytes, result)
    course, state = Course(dict(training.place)), None
    wanted = folder if training.checkpoint_every else None
    checkpoints = Checkpoints(wanted, training.about, on_stage) if wanted else None
    if checkpoints:
        on_stage("looking for checkpoints")
        last = training.steps - training.steps_per_call
        found = checkpoints.latest(training.step.inputs[0], training.place, last)
        if found:
            state, course = found
            on_stage(f"carrying on at step {course.step}")
    if state is None:
        on_stage("making the first weights")
        state = training.create(seed)
        course.inputs_checksum = checksum.of_inputs(training.inputs(state))
    loop = _Loop(training, compiled, course, state, result, on_stage)
    try:
        loop.run(checkpoints)
    finally:
        if checkpoints:
            on_stage("writing the last checkpoint")
            checkpoints.close()
            if checkpoints.problems:
                result.facts["checkpoint_problems"] = checkpoints.problems
    _report(training, course, result)
    result.facts["result_checksum"] = checksum.of_result(loop.state.params)
    return loop.state


class _Loop:
    """A training under way: `state` and `course` are those after the last call that has ended."""

    def __init__(
        self,
        training: Training,
        compiled: Callable[..., Any],
        course: Course,
        state: Any,
        result: Measurement,
        on_stage: Callable[[str], None],
    ) -> None:
        self.state, self._course = state, course
        self._training, self._compiled, self._result = training, compiled, result
        self._on_stage, self._told_at = on_stage, 0.0
        self._under_way: jax.Array | None = None  # the loss of the call that is
        self._clock = 0.0

    def run(self, checkpoints: Checkpoints | None) -> None:
        """Takes the steps that are left."""
        training, course = self._training, self._course
        feed = training.feed(course.step)
        waited_before = course.input_wait_s
        try:
            self._clock = time.perf_counter()
            for launched in range(
                course.step + training.steps_per_call,
                training.steps + 1,
                training.steps_per_call,
            ):
                tokens = feed.next()
                self.state, metrics = self._compiled(self.state, tokens)
                self._settle()
                self._under_way = metrics["loss"]
                looks = launched == training.steps or launched % training.eval_every == 0
                saves = checkpoints and (
                    launched == training.steps or launched % training.checkpoint_every == 0
                )
                if self._result.first_call_s is None or looks or saves:
                    self._settle()
                    course.input_wait_s = waited_before + feed.wait_s
                    if looks:
                        self._look()
                    if checkpoints and saves:
                        checkpoints.save(self.state, course)
                    self._clock = time.perf_counter()
        finally:
            feed.close()

    def _settle(self) -> None:
        """Waits for the call that is under way, if one is, and takes its time and its loss."""
        if self._under_way is None:
            return
        training, course = self._training, self._course
        loss = float(fetch(self._under_way))
        self._under_way = None
        now = time.perf_counter()
        elapsed, self._clock = now - self._clock, now
        course.step += training.steps_per_call
        course.elapsed_s += elapsed
        if self._result.first_call_s is None:
            self._result.first_call_s = elapsed
        else:
            course.samples.add(elapsed / training.steps_per_call)
        if not math.isfinite(loss):
            raise measure.NonFinite(f"the loss was {loss} at step {course.step}")
        course.add_loss(loss)
        if now - self._told_at > _TELL_EVERY_S:
            self._told_at = now
            rate = training.tokens_per_step * training.steps_per_call / elapsed
            self._on_stage(
                f"step {course.step}/{training.steps}, loss {loss:.3f}, "
                f"{units.quantity(rate, 'tokens/s')}"
            )

    def _look(self) -> None:
        loss, accuracy = self._training.evaluate(self.state)
        course = self._course
        if not math.isfinite(loss):
            raise measure.NonFinite(f"the held-out loss was {loss} at step {course.step}")
        course.add_point(loss, accuracy, course.step * self._training.tokens_per_step)


def _report(training: Training, course: Course, result: Measurement) -> None:
    result.samples_s = course.samples.kept
    result.facts |= {
        "curve": vars(course.curve),
        "losses": {
            "per_call": training.steps_per_call,
            "first": course.first_losses,
            "every": course.losses.every * training.steps_per_call,
            "values": course.losses.kept,
        },
        "inputs_checksum": course.inputs_checksum,
        "input_wait_s": course.input_wait_s,
        "calls_per_sample": 1,
        "steps_per_call": training.steps_per_call,
        "drift": stats.drift(result.samples_s),
    }
    if course.resumed:
        result.facts["resumed"] = course.resumed
