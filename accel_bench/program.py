"""What the compiler made of a workload, read from the compiled program."""

from __future__ import annotations

import re
from typing import Any

from accel_bench.hlo import products
from accel_bench.hlo.text import parse

# HLO's names of element types, by numpy's.
HLO_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "int8": "s8",
    "int32": "s32",
}


def dot_operand_types(text: str) -> set[str]:
    """Element types (HLO names) of the operands of every product in a program's text.

    A product is a dot, a convolution, or a call of a library's matrix product, of which the first
    two operands are the matrices. Empty where the text shows none.
    """
    return {
        name
        for computation, instruction in parse(text).instructions()
        if products.is_product(instruction)
        for name in products.operand_types(computation, instruction)
    }


def holds(text: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the regular expressions is found in the program's text."""
    return not patterns or any(re.search(pattern, text) for pattern in patterns)


def memory(compiled: Any) -> dict[str, int | None]:
    """Bytes per device of arguments, outputs, temporaries, aliased buffers, and the peak of what
    lives at the same time; None if unknown.

    Back ends report nothing, zeros or -1 where they do not know.
    """
    try:
        analysis = compiled.memory_analysis()
    except NotImplementedError:
        analysis = None
    fields = {
        "arguments": "argument_size_in_bytes",
        "outputs": "output_size_in_bytes",
        "temporaries": "temp_size_in_bytes",
        "aliased": "alias_size_in_bytes",
        "peak": "peak_memory_in_bytes",
    }
    sizes = {name: getattr(analysis, attribute, None) for name, attribute in fields.items()}
    sizes = {name: None if size is None or size < 0 else int(size) for name, size in sizes.items()}
    sizes["peak"] = sizes["peak"] or None
    if not sizes["arguments"]:  # a program without arguments is none of ours
        return dict.fromkeys(sizes)
    return sizes


def needed_bytes(sizes: dict[str, int | None]) -> int | None:
    """Memory one device needs to run the program; None if unknown."""
    parts = [sizes[name] for name in ("arguments", "outputs", "temporaries", "aliased")]
    if None in parts:
        return None
    arguments, outputs, temporaries, aliased = (part or 0 for part in parts)
    return arguments + outputs + temporaries - aliased
