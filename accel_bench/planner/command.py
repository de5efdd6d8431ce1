"""The command `plan` from its request to what is printed: the whole flow."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from accel_bench import compilers, export, workdir
from accel_bench.config import Config
from accel_bench.errors import RequestError
from accel_bench.jobs import job_key, record_key
from accel_bench.plan import Plan, check_run_fields
from accel_bench.planner import json_text, measured, show
from accel_bench.planner.candidates import enumerate_for
from accel_bench.planner.forecast import Forecast, forecast
from accel_bench.planner.request import Request
from accel_bench.planner.search import Do, Found, analytic, search
from accel_bench.progress import Silent, Terminal
from accel_bench.runner import Work
from accel_bench.tables import make_console
from accel_bench.target import Target
from accel_bench.workdir import Workdir


def plan(
    request: Request,
    config: Config,
    records: Sequence[Path] = (),
    place: Path | None = None,
    show_progress: bool = False,
) -> list[Forecast]:
    """Searches each target and says what a training there comes to.

    Args:
      request: what is planned.
      config: what records are kept under (`search.config_of`).
      records: workdirs whose measured train steps say what share of the peak is reached.
      place: where records of what is compiled go; None makes a folder below `runs/`.
      show_progress: whether a person is told how it goes.

    Raises:
      RequestError: records cannot be read, the workdir cannot be used, or a compiler does not match
        jax.
    """
    check_run_fields(config)
    rows = measured.read(records)
    missing = {target: _missing(target) for target in request.targets}
    with contextlib.ExitStack() as stack:
        do = None
        if any(not missing[t] and enumerate_for(request, t).ladders for t in request.targets):
            do = stack.enter_context(_compiling(request, config, place, show_progress))
        forecasts = []
        for target in request.targets:
            found = _search(request, target, do, missing[target])
            named = request.precision_on(target.chip)
            near = measured.on_chip(rows, target.name, named, request.model)
            forecasts.append(forecast(request, found, near))
    return forecasts


def _missing(target: Target) -> str | None:
    """Why there is no compiler for a target; None where there is one.

    Raises:
      RequestError: it does not match jax.
    """
    compiler = compilers.find(target)
    if compiler.mismatch:
        raise RequestError(f"--targets={target}: {compiler.mismatch}")
    return compiler.missing


def _search(request: Request, target: Target, do: Do | None, missing: str | None) -> Found:
    if missing or do is None:
        return analytic(request, target, missing or "")
    return search(request, target, do, time.monotonic)


@contextlib.contextmanager
def _compiling(
    request: Request, config: Config, place: Path | None, show_progress: bool
) -> Iterator[Do]:
    """What compiles a job and journals its record; what the workdir has already is not repeated."""
    names = ", ".join(map(str, request.targets))
    choice = f"planning {request.model} for {names}: at most {request.compiles} compilations each"
    plan = Plan(config, None, choice, {}, [], [], isolated=True)
    progress = Terminal(choice) if show_progress and sys.stderr.isatty() else Silent()
    opened = Workdir(place or workdir.default_path(config), config, [], resume=True)
    have = {record_key(r): r for r in opened.earlier if r.status in ("ok", "oom_compile")}
    work = Work(plan, opened, None, progress)
    if show_progress:
        print(f"{choice}; records in {opened.path}", file=sys.stderr)
    try:
        progress.begin(opened.path, request.compiles * len(request.targets), 0, opened.problems)
        yield lambda job: have.get(job_key(job)) or work.do(job)
    finally:
        work.close()
        progress.end()
        opened.close()


def check_outputs(files: Sequence[Path]) -> None:
    """Looks at where results are to go before minutes are spent on them.

    Raises:
      RequestError: a folder is not there.
    """
    for file in files:
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise RequestError(f"cannot write {file}: it is a folder, or its folder is not there")


def write_plan(
    request: Request, forecasts: Sequence[Forecast], json: Path | None, markdown: Path | None
) -> None:
    """Prints a plan and writes what was asked for."""
    show.print_plan(request, forecasts, make_console())
    if json:
        export.write(json, json_text.plan_text(request, forecasts))
    if markdown:
        export.write(markdown, show.plan_markdown(request, forecasts))


def write_published(json: Path | None, markdown: Path | None) -> None:
    """Prints the published trainings and writes what was asked for."""
    show.print_published(make_console())
    if json:
        export.write(json, json_text.published_text())
    if markdown:
        export.write(markdown, show.published_markdown())


def exit_status(forecasts: Sequence[Forecast]) -> int:
    """1 where what was compiled says neither that it fits nor that it does not; else 0.

    That something does not fit is an answer.
    """
    return int(any(f.fits is None and f.compiled for f in forecasts))
