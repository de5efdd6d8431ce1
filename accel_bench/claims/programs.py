"""Claims on what programs do: overlap, matrix units, on-chip memory, libraries, one code."""

from __future__ import annotations

from collections import Counter

from accel_bench import comparison, derive, training_findings, units
from accel_bench.cases import XLA
from accel_bench.claims import criteria
from accel_bench.claims.published import NCCL_SOURCE, SYSTOLIC_SOURCE
from accel_bench.claims.rows import Row, Rows, both
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

# Rows and columns of a TPU's matrix unit up to v5p (chip table, source C).
UNIT = 128
IMAGES = 100
WITH_TARGETS = "python main.py run --config=configs/claims.py --targets=tpu:v5e:2x2,gpu:a100_80:8"


def overlap(rows: Rows) -> list[Part]:
    """Claim 8."""
    return [_host_transfers(rows), _collectives(rows)]


def _host_transfers(rows: Rows) -> Part:
    said = "transfers from the host are hidden"
    needs = "on a GPU: python main.py run --config=configs/transfer.py --device=gpu"
    hidden: list[tuple[Row, float]] = []
    shared: list[Row] = []
    for row in rows.find("transfer", direction="overlap"):
        share = derive.hidden_fraction(row.record)
        if row.fact("host_and_device_share_memory"):
            shared.append(row)
        elif share is not None and row.platform == "gpu" and row.seconds:
            hidden.append((row, share))
    said_of_cpus = tuple(
        row.evidence(
            f"{row.where}: device and host are one memory: its rows say nothing of a GPU's link."
        )
        for row in shared
    )
    if not hidden:
        return Part(said, NOT_TESTABLE, "no GPU's transfers were measured", said_of_cpus, needs)
    evidence = tuple(
        row.evidence(
            f"{row.where}: {row.case} hides {units.percent(share)} of the shorter of transfer and "
            "compute."
        )
        for row, share in hidden
    )
    share = max(share for _, share in hidden)
    verdict = CONFIRMED if share >= criteria.MOST else DEPENDS
    if share < criteria.HARDLY:
        verdict = CONTRADICTED
    why = f"{units.percent(share)} of the shorter one is hidden"
    shown = (*evidence, *said_of_cpus)
    return Part(said, verdict, why, shown, figure=Figure(share, "hidden"))


def _collectives(rows: Rows) -> Part:
    """Whether GPU programs have other work between the start and the end of an exchange."""
    said = "exchange between GPUs runs beside computing"
    evidence, hidden, total = [], 0.0, 0.0
    for row in rows.find("model", "gpu", compiled=True, phase="train_step"):
        entries = [e for e in row.fact("collectives") or () if e["wire_bytes"]]
        sent = sum(e["wire_bytes"] for e in entries)
        beside = sum(e["wire_bytes"] for e in entries if e["overlapped"])
        if sent:
            hidden, total = hidden + beside, total + sent
            evidence.append(
                row.evidence(
                    f"{row.where}: {row.case} has other work scheduled beside "
                    f"{units.percent(beside / sent)} of the {units.quantity(sent, 'B')} that each "
                    "device sends."
                )
            )
    if not total:
        return Part(said, NOT_TESTABLE, "no GPU program with an exchange", (), WITH_TARGETS)
    share = hidden / total
    verdict = CONFIRMED if share >= criteria.MOST else DEPENDS
    why = f"beside {units.percent(share)} of the bytes, by the compiler's schedule; nothing was run"
    return Part(said, verdict, why, tuple(evidence), figure=Figure(share, "of the bytes"))


def digits_at_once(rows: Rows) -> list[Part]:
    """Claim 11."""
    compiled = rows.find("model", "tpu", compiled=True, model="digits", batch=IMAGES)
    measured = rows.find("model", "tpu", model="digits", batch=IMAGES)
    learnt = _learnt(rows)
    said = "a batch of 100 digits goes through the matrix unit"
    evidence = [row.evidence(_products(row)) for row in compiled if row.fact("program", "flops")]
    evidence += [row.evidence(f"{row.where}: {row.case} ran.") for row in measured]
    if evidence:
        why = "one program takes all images; its products are those of the matrix unit"
        first = Part(said, CONFIRMED, why, (*evidence, *learnt))
    else:
        why = "no TPU program of it"
        first = Part(said, NOT_TESTABLE, why, tuple(learnt), f"anywhere: {WITH_TARGETS}")
    return [first, _at_once()]


