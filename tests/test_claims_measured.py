"""Verdicts that records decide: they change when the records do."""

from typing import Any

import pytest
from test_claims_table import judged, part, said
from test_compiled_tables import compiled
from test_record import make

from accel_bench import claims
from accel_bench.claims.verdict import CONFIRMED, CONTRADICTED, DEPENDS, NOT_TESTABLE

CPU = {"kind": "measured", "platform": "cpu", "device_kind": "Some CPU", "num_devices": 1}
A100 = {
    "kind": "measured", "platform": "gpu", "device_kind": "NVIDIA A100-SXM4-80GB",
    "chip": "a100_80", "num_devices": 1, "num_chips": 1.0,
}  # fmt: skip


def row(workload, seconds, work=None, target=None, precision="fp32", **fields: Any):
    """A record of ten equal samples."""
    facts = {"work": work or {}} | fields.pop("facts", {})
    return make(
        workload=workload, samples_s=[seconds] * 10, target=target or CPU, precision=precision,
        facts=facts, **fields,
    )  # fmt: skip


def product(gflops, target=None, shape="2048", **fields: Any):
    flops = 2.0 * int(shape) ** 3
    params = {"shape": shape}
    return row("matmul", flops / gflops / 1e9, {"flops": flops}, target, params=params, **fields)


def thread(gflops, **fields: Any):
    return product(gflops, implementation="numpy_1thread", **fields)


def step(seconds, precision="fp32", target=None, phase="train_step", **fields: Any):
    params = {"model": "m", "phase": phase, "batch": 8, "length": 128} | fields.pop("params", {})
    facts = {"memory": {"needed": fields.pop("needed", 1e9)}} | fields.pop("facts", {})
    work = {"flops": 1e10, "tokens": 1024}
    return row("model", seconds, work, target, precision, params=params, facts=facts, **fields)


def memory(op, seconds=1.0, size=10**9, target=None, **facts: Any):
    params = {"op": op, "bytes": size}
    facts = {"working_set": size} | facts
    return row("memory", seconds, {"bytes": float(size)}, target, params=params, facts=facts)


def test_one_cpu_and_one_gpu_decide_the_matrix_product():
    judgement = judged(1, [thread(20.0)], [product(3000.0, A100, "10000")])
    assert judgement.verdict == CONFIRMED
    assert "150 times" in part(judgement, "150").why
    assert "which 10000 would take 100 s at (derived)" in said(judgement, "measured")
    assert "derived" not in said(part(judgement, "0.8 s"), "measured")


@pytest.mark.parametrize(
    ("gpu", "verdict"), [(1600.0, CONFIRMED), (9000.0, DEPENDS), (150.0, CONTRADICTED)]
)
def test_the_ratio_of_the_products_follows_the_records(gpu, verdict):
    assert part(judged(1, [thread(20.0)], [product(gpu, A100)]), "150").verdict == verdict


def test_a_cpu_alone_gives_half_of_it_and_what_peaks_allow():
    judgement = judged(1, [thread(65.0)])
    assert judgement.verdict == DEPENDS
    assert part(judgement, "120 s").verdict == DEPENDS  # 31 s
    ratio = part(judgement, "150")
    assert ratio.verdict == NOT_TESTABLE
    assert "an A100 300 times" in said(ratio)  # 19.5 TFLOP/s / 65 GFLOP/s
    assert "--device=gpu" in ratio.needs
    # Where no GPU's peak would do, the peaks decide.
    assert part(judged(1, [thread(3000.0)]), "150").verdict == CONTRADICTED


def test_a_figure_that_is_too_uncertain_decides_nothing():
    noisy = thread(20.0)
    noisy.samples_s[:] = [1.0, 2.0, 4.0, 8.0, 9.0, 9.0, 9.0, 9.0]
    small = thread(20.0, facts={"flags": ["dispatch-bound"]})
    assert part(judged(1, [noisy, small]), "120 s").verdict == NOT_TESTABLE
    few = thread(20.0, facts={"flags": ["few-samples"]})
    assert part(judged(1, [few]), "120 s").verdict == NOT_TESTABLE


def test_training_on_a_gpu_is_held_against_the_cpu():
    cpu = step(1.0)
    assert judged(2, [cpu], [step(0.02, target=A100)]).verdict == CONFIRMED
    # One machine that is not so fast says nothing of the others.
    assert judged(2, [cpu], [step(0.5, target=A100)]).verdict == DEPENDS
    tpu = A100 | {"platform": "tpu", "device_kind": "TPU v5 lite", "chip": "v5e"}
    assert judged(2, [cpu], [step(0.02, target=tpu)]).verdict == NOT_TESTABLE
    assert judged(2, [cpu]).verdict == NOT_TESTABLE
    assert judged(2, [step(0.02, target=A100)]).verdict == NOT_TESTABLE
    # Eight GPUs of which each is five times as fast.
    eight = A100 | {"num_devices": 8, "num_chips": 8.0}
    assert judged(2, [cpu], [step(1 / 40, target=eight)]).verdict == DEPENDS


