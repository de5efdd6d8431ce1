"""Sentences say what the rows say, and no more."""

from test_derive import matmul, memory
from test_record import make

from accel_bench import derive, findings


def said(name, *records):
    return list(findings.of_workload(name, records, derive.ceilings(records)))


def product(seconds, precision="fp32", **fields):
    samples = [seconds * (1 + 0.001 * i) for i in range(10)]
    facts = {"error": 1e-3} | fields.pop("facts", {})
    record = matmul(seconds, precision=precision, facts=facts, **fields)
    record.samples_s = samples
    return record


def test_a_precision_is_set_against_fp32():
    (_, line) = said("matmul", product(2.0), product(1.0, "bf16"))
    assert line == "bf16 is 2.0x fp32 here at 64 (error 1.0e-03)."


def test_emulation_is_named():
    (_, line) = said("matmul", product(2.0), product(4.0, "fp16", facts={"flags": ["emulated"]}))
    assert line == "fp16 is 0.50x fp32 here at 64: emulated (error 1.0e-03)."


def test_no_difference_is_claimed_where_the_intervals_overlap():
    (_, line) = said("matmul", product(2.0), product(2.001, "bf16"))
    assert "bf16 is as fast as fp32 here" in line


def test_no_sentence_rests_on_a_row_that_times_launches():
    assert said("matmul", product(2.0, facts={"flags": ["dispatch-bound"]})) == []


def test_no_sentence_rests_on_a_handful_of_samples():
    few = product(1.0, "bf16", facts={"flags": ["few-samples"]})
    assert len(said("matmul", product(2.0), few)) == 1


def test_no_sentence_rests_on_a_row_that_failed():
    assert said("matmul", product(2.0, status="invalid", reason="hoisted")) == []


def test_xla_is_set_against_a_library_on_the_same_product():
    lines = said("matmul", product(1.0), product(2.0, implementation="numpy"))
    assert lines[-1] == "XLA on Some CPU is 2.0x numpy at 64 in fp32."


def test_main_memory_is_what_no_cache_holds():
    lines = said("memory", memory(0.1, flags=["cache-resident"]), memory(1.0))
    assert lines[0] == "Main memory: triad at 1.00 GB/s, over 1 GiB."
    assert said("memory", memory(0.1, flags=["cache-resident"])) == []


def test_unknown_workloads_are_left_alone():
    assert said("teleport", make(workload="teleport")) == []
