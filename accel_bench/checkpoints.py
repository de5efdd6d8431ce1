"""Checkpoints of a training: written beside it, looked through when it is carried on.

A directory holds one folder for each of the last few checkpoints, named after its step and written
whole or not at all (orbax). In it are the train state, of which each process writes its part, and
as JSON the training's course, what it is a training of, and sums over the course and the bits of
each array. A folder that cannot be read, is of another training, or does not have those sums is
named, moved aside to `STEP.unusable`, and the one before it is taken.

The devices may be others than those it was written from: arrays are read into the new shardings.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from accel_bench import agree
from accel_bench.course import Course
from accel_bench.workloads.base import fetch

KEPT = 3


class Unusable(Exception):
    """A checkpoint is not one of this training; the text says why."""


class Checkpoints:
    """The checkpoints of one training.

    Attributes:
      problems: one line for each that could not be used or written.
    """

    def __init__(
        self, directory: Path, training: Mapping[str, Any], say: Callable[[str], None]
    ) -> None:
        """Opens the directory, which every process of the run must see.

        Args:
          directory: made where it is not there.
          training: what the checkpoints are of, plain values: those of another are not taken.
          say: told of each problem.
        """
        self._directory, self._training, self._tell = directory.absolute(), dict(training), say
        self._directory.mkdir(parents=True, exist_ok=True)
        self._writer: ocp.CheckpointManager | None = None
        self.problems: list[str] = []

    def latest(
        self, abstract: Any, place: Mapping[str, Any], last: int
    ) -> tuple[Any, Course] | None:
        """The newest state that can be used, and its course; None where there is none.

        Args:
          abstract: the state as `ShapeDtypeStruct`s with shardings.
          place: where the training goes on.
          last: the last step at which there are steps left to time.
        """
        folders = [f for f in self._directory.iterdir() if f.is_dir() and f.name.isdecimal()]
        for folder in sorted(folders, key=lambda folder: int(folder.name), reverse=True):
            try:
                state, course = self._read(folder, abstract, place)
                if course.step > last and not course.samples.kept:
                    raise Unusable(
                        "it is of another place, and too few steps are left to time here"
                    )
                problem = ""
            except Unusable as error:
                problem = str(error)
            except Exception as error:  # whatever a library says of torn files
                problem = f"it cannot be read: {_first_line(error)}"
            # What one process cannot use, none can.
            if agree.largest(float(bool(problem))):
                self._say(f"checkpoint {folder.name}: {problem or 'another process refused it'}")
                self._set_aside(folder)
                continue
            return state, course
        if folders:
            self._say("no checkpoint can be used: training starts from the beginning")
        return None

    def _read(self, folder: Path, abstract: Any, place: Mapping[str, Any]) -> tuple[Any, Course]:
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
            plain = reader.restore(folder, ocp.args.Composite(about=ocp.args.JsonRestore())).about
            if not isinstance(plain, dict) or "training" not in plain:
                raise Unusable("it is no checkpoint of a training")
            if plain["training"] != self._training:
                raise Unusable(f"it is of another training ({self._difference(plain['training'])})")
            if _sum(plain["course"]) != plain["course_sum"]:
                raise Unusable("its course is not the one that was written")
            course = Course.resumed_from(plain["course"], dict(place))
            if str(course.step) != folder.name:
                raise Unusable(f"it is of step {course.step}")
            wanted = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
            state = reader.restore(folder, wanted).state
        if bit_sums(state) != plain["bit_sums"]:
            raise Unusable("its arrays are not those that were written")
        return state, course

    def _difference(self, other: Mapping[str, Any]) -> str:
        names = {**self._training, **other}
        differ = [n for n in names if other.get(n) != self._training.get(n)]
        shown = [f"{n}: {other.get(n)} against {self._training.get(n)}" for n in differ[:1]]
        return ", ".join([*shown, *differ[1:]])

    def _set_aside(self, folder: Path) -> None:
        if jax.process_index() == 0:
            free = (f"{folder.name}.unusable{n or ''}" for n in range(sys.maxsize))
            target = next(p for name in free if not (p := folder.with_name(name)).exists())
            folder.rename(target)
        agree.largest(0.0)  # the others wait for it

    def save(self, state: Any, course: Course) -> None:
        """Writes a checkpoint, while the training goes on.

        One that cannot be written, as to a full disk, is a problem of its own and not of the
        training.
        """
        plain = course.to_plain()
        about = {
            "training": self._training,
            "course": plain,
            "course_sum": _sum(plain),
            "bit_sums": bit_sums(state),
        }
        # A copy, for the step that comes next may write over these very arrays.
        kept = jax.tree.map(jnp.copy, state)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(kept), about=ocp.args.JsonSave(about)
        )
        self._guarded(
            lambda: self._open_writer().save(course.step, args=items, force=True), course.step
        )

    def _open_writer(self) -> ocp.CheckpointManager:
        if self._writer is None:
            options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, cleanup_tmp_directories=True)
            self._writer = ocp.CheckpointManager(self._directory, options=options)
        return self._writer

    def close(self) -> None:
        """Waits until what is being written is on the disk."""
        if self._writer:
            self._guarded(self._writer.close)
            self._writer = None

    def _guarded(self, write: Callable[[], Any], step: int | None = None) -> None:
        try:
            write()
        except Exception as error:
            # An earlier one may still have been under way.
            which = "a checkpoint" if step is None else f"a checkpoint of step {step} or before"
            self._say(f"{which} could not be written: {_first_line(error)}")

    def _say(self, problem: str) -> None:
        self.problems.append(problem)
        self._tell(problem)
        print(problem, file=sys.stderr)  # the log


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:300]


def _sum(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def bit_sums(state: Any) -> list[int]:
    """For each array the sum of its values' bits, taken as whole numbers, modulo 2^32.

    The order of summation is of no consequence, so it is the same on any mesh.
    """
    leaves = [leaf for leaf in jax.tree.leaves(state) if leaf.size]
    mesh = leaves[0].sharding.mesh
    return [int(fetch(total)) for total in _summer(mesh)(leaves)]


@functools.cache
def _summer(mesh: Mesh) -> Callable[[list[jax.Array]], list[jax.Array]]:
    return jax.jit(
        lambda leaves: [_bit_sum(leaf) for leaf in leaves],
        out_shardings=NamedSharding(mesh, PartitionSpec()),
    )


def _bit_sum(leaf: jax.Array) -> jax.Array:
    kind = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[leaf.dtype.itemsize]
    return jnp.sum(jax.lax.bitcast_convert_type(leaf, kind).astype(jnp.uint32), dtype=jnp.uint32)
