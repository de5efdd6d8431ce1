"""From the logical names of dimensions to shardings over a device mesh.

The table itself is `models.sizes.MESH_AXES_OF`. A mesh may have any of its axes:

    data   copies of the model, each with its part of the batch
    fsdp   parts of the batch too, and the weights' width dimension divided with it
    model  attention heads, MLP width and vocabulary divided (tensor parallel)
    seq    the length of the sequence divided; keys and values are gathered

An axis that the mesh lacks divides nothing.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from models.sizes import MESH_AXES_OF

LogicalAxes = tuple[str | None, ...]


def make_mesh(shape: dict[str, int], devices: Sequence[Any]) -> Mesh:
    """Mesh over `devices` in the given order, last axis fastest, all axes of type Auto.

    Auto is meant: the model constrains its activations at a few places and the compiler fills in
    the rest, so that one source runs on every mesh. (`jax.make_mesh` would give Explicit axes.)

    Raises:
      ValueError: if the sizes do not multiply to the number of devices.
    """
    names = tuple(shape)
    sizes = tuple(shape.values())
    return Mesh(np.asarray(devices).reshape(sizes), names, axis_types=(AxisType.Auto,) * len(names))


def partition_spec(axes: LogicalAxes, mesh: Mesh) -> PartitionSpec:
    """Spec with one entry per logical name; None stands for a dimension that stays whole."""
    entries: list[str | tuple[str, ...] | None] = []
    for name in axes:
        present = tuple(a for a in MESH_AXES_OF[name] if a in mesh.shape) if name else ()
        entries.append(None if not present else present[0] if len(present) == 1 else present)
    return PartitionSpec(*entries)


def named_sharding(axes: LogicalAxes, mesh: Mesh) -> NamedSharding:
    """Sharding of an array whose dimensions have these logical names."""
    return NamedSharding(mesh, partition_spec(axes, mesh))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of tokens, (batch, length + 1). The odd length stays whole: tokens are small."""
    return named_sharding(("batch", None), mesh)


def constrain(x: jax.Array, axes: LogicalAxes, mesh: Mesh | None) -> jax.Array:
    """Pins an activation to its sharding; nothing to do without a mesh."""
    if mesh is None:
        return x
    return jax.lax.with_sharding_constraint(x, named_sharding(axes, mesh))
