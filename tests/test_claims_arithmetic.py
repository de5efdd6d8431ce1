"""What claims come to by arithmetic and the chip table alone: exact figures."""

import dataclasses

import pytest
from test_claims_table import judged, part, said
from test_compiled_tables import compiled

from accel_bench.claims import sizes
from accel_bench.claims.published import RUNS
from accel_bench.claims.verdict import CONFIRMED, CONTRADICTED, DEPENDS


def test_memory_of_gpt3():
    assert sizes.gigabytes(175e9, "fp32") == 700.0
    assert sizes.gigabytes(175e9, "bf16") == 350.0
    assert sizes.training_gigabytes(175e9) == 2800.0
    assert sizes.cards(700.0) == 9
    assert sizes.cards(2800.0) == 35
    judgement = judged(4)
    assert judgement.verdict == CONTRADICTED
    assert part(judgement, "700 GB").verdict == CONFIRMED
    mixed = part(judgement, "280 GB")
    assert mixed.verdict == CONTRADICTED
    assert "less than the 16-bit weights alone, 350 GB" in mixed.why
    text = said(judgement)
    assert "175e9 x 4 bytes = 700 GB (652 GiB)" in text
    assert "175e9 x 16 bytes = 2.80 TB" in text
    assert "at least 35 A100 of 80 GB" in text


def test_memory_of_llama2_70b_and_its_four_cards():
    judgement = judged(5)
    assert part(judgement, "280 GB").verdict == CONFIRMED
    assert part(judgement, "112 GB").verdict == CONTRADICTED
    cards = part(judgement, "four A100")
    assert cards.verdict == CONTRADICTED
    assert "which takes 14" in cards.why
    assert "1.12 TB" in said(cards)
    assert "inference in bf16 (140 GB, 2 cards)" in said(cards)


def test_what_compilers_say_of_llama2_stands_beside_it():
    params = {"model": "llama2_70b", "phase": "train_step", "batch": 1, "length": 4096}
    fits = compiled(
        name="gpu:a100_80:2x8", chips=16, workload="model", params=params,
        facts={"memory": {"needed": 80 * 10**9}},
    )  # fmt: skip
    too_big = compiled(
        name="gpu:a100_80:8", chips=8, status="oom_compile", workload="model", params=params
    )
    text = said(judged(5, [fits, too_big]), "compiled")
    assert "needs 80.0 GB of each of 16 devices, 1.28 TB in all" in text
    assert "(gpu:a100_80:8)" in text
    assert "does not fit: needs more" in text


def test_peaks_cores_and_links_of_an_a100():
    assert judged(6).verdict == CONFIRMED
    assert "624" in said(judged(6))
    assert part(judged(7), "6912").verdict == CONFIRMED
    assert "108 multiprocessors x 64 fp32 units = 6912" in said(judged(7))
    link = part(judged(9), "NVLink")
    assert link.verdict == CONFIRMED
    assert "300 GB/s x 2 directions = 600 GB/s" in said(link)


def test_a_wrong_chip_table_would_be_noticed(monkeypatch):
    table = {**sizes.CHIPS}
    table["a100_80"] = dataclasses.replace(table["a100_80"], peaks={"bf16": 100.0, "fp32": 19.5,
                                                                     "tf32": 50.0})  # fmt: skip
    monkeypatch.setattr("accel_bench.claims.speed.CHIPS", table)
    assert judged(6).verdict == CONTRADICTED


def test_a_gpus_memory_does_not_answer_in_ten_nanoseconds():
    latency = part(judged(3), "HBM2: 10 ns")
    assert latency.verdict == CONTRADICTED
    assert "global memory 290 cycles (206 ns)" in said(latency, "published")
    assert part(judged(3), "HBM2: 1.5").verdict == CONFIRMED


def test_devices_for_a_month_and_published_hours_agree():
    gpt3, _, llama70 = RUNS
    assert sizes.flops(gpt3) == pytest.approx(3.14e23, rel=0.01)
    assert 900 < sizes.devices_for(30 * 86400, gpt3) < 1100
    # What was published, with the utilisation that was reached and not assumed.
    assert llama70.gpu_hours
    assert llama70.gpu_hours / 720 == pytest.approx(
        sizes.devices_for(30 * 86400, llama70), rel=0.15
    )
    assert part(judged(15), "hundreds").verdict == CONFIRMED


def test_work_need_not_grow_with_the_model():
    """GPT-3 has more parameters than LLaMA-2 70B and was given a seventh of its tokens."""
    gpt3, _, llama70 = RUNS
    assert sizes.flops(gpt3) < sizes.flops(llama70)
    assert part(judged(15), "time and energy grow").verdict == DEPENDS


def test_roles():
    judgement = judged(16)
    assert part(judgement, "T4").verdict == CONFIRMED
    assert part(judgement, "P40").verdict == CONTRADICTED
    assert "250 W" in part(judgement, "P40").why
    assert part(judgement, "RTX 3080").verdict == DEPENDS
