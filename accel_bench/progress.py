"""What a person sees while a run goes on: in a terminal, or in the output of a notebook's cell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Protocol

from accel_bench.plan import Job
from accel_bench.record import Record


class Progress(Protocol):
    """Is told how a run goes."""

    def begin(self, path: Path, todo: int, have: int, problems: list[str]) -> None:
        """The run starts: so many cases to do, so many had already."""

    def case(self, job: Job) -> None:
        """A case starts."""

    def stage(self, text: str) -> None:
        """The case does this now."""

    def done(self, job: Job, record: Record) -> None:
        """The case has ended."""

    def end(self) -> None:
        """The run is over, or broke off."""


class Silent:
    """Says nothing."""

    def begin(self, path: Path, todo: int, have: int, problems: list[str]) -> None: ...
    def case(self, job: Job) -> None: ...
    def stage(self, text: str) -> None: ...
    def done(self, job: Job, record: Record) -> None: ...
    def end(self) -> None: ...


def in_kernel() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


def visible(choice: str) -> Progress:
    """What shows progress here; `choice` is the sentence that says what is measured on."""
    return Notebook(choice) if in_kernel() else Terminal(choice)


class Terminal(Silent):
    """Says where the records go and, on a terminal, shows a bar with the case and the time left."""

    def __init__(self, choice: str) -> None:
        """Takes the sentence that says what is measured on."""
        self._choice = choice
        self._bar = None
        self._label = ""

    def begin(self, path: Path, todo: int, have: int, problems: list[str]) -> None:
        for problem in problems:
            print(problem, file=sys.stderr)
        if have and not todo:
            print(f"nothing to do: all {have} cases have a record in {path}", file=sys.stderr)
            return
        earlier = f", {have} already there" if have else ""
        print(f"{self._choice}\n{_cases(todo)} to run{earlier}, records in {path}", file=sys.stderr)
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=todo)
        self._bar.start()

    def case(self, job: Job) -> None:
        self._label = job.label
        self.stage("")

    def stage(self, text: str) -> None:
        if self._bar:
            label = f"{self._label}: {text}" if text else self._label
            self._bar.update(self._task, description=label)

    def done(self, job: Job, record: Record) -> None:
        if self._bar:
            self._bar.advance(self._task)

    def end(self) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


class Notebook(Silent):
    """A line below the cell that is written over as the run goes on."""

    def __init__(self, choice: str) -> None:
        """Takes the sentence that says what is measured on."""
        self._choice = choice
        self._line: Any = None
        self._todo = self._done = 0
        self._label = ""

    def begin(self, path: Path, todo: int, have: int, problems: list[str]) -> None:
        for problem in problems:
            print(problem)
        if have and not todo:
            print(f"nothing to do: all {have} cases have a record in {path}")
            return
        earlier = f"; {have} are there already" if have else ""
        print(f"{self._choice}\n{_cases(todo)} to run{earlier}; records in {path}")
        self._todo = todo

    def case(self, job: Job) -> None:
        self._label = job.label
        self.stage("")

    def stage(self, text: str) -> None:
        now = f"{self._label}: {text}" if text else self._label
        self._show(f"{self._done} of {self._todo} done; now {now}")

    def done(self, job: Job, record: Record) -> None:
        self._done += 1

    def end(self) -> None:
        if self._line:
            self._show(f"{self._done} of {self._todo} done")

    def _show(self, text: str) -> None:
        from IPython.display import display

        shown = {"text/plain": text}
        if self._line:
            self._line.update(shown, raw=True)
        else:
            self._line = display(shown, raw=True, display_id=True)
