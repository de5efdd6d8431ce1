"""Collectives: their kind, mesh axes and bytes, and whether other work runs meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from accel_bench.hlo.groups import find_groups, mesh_axes
from accel_bench.hlo.kinds import COMPUTE, NO_WORK_TARGETS, call_target, collective_kind
from accel_bench.hlo.pairs import continues, find_end, find_host
from accel_bench.hlo.runs import Run, sum_known, sum_over_runs
from accel_bench.hlo.shapes import array_bytes
from accel_bench.hlo.text import Computation, Instruction, Module


def overlapped(module: Module, computation: Computation, instruction: Instruction) -> bool | None:
    """Whether a collective has work scheduled between its start and its end.

    None where the text is not scheduled.
    """
    if not module.is_scheduled:
        return None
    place, start = computation, instruction
    if not start.opcode.endswith("-start") and (host := find_host(module, computation)):
        place, start = host
    end = find_end(module, place, start)
    if end is None:
        return False
    order = list(place.instructions.values())
    between = order[order.index(start) + 1 : order.index(end)]
    return any(i.opcode in COMPUTE and call_target(i) not in NO_WORK_TARGETS for i in between)


def _kind(computation: Computation, run: Run) -> str:
    """Kind of a collective; a fusion that keeps a part of an all-reduce is a reduce-scatter."""
    kind = collective_kind(run.instruction) or run.instruction.opcode
    if kind != "all-reduce" or not run.execution.fused:
        return kind
    name = run.instruction.name
    for _ in range(64):
        users = computation.users.get(name, [])
        if len(users) != 1:
            return kind
        if users[0].opcode == "dynamic-slice":
            return "reduce-scatter"
        if users[0].opcode not in ("bitcast", "reshape", "copy"):
            return kind
        name = users[0].name
    return kind


def wire_bytes(kind: str, size: int, devices: int) -> int | None:
    """Bytes that a device sends at least, for a buffer of `size` bytes in a group of devices.

    Patarasuk and Yuan 2009 (all-reduce); PERFORMANCE.md of nccl-tests.
    """
    if kind in ("all-gather", "reduce-scatter", "all-to-all"):
        return size * (devices - 1) // devices
    if kind == "all-reduce":
        return 2 * size * (devices - 1) // devices
    return size if kind in ("collective-permute", "collective-broadcast") else None


def _facts(module: Module, run: Run, axes: Mapping[str, int]) -> dict[str, Any] | None:
    """One run of a collective, as `find_collectives` tells it; None if it joins nobody."""
    computation, instruction, _ = run
    kind = _kind(computation, run)
    # Without a channel the numbers are those of replicas, not of partitions.
    partitions = module.num_partitions if "channel_id=" in instruction.attributes else 1
    groups = find_groups(instruction, module.replica_count * partitions)
    permute = kind == "collective-permute"
    along, devices, reason = None, None, None
    if groups is None:
        reason = "the text names no groups of devices that can be read"
    else:
        talking = [group for group in groups if len(set(group)) > 1]
        if not talking:
            return None
        along = mesh_axes(groups, axes, permute=permute)
        if along is None:
            reason = "its groups of devices do not lie along axes of the mesh"
        devices = max(len(group) for group in talking)
        if permute:
            devices = math.prod(axes[name] for name in along) if along else None
    shapes = computation.operand_shapes(instruction)
    size = sum_known([array_bytes(arrays, None) for arrays in shapes])
    if kind == "all-gather" and size is not None:
        size = None if devices is None else size * devices
    types = sorted({shape.element_type for arrays in shapes for shape in arrays or ()})
    wire = None
    if size is not None and (permute or devices is not None):
        wire = wire_bytes(kind, size, devices or 1)
    return {
        "kind": kind,
        "axes": None if along is None else list(along),
        "reason": reason,
        "dtype": "+".join(types) or None,
        "group_size": devices,
        "overlapped": overlapped(module, computation, instruction),
        "calls": 1,
        "bytes": size,
        "wire_bytes": wire,
    }


def find_collectives(
    module: Module, all_runs: list[Run], axes: Mapping[str, int], unknown: list[str]
) -> list[dict[str, Any]]:
    """Collectives of one call of the program, those that are alike summed.

    Returns:
      kind: opcode, as `all-gather`.
      axes: names of the mesh's axes along which devices talk; None, with a `reason`, if unknown.
      dtype: HLO name of the element type.
      group_size: devices that talk to each other.
      overlapped: see `overlapped`.
      calls: how many run.
      bytes: of the whole buffer, before a reduction or after a gather.
      wire_bytes: that each device sends at least, see `wire_bytes`.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in all_runs:
        if collective_kind(run.instruction) is None or run.execution.count == 0:
            continue
        if run.execution.fused and continues(run.computation):
            continue
        one = _facts(module, run, axes)
        if one is None:
            continue
        counted = ("calls", "bytes", "wire_bytes")
        key = str({name: value for name, value in one.items() if name not in counted})
        kept = found.setdefault(key, {**one, **dict.fromkeys(counted, 0)})
        for name in counted:
            part = sum_over_runs(iter([(one[name], run)]), unknown, f"collective {name}")
            kept[name] = None if part is None or kept[name] is None else kept[name] + part
        if one["reason"]:
            unknown.append(f"collective axes: {run.instruction.name}: {one['reason']}")
    return sorted(found.values(), key=lambda one: (one["kind"], -(one["wire_bytes"] or 0)))
