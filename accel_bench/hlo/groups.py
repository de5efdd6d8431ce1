"""Which devices of a collective talk to each other, and along which axes of the mesh that is."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping

from accel_bench.hlo.shapes import integers
from accel_bench.hlo.text import Instruction

_IOTA = re.compile(r"\[([\d,]+)\](?:<=\[([\d,]+)\])?(?:T\(([\d,]+)\))?")
_MESH = re.compile(r"@?mesh\w*\[([^\]]*)\](?:, device_ids=\((.*?\)?)\))? ?\{([^}]*)\}")

# Numbers of devices that talk to each other; of a permutation, (source, target) pairs.
Groups = list[tuple[int, ...]]


def _iota(text: str, count: int) -> list[int] | None:
    """Numbers of `[2,2]<=[4]` or `[4]<=[2,2]T(1,0)` in order; None if not `count` of them."""
    found = _IOTA.fullmatch(text.strip())
    dims = integers(found[2] or found[1]) if found else ()
    order = integers(found[3]) if found and found[3] else tuple(range(len(dims)))
    if not found or math.prod(dims) != count or sorted(order) != list(range(len(dims))):
        return None
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    ranges = [[strides[i] * k for k in range(dims[i])] for i in order]
    return [sum(parts) for parts in itertools.product(*ranges)]


def _mesh_groups(text: str, count: int) -> Groups | None:
    """Groups of `mesh['a'=2,'b'=4], device_ids=(...) {'b':(1)2}`; (1)2 is part 2 of an axis."""
    found = _MESH.match(text)
    if found is None:
        return None
    sizes = {n: int(s) for n, s in re.findall(r"'?([\w.-]+)'?=(\d{1,9})", found[1])}
    ids: list[int] | None = list(range(count))
    if found[2]:
        ids = _iota(found[2], count) if "[" in found[2] else list(integers(found[2]))
    if ids is None or sorted(ids) != list(range(count)) or math.prod(sizes.values()) != count:
        return None
    strides = {n: math.prod(list(sizes.values())[i + 1 :]) for i, n in enumerate(sizes)}
    ranges = []
    for name, before, size in re.findall(r"'?([\w.-]+)'?(?::\((\d{1,9})\)(\d{1,9}))?", found[3]):
        part, outer = int(size or sizes.get(name, 0)), int(before or 1)
        if not part or sizes.get(name, 0) % (outer * part):
            return None
        stride = strides[name] * (sizes[name] // (outer * part))
        ranges.append([stride * k for k in range(part)])
    offsets = [sum(parts) for parts in itertools.product(*ranges)]
    covered: set[int] = set()
    groups = []
    for first in range(count):
        if first not in covered:
            members = [first + offset for offset in offsets]
            if not covered.isdisjoint(members) or max(members) >= count:
                return None
            covered.update(members)
            groups.append(tuple(ids[member] for member in members))
    return groups


def find_groups(instruction: Instruction, num_devices: int) -> Groups | None:
    """Groups of a collective of `num_devices` in all.

    None where the text says nothing, or nothing that can be read.
    """
    pairs = instruction.attribute("source_target_pairs")
    text = instruction.attribute("replica_groups") if pairs is None else pairs
    if text is None or not 1 <= num_devices <= 1 << 20:
        return None
    if "mesh" in text:
        ids = instruction.attribute("device_ids")
        return _mesh_groups(text if ids is None else f"{text}, device_ids={ids}", num_devices)
    if text.startswith("["):
        shape = integers(text.partition("]")[0])
        numbers = _iota(text, num_devices)
        if numbers is None or len(shape) != 2 or math.prod(shape) != num_devices:
            return None
        return [tuple(numbers[i : i + shape[1]]) for i in range(0, num_devices, shape[1])]
    listed = [integers(group) for group in re.findall(r"\{([\d,\s]+)\}", text)]
    if not listed and pairs is None:
        return [tuple(range(num_devices))] if re.fullmatch(r"\{\s*\}", text) else None
    return listed


def mesh_axes(
    groups: Groups, axes: Mapping[str, int], permute: bool = False
) -> tuple[str, ...] | None:
    """Mesh axes that groups of devices run along; None if they do not lie along axes.

    Devices are numbered row by row, the last axis fastest; an axis of size 1 is never named. Of a
    permutation's pairs, the axes along which some source and target differ.
    """
    sizes = list(axes.values())
    total = math.prod(sizes)
    devices = [device for group in groups for device in group]
    if not groups or any(not 0 <= device < total for device in devices):
        return None
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]

    def differ(one: int, other: int) -> set[int]:
        where = zip(strides, sizes, strict=True)
        return {i for i, (s, n) in enumerate(where) if one // s % n != other // s % n}

    along = [set().union(*(differ(group[0], device) for device in group)) for group in groups]
    names = tuple(axes)
    if permute:
        return tuple(names[i] for i in sorted(set().union(*along)))
    size = math.prod(sizes[i] for i in along[0])
    if sorted(devices) != list(range(total)) or any(one != along[0] for one in along):
        return None
    if any(len(group) != size for group in groups):
        return None
    return tuple(names[i] for i in sorted(along[0]))