def test_memory_of_a_cpu_and_of_a_gpu():
    cpu = [memory("triad", 1 / 45), memory("latency", 90e-9)]
    alone = judged(3, cpu)
    # Nobody says which memory the machine has.
    assert part(alone, "DDR4: 50").verdict == DEPENDS
    assert part(alone, "DDR4: 100").verdict == DEPENDS
    assert "memory of unknown kind" in part(alone, "DDR4: 100").why
    assert part(alone, "30 times").verdict == NOT_TESTABLE
    both = judged(3, cpu, [memory("triad", 1 / 1400, target=A100)])
    assert part(both, "30 times").verdict == CONFIRMED
    fast = [memory("triad", 1 / 400), memory("latency", 300e-9)]
    assert part(judged(3, fast), "DDR4: 50").verdict == DEPENDS
    assert part(judged(3, fast), "DDR4: 100").verdict == DEPENDS
    assert part(judged(3, fast), "30 times").verdict == DEPENDS
    cached = [memory("triad", 1 / 45, flags=["cache-resident"])]
    assert part(judged(3, cached), "DDR4: 50").verdict == NOT_TESTABLE


def test_overlap_is_measured_on_a_gpu_only():
    def pipeline(seconds, target, shared):
        companions = {"serial": [2.0], "transfer_only": [1.0], "compute_only": [1.0]}
        facts = {"companions_s": companions, "host_and_device_share_memory": shared}
        params = {"direction": "overlap", "bytes": 1}
        return row("transfer", seconds, {"bytes": 1.0}, target, params=params, facts=facts)

    def verdict(*records):
        return part(judged(8, records), "transfers").verdict

    assert verdict(pipeline(1.1, A100, False)) == CONFIRMED
    assert verdict(pipeline(1.7, A100, False)) == DEPENDS
    assert verdict(pipeline(1.99, A100, False)) == CONTRADICTED
    assert verdict(pipeline(1.1, CPU, True)) == NOT_TESTABLE
    assert verdict(pipeline(1.1, CPU, False)) == NOT_TESTABLE
    assert verdict(pipeline(1.1, A100, True)) == NOT_TESTABLE  # a GPU inside of the processor


def test_what_lower_precision_gains():
    pair = [step(1.0, needed=2e9), step(0.5, "mixed_bf16", needed=1e9)]
    judgement = judged(10, pair)
    assert judgement.verdict == CONFIRMED
    assert "2.00 GB in fp32: 50 % of that" in said(judgement)
    slower = [step(1.0), step(2.0, "mixed_bf16")]
    assert part(judged(10, slower), "saves time").verdict == DEPENDS  # a CPU may have no unit
    assert part(judged(10, slower), "saves memory").verdict == DEPENDS
    on_a100 = [step(1.0, target=A100), step(2.0, "mixed_bf16", target=A100)]
    assert part(judged(10, on_a100), "saves time").verdict == CONTRADICTED
    assert part(judged(10, on_a100), "saves memory").verdict == CONTRADICTED  # the same
    # A compiler's estimates tell the time, bounds do not; both tell the memory.
    params = {"model": "m", "phase": "train_step"}
    for seconds, time in (((2.0, 1.0), CONFIRMED), ((None, 1.0), NOT_TESTABLE)):
        half = tuple(s and s / 2 for s in seconds)
        programs = [
            compiled(seconds, workload="model", params=params),
            compiled(half, workload="model", params=params, precision="mixed_bf16"),
        ]
        assert part(judged(10, programs), "saves time").verdict == time
        assert part(judged(10, programs), "saves memory").verdict == DEPENDS  # the same
    # Two runs are no pair.
    assert judged(10, pair[:1], pair[1:]).verdict == NOT_TESTABLE


def test_eight_bits_save_weights():
    def decode(seconds, precision, size):
        facts = {"weight_bytes": size}
        return step(seconds, precision, phase="decode", facts=facts)

    judgement = judged(20, [decode(1.0, "fp32", 4e6), decode(0.9, "int8", 1e6)])
    assert part(judgement, "8 bits save memory").verdict == CONFIRMED
    assert part(judgement, "8 bits save time").verdict == CONFIRMED
    assert judgement.verdict == DEPENDS  # pruning is not in the suite


def network(link, seconds, without=0.1, exchange="fp32", **params: Any):
    """A step of four processes."""
    parts = {
        "without_exchange": [without], "compute": [without], "exchange": [1.0], "update": [0.01],
    }  # fmt: skip
    params = {"processes": 4, "link": link, "exchange": exchange} | params
    facts = {"parts_s": parts, "data_parallel": {"sent_bytes": 1e6, "plain_bytes": 4e6}}
    return step(seconds, params=params, facts=facts)


