"""Finding and loading config files by what a person calls them."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import ml_collections

from accel_bench import config as configs
from accel_bench.config import Config
from accel_bench.errors import RequestError, unknown

ROOT = Path(__file__).resolve().parent.parent


def known() -> dict[str, Path]:
    """Name -> file of each config that comes with the suite."""
    return {
        path.stem: path
        for path in sorted((ROOT / "configs").glob("*.py"))
        if path.stem not in ("__init__", "replay")
    }


def summary(path: Path) -> str:
    """The first line of a config file's docstring; the file is not run."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.splitlines()[0] if text else ""


def find(name: str) -> Path:
    """The file that `--config=name` means: a path, one below the suite's root, or a bare name.

    Raises:
      RequestError: there is none.
    """
    path = Path(name)
    if path.is_file():
        return path
    if not path.is_absolute() and (ROOT / path).is_file():
        return ROOT / path
    if path.stem == name and name in known():
        return known()[name]
    if path.stem == name:  # a bare name is answered with bare names
        raise unknown("config", name, known())
    raise unknown("config", name, [f"configs/{stem}.py" for stem in known()])


def flag_value(name: str) -> str:
    """What ml_collections' config flag is given for `--config=name`: it comes to `load`.

    Raises:
      RequestError: there is no such file.
    """
    return f"{ROOT / 'configs' / 'replay.py'}:{find(name).resolve()}"


def load(name: str) -> Config:
    """Loads the config that `find` finds.

    Fields that a file made of one object (a size that several cases share) are fields of their own:
    to set one is not to set the others.

    Raises:
      RequestError: there is none, or it cannot be loaded.
    """
    path = find(name)
    if path.suffix == ".json":
        return configs.read_json(path)
    spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise RequestError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = module.get_config()
    except (Exception, SystemExit) as error:  # whatever a config file does wrong
        raise RequestError(f"{path}: {type(error).__name__}: {error}") from error
    if not isinstance(config, ml_collections.ConfigDict):
        raise RequestError(f"{path}: get_config() must return a config, not {config!r:.60}")
    return configs.from_plain(configs.to_plain(config), str(path))
