"""Claims about GPUs and TPUs, each with what records, compilers and data sheets say of it.

`judge` is a function of records and of the chip table alone: what is measured comes from the
records given, and the verdict from thresholds in `criteria`.
"""

from __future__ import annotations

from collections.abc import Sequence

from accel_bench.claims.rows import Rows
from accel_bench.claims.table import CLAIMS, JUDGES
from accel_bench.claims.verdict import Judgement
from accel_bench.comparison import Source

__all__ = ["CLAIMS", "judge"]


def judge(sources: Sequence[Source]) -> list[Judgement]:
    """Every claim and what becomes of it, by the records of these sources."""
    rows = Rows(sources)
    return [Judgement(claim, JUDGES[claim.number](rows)) for claim in CLAIMS]
