"""Meshes as text: `data:4,model:2`. Checked without jax."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from accel_bench.errors import RequestError


def parse(text: str) -> dict[str, int]:
    """Axis name -> size, in order; empty for an empty text (one device).

    Raises:
      RequestError: the text is not a mesh.
    """
    axes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"([a-z][a-z_]*):([0-9]+)", part)
        if not match or int(match[2]) < 1:
            raise RequestError(
                f"--mesh={text}: {part!r} is not an axis; write name:size, as in data:4,model:2"
            )
        if match[1] in axes:
            raise RequestError(f"--mesh={text}: the axis {match[1]!r} stands there twice")
        axes[match[1]] = int(match[2])
    return axes


def text(axes: Mapping[str, int]) -> str:
    """The mesh as it is written on the command line."""
    return ",".join(f"{axis}:{length}" for axis, length in axes.items())


def size(axes: dict[str, int]) -> int:
    """Number of devices in a mesh; 1 for no mesh."""
    return math.prod(axes.values())


def check(text: str, num_devices: int | None, where: str) -> dict[str, int]:
    """Parses a mesh and checks it against the devices there are.

    Args:
      text: the mesh.
      num_devices: devices there are, None where that is not known yet.
      where: what the devices are, for the message.

    Raises:
      RequestError: not a mesh, or its sizes do not multiply to the number of devices.
    """
    axes = parse(text)
    if axes and num_devices is not None and size(axes) != num_devices:
        product = " x ".join(map(str, axes.values())) + " = " if len(axes) > 1 else ""
        hint = f" or --fake_devices={size(axes)}" if where.startswith("cpu") else ""
        raise RequestError(
            f"--mesh={text} needs {product}{size(axes)} devices, but there "
            f"{'is' if num_devices == 1 else 'are'} {num_devices} ({where}): choose sizes that "
            f"multiply to {num_devices}{hint}"
        )
    return axes