def _learnt(rows: Rows) -> list[Evidence]:
    """The best training of each source: that the model learns, wherever it did."""
    best: dict[str, tuple[float, Row]] = {}
    for row in rows.find("training", task="digits"):
        accuracy = training_findings.last(row.record, "accuracy")
        if accuracy is not None and accuracy > best.get(row.letter, (-1.0, row))[0]:
            best[row.letter] = accuracy, row
    return [
        row.evidence(
            f"{row.where}: learning from {row.record.params['batch']} images a step, "
            f"{training_findings.share(accuracy)} of held-out digits are told"
            f"{'' if row.platform == 'tpu' else '; no TPU took part'}."
        )
        for accuracy, row in best.values()
    ]


def _products(row: Row) -> str:
    by_type = row.fact("program", "flops_by_type") or {}
    types = ", ".join(f"{units.quantity(n, 'FLOP')} in {name}" for name, n in by_type.items() if n)
    calls = sum(entry["executed"] for entry in (row.fact("program", "products") or {}).values())
    found = derive.estimate(row.record)
    time = ""
    if found:
        mark = "~" if found.kind == "estimate" else ">= "
        time = f", {mark}{units.seconds(found.seconds)} for {IMAGES} images"
    return f"{row.where}: {row.case}: {calls:g} products a device, {types or 'none counted'}{time}."


def _at_once() -> Part:
    cycles = IMAGES + 2 * UNIT - 1
    arithmetic = Evidence(
        ARITHMETIC,
        f"{IMAGES} rows through {UNIT} x {UNIT} weights take {IMAGES} + {UNIT} + {UNIT} - 1 = "
        f"{cycles} cycles from the first to the last result: alone they keep the unit "
        f"{units.percent(IMAGES / cycles)} busy, and more rows, as other tokens, fill it.",
    )
    source = Evidence(
        PUBLISHED,
        "The unit is systolic: weights stay in place, and rows follow one another, one a cycle.",
        SYSTOLIC_SOURCE,
    )
    why = f"as one product, yes; in the unit the rows follow one another, {cycles} cycles in all"
    return Part("all of them at once", DEPENDS, why, (arithmetic, source))


def pipelines(rows: Rows) -> list[Part]:
    """Claim 12."""
    found = [row for row in rows.find("model", "tpu", compiled=True) if row.fact("code")]
    return [_prefetches(found), _traffic(rows, found)]


def _prefetches(found: list[Row]) -> Part:
    said = "load, compute and store are pipelined"
    evidence = []
    found = [row for row in found if row.fact("code", "prefetches")]
    for row in found:
        moves = row.fact("code", "prefetches")
        if moves["executed"]:
            evidence.append(
                row.evidence(
                    f"{row.where}: {row.case} starts {moves['executed']:g} moves between main and "
                    f"vector memory apart from the arithmetic "
                    f"({units.quantity(moves.get('bytes') or 0, 'B')})."
                )
            )
    if not found:
        return Part(said, NOT_TESTABLE, "no TPU program", (), f"anywhere: {WITH_TARGETS}")
    verdict = CONFIRMED if len(evidence) == len(found) else DEPENDS
    why = (
        f"{len(evidence)} of {len(found)} TPU programs move data ahead of its use; how much time "
        "that hides only a run on a TPU tells"
    )
    return Part(said, verdict, why, tuple(evidence))


def _traffic(rows: Rows, found: list[Row]) -> Part:
    """Main-memory traffic per device and FLOP, beside that of the same case on a GPU."""
    said = "on-chip memory avoids transfers"
    gpus = {
        (derive.label(row.record), row.record.precision): row
        for row in rows.find("model", "gpu", compiled=True)
        if row.fact("program", "bytes") and row.fact("program", "flops")
    }
    evidence, less = [], []
    for row in found:
        gpu = gpus.get((derive.label(row.record), row.record.precision))
        if gpu is None or not row.fact("program", "bytes") or not row.fact("program", "flops"):
            continue
        mine, theirs = (
            1000 * r.fact("program", "bytes") / r.fact("program", "flops") for r in (row, gpu)
        )
        less.append(mine < theirs / criteria.GAIN)
        evidence.append(
            both(
                row,
                gpu,
                f"{row.case}: {units.digits(mine)} bytes of main memory for 1000 FLOPs on "
                f"{row.where}, {units.digits(theirs)} on {gpu.where}, whose cache may spare some.",
            )
        )
    if not evidence:
        why = "no case is compiled for a TPU and a GPU"
        return Part(said, NOT_TESTABLE, why, (), f"anywhere: {WITH_TARGETS}")
    verdict = CONFIRMED if all(less) else DEPENDS
    why = f"less main-memory traffic than a GPU's program in {sum(less)} of {len(less)} cases"
    return Part(said, verdict, why, tuple(evidence))