def test_a_slow_network_and_its_relief():
    slow, fast = network("100mbit", 1.0), network("unlimited", 0.11)
    judgement = judged(13, [slow, fast])
    assert judgement.verdict == CONFIRMED
    assert "90 % of a step is exchange at 100mbit, 9.1 % at unlimited" in judgement.because
    assert judged(13, [network("10gbit", 0.102)]).verdict == CONTRADICTED
    assert judged(13, []).verdict == NOT_TESTABLE
    relief = judged(14, [slow, network("100mbit", 0.3, exchange="int8")])
    assert part(relief, "compression").verdict == CONFIRMED
    assert part(relief, "asynchronous").verdict == NOT_TESTABLE
    useless = judged(14, [slow, network("100mbit", 1.0, exchange="int8")])
    assert part(useless, "compression").verdict == CONTRADICTED
    seldom = judged(14, [slow, network("100mbit", 0.2, local_steps=8)])
    assert part(seldom, "asynchronous").verdict == DEPENDS


def program(name="gpu:a100_80:8", phase="train_step", **facts: Any):
    """A compiled step."""
    params = {"model": "digits", "phase": phase, "batch": 100, "length": 64}
    code = {
        "kernels": {"triton": {"static": 1, "executed": 3}},
        "custom_calls": {},
        "prefetches": {"static": 1, "executed": 2, "bytes": 1e6},
    }
    whole = {"flops": 1e9, "bytes": 1e6, "flops_by_type": {"bf16": 1e9},
             "products": {"dot": {"static": 3, "executed": 3}}}  # fmt: skip
    return compiled(
        name=name, workload="model", params=params, facts={"code": code, "program": whole} | facts
    )


def exchange(overlapped, size=1e6):
    return {"kind": "all-reduce", "axes": ["data"], "dtype": "f32", "calls": 2, "bytes": size,
            "wire_bytes": size, "overlapped": overlapped}  # fmt: skip


def test_what_compiled_programs_say():
    beside = program(collectives=[exchange(True)])
    assert part(judged(8, [beside]), "exchange").verdict == CONFIRMED
    alone = program(collectives=[exchange(False)])
    assert part(judged(8, [alone]), "exchange").verdict == DEPENDS
    assert part(judged(18, [beside]), "NCCL").verdict == CONFIRMED
    assert part(judged(18, [beside]), "cuBLAS").verdict == DEPENDS
    assert "may choose" not in part(judged(18, [beside]), "cuBLAS").why
    guessed = program(flags=["not-autotuned"])
    assert "on one it may choose otherwise" in part(judged(18, [guessed]), "cuBLAS").why
    kernels = {"kernels": {"cublaslt": {"static": 1, "executed": 3}}, "custom_calls": {}}
    assert part(judged(18, [program(code=kernels)]), "cuBLAS").verdict == CONFIRMED


def test_what_a_tpus_compiler_says_of_a_hundred_digits():
    tpu = program("tpu:v5e:2x2", "forward")
    judgement = judged(11, [tpu])
    assert part(judgement, "a batch of 100").verdict == CONFIRMED
    assert part(judgement, "all of them").verdict == DEPENDS
    assert " ran." not in said(judgement)
    assert "100 + 128 + 128 - 1 = 355 cycles" in said(judgement)
    assert "3 products a device, 1.00 GFLOP in bf16, ~2.00 ms for 100 images" in said(judgement)
    assert (
        part(judged(11, [program("gpu:a100_80:8", "forward")]), "a batch").verdict == NOT_TESTABLE
    )
    moved = judged(12, [tpu])
    assert part(moved, "load").verdict == CONFIRMED
    still = program("tpu:v5e:2x2", code={"prefetches": {"static": 0, "executed": 0, "bytes": 0}})
    assert part(judged(12, [still]), "load").verdict == DEPENDS
    heavier = program(program={"flops": 1e9, "bytes": 9e6})
    assert part(judged(12, [program("tpu:v5e:2x2"), heavier]), "on-chip").verdict == CONFIRMED


def test_one_code_needs_the_same_case_on_both():
    gpu, tpu = program(), program("tpu:v5e:2x2")
    assert judged(19, [gpu], [tpu]).verdict == CONFIRMED
    assert judged(19, [gpu], [program("tpu:v5e:2x2", "forward")]).verdict == NOT_TESTABLE
    assert judged(19, [gpu]).verdict == NOT_TESTABLE


def test_a_part_shows_some_of_its_evidence_and_says_how_much_more():
    pairs = [
        step(1.0, precision, params={"batch": batch}) for batch in range(20)
        for precision in ("fp32", "mixed_bf16")
    ]  # fmt: skip
    found = part(judged(10, pairs), "saves time")
    assert len(found.evidence) == 20
    assert [len(found.shown[0]), found.shown[1]] == [12, 8]


def test_what_was_only_compiled_is_never_called_measured():
    records = [program(collectives=[exchange(True)]), program("tpu:v5e:2x2"), compiled()]
    from test_claims_table import sources

    without = claims.judge([])
    for before, judgement in zip(without, claims.judge(sources(records)), strict=True):
        assert said(judgement, "measured") == ""
        # And it contradicts nothing that data sheets and arithmetic do not.
        assert (judgement.verdict == CONTRADICTED) == (before.verdict == CONTRADICTED)
    kinds = {
        e.kind for j in claims.judge(sources([thread(20.0)])) for p in j.parts for e in p.evidence
    }
    assert "compiled" not in kinds
    assert "measured" in kinds
