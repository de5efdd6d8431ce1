"""Claims on speed: matrix products, training, and what lower precision gains."""

from __future__ import annotations

from collections.abc import Sequence

from accel_bench import chips, derive, units
from accel_bench.chips import CHIPS, Chip
from accel_bench.claims import criteria
from accel_bench.claims.rows import Row, Rows, both, fastest, pairs
from accel_bench.claims.verdict import (
    ARITHMETIC,
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    NOT_TESTABLE,
    PUBLISHED,
    Evidence,
    Figure,
    Part,
)
from accel_bench.derive import Rate

N = 10_000
OPERATIONS = 2 * N**3
CPU_SECONDS, GPU_SECONDS, RATIO = 120.0, 0.8, 150.0
ON_GPU = "on a GPU: python main.py run --config=configs/claims.py --device=gpu"


def _square(rows: Sequence[Row]) -> list[Row]:
    """The largest square products among the rows: small ones say nothing of a large one."""
    plain = [row for row in rows if str(row.record.params.get("shape")).isdigit()]
    most = max((int(row.record.params["shape"]) for row in plain), default=0)
    return [row for row in plain if int(row.record.params["shape"]) == most]


def _gpu_peaks(unit: str) -> dict[str, float]:
    """FLOP/s of every GPU in the chip table that has the unit."""
    return {
        n: c.peaks[unit] * 1e12 for n, c in CHIPS.items() if c.platform == "gpu" and unit in c.peaks
    }


def _product_part(said: str, stated: float, found: tuple[Row, Rate] | None, needs: str) -> Part:
    """Whether the product takes as long as stated, by the rate at a size that was measured."""
    rate = units.quantity(OPERATIONS / stated, "FLOP/s")
    arithmetic = Evidence(ARITHMETIC, f"2 x {N}^3 = 2 TFLOP; in {stated:g} s that is {rate}.")
    if found is None:
        why = "no such product was measured well enough"
        return Part(said, NOT_TESTABLE, why, (arithmetic,), needs)
    row, measured = found
    seconds = OPERATIONS / measured.value
    size = str(row.record.params["shape"])
    derived = (
        "" if size == str(N) else f", which {N} would take {units.seconds(seconds)} at (derived)"
    )
    shown = units.quantity(measured.value, "FLOP/s")
    library = row.record.implementation
    evidence = row.evidence(
        f"{row.where}: {size} x {size} in fp32 by {library} at {shown}{derived}."
    )
    why = f"{units.seconds(seconds)} here, {units.digits(seconds / stated, 2)} times what is stated"
    figure = Figure(seconds, "s", stated)
    verdict = criteria.measured(seconds, stated)
    return Part(said, verdict, why, (evidence, arithmetic), figure=figure)


def matrix_products(rows: Rows) -> list[Part]:
    """Claim 1."""
    thread = fastest(
        _square(rows.find("matmul", "cpu", precision="fp32", implementation="numpy_1thread")),
        "flops",
    )
    gpu = fastest(_square(rows.find("matmul", "gpu", precision="fp32")), "flops")
    on_cpu = "python main.py run --config=configs/claims.py --baselines=numpy_1thread"
    return [
        _product_part("120 s on one CPU thread", CPU_SECONDS, thread, f"on any CPU: {on_cpu}"),
        _with_peaks(_product_part("0.8 s on a GPU", GPU_SECONDS, gpu, ON_GPU)),
        _times_as_fast(thread, gpu, on_cpu),
    ]


def _with_peaks(part: Part) -> Part:
    """The part with what GPUs could do at most."""
    peaks = _gpu_peaks("fp32")
    shown = ", ".join(
        f"{name} {units.seconds(OPERATIONS / peaks[name])}"
        for name in ("t4", "v100_sxm2", "a100_80")
    )
    text = f"At their fp32 peaks it takes at least: {shown}."
    known = Evidence(PUBLISHED, text, "chip table, L and S")
    return part.with_more(known)


def _times_as_fast(
    thread: tuple[Row, Rate] | None, gpu: tuple[Row, Rate] | None, on_cpu: str
) -> Part:
    said = "150 times as fast"
    stated = Evidence(ARITHMETIC, "120 s / 0.8 s = 150: the figures agree with one another.")
    if thread is None:
        return Part(
            said,
            NOT_TESTABLE,
            "no single thread was measured well enough",
            (stated,),
            f"on any CPU: {on_cpu}",
        )
    slow = thread[1].value
    if gpu is None:
        most = {name: peak / slow for name, peak in _gpu_peaks("fp32").items()}
        least, best = min(most, key=most.__getitem__), max(most, key=most.__getitem__)
        a100 = units.digits(most["a100_80"], 2)
        bound = Evidence(
            ARITHMETIC,
            f"Published fp32 peaks over the rate of this thread: GPUs are at most "
            f"{units.digits(most[least], 2)} ({least}) to {units.digits(most[best], 2)} ({best}) "
            f"times as fast, an A100 {a100} times.",
            "chip table",
        )
        if most[best] < RATIO / criteria.NEAR:
            return Part(said, CONTRADICTED, "no GPU's peak allows it", (bound, stated))
        why = f"half of it is measured; peaks allow up to {a100} times with an A100"
        return Part(said, NOT_TESTABLE, why, (bound, stated), ON_GPU)
    ratio = gpu[1].value / slow
    evidence = both(
        thread[0],
        gpu[0],
        f"{gpu[0].where} at {units.quantity(gpu[1].value, 'FLOP/s')}, {thread[0].where} with one "
        f"thread at {units.quantity(slow, 'FLOP/s')}: {units.digits(ratio)} times.",
    )
    verdict = criteria.measured(ratio, RATIO)
    if ratio < criteria.FAR:
        verdict = CONTRADICTED
    why = f"{units.digits(ratio)} times here, beside {RATIO:g}"
    return Part(said, verdict, why, (evidence, stated), figure=Figure(ratio, "times", RATIO))


