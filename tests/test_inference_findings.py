"""What decode rows say of latency, throughput and memory, and no more than they can."""

import pytest
from test_derive import CPU, H100
from test_record import make

from accel_bench import findings, inference_findings, tables


def decode(batch, seconds, singles=(), target=CPU, precision="bf16", flags=(), **facts):
    samples = [seconds * (1 + 0.001 * i) for i in range(10)]
    params = {"phase": "decode", "model": "tiny", "batch": batch, "length": 32}
    sampling = {"sampling": facts.pop("sampling")} if "sampling" in facts else {}
    work = {"tokens": batch, "flops": 1e9 * batch}
    return make(
        workload="model", params=params | sampling, precision=precision, target=target,
        samples_s=samples, facts={"work": work, "flags": list(flags), **facts}
        | ({"single_steps_s": list(singles)} if singles else {}),
    )  # fmt: skip


SINGLES = [0.010] * 98 + [0.020] * 2


def test_percentiles_are_of_single_steps():
    found = inference_findings.latency(decode(1, 0.01, SINGLES))
    assert found is not None
    assert (found.p50, found.steps) == (0.010, 100)
    assert found.p99 == pytest.approx(0.020)
    few = inference_findings.latency(decode(1, 0.01, SINGLES[:60]))
    assert few is not None and few.p99 is None
    assert inference_findings.latency(decode(1, 0.01)) is None


def test_the_smallest_and_the_largest_batch_are_told_and_what_throughput_gains():
    rows = [decode(batch, 0.01 * batch**0.5, SINGLES) for batch in (1, 4, 2)]
    (line,) = inference_findings.sentences(rows)
    assert line == (
        "Decoding tiny in bf16, batch 1: p50 10.0 ms, p99 20.0 ms per token, 99.6 tokens/s; "
        "batch 4: p50 10.0 ms, p99 20.0 ms per token, 199 tokens/s; "
        "throughput grows 2.0x from batch 1 to 4."
    )


def test_nothing_is_claimed_from_a_noisy_row_or_across_ways_of_sampling():
    rows = [decode(1, 0.01), decode(4, 0.02, flags=["noisy"])]
    (line,) = inference_findings.sentences(rows)
    assert "grows" not in line
    lines = list(inference_findings.sentences([decode(1, 0.01), decode(4, 0.01, sampling="top_k")]))
    assert len(lines) == 2 and "(top_k)" in lines[1] and "grows" not in "".join(lines)


def test_the_cache_stands_beside_the_memory_of_a_known_chip():
    row = decode(1, 0.01, target=H100, cache_bytes=4 << 30)
    assert inference_findings.cache_note(row) == "cache 4 GiB of 160 GiB"
    assert "cache 4 GiB of 160 GiB" in next(inference_findings.sentences([row]))
    assert "cache 4 GiB of 160 GiB" in tables.note(row, {})
    assert inference_findings.cache_note(decode(1, 0.01, cache_bytes=4 << 30)) == ""


def test_precisions_of_a_phase_are_set_against_fp32():
    rows = [decode(1, 0.02, precision="fp32"), decode(1, 0.01, precision="int8", error=2e-2)]
    lines = list(findings.of_workload("model", rows, {}))
    assert "int8 is 2.0x fp32 here at tiny decode b1 l32 (error 2.0e-02)." in lines


def test_memory_is_shown_for_models_alone():
    facts = {"weight_bytes": 3 << 20, "cache_bytes": 1 << 20, "memory": {"needed": 5 << 20}}
    row, other = decode(1, 0.01, SINGLES, **facts), make(facts={"memory": {"needed": 5 << 20}})
    shown = {title: cell(row, {}) for title, cell in inference_findings.CELLS.items()}
    assert shown == {
        "p50": "10.0 ms", "p99": "20.0 ms", "weights": "3 MiB", "state": "", "cache": "1 MiB",
        "needed": "5 MiB",
    }  # fmt: skip
    assert not any(cell(other, {}) for cell in inference_findings.CELLS.values())
