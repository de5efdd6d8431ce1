"""Claims on what hardware is: memory, cores, links, roles and tables of models."""

from __future__ import annotations

from accel_bench import derive, units
from accel_bench.chips import CAPABILITIES, CHIPS
from accel_bench.claims import criteria
from accel_bench.claims.published import (
    A100_LATENCY_CYCLES,
    DDR4_SOURCE,
    EPYC_CORES,
    EPYC_SOURCE,
    GPU_LATENCY_SOURCE,
    TRAINING_BYTES,
)
from accel_bench.claims.rows import Row, Rows, both, fastest
from accel_bench.claims.verdict import (
    ARITHMETIC,
    CONFIRMED,
    CONTRADICTED,
    DEPENDS,
    MEASURED,
    NOT_TESTABLE,
    PUBLISHED,
    Evidence,
    Figure,
    Part,
)
from accel_bench.derive import Rate

A100 = CHIPS["a100_80"]
ON_CPU = "on any CPU: python main.py run --config=configs/claims.py"


def memory(rows: Rows) -> list[Part]:
    """Claim 3."""
    near = fastest(rows.find("memory", "cpu", op="triad"), "bytes")
    far = fastest(rows.accelerators("memory", op="triad"), "bytes")
    bandwidth = near[1].value / 1e9 if near else None
    ddr4 = Evidence(
        PUBLISHED,
        "Two channels of DDR4-3200, as a desktop has: 2 x 8 bytes x 3.2 GT/s = 51.2 GB/s; a server "
        "has up to eight.",
        DDR4_SOURCE,
    )
    parts = []
    if near and bandwidth:
        found = near[0].evidence(
            f"{near[0].where}: triad in main memory, of whatever kind, at {_gbs(bandwidth)}."
        )
        # A machine does not tell which memory it has.
        verdict = DEPENDS
        figure = Figure(bandwidth, "GB/s", 50.0)
        why = f"{_gbs(bandwidth)} here, by memory of unknown kind; two channels have 51.2 at most"
        parts.append(Part("DDR4: 50 GB/s", verdict, why, (found, ddr4), figure=figure))
    else:
        why = "no main memory of a CPU was measured well enough"
        parts.append(Part("DDR4: 50 GB/s", NOT_TESTABLE, why, (ddr4,), ON_CPU))
    parts.append(_cpu_latency(rows))
    parts.append(_hbm(far[0] if far else None, far[1].value / 1e9 if far else None))
    parts.append(_hbm_latency())
    parts.append(_times(near, far))
    return parts


def _gbs(value: float) -> str:
    return f"{units.digits(value)} GB/s"


def _cpu_latency(rows: Rows) -> Part:
    said = "DDR4: 100 ns"
    chains = [
        row for row in rows.find("memory", "cpu", op="latency")
        if row.seconds and derive.cache_level(row.record) in (None, "RAM")
    ]  # fmt: skip
    last = max(chains, key=lambda row: row.fact("working_set") or 0, default=None)
    if last is None or not last.seconds:
        why = "no dependent loads in main memory were measured well enough"
        return Part(said, NOT_TESTABLE, why, (), ON_CPU)
    nanoseconds = last.seconds * 1e9
    evidence = last.evidence(
        f"{last.where}: a dependent load takes {units.digits(nanoseconds)} ns in main "
        "memory, of whatever kind it is."
    )
    why = f"{units.digits(nanoseconds)} ns here, by memory of unknown kind"
    return Part(said, DEPENDS, why, (evidence,), figure=Figure(nanoseconds, "ns", 100.0))