def libraries(rows: Rows) -> list[Part]:
    """Claim 18."""
    programs = [row for row in rows.all if row.compiled and row.platform == "gpu"]
    return [_cublas(programs), _cudnn(rows, programs), _nccl(programs)]


def _cublas(programs: list[Row]) -> Part:
    said = "cuBLAS runs matrix products"
    kernels: Counter[str] = Counter()
    cases: dict[str, Row] = {}
    for row in programs:
        for name, count in (row.fact("code", "kernels") or {}).items():
            kernels[name] += count["executed"]
            cases.setdefault(name, row)
    if not kernels:
        return Part(said, NOT_TESTABLE, "no GPU program", (), f"anywhere: {WITH_TARGETS}")
    evidence = tuple(
        cases[name].evidence(f"{count:g} products run as {name}, as in {cases[name].case}.")
        for name, count in kernels.most_common()
    )
    cublas = sum(count for name, count in kernels.items() if "cublas" in name)
    share = cublas / sum(kernels.values())
    why = f"{units.percent(share)} of products in these programs call it; the others are "
    why += "kernels that XLA generates itself"
    if any("not-autotuned" in derive.flags(row.record) for row in programs):
        why += " (no GPU was there to try which is faster: on one it may choose otherwise)"
    verdict = CONFIRMED if share == 1 else DEPENDS
    return Part(said, verdict, why, evidence)


def _cudnn(rows: Rows, programs: list[Row]) -> Part:
    said = "cuDNN runs convolutions and attention"
    calling = [
        row for row in programs if any("cudnn" in n for n in row.fact("code", "custom_calls") or {})
    ]
    ran = [r for r in rows.find("attention", "gpu") if r.fact("attention") == "cudnn"]
    found = [row.evidence(f"{row.where}: {row.case} calls cuDNN.") for row in calling]
    found += [row.evidence(f"{row.where}: {row.case} ran with cuDNN.") for row in ran]
    if found:
        why = "attention calls it where asked to (implementation=cudnn), not by itself"
        return Part(said, CONFIRMED, why, tuple(found))
    why = "no GPU program"
    if programs:
        why = f"none of {len(programs)} GPU programs calls it, and none was asked to"
    needs = (
        "on a GPU: python main.py run --config=configs/attention.py --device=gpu --precision=bf16"
    )
    return Part(said, NOT_TESTABLE, why, (), needs)


def _nccl(programs: list[Row]) -> Part:
    said = "NCCL runs collectives"
    found = []
    for row in programs:
        kinds = Counter[str]()
        for entry in row.fact("collectives") or ():
            kinds[entry["kind"]] += entry["calls"] or 0
        if kinds:
            shown = ", ".join(f"{count:g} {kind}" for kind, count in kinds.items())
            found.append(row.evidence(f"{row.where}: {row.case} has {shown}."))
    known = Evidence(
        PUBLISHED, "XLA hands the collectives of a GPU program to NCCL's functions.", NCCL_SOURCE
    )
    if not found:
        return Part(said, NOT_TESTABLE, "no GPU program with any", (known,), WITH_TARGETS)
    why = f"{len(found)} GPU programs have collectives, and XLA's source hands them to NCCL"
    return Part(said, CONFIRMED, why, (known, *found))


def one_code(rows: Rows) -> list[Part]:
    """Claim 19: the same case on CPU, GPU and TPU, measured or compiled."""
    cases: dict[tuple, dict[str, Row]] = {}
    for row in rows.all:
        if row.record.implementation == XLA:
            held = cases.setdefault(comparison.pair_key(row.record), {})
            if row.platform not in held or not row.compiled:
                held[row.platform] = row
    said = "one code on GPU and TPU back ends"
    shared = [held for held in cases.values() if {"gpu", "tpu"} <= set(held)]
    if not shared:
        why = "no case is there for a GPU and a TPU"
        return [Part(said, NOT_TESTABLE, why, (), f"anywhere: {WITH_TARGETS}")]
    cpu = sum("cpu" in held for held in shared)
    evidence = []
    for held in shared[:3]:
        for platform in ("cpu", "gpu", "tpu"):
            if row := held.get(platform):
                checked = "" if row.fact("unchecked") else ", and its result was checked"
                how = "compiled, not run" if row.compiled else f"ran{checked}"
                evidence.append(row.evidence(f"{row.case} on {row.where}: {how}."))
    if len(shared) > 3:
        first = shared[3]["gpu"]
        evidence.append(first.evidence(f"And {len(shared) - 3} more cases for both."))
    why = f"{len(shared)} cases are there for a GPU and a TPU, {cpu} of them for a CPU too"
    return [Part(said, CONFIRMED, why, tuple(evidence))]