def training(rows: Rows) -> list[Part]:
    """Claim 2: model FLOP/s of the fastest train step, whatever the model and the precision."""
    said = "10 to over 100 times as fast as a CPU"
    # Steps that wait for a network say nothing of the processor.
    alone = [r for r in rows.find("model", "cpu", phase="train_step") if not _placed(r)]
    cpu = fastest(alone, "flops")
    device = fastest(rows.find("model", "gpu", phase="train_step"), "flops")
    if cpu is None:
        needs = "on a CPU and on a GPU: python main.py run --config=configs/claims.py"
        return [
            Part(said, NOT_TESTABLE, "no train step of a CPU was measured well enough", (), needs)
        ]
    base = cpu[0].evidence(f"{_step(*cpu)}.")
    if device is None:
        peaks = _gpu_peaks("bf16")
        best = max(peaks, key=peaks.__getitem__)
        a100 = units.digits(peaks["a100_80"] / cpu[1].value, 2)
        bound = Evidence(
            ARITHMETIC,
            f"Published bf16 peaks over the CPU's rate: an A100 would be {a100} times as fast and "
            f"the fastest GPU of the table ({best}) "
            f"{units.digits(peaks[best] / cpu[1].value, 2)} times; a real step reaches a part of a "
            "peak.",
            "chip table",
        )
        if peaks[best] / cpu[1].value < criteria.FAR:
            return [Part(said, CONTRADICTED, "no GPU's peak allows it", (base, bound))]
        why = f"the CPU is measured; peaks allow up to {a100} times with an A100"
        return [Part(said, NOT_TESTABLE, why, (base, bound), ON_GPU)]
    ratio = device[1].value / cpu[1].value
    evidence = device[0].evidence(f"{_step(*device)}: {units.digits(ratio)} times the CPU's rate.")
    # One pair of machines that are not named says nothing against others.
    verdict = CONFIRMED if ratio >= criteria.FAR else DEPENDS
    why = f"{units.digits(ratio)} times here"
    return [Part(said, verdict, why, (evidence, base), figure=Figure(ratio, "times", criteria.FAR))]


def _placed(row: Row) -> bool:
    return bool(row.record.params.get("link")) or (row.record.target.get("processes") or 1) > 1


def _step(row: Row, rate: Rate) -> str:
    return f"{row.where}: {row.case} at {units.quantity(rate.value, 'FLOP/s')} a device"


def matrix_units(rows: Rows) -> list[Part]:
    """Claim 6."""
    chip = CHIPS["a100_80"]
    parts = []
    for said, unit, stated in (("plain fp32", "fp32", 19.5), ("Tensor Cores", "bf16", 312.0)):
        peak = chip.peaks[unit]
        known = Evidence(
            PUBLISHED, f"The A100's dense {unit} peak is {peak:g} TFLOP/s.", "chip table, S"
        )
        why = f"{peak:g} is its published peak in {unit}"
        evidence = (known, *_measured_peak(rows, unit))
        if unit == "bf16":
            why += ", dense; twice that, 624, is with 2:4 sparsity"
            evidence += (
                Evidence(
                    PUBLISHED, "624 TFLOP/s is the figure for matrices of which half is zero.",
                    "the vendor's datasheet of the A100",
                ),
                Evidence(
                    PUBLISHED,
                    f"In between lies TF32, fp32 through the Tensor Cores: {chip.peaks['tf32']:g}.",
                    "chip table, S",
                ),
            )  # fmt: skip
        said = f"{stated:g} TFLOP/s, {said}"
        verdict, figure = criteria.published(peak, stated), Figure(peak, "TFLOP/s", stated)
        parts.append(Part(said, verdict, why, evidence, figure=figure))
    return parts


def _measured_peak(rows: Rows, unit: str) -> tuple[Evidence, ...]:
    """The best product of each GPU, as a share of its own published peak."""
    found = fastest(_square(rows.find("matmul", "gpu", precision=unit)), "flops")
    if found is None:
        return ()
    row, rate = found
    chip = CHIPS.get(row.record.target.get("chip") or "")
    return (row.evidence(f"{_step(row, rate)}{_share(chip, unit, rate)}."),)


def _share(chip: Chip | None, precision: str, rate: Rate) -> str:
    peak = chips.peak_flops(chip, precision) if chip else None
    return f", {units.percent(rate.value / peak[0])} of its published peak" if peak else ""