def _hbm(row: Row | None, measured: float | None) -> Part:
    chip = CHIPS["a100_40"]
    evidence = [
        Evidence(
            PUBLISHED,
            f"The A100 with 40 GB has {chip.bandwidth_gbs:g} GB/s, that with 80 GB "
            f"{A100.bandwidth_gbs:g} GB/s; the V100 has {CHIPS['v100_sxm2'].bandwidth_gbs:g} GB/s.",
            "chip table, X",
        )
    ]
    if row and measured:
        evidence.append(row.evidence(f"{row.where}: triad at {_gbs(measured)} a device."))
    verdict = criteria.published(chip.bandwidth_gbs, 1500.0)
    why = f"an A100's, {chip.bandwidth_gbs:g} GB/s"
    figure = Figure(chip.bandwidth_gbs, "GB/s", 1500.0)
    return Part("HBM2: 1.5 TB/s", verdict, why, tuple(evidence), figure=figure)


def _hbm_latency() -> Part:
    """No rate of loads is measured on GPUs here: a paper's cycles, over the chip's own clock."""
    clock = A100.clock_ghz or 1.0
    found = {name: cycles / clock for name, cycles in A100_LATENCY_CYCLES.items()}
    shown = ", ".join(
        f"{name} {cycles} cycles ({found[name]:.0f} ns)"
        for name, cycles in A100_LATENCY_CYCLES.items()
    )
    evidence = Evidence(
        PUBLISHED,
        f"Dependent loads of an A100: {shown}, in nanoseconds of its boost clock of {clock:g} GHz.",
        GPU_LATENCY_SOURCE,
    )
    nanoseconds = found["global memory"]
    verdict = CONFIRMED if criteria.near(nanoseconds, 10.0) else CONTRADICTED
    why = (
        f"about {units.digits(nanoseconds, 2)} ns or more, no less than a CPU's; a GPU hides it "
        "behind other threads, and 10 ns is less than its first cache takes"
    )
    return Part("HBM2: 10 ns", verdict, why, (evidence,), figure=Figure(nanoseconds, "ns", 10.0))


def _times(near: tuple[Row, Rate] | None, far: tuple[Row, Rate] | None) -> Part:
    said = "30 times the bandwidth"
    stated = Evidence(ARITHMETIC, "1500 / 50 = 30: the figures agree with one another.")
    cpu = near[1].value / 1e9 if near else None
    if near and far and cpu:
        device = far[1].value / 1e9
        ratio = device / cpu
        evidence = both(near[0], far[0], f"{_gbs(device)} over {_gbs(cpu)}.")
        why = f"{units.digits(ratio, 2)} times here"
        verdict = criteria.measured(ratio, 30.0)
        return Part(said, verdict, why, (evidence, stated), figure=Figure(ratio, "times", 30.0))
    if cpu is None:
        return Part(said, NOT_TESTABLE, "no CPU was measured", (stated,), ON_CPU)
    most = A100.bandwidth_gbs / cpu
    bound = Evidence(
        ARITHMETIC,
        f"The A100's published {A100.bandwidth_gbs:g} GB/s over the rate of this CPU: at most "
        f"{units.digits(most, 2)} times.",
        "chip table, X",
    )
    needs = "on a GPU: python main.py run --config=configs/claims.py --device=gpu"
    if most < 30.0 / criteria.NEAR:
        return Part(said, DEPENDS, "not against this CPU's memory", (bound, stated))
    why = f"the CPU is measured; an A100 allows up to {units.digits(most, 2)} times"
    return Part(said, NOT_TESTABLE, why, (bound, stated), needs)


