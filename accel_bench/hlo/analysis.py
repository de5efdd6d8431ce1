"""What one call of a compiled program does on one device, told from its text.

A figure that cannot be told is None, with a sentence that says why; none is a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accel_bench.hlo.code import describe_code, estimated_cycles
from accel_bench.hlo.collectives import find_collectives
from accel_bench.hlo.products import find_products
from accel_bench.hlo.runs import find_runs
from accel_bench.hlo.text import parse
from accel_bench.hlo.traffic import main_memory_bytes


def analyse(text: str, axes: Mapping[str, int]) -> dict[str, Any]:
    """Facts of one call of a program on one device, ready for strict JSON.

    Args:
      text: the optimised program, `compiled.as_text()`.
      axes: name -> size of the mesh's axes, devices numbered row by row.

    Returns:
      flops, flops_by_type, products: matrix products and convolutions, see `find_products`.
      bytes: traffic of main memory, an estimate.
      collectives: see `find_collectives`.
      code: see `describe_code`.
      cycles, cycles_without: a TPU compiler's own estimate, see `estimated_cycles`.
      unknown: sentences that say why a figure is None, or that a line could not be read.
    """
    module = parse(text)
    unknown = [f"text: {problem}" for problem in module.problems]
    if module.entry is None:
        unknown.append("text: there is no whole entry computation")
        names = ("flops", "flops_by_type", "products", "bytes", "collectives", "code")
        return {**dict.fromkeys((*names, "cycles", "cycles_without")), "unknown": unknown}
    all_runs = find_runs(module)
    facts = {
        **find_products(all_runs, unknown),
        "bytes": main_memory_bytes(module, all_runs, unknown),
        "collectives": find_collectives(module, all_runs, axes, unknown),
        "code": describe_code(module, all_runs, unknown),
        **estimated_cycles(all_runs, unknown),
    }
    return {**facts, "unknown": list(dict.fromkeys(unknown))}
