"""What is derived from rows of many devices, on records whose answers are known."""

import dataclasses

import pytest
from test_record import make

from accel_bench import parallel, parallel_findings
from accel_bench.record import Record


def step(seconds: float, without: float = 0.1, sent: float = 4e7, **params) -> Record:
    """A train step of two processes that takes so long, of which `without` is no exchange."""
    parts = {
        "compute": [0.08] * 6,
        "waiting": [0.01] * 6,
        "exchange": [seconds - without] * 6,
        "update": [0.02] * 6,
        "without_exchange": [without] * 6,
    }
    full = {
        "phase": "train_step", "model": "gpt2_char", "batch": "2/replica", "length": 64,
        "exchange": "fp32", "processes": 2, "link": "100mbit", **params,
    }  # fmt: skip
    return make(
        workload="model",
        params=full,
        mesh={"data": 2},
        samples_s=[seconds] * 10,
        facts={
            "work": {"tokens": 256.0 * full.get("accumulate", 1)},
            "parts_s": parts,
            "data_parallel": {"sent_bytes": sent, "replicas": 2},
        },
    )


def test_the_share_of_communication_is_the_difference_to_a_step_without():
    found = parallel.parts(step(0.4, without=0.1))
    assert found and found.communication == pytest.approx(0.75)
    assert (found.compute, found.waiting, found.update) == (0.08, 0.01, 0.02)
    # A step cannot be faster for its exchange: then it is noise, and no share.
    quick = parallel.parts(step(0.09, without=0.1))
    assert quick and quick.communication == 0
    assert parallel.parts(make(workload="model", facts={})) is None


def test_the_network_needed_is_what_the_exchange_has_time_for():
    need = parallel.need(step(0.4, without=0.1, sent=5e6))
    assert need and need.balance == pytest.approx(5e7)  # 5 MB in the 0.1 s that the rest takes
    # At 0.9 of the speed the exchange has a ninth of the rest's time.
    assert need.good == pytest.approx(9 * need.balance)
    slow = 5e6 / need.good
    assert 0.1 / (0.1 + slow) == pytest.approx(parallel.GOOD_EFFICIENCY)


def test_relief_is_compared_by_tokens_at_one_link_and_number_of_processes():
    rows = [
        step(4.0),
        step(1.0, exchange="int8"),
        step(4.4, accumulate=4),
        step(0.2, exchange="int8", link="1gbit"),  # no other of its link
        step(0.5, exchange="int8", processes=4),  # nor of its number
    ]
    (found,) = parallel.reliefs(rows)
    assert found.plain is rows[0]
    assert found.speedup == {
        "int8": pytest.approx(4.0),
        "fp32, 4 accumulated": pytest.approx(4 * 4.0 / 4.4),
    }


def scaled(devices: int, seconds: float, batch: str | int) -> Record:
    row = step(seconds, mesh=f"data:{devices}", batch=batch, processes=1, link="")
    tokens = 64.0 * (devices if "/replica" in str(batch) else 8)
    facts = {**row.facts, "work": {"tokens": tokens}}
    return dataclasses.replace(row, mesh={"data": devices}, facts=facts)


def test_efficiency_is_the_rate_per_device_beside_that_of_one():
    weak = [scaled(1, 1.0, "1/replica"), scaled(2, 1.25, "1/replica"), scaled(4, 2.0, "1/replica")]
    strong = [scaled(1, 1.0, 8), scaled(2, 0.5, 8), scaled(4, 0.5, 8)]
    found = {s.weak: s for s in parallel.scalings([*weak, *strong, step(1.0)])}
    assert found[True].efficiency == {1: 1.0, 2: pytest.approx(0.8), 4: pytest.approx(0.5)}
    assert found[False].efficiency == {1: 1.0, 2: pytest.approx(1.0), 4: pytest.approx(0.5)}
    assert parallel.scalings(weak[:1]) == []  # one size scales nothing


def training(losses, seconds, tokens, **params) -> Record:
    full = {"task": "digits", "exchange": "fp32", "processes": 2, "link": "10mbit", "steps": 9}
    points = range(1, len(losses) + 1)
    curve = {
        "step": list(points),
        "loss": losses,
        "test_loss": losses,
        "accuracy": [0.5] * len(losses),
        "elapsed_s": [seconds * n / len(losses) for n in points],
        "tokens": [tokens * n // len(losses) for n in points],
    }
    return make(
        workload="training", params={**full, **params}, mesh={"data": 2}, facts={"curve": curve}
    )


def test_loss_is_held_together_after_equal_data_and_after_equal_time():
    plain = training([2.0, 1.0, 0.5, 0.4], 40.0, 4000)
    quick = training([2.0, 1.1, 0.6, 0.5], 10.0, 4000, exchange="int8")
    (found,) = parallel.learnt([plain, quick, training([1.0], 1.0, 9, task="text")])
    assert (found.tokens, found.seconds) == (4000, 10.0)
    assert found.after_tokens == {"fp32": 0.4, "int8": 0.5}
    # After 10 s fp32 has seen a quarter of the data.
    assert found.after_seconds == {"fp32": 2.0, "int8": 0.5}


def test_sentences_name_the_bottleneck_the_gain_and_its_price():
    rows = [
        step(4.0, sent=4e7),
        step(0.2, sent=4e7, link="unlimited"),
        step(1.0, exchange="int8"),
        training([2.0, 0.4], 40.0, 4000),
        training([2.0, 0.5], 10.0, 4000, exchange="int8"),
    ]
    text = "\n".join((*parallel_findings.sentences(rows), *parallel_findings.learning(rows)))
    assert "4.00 s a step at 100mbit (98 % of it communication)" in text
    assert "200 ms a step at unlimited (50 % of it communication)" in text
    assert "bottleneck of gpt2_char in fp32 with 2 processes below 3.20 Gbit/s" in text
    assert "for 90 % of the speed without exchange it needs 28.8 Gbit/s" in text
    assert "on 2 at 100mbit, tokens/s beside gradients in fp32 on every step: int8 4.0x." in text
    assert "after as much data: fp32 0.400, int8 0.500; after as much time (10.0 s): " in text
