"""What the vendors publish of the chips that were compared, and of all others folded away."""

from __future__ import annotations

from collections.abc import Mapping

from accel_bench import chip_listing
from accel_bench.chips import CHIPS, Chip
from accel_bench.comparison import Comparison
from accel_bench.report.markup import listed, plain_table, tag


def html(found: Comparison) -> str:
    """The section on chips."""
    named = dict.fromkeys(r.target.get("chip") for s in found.sources for r in s.records)
    compared = {name: CHIPS[name] for name in named if name in CHIPS}
    shown = _tables(compared) if compared else tag("p", "No chip of the table was compared.")
    summary = tag("summary", f"All {len(CHIPS)} chips of the table, and the sources")
    every = tag("details", summary + _tables(CHIPS) + _legend())
    return tag("h2", "Chips", id="chips") + shown + every


def _legend() -> str:
    return listed(f"{letter}: {source}" for letter, source in chip_listing.legend())


def _tables(shown: Mapping[str, Chip]) -> str:
    return "".join(
        plain_table(chip_listing.header(part), chip_listing.rows(part, shown), part.title)
        for part in chip_listing.PARTS
    )
