"""Experiments as `ml_collections.ConfigDict`s: their fields, their plain form and their hash.

A file in `configs/` calls `base()`, sets what differs and returns it. Everything in a config is
numbers, strings, booleans, tuples and dicts, so that it can be written as JSON and read back to
the same experiment.

A case's field may hold a tuple: every value is run (see `accel_bench.cases`). It may also hold
`by_platform(...)`, so that one experiment names sizes fit for a CPU and for an accelerator and
still is one experiment, with one hash, on both.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeAlias

import ml_collections
from ml_collections import config_dict

from accel_bench.detect import PLATFORMS
from accel_bench.errors import RequestError, unknown

# An ml_collections.ConfigDict, whose fields are dynamic: to a type checker it is anything.
Config: TypeAlias = Any

# Fields that say how, where or how long to measure and not what: they are outside the hash. Of
# these precision and mesh stand on each row and are compared there.
RUN_FIELDS = (
    "device",
    "fake_devices",
    "isolation",
    "precision",
    "mesh",
    "baselines",
    "profile",
    "timeout_s",
    "measure",
    "targets",
    "compile_cases",
    "compile_cache",
    "dump_hlo",
    "find_smallest_fit",
    "coordinator",
    "num_processes",
    "process_id",
)


def base(name: str) -> Config:
    """A config with every field that a run knows, set to what most studies want.

    Args:
      name: what the study is called in default names of working directories.
    """
    placeholder = config_dict.placeholder
    fields: dict[str, Any] = {
        "name": name,
        "seed": 0,
        # Case name -> {"workload": ..., and that workload's parameters}.
        "cases": {},
        # Overrides of the named model's architecture in `model` and `attention` cases; None
        # leaves the named size as it is. The fields are those of `models.sizes.ModelConfig`.
        "model": {
            "num_layers": placeholder(int),
            "width": placeholder(int),
            "num_heads": placeholder(int),
            "num_kv_heads": placeholder(int),
            "head_size": placeholder(int),
            "mlp_width": placeholder(int),
            "vocab_size": placeholder(int),
            "context": placeholder(int),
            "activation": placeholder(str),
            "tied_embedding": placeholder(bool),
            "remat": placeholder(str),
            "scan_layers": placeholder(bool),
            "attention": placeholder(str),
        },
        "deterministic": False,
        # Whether a CPU worker's malloc asks Linux for huge pages. XLA's CPU client allocates and
        # frees its large buffers on every call; with small pages a train step spends a fifth of
        # its time in page faults, which says nothing about the processor.
        "huge_pages": True,
        # Accelerators to compile for (accel_bench.target), or `auto`.
        "targets": (),
        # Names of the cases that are compiled for them; empty: all that have a program.
        "compile_cases": (),
        # Where compiled facts are kept: auto (the user's cache directory), off, or a directory.
        "compile_cache": "auto",
        "dump_hlo": False,
        "find_smallest_fit": False,
        "device": "auto",
        "fake_devices": 0,
        # Several processes (accel_bench.cluster): where the first one listens, how many there are
        # and which one this is. A number alone starts so many on this machine; 0 and -1 leave it to
        # the launcher, if there is one.
        "coordinator": "",
        "num_processes": 0,
        "process_id": -1,
        "isolation": "auto",
        "precision": ("fp32",),
        "mesh": "",
        "baselines": (),
        "profile": False,
        "timeout_s": 600.0,
        "measure": {
            # Sampling of a case ends when the 95 % confidence interval of the median is
            # within +-target of it, or when one of the other two is spent.
            "target": 0.01,
            "max_samples": 200,
            "max_seconds": 5.0,
            # At least 9 samples a side make a Mann-Whitney U test worth doing.
            "min_samples": 10,
            # Whether to take the energy of some further calls, where the machine counts it; two to
            # three seconds a case (accel_bench.energy).
            "energy": False,
        },
    }
    return ml_collections.ConfigDict(fields)


def by_platform(**values: Any) -> dict[str, Any]:
    """Values that depend on the platform: `cpu=`, `gpu=`, `tpu=`, or `accelerator=` for both."""
    if "accelerator" in values:
        accelerator = values.pop("accelerator")
        values = {"gpu": accelerator, "tpu": accelerator, **values}
    if sorted(values) != sorted(PLATFORMS):
        raise ValueError(f"by_platform needs a value for each of {PLATFORMS}, got {values}")
    return values


def to_plain(value: Any) -> Any:
    """The config as nested dicts, lists, numbers, strings, booleans and None."""
    if isinstance(value, ml_collections.ConfigDict | ml_collections.FrozenConfigDict):
        return {key: to_plain(value[key]) for key in value}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    return value


def from_plain(plain: Any, origin: str) -> Config:
    """The config that `to_plain` turned into `plain`.

    Args:
      plain: what was read from JSON.
      origin: where it was read, for messages.

    Raises:
      RequestError: it is not a config.
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("cases"), dict):
        raise RequestError(
            f"{origin} is not a config: it has no 'cases'; a run writes one as config.json"
        )
    config = base(str(plain.get("name", "unnamed")))
    unknown_fields = sorted(set(plain) - set(config))
    if unknown_fields:
        raise RequestError(f"{origin} has unknown config fields: {', '.join(unknown_fields)}")
    _check_like(plain, _model_fields(), "config", partial=True)
    try:
        config.update(_tuples(plain))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise RequestError(f"{origin} is not a config: {error}") from error
    check(config)
    return config


