"""From a config to the list of cases that a run goes through. Imports no jax."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accel_bench import mesh
from accel_bench import precision as precisions
from accel_bench.config import Config, to_plain
from accel_bench.detect import PLATFORMS
from accel_bench.errors import RequestError, unknown
from accel_bench.workloads import WORKLOADS
from accel_bench.workloads.params import Collective, Placed

BASELINES = ("numpy", "numpy_1thread", "torch", "cupy")
XLA = "xla"
# Parameters of which there are many, and which cases that stand together mostly share.
_SETTINGS = (
    "steps", "learning_rate", "warmup", "weight_decay", "clip", "shifts", "temperature", "top_k",
)  # fmt: skip
# Parameters whose value alone would not say what it is.
_NAMED = ("processes", "link", "exchange", "accumulate", "local_steps", "mesh", *_SETTINGS)
# Parameters that say how a case is looked at and not what it is.
_UNSAID = ("eval_every", "checkpoint_every", "also_in")
# Parameters that say nothing where they are as they are without being asked for.
_PLAIN = {
    "exchange": "auto", "accumulate": 1, "local_steps": 1, "file": "", "shifts": False,
    "sampling": "greedy",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One row to be: a workload with its parameters in one precision.

    Attributes:
      name: the case's name in the config.
      workload: a key of `WORKLOADS`.
      params: that workload's parameters, plain values.
      precision: a key of `PRECISIONS`.
      implementation: `xla`, or a library that does the same as a baseline.
    """

    name: str
    workload: str
    params: Mapping[str, Any]
    precision: str
    implementation: str = XLA

    @property
    def key(self) -> str:
        """Text that is equal for equal cases and for no others, in any run."""
        plain = [self.workload, dict(self.params), self.precision, self.implementation]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What a person calls it: `matmul 2048 bf16`."""
        parts = [self.workload, describe(self.params)]
        if WORKLOADS[self.workload].uses_precision:
            parts.append(self.precision)
        if self.implementation != XLA:
            parts.append(self.implementation)
        return " ".join(parts)

    def typed_params(self) -> Any:
        """The parameters as the workload's own dataclass."""
        return WORKLOADS[self.workload].params(**self.params)


def describe(params: Mapping[str, Any]) -> str:
    """Parameters in a few words, for tables and messages: `gpt2_char train_step b12 l256`."""
    words = []
    # ConfigDicts sort their fields: what names the case comes first.
    first = [key for key in ("model", "task", "phase", "op", "direction") if key in params]
    for key in [*first, *(key for key in params if key not in first)]:
        value = params[key]
        if key in _UNSAID or _PLAIN.get(key) == value:
            continue
        if key == "bytes" and isinstance(value, int):
            words.append(format_bytes(value))
        elif key in ("batch", "length", "chunks"):
            words.append(f"{key[0]}{value}")
        elif key == "shifts":
            words.append("with shifts")
        elif key in _NAMED:
            words.append(f"{key.replace('_', ' ')} {value}")
        elif isinstance(value, Mapping):
            words += [f"{name}={item}" for name, item in value.items()]
        else:
            words.append(str(value))
    return " ".join(words)


