"""Training runs with published figures, and the share of the peak that they imply.

That share (model-FLOP utilisation, MFU) is what a plan has to assume. It is computed here alike for
all: 6N + 12LHQT FLOPs a token (`models.costs`), over chip-hours times the chip table's peak in 16
bits. `run` rows are whole trainings with all that went wrong in them, as far as the publication
counts it; `steps` rows are a rate while all went well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from accel_bench import chips
from models import costs
from models.sizes import SIZES

RUN, STEPS = "run", "steps"
# A layer that is computed again for the backward pass makes 8 FLOPs a weight of 6.
RECOMPUTED = 8 / 6


@dataclass(frozen=True)
class Published:
    """A training, or a stretch of one, as it was published.

    Attributes:
      name: what a person calls it.
      model: a key of `SIZES`; None where the suite has no such architecture.
      chip: a key of `CHIPS`, and `chips`, how many (None where not published).
      tokens: trained on in `chip_hours`; None where not published.
      chip_hours: chips times hours.
      length: tokens of a sequence; None where not published.
      kind: `RUN` or `STEPS`.
      source: where the figures stand.
      stated: the MFU that a publication gives, by the convention used here; None where it gives
        none.
      stated_tflops: the rate per chip that it gives with recomputed layers counted, TFLOP/s.
      note: what one must know to read the row.
    """

    name: str
    model: str | None
    chip: str
    chips: int | None
    tokens: float | None
    chip_hours: float | None
    length: int | None
    kind: str
    source: str
    stated: float | None = None
    stated_tflops: float | None = None
    note: str = ""


class _Rate(TypedDict):
    """The figures of a rate."""

    chips: int
    tokens: float
    chip_hours: float


def _rate(chips: int, tokens: float, seconds: float) -> _Rate:
    """What so many chips do in so many seconds."""
    return {"chips": chips, "tokens": tokens, "chip_hours": chips * seconds / 3600}


_LLAMA2 = "arXiv 2307.09288, tables 1 and 2; meta-llama/llama-models, models/llama2/MODEL_CARD.md"
_PALM = "arXiv 2204.02311"
_MT_NLG = "arXiv 2201.11990, sections 2.4 and 3.2"
_MAXTEXT = "AI-Hypercomputer (google)/maxtext, README.md, runtime performance results"

RUNS: tuple[Published, ...] = (
    Published(
        "GPT-3 175B", "gpt3_175b", "v100_sxm2", 10_000, 300e9, 10_000 * 14.8 * 24, 2048, RUN,
        "arXiv 2104.10350, table 4 (chips, days); arXiv 2005.14165, table D.1 (tokens); "
        f"{_PALM}, table 3 (MFU)",
        stated=0.213,
        note="the authors of table 4 took the number of chips from a press release; the MFU is "
        "from their 24.6 TFLOP/s without attention",
    ),
    Published(
        "Gopher 280B", None, "v3", 4096, 300e9, 4096 * 920, 2048, RUN,
        f"arXiv 2112.11446, table A27 and appendix (920 hours); {_PALM}, table 3 (MFU)",
        stated=0.325,
        note="its relative positions have weights that the suite's model does not: no FLOPs here; "
        "the MFU is of 0.0152 steps a second",
    ),
    Published(
        "MT-NLG 530B, 280 servers", "mt_nlg_530b", "a100_80", kind=STEPS, length=2048,
        **_rate(2240, 1920 * 2048, 60.1), source=f"{_MT_NLG}; {_PALM}, section 4.1 (MFU)",
        stated=0.302, stated_tflops=126,
    ),
    Published(
        "MT-NLG 530B, 350 servers", "mt_nlg_530b", "a100_80", kind=STEPS, length=2048,
        **_rate(2800, 1920 * 2048, 50.2), source=_MT_NLG, stated_tflops=121,
    ),
    Published(
        "MT-NLG 530B, 420 servers", "mt_nlg_530b", "a100_80", kind=STEPS, length=2048,
        **_rate(3360, 1920 * 2048, 44.4), source=_MT_NLG, stated_tflops=113,
    ),
    Published(
        "PaLM 540B", "palm_540b", "v4", 6144, 780e9, 6144 * 1200 + 3072 * 336, 2048, RUN,
        f"{_PALM}, appendix B",
        note="with some downtime and repeated steps; 3072 chips for a part of it",
    ),
    Published(
        "PaLM 540B, its rate", "palm_540b", "v4", kind=STEPS, length=2048,
        **_rate(6144, 238.3e3, 1.0), source=f"{_PALM}, section 4.1", stated=0.462,
    ),
    Published(
        "OPT 175B", "opt_175b", "a100_80", 1024, 300e9, 1024 * 33 * 24, 2048, STEPS,
        "facebookresearch/metaseq, projects/OPT/chronicles/final_update.md (33 days, 300B tokens); "
        "arXiv 2205.01068, section 2.4 (147 TFLOP/s)",
        stated_tflops=147,
        note="33 days as if nothing had failed; the training itself took two months",
    ),
    Published(
        "BLOOM 176B", "bloom_176b", "a100_80", 384, 366e9, 1_082_990, 2048, RUN,
        "arXiv 2211.05100, section 3.4.1 and table 3; arXiv 2211.02001, table 1",
        note="its fastest configuration ran at 156 TFLOP/s with recomputed layers counted",
    ),
    Published(
        "LLaMA 65B", "llama_65b", "a100_80", 2048, 1.4e12, 1_022_362, 2048, RUN,
        "arXiv 2302.13971, tables 2 and 15",
    ),
    Published(
        "LLaMA-2 7B", "llama2_7b", "a100_80", None, 2e12, 184_320, 4096, RUN, _LLAMA2,
    ),
    Published(
        "LLaMA-2 13B", "llama2_13b", "a100_80", None, 2e12, 368_640, 4096, RUN, _LLAMA2,
    ),
    Published(
        "LLaMA-2 70B", "llama2_70b", "a100_80", None, 2e12, 1_720_320, 4096, RUN, _LLAMA2,
    ),
    Published(
        "Llama 3.1 405B", "llama3_405b", "h100_sxm", 16_384, 15.6e12, 30.84e6, 8192, RUN,
        "arXiv 2407.21783, sections 1 and 3.3; meta-llama/llama-models, "
        "models/llama3_1/MODEL_CARD.md",
        note="up to so many chips; the hours hold the stages with longer sequences too",
    ),
    Published(
        "Llama 3.1 405B, slowest stage", None, "h100_sxm", 16_384, None, None, 131_072, STEPS,
        "arXiv 2407.21783, table 4", stated=0.38,
    ),
    Published(
        "Llama 3.1 405B, fastest stage", None, "h100_sxm", 8192, None, None, 8192, STEPS,
        "arXiv 2407.21783, table 4", stated=0.43,
    ),
    Published(
        "SmolLM3 3B", "smollm3_3b", "h100_sxm", 384, 11.2e12, 384 * 24 * 24, 4096, RUN,
        "huggingface.co/blog/smollm3", note="days given to the day",
    ),
    Published(
        "MaxText 16B", None, "v5e", 8192, None, None, None, STEPS, _MAXTEXT, stated=0.5465,
        note="32 slices of 256; a benchmark by those who make the chip",
    ),
    Published(
        "MaxText 128B", None, "v5e", 8192, None, None, None, STEPS, _MAXTEXT, stated=0.4625,
        note="32 slices of 256; a benchmark by those who make the chip",
    ),
    Published(
        "MaxText 32B", None, "v5p", 64, None, None, None, STEPS, _MAXTEXT, stated=0.7147,
        note="v5p-128; a benchmark by those who make the chip",
    ),
    Published(
        "MaxText 1160B", None, "v5p", 6144, None, None, None, STEPS, _MAXTEXT, stated=0.6623,
        note="v5p-12288; a benchmark by those who make the chip",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peak that published trainings reached.

    Attributes:
      low, high: the smallest and the largest.
      lowest, highest: the rows that they are from.
      among: what was looked at, in words.
    """

    low: float
    high: float
    lowest: str
    highest: str
    among: str


