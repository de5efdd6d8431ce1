"""Numbers as people read them."""

from __future__ import annotations

import math

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def digits(value: float, significant: int = 3) -> str:
    """A number with so many significant digits and no exponent: `1230`, `45.6`, `0.0789`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = significant - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):.{max(decimals, 0)}f}"


def quantity(value: float, unit: str) -> str:
    """A value with a decimal prefix: `460 GFLOP/s`."""
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{digits(value / factor)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def seconds(value: float) -> str:
    """A time in the unit that suits it: `1.23 ms`."""
    for factor, unit in _TIMES:
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{digits(value / 1e-9)} ns"


def energy(value: float) -> str:
    """Joules in the unit that suits them: `1.23 mJ`."""
    for factor, unit in ((1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if abs(value) >= factor:
            return quantity(value, "J") if not unit else f"{digits(value / factor)} {unit}J"
    return f"{digits(value / 1e-9)} nJ"


def percent(fraction: float) -> str:
    """A fraction in per cent: `63 %`, `0.52 %`."""
    shown = 100 * fraction
    return f"{shown:.0f} %" if abs(shown) >= 10 else f"{digits(shown, 2)} %"