def mixed_precision(rows: Rows) -> list[Part]:
    """Claim 10."""
    steps = rows.find("model", compiled=None, phase="train_step")
    return [
        _memory(list(pairs(steps, "fp32", "mixed_bf16")), "saves memory", ("memory", "needed")),
        faster(list(pairs(steps, "fp32", "mixed_bf16")), "saves time"),
    ]


def quantised(rows: Rows) -> list[Part]:
    """Claim 20."""
    steps = rows.find("model", compiled=None, phase="decode")
    found = list(pairs(steps, "fp32", "int8"))
    return [
        _memory(found, "8 bits save memory", ("weight_bytes",)),
        faster(found, "8 bits save time"),
        Part(
            "smaller models by pruning or distilling",
            NOT_TESTABLE,
            "the suite compresses by precision alone",
            needs="a training of the smaller model beside that of the larger: python main.py run "
            "--config=configs/digits.py, and configs/digits_fast.py with a layer less",
        ),
    ]


def _gains(
    found: Sequence[tuple[Row, Row]], name: tuple[str, ...]
) -> list[tuple[Row, float, float]]:
    """Each pair's second row, with the figure of both."""
    return [
        (second, first.fact(*name), second.fact(*name))
        for first, second in found
        if first.fact(*name) and second.fact(*name)
    ]


def _memory(found: Sequence[tuple[Row, Row]], said: str, name: tuple[str, ...]) -> Part:
    gains = _gains(found, name)
    if not gains:
        needs = "anywhere: python main.py run --config=configs/claims.py"
        return Part(said, NOT_TESTABLE, "no two precisions of one case are there", (), needs)
    what = "weights" if name == ("weight_bytes",) else "memory of a step, by its compiler"
    evidence = tuple(
        row.evidence(
            f"{row.where}: {row.case} takes {units.quantity(after, 'B')} a device ({what}), "
            f"{units.quantity(before, 'B')} in fp32: {units.percent(after / before)} of that."
        )
        for row, before, after in gains
    )
    factors = [before / after for _, before, after in gains]
    decisive = [before / after for row, before, after in gains if _decides(row)]
    verdict = _effect(factors, decisive)
    shares = [units.percent(1 / factor) for factor in (max(factors), min(factors))]
    shown = " to ".join(dict.fromkeys(shares))
    why = f"{shown} of what fp32 takes, by {len(factors)} pair{'s' * (len(factors) > 1)} of rows"
    if verdict == DEPENDS and "weight_bytes" not in name:
        why += "; weights and moments stay fp32, so that it depends on what activations take"
    return Part(said, verdict, why, evidence)


def _decides(row: Row) -> bool:
    """Whether the row can contradict: it ran, and on what the claims on precision are about."""
    return not row.compiled and row.platform != "cpu"


def _effect(gains: Sequence[float], decisive: Sequence[float]) -> str:
    """The verdict on a gain: confirmed if all show it, contradicted if no decisive one does."""
    if all(gain >= criteria.GAIN for gain in gains):
        return CONFIRMED
    if decisive and all(gain <= 1.0 for gain in decisive):
        return CONTRADICTED
    return DEPENDS


def _range(values: Sequence[float]) -> str:
    low, high = units.digits(min(values)), units.digits(max(values))
    return low if low == high else f"{low} to {high}"


def _time_gain(first: Row, second: Row) -> float | None:
    """How many times as fast the second is; by estimates of a compiler, but never by bounds."""
    if not first.compiled:
        return first.seconds / second.seconds if first.seconds and second.seconds else None
    one, other = derive.estimate(first.record), derive.estimate(second.record)
    if one is None or other is None or (one.kind, other.kind) != ("estimate", "estimate"):
        return None
    return one.seconds / other.seconds


def faster(found: Sequence[tuple[Row, Row]], said: str) -> Part:
    """Whether a lower precision is faster: where the hardware has a unit for it, it must be."""
    gains = [(second, gain) for first, second in found if (gain := _time_gain(first, second))]
    if not gains:
        return Part(said, NOT_TESTABLE, "no two precisions of one case are timed", (), ON_GPU)
    evidence = tuple(
        row.evidence(
            f"{row.where}: {row.case} is {units.digits(gain)} times as fast as in fp32"
            f"{' by the estimates of its compiler' if row.compiled else ''}."
        )
        for row, gain in gains
    )
    decisive = [gain for row, gain in gains if _decides(row) and _has_unit(row)]
    verdict = _effect([gain for _, gain in gains], decisive)
    basis = "estimated" if all(row.compiled for row, _ in gains) else "measured"
    if {row.compiled for row, _ in gains} == {True, False}:
        basis = "measured and estimated"
    why = f"{_range([gain for _, gain in gains])} times as fast ({basis})"
    if verdict == DEPENDS:
        why += "; it depends on the case, and on whether the hardware has a unit for it"
    return Part(said, verdict, why, evidence)


def _has_unit(row: Row) -> bool:
    chip = CHIPS.get(row.record.target.get("chip") or "")
    return chip is not None and chips.has_unit(chip, row.record.precision)
