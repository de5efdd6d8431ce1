"""Energy of a case: joules of a stretch of the same calls, taken after the timing is over.

What a stretch of calls takes includes what the devices draw anyway. That power is taken beforehand,
while nothing runs, and a second figure is without it. Both stretches are long against the counter's
steps; no time of the record is taken in them. Which counter: `accel_bench.energy_counters`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from accel_bench.energy_counters import Counter, Unknown

# NVML's counter moves every 20 to 100 ms: over a second of 20 steps an end is off by a twentieth.
MIN_S = 1.0
MIN_UPDATES = 20
# A counter that moves more slowly is waited for so long, and not at all if it stands still.
PATIENCE_S = 5.0
# Work that is done before the first reading, so that the counter's last step is of such work too.
WARM_S = 0.2
IDLE_S = 1.0
# After what was before: the clock and the power of a device fall within so long.
SETTLE_S = 0.5


@dataclass(frozen=True)
class Stretch:
    """What was read over a stretch of time.

    Attributes:
      joules: that the counter moved by.
      seconds: how long it was.
      calls: that ran in it; 0 while idle.
      updates: readings that differed from the one before.
    """

    joules: float
    seconds: float
    calls: int
    updates: int

    @property
    def watts(self) -> float:
        """Power on average."""
        return self.joules / self.seconds


@dataclass(frozen=True)
class Meter:
    """A counter, and what it counted while nothing ran; or why there is none."""

    counter: Counter | None
    idle: Stretch | None = None
    reason: str | None = None

    def facts(self, batch: Callable[[], int], steps: int, tokens: float | None) -> dict[str, Any]:
        """The record's `facts.energy`.

        Args:
          batch: runs a few calls, waits for them and says how many.
          steps: in each call.
          tokens: in each step.
        """
        if self.counter is None:
            return unknown(self.reason or "not known")
        try:
            return figures(self.counter, self.idle, busy(self.counter, batch), steps, tokens)
        except Unknown as error:
            return unknown(str(error), self.counter.source)


def unknown(reason: str, source: str | None = None) -> dict[str, Any]:
    """The record's `facts.energy` where there is no figure."""
    return {"source": source, "joules_per_call": None, "reason": reason}


def open_meter(find: Callable[[], Counter], sleep: Callable[[float], None] = time.sleep) -> Meter:
    """Finds a counter and reads it while nothing runs."""
    try:
        counter = find()
        sleep(SETTLE_S)
        return Meter(counter, _read_through(counter, lambda: sleep(IDLE_S / MIN_UPDATES), IDLE_S))
    except Unknown as error:
        return Meter(None, reason=str(error))


def busy(counter: Counter, batch: Callable[[], int]) -> Stretch:
    """Reads a counter over a stretch of calls that is long enough for it."""
    start = time.perf_counter()
    while True:
        batch()
        if time.perf_counter() - start >= WARM_S:
            return _read_through(counter, batch, MIN_S)


def _read_through(counter: Counter, batch: Callable[[], int | None], least_s: float) -> Stretch:
    calls, updates = 0, 0
    with counter.running():
        first = last = counter.read()
        start = time.perf_counter()
        while True:
            calls += batch() or 0
            now, seconds = counter.read(), time.perf_counter() - start
            updates += now != last
            last = now
            enough = updates >= MIN_UPDATES or seconds >= PATIENCE_S
            if seconds >= least_s and (enough or not calls):
                return Stretch(last - first, seconds, calls, updates)


def figures(
    counter: Counter, idle: Stretch | None, taken: Stretch, steps: int, tokens: float | None
) -> dict[str, Any]:
    """Joules per call, step and token, also above what the devices draw anyway.

    Raises:
      Unknown: the counter cannot be right: it stood still, or exceeds what the devices can draw.
    """
    if not taken.updates or taken.joules <= 0:
        raise Unknown(
            f"{counter.source} stood still for {taken.seconds:.1f} s, as a virtual machine's does"
        )
    if counter.limit_watts and taken.watts > counter.limit_watts:
        raise Unknown(
            f"{counter.source} says {taken.watts:.0f} W, more than the {counter.limit_watts:.0f} W "
            "that the devices can draw"
        )
    found: dict[str, Any] = {
        "source": counter.source,
        "watts": taken.watts,
        "seconds": taken.seconds,
        "calls": taken.calls,
        "updates": taken.updates,
        **_each("", taken.joules, taken.calls, steps, tokens),
    }
    if idle is not None and idle.updates:
        found |= {"idle_watts": idle.watts, "idle_s": idle.seconds}
        above = taken.joules - idle.watts * taken.seconds
        if above > 0:
            return found | _each("_above_idle", above, taken.calls, steps, tokens)
        found["reason"] = "not above idle: the calls draw no more than the devices do anyway"
        return found
    found["reason"] = "nothing above idle: the counter stood still while nothing ran"
    return found


def _each(
    what: str, joules: float, calls: int, steps: int, tokens: float | None
) -> dict[str, float]:
    call = joules / calls
    found = {f"joules_per_call{what}": call, f"joules_per_step{what}": call / steps}
    return found | ({f"joules_per_token{what}": call / steps / tokens} if tokens else {})
