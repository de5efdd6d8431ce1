"""The record's schema (`record.schema.json`), and checks of plain data against it.

The schema is the one place that says what a record is; a reader in another language uses the same
file. It is compiled to Python when the first record is checked, so that whoever reads and writes
none does not pay for it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

FILE_NAME = "record.schema.json"
# What many records have in common and a reader checks once: see `check`.
PARTS = ("env", "target")
# Field and rule -> what it means that the rule is broken; other rules speak for themselves.
_SENTENCES = {
    ("reason", "not"): "a record that is not ok needs a reason",
    ("samples_s", "minItems"): "status ok without samples",
    ("samples_s", "maxItems"): "a compiled record with samples",
    ("env", "minProperties"): "a record needs the environment it was made in",
}


@functools.cache
def document() -> dict[str, Any]:
    """The JSON Schema (draft 7) of a record."""
    from importlib import resources

    return json.loads(resources.files("accel_bench").joinpath(FILE_NAME).read_text("utf-8"))


def check(value: Any, part: str = "record") -> None:
    """Checks plain data, as JSON has it.

    Args:
      value: what to check.
      part: what it should be: `record`; one of `PARTS`; or `rest`, a record whose parts have been
        checked already.

    Raises:
      ValueError: it is something else; the text names the field.
    """
    from fastjsonschema import JsonSchemaException

    try:
        _checker(part)(value)
    except JsonSchemaException:
        raise ValueError(_why(value, part)) from None


def _why(value: Any, part: str) -> str:
    """Which field it is that breaks the schema, from slower checks that say so."""
    from fastjsonschema import JsonSchemaException

    # What a field holds first: rules on several fields take each to be what it should.
    for across in (False, True):
        try:
            _checker(part, detailed=True, across=across)(value)
        except JsonSchemaException as error:
            return _phrase(error, part)
    return f"no {part}"


@functools.cache
def _checker(part: str, detailed: bool = False, across: bool = True) -> Callable[[Any], Any]:
    """The compiled check of a record or a part.

    Args:
      part: as for `check`.
      detailed: whether its exceptions say which rule is broken; that takes time.
      across: whether rules on several fields are checked, too.
    """
    import fastjsonschema

    schema = _without_references(document(), document()["definitions"])
    fields = schema["properties"]
    if not across:
        schema.pop("allOf")
    if part == "rest":
        schema = {**schema, "properties": {**fields, **dict.fromkeys(PARTS, True)}}
    elif part != "record":
        schema = {"$schema": schema["$schema"], **fields[part]}
    return fastjsonschema.compile(
        schema, use_default=False, use_formats=False, detailed_exceptions=detailed
    )


def _without_references(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with its definitions in their places: a third of the time of following them."""
    if isinstance(node, list):
        return [_without_references(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _without_references(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {
        name: _without_references(item, definitions)
        for name, item in node.items()
        if name != "definitions"
    }


def _phrase(error: Any, part: str) -> str:
    """A broken rule in words: `facts.error holds "x"`."""
    whole = part in ("record", "rest")
    name = error.name.removeprefix("data").removeprefix("." if whole else "")
    name = name if whole else part + name
    if (name, error.rule) in _SENTENCES:
        return _SENTENCES[name, error.rule]
    if not name and error.rule == "type":
        return "not a JSON object"
    if error.rule == "required":
        missing = [field for field in error.rule_definition if field not in error.value]
        where = f"{name}." if name else ""
        verb = "is" if len(missing) == 1 else "are"
        return f"{', '.join(where + field for field in missing)} {verb} missing"
    held = json.dumps(error.value)
    held = held if len(held) <= 40 else held[:37] + "..."
    known = f", none of {', '.join(error.rule_definition)}" if error.rule == "enum" else ""
    return f"{name} holds {held}{known}"
