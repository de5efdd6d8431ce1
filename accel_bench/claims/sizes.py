"""Claims on the size of models: memory they need, devices, time and energy to train them."""

from __future__ import annotations

import math

from accel_bench import units
from accel_bench.chips import CHIPS
from accel_bench.claims import criteria
from accel_bench.claims.published import (
    MEGATRON_SOURCE,
    RUNS,
    TRAINING_BYTES,
    ZERO_SOURCE,
    Run,
)
from accel_bench.claims.rows import Row, Rows
from accel_bench.claims.verdict import (
    ARITHMETIC,
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    PUBLISHED,
    Evidence,
    Figure,
    Part,
)
from models import costs
from models.sizes import SIZES

BYTES = {"fp32": 4, "bf16": 2, "int8": 1}
CARD = "a100_80"
DAY = 86400.0


def gigabytes(params: float, precision: str) -> float:
    """GB (10^9 bytes) of a model's weights alone."""
    return params * BYTES[precision] / 1e9


def training_gigabytes(params: float) -> float:
    """GB of weights, gradients and AdamW's state, without activations."""
    return params * TRAINING_BYTES / 1e9


def cards(gb: float, each_gb: float | None = None) -> int:
    """A100 80 GB that hold so many GB at least, by the memory as it is sold."""
    return math.ceil(gb / (each_gb or CHIPS[CARD].memory_gb))


def _shown(gb: float) -> str:
    """`700 GB (652 GiB)`."""
    return f"{units.quantity(gb * 1e9, 'B')} ({units.digits(gb * 1e9 / 2**30)} GiB)"


def _fp32(params: float, stated: float) -> Part:
    found = gigabytes(params, "fp32")
    evidence = Evidence(
        ARITHMETIC,
        f"{params / 1e9:g}e9 x 4 bytes = {_shown(found)}: the weights alone, which fill "
        f"{cards(found)} A100 of 80 GB.",
    )
    why = f"{units.digits(found)} GB by arithmetic, of the weights alone"
    said, figure = f"{stated:g} GB in fp32", Figure(found, "GB", stated)
    return Part(said, criteria.computed(found, stated), why, (evidence,), figure=figure)


def _mixed(params: float, stated: float) -> Part:
    found = gigabytes(params, "bf16")
    each = stated * 1e9 / params
    evidence = (
        Evidence(
            ARITHMETIC,
            f"{params / 1e9:g}e9 x 2 bytes = {_shown(found)} for the weights in 16 bits; "
            f"{stated:g} GB would be {units.digits(each, 2)} bytes a weight. In 8 bits they are "
            f"{_shown(gigabytes(params, 'int8'))}.",
        ),
        Evidence(
            PUBLISHED,
            "Training in mixed precision keeps an fp32 copy of the weights and both moments beside "
            f"the 16-bit ones: {TRAINING_BYTES} bytes a parameter, as fp32 does.",
            ZERO_SOURCE,
        ),
    )
    verdict = criteria.computed(found, stated)
    why = f"less than the 16-bit weights alone, {units.digits(found)} GB"
    if stated > found:
        why = f"the 16-bit weights are {units.digits(found)} GB"
    said, figure = f"{stated:g} GB in mixed precision", Figure(found, "GB", stated)
    return Part(said, verdict, why, evidence, figure=figure)


def _activations(name: str) -> Evidence:
    """What one sequence leaves for the backward pass: kept, and computed again."""
    import dataclasses

    size = SIZES[name]
    kept, least = (
        costs.activation_bytes(dataclasses.replace(size, remat=remat), 1, size.context)
        for remat in ("none", "full")
    )
    return Evidence(
        PUBLISHED,
        f"Activations of one sequence of {size.context} tokens: {units.quantity(least, 'B')} where "
        f"each layer is computed again, {units.quantity(kept, 'B')} where all is kept: 0 to "
        f"{cards(kept / 1e9)} more A100, for each sequence that is in memory at a time.",
        "arXiv 2205.05198, equation 2 and section 5",
    )


def _training(params: float) -> Evidence:
    gb = training_gigabytes(params)
    driver = (CHIPS[CARD].memory_bytes or 0) / 1e9
    return Evidence(
        ARITHMETIC,
        f"Weights, gradients and AdamW's state: {params / 1e9:g}e9 x {TRAINING_BYTES} bytes = "
        f"{_shown(gb)}: at least {cards(gb)} A100 of 80 GB before any activation "
        f"({cards(gb, driver)} by the {units.digits(driver)} GB that the driver reports).",
    )


def _compiled(rows: Rows, name: str) -> list[Evidence]:
    """What compilers say of a train step: what fits, and what did not."""
    found = [
        row.evidence(_fits(row))
        for row in rows.find("model", compiled=True, model=name, phase="train_step")
        if row.fact("memory", "needed")
    ]
    for row in rows.too_big:
        if row.record.params.get("model") == name:
            text = f"{row.where}: {row.case} does not fit: {row.record.reason}."
            found.append(row.evidence(text))
    return found


def _fits(row: Row) -> str:
    needed, count = row.fact("memory", "needed"), row.record.target.get("num_devices") or 1
    return (
        f"{row.where}: {row.case} needs {units.quantity(needed, 'B')} of each of {count} devices, "
        f"{units.quantity(needed * count, 'B')} in all."
    )