def cores(rows: Rows) -> list[Part]:
    """Claim 7."""
    capability = CAPABILITIES[A100.capability or ""]
    found = (A100.cores or 0) * capability.fp32_units
    known = Evidence(
        PUBLISHED,
        f"{A100.cores} multiprocessors x {capability.fp32_units} fp32 units = {found}.",
        "chip table, X, and CUDA programming guide",
    )
    alike = Evidence(
        ARITHMETIC,
        "Such a core is one lane of a vector unit: a CPU core with two 512-bit multiply-adds a "
        f"cycle has 32 of them, so that 16 of its cores are 512 lanes beside {found}; what is like "
        f"a CPU's core is the multiprocessor, of which there are {A100.cores}.",
    )
    counts = {
        f"{row.letter} ({row.record.env['cpu'].get('model')})": (row.letter, number)
        for row in rows.all
        if not row.compiled
        and isinstance(row.record.env.get("cpu"), dict)
        and (number := row.record.env["cpu"].get("cores"))
    }
    seen = tuple(
        Evidence(MEASURED, f"{name} offers {number} cores to this process.", letter)
        for name, (letter, number) in counts.items()
    )
    epyc = Evidence(PUBLISHED, f"A server's CPU has up to {EPYC_CORES} cores.", EPYC_SOURCE)
    return [
        Part(
            "6912 CUDA cores in an A100", criteria.published(found, 6912.0),
            f"{found} fp32 units", (known, alike), figure=Figure(found, "units", 6912),
        ),
        Part(
            "a CPU has 4 to 16 cores", DEPENDS,
            f"a desktop's has; servers have up to {EPYC_CORES}", (*seen, epyc),
        ),
    ]  # fmt: skip


def links(rows: Rows) -> list[Part]:
    """Claim 9."""
    one_way = A100.link_gbs or 0.0
    known = Evidence(
        PUBLISHED,
        f"An A100's NVLinks carry {one_way:g} GB/s in each direction together.", "chip table, N",
    )  # fmt: skip
    both = Evidence(
        ARITHMETIC,
        f"{one_way:g} GB/s x 2 directions = {2 * one_way:g} GB/s. What one GPU sends in a time is "
        f"at most {one_way:g}.",
    )
    part = Part(
        "NVLink 3.0: 600 GB/s, both ways",
        criteria.published(2 * one_way, 600.0),
        f"the sum of both directions; {one_way:g} GB/s each",
        (known, both, *_bus(rows), *_compiled_exchange(rows)),
        figure=Figure(2 * one_way, "GB/s", 600.0),
    )
    network = Evidence(
        PUBLISHED,
        f"In the vendor's own A100 system each GPU has a network card of {A100.nic_gbs:g} GB/s in "
        f"one direction, {one_way / (A100.nic_gbs or 1):.0f} times less than its NVLinks.",
        "chip table, D",
    )
    hosts = [
        row for row in rows.find("collective", "gpu")
        if (row.record.target.get("processes") or 1) > 1
    ]  # fmt: skip
    measured = tuple(_bus_rate(row) for row in hosts if row.rate("bus_bytes"))
    return [part, _rdma(network, measured)]


def _rdma(network: Evidence, measured: tuple[Evidence, ...]) -> Part:
    said = "GPUDirect RDMA joins GPUs of several nodes"
    needs = (
        "on two GPU hosts, once as they are and once with NCCL_NET_GDR_LEVEL=LOC, which switches "
        "it off: python main.py run --config=configs/collectives.py --coordinator=HOST:PORT "
        "--num_processes=2 --process_id=0 (and 1)"
    )
    if measured:
        why = "rates between hosts were measured; whether they bypass the host's memory is not seen"
        return Part(said, DEPENDS, why, (*measured, network), needs)
    why = "no rows of several GPU hosts; the 600 GB/s are not those of this path"
    return Part(said, NOT_TESTABLE, why, (network,), needs)


def _bus_rate(row: Row) -> Evidence:
    rate = derive.rate(row.record, "bus_bytes")
    shown = units.quantity(rate.value, "B/s") if rate else "?"
    return row.evidence(f"{row.where}: {row.case} at {shown} bus bandwidth.")


def _bus(rows: Rows) -> list[Evidence]:
    found = [row for row in rows.find("collective", "gpu") if row.seconds]
    best = max(
        found, key=lambda r: (rate.value if (rate := derive.rate(r.record, "bus_bytes")) else 0.0),
        default=None,
    )  # fmt: skip
    return [_bus_rate(best)] if best else []