def check(config: Config) -> None:
    """Checks the type of every field: a config may have been edited by hand.

    Raises:
      RequestError: a field is unknown, missing or of another type than `base` gives it.
    """
    plain = to_plain(config)
    _check_like(plain, _model_fields(), "config")
    if not 0 <= plain["seed"] < 2**31:
        raise RequestError(f"config.seed={plain['seed']}: choose a whole number from 0 to 2^31 - 1")
    for name, section in plain["cases"].items():
        if not name:
            raise RequestError("config.cases holds a case without a name")
        if not isinstance(section, dict) or not isinstance(section.get("workload"), str):
            raise RequestError(
                f"config.cases.{name} must name a workload and its parameters, as in "
                '{"workload": "matmul", "shape": "1024"}'
            )


def _model_fields() -> dict[str, Any]:
    return to_plain(base(""))


def _check_like(value: Any, model: Any, where: str, partial: bool = False) -> None:
    """Raises `RequestError` unless `value` has the fields of `model` (or some), and their types."""
    if isinstance(model, dict):
        if not isinstance(value, dict):
            raise RequestError(f"{where} must be a group of fields, not {_short(value)}")
        for name in value if model else ():
            if name not in model:
                raise unknown(f"config field in {where}:", str(name), model)
        for name, item in model.items():
            if name in value or not partial:
                _check_like(value.get(name), item, f"{where}.{name}", partial)
    elif isinstance(model, list):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise RequestError(f"{where} must be a list of names, not {_short(value)}")
    elif model is not None:
        number = isinstance(model, float) and isinstance(value, int | float)
        if isinstance(value, bool) is not isinstance(model, bool) or not (
            number or isinstance(value, type(model))
        ):
            kind = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
            raise RequestError(f"{where} must be {kind[type(model)]}, not {_short(value)}")


def read_json(path: str | Path) -> Config:
    """Reads a `config.json` that a run wrote; raises `RequestError` where it cannot be read."""
    try:
        plain = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise RequestError(f"cannot read the config {path}: {error}") from error
    return from_plain(plain, str(path))


def write_json(config: Config, path: Path) -> None:
    """Writes the config so that `read_json` gives the same one back."""
    path.write_text(json.dumps(to_plain(config), indent=2) + "\n")


def experiment(config: Config) -> dict[str, Any]:
    """The part of a config, or of its plain form, that says what is measured.

    It is what two machines must agree on.
    """
    plain = to_plain(config)
    return {key: plain[key] for key in sorted(plain) if key not in (*RUN_FIELDS, "name")}


def config_hash(config: Config) -> str:
    """Twelve hexadecimal digits that are equal for equal experiments, whatever the machine."""
    text = json.dumps(experiment(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differing_fields(one: Any, other: Any, prefix: str = "") -> list[str]:
    """Dotted names of the fields in which two plain configs differ, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
        return [
            line
            for name in names
            for line in differing_fields(one.get(name), other.get(name), f"{prefix}{name}.")
        ]
    name = prefix.rstrip(".")
    if one is None or other is None:
        return [f"{name}: only in the {'second' if one is None else 'first'}"]
    return [f"{name}: {_short(one)} against {_short(other)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
