import pytest
from test_record import make

from accel_bench import derive

H100 = {
    "kind": "measured", "platform": "gpu", "device_kind": "NVIDIA H100 80GB HBM3",
    "chip": "h100_sxm", "num_devices": 2, "num_chips": 2.0, "attached": 2,
}  # fmt: skip
CPU = {"kind": "measured", "platform": "cpu", "device_kind": "Some CPU", "num_devices": 1}


def matmul(seconds, flops=1e12, target=CPU, **fields):
    facts = {"work": {"flops": flops}} | fields.pop("facts", {})
    return make(target=target, samples_s=[seconds] * 10, facts=facts, **fields)


def memory(seconds, op="triad", flags=(), **fields):
    facts = {"work": {"bytes": 1e9}, "flags": list(flags), "working_set": 1 << 30}
    return make(
        workload="memory", params={"op": op, "bytes": 1}, target=CPU,
        samples_s=[seconds] * 10, facts=facts, **fields,
    )  # fmt: skip


def test_a_rate_is_work_over_the_median_and_its_interval_turns_round():
    record = make(samples_s=[1.0, 2.0, 4.0], facts={"work": {"flops": 8.0}})
    rate = derive.headline(record)
    assert rate is not None
    assert (rate.value, rate.low, rate.high) == (4.0, 2.0, 8.0)


def test_a_row_that_is_not_ok_has_no_rate():
    record = matmul(1.0, status="invalid", reason="hoisted")
    assert derive.time(record) is None
    assert derive.headline(record) is None


def test_the_peak_is_of_all_chips():
    record = matmul(1.0, flops=989e12, target=H100, precision="bf16")
    share = derive.fraction_of_peak(record, {})
    assert share == derive.Fraction(0.5, "published bf16 peak")


def test_an_unknown_chip_has_no_fraction():
    target = H100 | {"chip": None, "device_kind": "NVIDIA H300", "num_chips": None}
    assert derive.fraction_of_peak(matmul(1.0, target=target), {}) is None


def test_a_cpu_is_held_against_the_best_that_it_showed():
    fast, slow = matmul(1.0), matmul(4.0)
    best = derive.ceilings([fast, slow, memory(0.1)])
    share = derive.fraction_of_peak(slow, best)
    assert share == derive.Fraction(0.25, "best measured matmul")
    assert derive.fraction_of_peak(matmul(1.0, precision="bf16"), best) is None


def test_ceilings_leave_out_what_says_nothing_about_speed():
    cached, bound = memory(0.001, flags=["cache-resident"]), memory(1.0)
    assert derive.ceilings([cached, bound])["Some CPU"].bandwidth == 1e9
    dispatch = matmul(1e-9, facts={"flags": ["dispatch-bound"]})
    assert derive.ceilings([dispatch]) == {}


def test_baselines_set_no_ceiling():
    assert derive.ceilings([matmul(1.0, implementation="numpy")]) == {}


@pytest.mark.parametrize(
    ("serial", "pipelined", "hidden"),
    [(3.0, 2.0, 1.0), (3.0, 2.5, 0.5), (3.0, 3.0, 0.0), (4.0, 1.0, 1.0)],
)
def test_the_hidden_fraction_is_of_the_shorter_part(serial, pipelined, hidden):
    companions = {"serial": [serial], "transfer_only": [1.0], "compute_only": [2.0]}
    record = make(
        workload="transfer", params={"direction": "overlap", "bytes": 8},
        samples_s=[pipelined], facts={"companions_s": companions},
    )  # fmt: skip
    assert derive.hidden_fraction(record) == hidden


def test_what_was_delivered_stands_beside_what_was_asked_for():
    tf32_for_fp32 = matmul(1.0, precision="fp32_default", facts={"error": 3e-4})
    assert derive.delivered(tf32_for_fp32) == "tf32/fp16"
    assert derive.delivered(matmul(1.0, facts={"error": 4e-7})) == "fp32"
    assert derive.delivered(matmul(1.0)) is None
    assert derive.delivered(make(workload="model", facts={"error": 1e-3})) is None


def test_cache_levels():
    caches = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}

    def level(size):
        env = {"cpu": {"caches": caches}}
        return derive.cache_level(make(workload="memory", facts={"working_set": size}, env=env))

    sizes = (24 << 10, 512 << 10, 12 << 20, 64 << 20, 128 << 20)
    assert [level(size) for size in sizes] == ["L1", "L2", "L3", "mixed", "RAM"]