def gpt3(rows: Rows) -> list[Part]:
    """Claim 4."""
    params = 175e9
    mixed = _mixed(params, 280.0)
    more = (
        _training(params), _activations("gpt3_175b"), *_compiled(rows, "gpt3_175b"),
    )  # fmt: skip
    return [_fp32(params, 700.0), mixed.with_more(*more)]


def llama2(rows: Rows) -> list[Part]:
    """Claim 5."""
    params, stated = 70e9, 4
    exact = SIZES["llama2_70b"].published_params or 0
    first = _fp32(params, 280.0)
    counted = Evidence(
        PUBLISHED,
        f"The released checkpoint has {exact:,} parameters: {_shown(gigabytes(exact, 'fp32'))}.",
        SIZES["llama2_70b"].source,
    )
    first = first.with_more(counted)
    gb = training_gigabytes(params)
    needed = cards(gb)
    holds = Evidence(
        ARITHMETIC,
        f"{stated} x 80 GB = {stated * 80} GB: enough for inference in bf16 "
        f"({gigabytes(params, 'bf16'):g} GB, {cards(gigabytes(params, 'bf16'))} cards) or for the "
        f"fp32 weights alone ({gigabytes(params, 'fp32'):g} GB), not for gradients and AdamW's "
        "state.",
    )
    evidence = (
        _training(params), holds, _activations("llama2_70b"),
        *_compiled(rows, "llama2_70b"),
    )  # fmt: skip
    why = f"{stated} hold less than a third of the training state, which takes {needed}"
    verdict = CONFIRMED if needed <= stated else CONTRADICTED
    said, figure = "four A100 80 GB are enough to train it", Figure(needed, "cards", stated)
    last = Part(said, verdict, why, evidence, figure=figure)
    return [first, _mixed(params, 112.0), last]


def flops(run: Run) -> float:
    """6 N D: the work of a training, N parameters that tokens are multiplied with."""
    size = SIZES[run.model]
    return 6 * (size.published_params or costs.param_count(size)) * run.tokens


def devices_for(seconds: float, run: Run) -> float:
    """A100 that train it in so many seconds at the assumed share of their peak."""
    peak = CHIPS[CARD].peaks["bf16"] * 1e12
    return flops(run) / (peak * criteria.UTILISATION * seconds)


def _planned(run: Run) -> Evidence:
    watts = CHIPS[CARD].watts or 0
    seconds = devices_for(1.0, run)  # of one device
    count = devices_for(criteria.MONTH_S, run)
    energy = watts * seconds / 3.6e9
    size = SIZES[run.model]
    return Evidence(
        ARITHMETIC,
        f"{run.model}: 6 x {size.published_params or 0:.3g} parameters x {run.tokens:.3g} tokens "
        f"({run.source}) = {flops(run):.3g} FLOP: {units.digits(seconds / DAY / 365)} years on one "
        f"A100 at {units.percent(criteria.UTILISATION)} of its peak, 30 days on "
        f"{units.digits(count)}, and {units.digits(energy)} MWh of GPU board power at {watts} W.",
    )


def _known(run: Run) -> Evidence | None:
    if run.gpu_hours is None:
        return None
    chip = CHIPS[run.gpu]
    share = flops(run) / (run.gpu_hours * 3600 * chip.peaks["bf16"] * 1e12)
    energy = run.gpu_hours * (chip.watts or 0) / 1e6
    return Evidence(
        PUBLISHED,
        f"{run.model} took {run.gpu_hours:,.0f} GPU hours of {run.gpu}, {units.percent(share)} of "
        f"their peak by 6 N D: 30 days on {units.digits(run.gpu_hours / 720)}; "
        f"{units.digits(energy)} MWh at {chip.watts} W.",
        run.source,
    )


def large_models(rows: Rows) -> list[Part]:
    """Claim 15."""
    del rows
    counts = {run.model: devices_for(criteria.MONTH_S, run) for run in RUNS}
    many = {n: c for n, c in counts.items() if criteria.HUNDREDS <= c <= criteria.THOUSANDS}
    verdict = CONFIRMED if len(many) == len(counts) else DEPENDS if many else CONTRADICTED
    shown = ", ".join(f"{name} {units.digits(count)}" for name, count in counts.items())
    known = [found for run in RUNS if (found := _known(run))]
    megatron = Evidence(
        PUBLISHED, "GPT-3's size on 1024 A100: 34 days for 300 billion tokens.", MEGATRON_SOURCE
    )
    ordered = sorted(RUNS, key=lambda run: SIZES[run.model].published_params or 0)
    grows = ", ".join(
        f"{run.model} ({run.tokens:.2g} tokens) {flops(run):.2g} FLOP" for run in ordered
    )
    work = [flops(run) for run in ordered]
    return [
        Part(
            "hundreds to thousands of devices",
            verdict,
            f"A100 for a training of 30 days: {shown}",
            (*map(_planned, RUNS), *known, megatron),
        ),
        Part(
            "time and energy grow with the model",
            CONFIRMED if work == sorted(work) else DEPENDS,
            "both are the work, 6 N D, over rate and efficiency: they grow with the parameters N "
            "where the tokens D do not shrink, and D is chosen",
            (Evidence(ARITHMETIC, f"From the smallest model to the largest: {grows}."),),
        ),
    ]
