"""The one way to start a run, shared by the command line and by callers from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_bench import config as configs
from accel_bench import progress, runner
from accel_bench.config import Config
from accel_bench.config_files import load
from accel_bench.errors import RequestError, unknown
from accel_bench.plan import make_plan
from accel_bench.record import Record

_LISTS = ("precision", "baselines", "targets")


def run(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    workdir: str | Path | None,
    resume: bool,
    retry: bool,
    show: bool,
    fields: Mapping[str, Any],
) -> list[Record]:
    """See `accel_bench.run`."""
    resolved = with_fields(resolve(config), fields)
    for name, place in (("workdir", workdir), ("compile_cache", resolved.compile_cache)):
        if "\0" in str(place or ""):
            raise RequestError(f"{name}={str(place)!r} is no path: it holds a null character")
    plan = make_plan(resolved)
    seen = progress.visible(plan.choice) if show else progress.Silent()
    records = runner.run(plan, Path(workdir) if workdir else None, resume, retry, seen)
    if show:
        from accel_bench import tables

        console = tables.make_console()
        with tables.in_one_piece(console):
            tables.print_run(records, console)
    return records


def resolve(
    config: Config | Mapping[str, Any] | str | Path,
) -> Config:
    """The config itself, read from a file where it is a path.

    Raises:
      RequestError: it is none.
    """
    if isinstance(config, str | Path):
        return load(str(config))
    return configs.from_plain(configs.to_plain(config), "the config")


def with_fields(config: Config, fields: Mapping[str, Any]) -> Config:
    """A copy of the config with fields set; None leaves one as it is.

    Raises:
      RequestError: there is no such field, or it cannot take the value.
    """
    config = config.copy_and_resolve_references()
    for name, value in fields.items():
        if value is None:
            continue
        if name not in config:
            raise unknown("config field", name, config)
        if name in _LISTS:
            value = _words(value)
        if name == "timeout_s" and isinstance(value, int):
            value = float(value)
        try:
            if isinstance(value, Mapping):
                config[name].update(value)
            else:
                config[name] = value
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise RequestError(f"config field {name} cannot be {value!r}: {error}") from error
    return config


def _words(value: Any) -> tuple[str, ...]:
    """`"fp32, bf16"` or a list of such names as a tuple of them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise RequestError(f"{value!r} is no list of names, such as 'fp32,bf16'")
    return tuple(str(part).strip() for part in parts if str(part).strip())
