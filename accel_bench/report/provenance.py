"""Where every number is from: experiment, versions, settings, commit, and the whole configs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accel_bench import derive
from accel_bench.comparison import Comparison
from accel_bench.record import Record, strict
from accel_bench.report.markup import escape, listed, plain_table, tag

# Of an environment: what differs from worker to worker of one run and says nothing of the result.
_VOLATILE = ("memory_available",)
_MAX_ENVIRONMENTS = 12
_MAX_JSON = 40_000


@dataclass
class Environment:
    """An environment and the records made in it: source letter -> records."""

    number: int
    env: Mapping[str, Any]
    records: dict[str, list[Record]] = field(default_factory=dict)


def html(found: Comparison) -> str:
    """The section on provenance."""
    environments = _environments(found)
    shown = environments[:_MAX_ENVIRONMENTS]
    more = ""
    if len(environments) > len(shown):
        more = tag("p", f"{len(environments) - len(shown)} more environments are left out here.")
    return (
        tag("h2", "Provenance", id="provenance")
        + _experiments(found)
        + _mixed(found, environments)
        + _versions(shown)
        + more
        + "".join(_configs(found))
        + "".join(_details(f"{_name(e)}: everything captured", e.env) for e in shown)
    )


def _plain(env: Mapping[str, Any]) -> str:
    """Equal text for equal environments."""
    kept = {key: value for key, value in env.items() if key not in _VOLATILE}
    if isinstance(kept.get("cpu"), Mapping):
        kept["cpu"] = {k: v for k, v in kept["cpu"].items() if k != "load_at_start"}
    return json.dumps(strict(kept), sort_keys=True)


def _environments(found: Comparison) -> list[Environment]:
    """Each environment once."""
    by_text: dict[str, Environment] = {}
    texts: dict[int, str] = {}  # records of one run share their environment's object
    for source in found.sources:
        for record in source.records:
            text = texts.get(id(record.env)) or _plain(record.env)
            texts[id(record.env)] = text
            if text not in by_text:
                by_text[text] = Environment(len(by_text) + 1, record.env)
            by_text[text].records.setdefault(source.letter, []).append(record)
    return list(by_text.values())


def _name(environment: Environment) -> str:
    return f"Environment {environment.number} ({', '.join(environment.records)})"


def _experiments(found: Comparison) -> str:
    rows = []
    for source in found.sources:
        hashes = dict.fromkeys(record.config_hash for record in source.records)
        runs = list(dict.fromkeys(record.run_id for record in source.records))
        versions = sorted({record.schema_version for record in source.records})
        ids = ", ".join(runs[:5]) + (f" and {len(runs) - 5} more" if len(runs) > 5 else "")
        schema = ", ".join(str(version) for version in versions)
        rows.append((source.letter, ", ".join(hashes), ids, schema))
    header = ("source", "config hash", "runs", "schema")
    return plain_table(header, rows, "Experiments")


def _mixed(found: Comparison, environments: Sequence[Environment]) -> str:
    """Rows of a source that were not made in the environment of its others."""
    notes = []
    for source in found.sources:
        held = [e for e in environments if source.letter in e.records]
        held.sort(key=lambda e: -len(e.records[source.letter]))
        for other in held[1:]:
            records = other.records[source.letter]
            cases = [f"{r.workload} {derive.label(r)} {r.precision}" for r in records[:3]]
            more = f" and {len(records) - 3} more" if len(records) > 3 else ""
            notes.append(
                f"{source.letter}: {', '.join(cases)}{more} in environment {other.number}, its "
                f"other rows in environment {held[0].number}"
            )
    return listed(notes, class_="warn")


def _flat(env: Mapping[str, Any]) -> dict[str, str]:
    """Field -> value, the fields of mappings by themselves."""
    found = {}
    for key, value in env.items():
        if isinstance(value, Mapping):
            found |= {f"{key}: {name}": _word(item) for name, item in value.items()}
        else:
            found[key] = _word(value)
    return found


def _word(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return json.dumps(strict(value)) if isinstance(value, Mapping) else str(value)


def _versions(environments: Sequence[Environment]) -> str:
    """A row for each version and setting, a column for each environment."""
    flat = [_flat(environment.env) for environment in environments]
    keys = list(dict.fromkeys(key for env in flat for key in env))
    rows = []
    for key in keys:
        values = [env.get(key, "not set") for env in flat]
        rows.append((f"{key} ≠" if len(set(values)) > 1 else key, *values))
    header = ("field", *(_name(environment) for environment in environments))
    return plain_table(header, rows, "Environments; ≠ marks what differs")


def _configs(found: Comparison) -> Iterator[str]:
    """Each config once, with the sources that it is of."""
    letters: dict[str, list[str]] = {}
    configs: dict[str, Any] = {}
    without = []
    for source in found.sources:
        if source.config is None:
            without.append(source.letter)
            continue
        text = json.dumps(strict(source.config), sort_keys=True)
        letters.setdefault(text, []).append(source.letter)
        configs[text] = source.config
    for text, named in letters.items():
        yield _details(f"Config ({', '.join(named)})", configs[text])
    if without:
        yield tag("p", escape(f"No config.json beside the records of {', '.join(without)}."))


def _details(title: str, value: Any) -> str:
    text = json.dumps(strict(value), indent=2, ensure_ascii=False)
    body = tag("pre", escape(text, _MAX_JSON), tabindex=0)
    return tag("details", tag("summary", escape(title)) + body)
