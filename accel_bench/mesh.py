"""Meshes as text: `data:4,model:2`, or `fsdp:*,model:8` for all the devices there are.

Checked without jax.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from accel_bench.errors import RequestError

# The size of an axis that takes what the others leave, written `*`.
REST = -1


def parse(text: str) -> dict[str, int]:
    """Axis name -> size, in order; empty for an empty text (one device).

    Raises:
      RequestError: the text is not a mesh.
    """
    axes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        match = re.fullmatch(r"([a-z][a-z_]*):([0-9]{1,9}|\*)", part)
        length = REST if match and match[2] == "*" else int(match[2]) if match else 0
        if not match or length == 0:
            raise RequestError(
                f"--mesh={text}: {part!r} is not an axis; write name:size, as in data:4,model:2, "
                "or name:* for what the others leave"
            )
        if match[1] in axes:
            raise RequestError(f"--mesh={text}: the axis {match[1]!r} stands there twice")
        if length == REST and REST in axes.values():
            raise RequestError(f"--mesh={text}: only one axis can take the rest")
        axes[match[1]] = length
    return axes


def text(axes: Mapping[str, int]) -> str:
    """The mesh as it is written on the command line."""
    return ",".join(f"{axis}:{'*' if size == REST else size}" for axis, size in axes.items())


def size(axes: Mapping[str, int]) -> int:
    """Number of devices in a mesh, `*` counted as 1; 1 for no mesh."""
    return math.prod(length for length in axes.values() if length != REST)


def check(text: str, num_devices: int, where: str) -> dict[str, int]:
    """Parses a mesh, checks it against the devices there are and fills in `*`.

    Args:
      text: the mesh.
      num_devices: devices there are.
      where: what the devices are, for the message.

    Raises:
      RequestError: not a mesh, or its sizes do not multiply to the number of devices.
    """
    axes = parse(text)
    known = size(axes)
    filled = {
        axis: num_devices // known if length == REST else length for axis, length in axes.items()
    }
    if axes and math.prod(filled.values()) != num_devices:
        fixed = [str(length) for length in axes.values() if length != REST]
        product = " x ".join(fixed) + " = " if len(fixed) > 1 else ""
        multiple = "a multiple of " if REST in axes.values() else ""
        hint = f" or --fake_devices={known}" if where.startswith("cpu") else ""
        raise RequestError(
            f"--mesh={text} needs {multiple}{product}{known} devices, but there "
            f"{'is' if num_devices == 1 else 'are'} {num_devices} ({where}): choose sizes that "
            f"multiply to {num_devices}{hint}"
        )
    return filled
