"""Device traces: the time that the device itself says it was busy, as a second figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData


def trace(run: Callable[[], Any], directory: Path) -> dict[str, Any]:
    """Runs a function under jax's profiler and reads the device's busy time from the trace.

    Args:
      run: what to trace; must return when it is done.
      directory: keeps the trace, for TensorBoard or Perfetto.

    Returns:
      `device_s`: seconds in which a device ran something, of the busiest device; None, with a
      `reason`, where the trace has no device events, as on CPUs. `directory`: where the trace is.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with jax.profiler.trace(str(directory)):
        run()
    busy = [
        busy_seconds(plane)
        for file in sorted(directory.rglob("*.xplane.pb"))
        for plane in ProfileData.from_file(str(file)).planes
        if plane.name.startswith("/device:") and "CUSTOM" not in plane.name
    ]
    found = {"directory": directory.name}
    if not any(busy):
        return {"device_s": None, "reason": "no device events", **found}
    return {"device_s": max(busy), **found}


def busy_seconds(plane: Any) -> float:
    """Length of the union of all events on a device's plane, in seconds.

    TPUs have a line of whole programs (`XLA Modules`); GPUs have a line per stream.
    """
    lines = list(plane.lines)
    modules = [line for line in lines if line.name == "XLA Modules"]
    spans = sorted(
        (event.start_ns, event.start_ns + event.duration_ns)
        for line in modules or [line for line in lines if line.name.startswith("Stream")]
        for event in line.events
    )
    total = 0.0
    end = float("-inf")
    for start, stop in spans:
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total * 1e-9
