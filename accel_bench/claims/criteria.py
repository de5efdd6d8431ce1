"""When a claim holds: every threshold of every verdict, here and nowhere else."""

from __future__ import annotations

from accel_bench import units
from accel_bench.claims.verdict import CONFIRMED, CONTRADICTED, DEPENDS

# A figure that can be computed from what is stated.
COMPUTED = 0.05
# A figure of a named chip, against its vendor's.
PUBLISHED_WITHIN = 0.10
# A figure of machines that the claim does not name, against what other machines measure.
NEAR = 2.0
# "Far faster", "tens of times".
FAR = 10.0
# A gain in time or memory that is worth the name.
GAIN = 1.1
# Half the interval of a median, relative: times that are less certain decide nothing.
TELLING = 0.25
# Shares of a step: what is mostly spent, or mostly hidden; what is hardly.
MOST, HARDLY = 0.5, 0.1
# Watts of a card that lives on its slot's supply alone (PCI Express card electromechanical
# specification: 75 W): what "low power" is taken to mean.
LOW_POWER_WATTS = 75
# A run that is planned for about a month needs so many devices, or else "hundreds" is wrong.
MONTH_S = 30 * 86400.0
HUNDREDS, THOUSANDS = 100, 10_000
# Share of a GPU's peak that a large training reaches (arXiv 2104.04473: 44 to 52 % for models of
# 1.7 to 1000 billion parameters on A100).
UTILISATION = 0.4

RULES = (
    f"A figure that can be computed holds within {units.percent(COMPUTED)} and is contradicted "
    "otherwise.",
    f"A figure of a named chip holds within {units.percent(PUBLISHED_WITHIN)} of its vendor's and "
    "is contradicted otherwise.",
    f"A figure of machines without a name holds within a factor of {NEAR:g} of what was measured; "
    "otherwise it depends on the machine.",
    f"'Far faster' is {FAR:g} times or more; a gain is {GAIN:g} times or more.",
    f"A step is mostly one thing from {units.percent(MOST)} of its time on, and hardly below "
    f"{units.percent(HARDLY)}.",
    f"Low power is {LOW_POWER_WATTS} W or less, what a PCIe slot supplies.",
    f"A time decides where half its interval is at most {units.percent(TELLING)} of it and its row "
    "is not marked noisy, few-samples, dispatch-bound, cache-resident or nonlinear.",
    "A peak or a bound can rule a figure out and never confirms one.",
    "What was compiled and not run can confirm what a program does and never contradicts: another "
    "case or another version may do it.",
    "That a lower precision gains is contradicted only by rows measured on a GPU or TPU: a CPU may "
    "have no unit for it.",
    "A claim of several parts is contradicted where one is; confirmed, or not testable here, where "
    "all are; else it depends.",
)


def near(found: float, stated: float, factor: float = NEAR) -> bool:
    """Whether two positive figures are within a factor of each other."""
    return stated / factor <= found <= stated * factor


def within(found: float, stated: float, share: float) -> bool:
    """Whether a stated figure is within a share of the one that was found."""
    return abs(stated - found) <= share * found


def computed(found: float, stated: float) -> str:
    """The verdict on a figure that can be computed."""
    return CONFIRMED if within(found, stated, COMPUTED) else CONTRADICTED


def published(found: float, stated: float) -> str:
    """The verdict on a figure of a named chip."""
    return CONFIRMED if within(found, stated, PUBLISHED_WITHIN) else CONTRADICTED


def measured(found: float, stated: float) -> str:
    """The verdict on a figure of machines without a name."""
    return CONFIRMED if near(found, stated) else DEPENDS