def shared(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Settings, as a learning rate, that have one value in all of these parameters."""
    first = every[0]
    return {
        key: value
        for key, value in first.items()
        if key in _SETTINGS and all(key in params and params[key] == value for params in every)
    }


def format_bytes(count: float) -> str:
    """Bytes with a binary prefix: `16 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    raise AssertionError


def expand(config: Config, platform: str, axes: Mapping[str, int], devices: int = 1) -> list[Case]:
    """All cases of a config, in the order in which they run.

    Args:
      config: the experiment.
      platform: `cpu`, `gpu` or `tpu`: picks the value of each `by_platform` field.
      axes: the mesh.
      devices: how many there are, for cases that go through meshes of several sizes.

    Returns:
      Cases, each once: by workload, then baselines by library.

    Raises:
      RequestError: an unknown workload, field, precision or baseline, or values that cannot work.
    """
    if not config.cases:
        raise RequestError("the config has no cases: set config.cases")
    names = [name.strip() for entry in config.precision for name in str(entry).split(",")]
    if not names:
        raise RequestError("no precision: name at least one, as in --precision=fp32")
    for name in names:
        precisions.lookup(name)
    for name in config.baselines:
        if name not in BASELINES:
            raise unknown("baseline", str(name), BASELINES)
    overrides = {key: value for key, value in to_plain(config.model).items() if value is not None}
    cases: list[Case] = []
    for case_name, section in to_plain(config.cases).items():
        cases += _expand_section(case_name, section, platform, axes, devices, names, overrides)
    for library in config.baselines:
        cases += [
            dataclasses.replace(case, implementation=str(library))
            for case in cases
            if case.workload == "matmul" and case.implementation == XLA
        ]
    # In the order of the table of workloads, since a ConfigDict keeps its keys in none; baselines
    # last and by library, since each of them needs a worker of its own.
    libraries = [XLA, *config.baselines]
    workloads = list(WORKLOADS)
    cases.sort(key=lambda c: (libraries.index(c.implementation), workloads.index(c.workload)))
    return list({case.key: case for case in cases}.values())


def _expand_section(
    case_name: str,
    section: Mapping[str, Any],
    platform: str,
    axes: Mapping[str, int],
    devices: int,
    names: list[str],
    overrides: dict[str, Any],
) -> list[Case]:
    where = f"config.cases.{case_name}"
    section = dict(section)
    workload = section.pop("workload", None)
    if workload not in WORKLOADS:
        raise unknown(f"workload in {where}:", str(workload), WORKLOADS)
    spec = WORKLOADS[workload]
    known = [field.name for field in dataclasses.fields(spec.params) if field.name != "overrides"]
    for key in section:
        if key not in known:
            raise unknown(f"field {where}.{key}, parameter of {workload}:", key, known)
    if "overrides" in (field.name for field in dataclasses.fields(spec.params)) and overrides:
        section["overrides"] = overrides
    required = [
        field.name
        for field in dataclasses.fields(spec.params)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    missing = [name for name in required if name not in section]
    if missing:
        raise RequestError(f"{where} lacks {', '.join(missing)}: {workload} needs it")
    swept = {key: _values(value, platform) for key, value in section.items()}
    if "mesh" in swept:
        swept["mesh"] = _each_size(swept["mesh"], devices)
    if "axis" in known:
        along = _each_axis(swept.pop("axis", [Collective.EACH]), axes)
        swept = {"axis": along, **swept}
    empty = [key for key, values in swept.items() if not values]
    if empty:
        raise RequestError(f"{where}.{empty[0]} holds no value: give at least one")
    cases = []
    for values in itertools.product(*swept.values()):
        params = dict(zip(swept, values, strict=True))
        try:
            typed: Any = spec.params(**params)
            if isinstance(typed, Placed):
                typed.check_place(platform)
            typed.check(own_axes(typed, axes))
        except RequestError as error:
            raise RequestError(f"{where}: {error}") from error
        for name in names if spec.uses_precision else ["fp32"]:
            cases.append(Case(case_name, workload, params, name))
    return cases


def own_axes(typed: Any, axes: Mapping[str, int]) -> Mapping[str, int]:
    """The mesh that a case of these parameters runs on, where the run's is `axes`."""
    return typed.own_axes(axes) if isinstance(typed, Placed) else axes


def _each_size(asked: list[Any], devices: int) -> list[Any]:
    """Meshes with `each` in the place of a size: 1, 2, 4 and so on, up to the devices there are."""
    found: list[Any] = []
    for text in asked:
        if not isinstance(text, str) or ":each" not in text:
            found.append(text)
            continue
        if text.count(":each") > 1:
            raise RequestError(f"mesh={text}: only one axis can go through each size")
        others = mesh.size(mesh.parse(text.replace(":each", ":1")))
        sizes = [2**power for power in range(devices.bit_length()) if 2**power * others <= devices]
        found += [text.replace(":each", f":{size}") for size in sizes or [1]]
    return found


def _each_axis(asked: list[Any], axes: Mapping[str, int]) -> list[Any]:
    """Mesh axes by name: `each` is every one of several devices; it stays where there is none."""
    wide = [axis for axis, size in axes.items() if size > 1] or [Collective.EACH]
    named = [wide if axis == Collective.EACH else [axis] for axis in asked]
    return list(itertools.chain.from_iterable(named))


def _values(value: Any, platform: str) -> list[Any]:
    if isinstance(value, dict) and value and set(value) <= set(PLATFORMS):
        if platform not in value:
            raise RequestError(f"no value for {platform} among {', '.join(value)}")
        value = value[platform]
    return value if isinstance(value, list) else [value]
