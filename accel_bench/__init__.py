"""Measures the same jitted JAX code on the CPU, GPU or TPU that is attached."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_bench.config import Config
    from accel_bench.record import Record

__all__ = ["run"]


def run(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    workdir: str | Path | None = None,
    resume: bool = False,
    retry: bool = False,
    show: bool = False,
    **fields: Any,
) -> list[Record]:
    """Runs an experiment; what `python main.py run` does, without flags.

    Args:
      config: a config, or the path of one (`.py` with a `get_config`, or the `config.json` that a
        run wrote).
      workdir: where records go; by default a new directory below `runs/`.
      resume: carry on where the working directory has records already.
      retry: with `resume`, run those cases again that went wrong.
      show: print progress and tables.
      **fields: fields of the config to set for this run, such as `device="gpu"`,
        `precision="fp32,bf16"`, `mesh="data:8"`, `baselines="numpy"`, `isolation="none"`.

    Returns:
      One record per case.

    Raises:
      accel_bench.errors.RequestError: the request is wrong; nothing was run.
    """
    from accel_bench import api

    return api.run(config, workdir=workdir, resume=resume, retry=retry, show=show, fields=fields)