def _compiled_exchange(rows: Rows) -> list[Evidence]:
    said = []
    for row in rows.find("collective", "gpu", compiled=True):
        least = row.fact("estimate", "network_s")
        sent = sum(entry["wire_bytes"] or 0 for entry in row.fact("collectives") or ())
        if least and sent:
            said.append(
                row.evidence(
                    f"{row.where}: {row.case} sends {units.quantity(sent, 'B')} from each device: "
                    f"at least {units.seconds(least)} at one direction's rate."
                )
            )
    return said


def roles(rows: Rows) -> list[Part]:
    """Claim 16: roles are choices; what the data sheets say for and against each."""
    del rows
    parts = []
    for name in ("v100_sxm2", "a100_80"):
        chip = CHIPS[name]
        text = (
            f"{name}: {chip.peaks['fp16']:g} TFLOP/s in fp16, {chip.memory_gb:g} GB at "
            f"{chip.bandwidth_gbs:g} GB/s, {chip.link_name} {chip.link_gbs:g} GB/s, {chip.watts} W."
        )
        said = f"{name.split('_')[0].upper()} trains"
        why = "it has matrix units for 16 bits and links made for exchanging gradients"
        has = chip.link_name == "NVLink" and "fp16" in chip.peaks
        evidence = Evidence(PUBLISHED, text, f"chip table, {chip.source}")
        parts.append(Part(said, CONFIRMED if has else CONTRADICTED, why, (evidence,)))
    for name in ("t4", "p40"):
        chip = CHIPS[name]
        watts = chip.watts or 0
        low = watts <= criteria.LOW_POWER_WATTS
        matrix = "a matrix unit for 8 and 16 bits" if "fp16" in chip.peaks else "no matrix unit"
        text = f"{name}: {watts} W, {chip.memory_gb:g} GB at {chip.bandwidth_gbs:g} GB/s, {matrix}."
        evidence = Evidence(PUBLISHED, text, f"chip table, {chip.source}")
        why = f"{watts} W, beside {CHIPS['v100_sxm2'].watts} W of a V100"
        verdict = CONFIRMED if low else CONTRADICTED
        said, figure = f"{name.upper()} serves at low power", Figure(watts, "W")
        parts.append(Part(said, verdict, why, (evidence,), figure=figure))
    for name in ("rtx3080", "rtx3090"):
        chip = CHIPS[name]
        most = chip.memory_gb * 2**30 / TRAINING_BYTES / 1e9
        text = f"{name}: {chip.memory_gb:g} GB, {chip.watts} W, {chip.link_name}."
        evidence = (
            Evidence(PUBLISHED, text, f"chip table, {chip.source}"),
            Evidence(
                ARITHMETIC,
                f"At {TRAINING_BYTES} bytes a parameter its memory trains at most "
                f"{units.digits(most, 2)} billion parameters.",
            ),
        )
        why = f"a role is a choice; memory allows models below {units.digits(most, 2)} billion"
        parts.append(Part(f"RTX {name[3:]} prototypes", DEPENDS, why, evidence))
    return parts


def tables(rows: Rows) -> list[Part]:
    """Claim 17."""
    gpus = [name for name, chip in CHIPS.items() if chip.platform == "gpu"]
    tpus = [name for name, chip in CHIPS.items() if chip.platform == "tpu"]
    own = Evidence(
        PUBLISHED,
        f"This suite's own table has {len(gpus)} GPUs ({', '.join(gpus)}) and {len(tpus)} TPUs "
        f"({', '.join(tpus)}), each figure with its source: python main.py list chips.",
        "chip table",
    )
    chips = {
        row.record.target["chip"]: row for row in rows.all
        if not row.compiled and row.record.target.get("chip")
    }  # fmt: skip
    seen = tuple(
        row.evidence(f"{row.where} is {name} of the table.") for name, row in chips.items()
    )
    return [
        Part(
            "GPUs and TPUs by cores, memory, bandwidth, peak and power",
            NOT_TESTABLE,
            "the source's figures are not legible; the chip table stands in their place",
            (own, *seen),
            "legible figures, to hold against python main.py list chips",
        )
    ]