def peak(chip: str) -> float:
    """FLOP/s of one chip in the 16 bits that it trains in."""
    peaks = chips.CHIPS[chip].peaks
    return peaks.get("bf16", peaks.get("fp16", 0.0)) * 1e12


def flops_per_token(model: str, length: int) -> float:
    """6N + 12LHQT."""
    return costs.train_flops(SIZES[model], 1, length) / length


def hours_at_peak(run: Published) -> float | None:
    """Chip-hours that the run's tokens take at 100 % of the peak; None where that is not known."""
    if run.model is None or run.tokens is None or run.length is None:
        return None
    return flops_per_token(run.model, run.length) * run.tokens / peak(run.chip) / 3600


def implied(run: Published) -> float | None:
    """The MFU that tokens and chip-hours come to; None where one of them is not published."""
    hours = hours_at_peak(run)
    return hours / run.chip_hours if hours and run.chip_hours else None


def reached(run: Published) -> float:
    """The MFU of a row: what it implies, or, where that is not known, what it states."""
    found = implied(run) or run.stated
    assert found, run.name
    return found


def efficiency(chip: str, without: str | None = None) -> Efficiency:
    """The range that a plan for a chip assumes.

    From the rows of this very chip where at least two models' whole trainings are among them;
    else from those of all TPUs, or all GPUs.

    Args:
      chip: a key of `CHIPS`.
      without: a model whose rows are left out, to see what the others say of it.
    """
    platform = chips.CHIPS[chip].platform
    kin = [r for r in RUNS if chips.CHIPS[r.chip].platform == platform and _of(r) != without]
    own = [r for r in kin if r.chip == chip]
    whole = {_of(r) for r in own if r.kind == RUN}
    rows, among = (own, chip) if len(whole) >= 2 else (kin, f"all {platform.upper()}s")
    return _range(rows, among)


def _of(run: Published) -> str:
    """What a row is about, whichever stretch of it."""
    return run.name.split(",")[0]


def leave_one_out(run: Published) -> Efficiency:
    """The range that the planner would assume if this training had not been published."""
    return efficiency(run.chip, without=_of(run))


def _range(rows: Sequence[Published], among: str) -> Efficiency:
    by_share = sorted(rows, key=reached)
    low, high = by_share[0], by_share[-1]
    return Efficiency(
        reached(low), reached(high), low.name, high.name, f"{len(rows)} published rows of {among}"
    )
