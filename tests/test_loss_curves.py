"""Where two loss curves part, and what rounding explains of it."""

import dataclasses

import numpy as np
import pytest
from test_numerics import OTHER, texts
from test_record import make

from accel_bench import loss_curves, training_findings

STEPS = 200


def training(losses, precision="fp32", accuracy=0.95, every=1, seed="abc", batch=8, **fields):
    curve = {
        "step": [STEPS], "loss": [0.1], "test_loss": [0.2], "accuracy": [accuracy],
        "elapsed_s": [20.0], "tokens": [100],
    }  # fmt: skip
    facts = {
        "curve": curve,
        "losses": {
            "per_call": 1,
            "first": list(losses[:10]),
            "every": every,
            "values": list(losses[::every]),
        },
        "data": {"train": 900, "held_out": 400, "sha256": "0"},
        "inputs_checksum": seed,
    }
    params = {"task": "digits", "model": "digits", "batch": batch, "steps": STEPS}
    return make(
        workload="training", params=params, precision=precision, facts=facts, **fields
    )  # fmt: skip


@pytest.fixture
def losses():
    rng = np.random.default_rng(0)
    return 3 * np.exp(-np.arange(STEPS) / 80) * (1 + 0.1 * rng.standard_normal(STEPS))


def spread(losses, first: float, doubling: float, most: float = 0.3):
    """The losses of a run that starts this far away and gets away as trainings do."""
    distance = np.minimum(first * 2 ** (np.arange(len(losses)) / doubling), most)
    return losses * (1 + distance * np.random.default_rng(1).choice([-1, 1], len(losses)))


def parted(losses, others, precision="fp32", **fields):
    found = loss_curves.parting(training(losses), training(others, precision, **fields))
    assert found is not None
    return found


def test_the_same_bits_never_part(losses):
    found = parted(losses, losses)
    assert found.first is found.visible is found.jump is None
    assert found.is_rounding
    assert training_findings.parted(found, "A", "digits in fp32 on B") == (
        "digits in fp32 on B loses bit for bit as A does, in all 200 losses kept."
    )


def test_another_order_of_sums_starts_by_ulps_and_is_spread_by_training(losses):
    others = spread(losses, 1e-7, doubling=8)
    others[:3] = losses[:3]
    found = parted(losses, others)
    assert found.first == 4
    assert found.visible == 1 + 8 * np.ceil(np.log2(1e5)) - 3  # 1e-7 doubled to 1 %, by 8 steps
    assert found.early < found.allowed == 32 * 2.0**-24
    assert found.is_rounding
    text = training_findings.parted(found, "A", "digits in fp32 on B")
    assert "bits differ from step 4 and they are 1 % apart from step 134. Rounding explains" in text


def test_what_a_coarser_format_may_do_an_fp32_must_not(losses):
    """TF32 in the place of fp32 starts hundreds of ulps away."""
    others = spread(losses, 1e-5, doubling=8)
    found = parted(losses, others)
    assert not found.is_rounding
    assert found.jump is None
    text = training_findings.parted(found, "A", "digits in fp32 on B")
    assert "Rounding does not explain it" in text
    assert "as products in tf32 would make it, or a fault" in text
    assert parted(losses, others, "mixed_fp16").is_rounding
    assert parted(losses, others, "fp32_default").is_rounding


def test_other_data_is_told_from_rounding_even_in_bf16(losses):
    found = parted(losses, spread(losses, 0.01, doubling=50), "bf16")
    assert not found.is_rounding
    text = training_findings.parted(found, "A", "digits in bf16 on B")
    assert "other data or weights, or a fault" in text


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_fault_on_the_way_is_a_jump(losses, precision):
    others = spread(losses, 1e-7 if precision == "fp32" else 2e-4, doubling=30)
    others[120:] *= 1.4
    found = parted(losses, others, precision)
    assert found.jump is not None
    assert found.jump[0] == 121
    assert not found.is_rounding
    text = training_findings.parted(found, "A", "digits on B")
    assert "Rounding does not explain it: at step 121 they are at once 4.0e-01 apart" in text


def test_only_steps_that_both_kept_are_held_together(losses):
    found = parted(losses, losses * 1.5, every=4)
    assert list(found.steps) == [*range(1, 11), *range(13, STEPS + 1, 4)]
    assert found.distances == pytest.approx([0.5] * len(found.steps))


@pytest.mark.parametrize("every", [2, 4, 8, 16])
def test_fewer_losses_lead_to_the_same_verdict(losses, every):
    """What a long training keeps of its losses must not make rounding look like a fault."""
    for first, precision in ((1e-7, "fp32"), (5e-4, "bf16")):
        found = parted(losses, spread(losses, first, doubling=5), precision, every=every)
        assert found.is_rounding, (first, found.early, found.growth)
    assert not parted(losses, spread(losses, 1e-5, doubling=8), every=every).is_rounding
    text = training_findings.parted(
        parted(losses, spread(losses, 1e-7, doubling=8), every=every), "A", "digits on B"
    )
    assert "differ from step 1 and they are 1 % apart from a step of 1" in text
    assert f"times as far as before within {every} steps" in text


@pytest.mark.parametrize(
    "facts",
    [
        {"losses": {}},
        {"curve": {}},
        {"curve": {"step": [], "loss": []}},
        {"curve": {"step": [200], "loss": [0.1], "test_loss": [0.2], "accuracy": [5.0],
                   "elapsed_s": [1.0], "tokens": [1]}},
        {"curve": {"step": [200], "loss": [0.1], "test_loss": [0.2], "accuracy": [],
                   "elapsed_s": [1.0], "tokens": [1]}},
        {"data": {"train": 1, "held_out": 10**300, "sha256": ""}},
    ],
)  # fmt: skip
def test_what_a_record_lacks_is_not_said(losses, facts):
    one, other = training(losses), training(losses * 1.0001, target=OTHER)
    other = dataclasses.replace(other, facts={**other.facts, **facts})
    for text in texts([one], [other]):
        assert "0 nats" not in text
        assert "None" not in text
    list(training_findings.sentences([one, other], {}))


def test_a_precision_of_a_later_version_has_no_verdict(losses):
    later = training(losses, "fp6_e3m2")
    assert loss_curves.parting(later, later) is None
    assert not list(loss_curves.by_precision([training(losses), later]))


def test_precisions_of_one_run_stand_beside_the_finest(losses):
    records = [training(losses * 1.001, "bf16"), training(losses), training(losses, "mixed_bf16")]
    pairs = [(p.one.precision, p.other.precision) for p in loss_curves.by_precision(records)]
    assert pairs == [("fp32", "bf16"), ("fp32", "mixed_bf16")]
    others = training(losses, "bf16", batch=9)
    assert not list(loss_curves.by_precision([training(losses), others]))


def test_an_accuracy_that_differs_by_chance_is_told_from_one_that_does_not(losses):
    near = parted(losses, losses * 1.0001, "bf16", accuracy=0.9475)
    far = parted(losses, losses * 1.0001, "bf16", accuracy=0.5)
    text = [training_findings.parted(found, "fp32", "digits in bf16") for found in (near, far)]
    assert text[0].endswith("tells 94.8 %, the other 95.0 %: no more than chance (p = 1).")
    assert "50.0 %, the other 95.0 %: more than chance (p = " in text[1]


def test_a_training_that_failed_has_no_curve_to_compare(losses):
    failed = training([], status="nonfinite", reason="the loss was nan")
    assert loss_curves.parting(training(losses), failed) is None


def test_compare_says_it_of_two_machines_and_not_where_inputs_differ(losses):
    one, other = training(losses), training(spread(losses, 1e-7, 8), target=OTHER)
    (said,) = [t for t in texts([one], [other]) if "leaves" in t]
    assert said.startswith("digits in fp32 on B leaves A: the losses' bits differ from step 1")
    elsewhere = training(losses * 1.1, target=OTHER, seed="other")
    found = texts([one], [elsewhere])
    assert not any("leaves" in text for text in found)
    assert any("did not compute with the same numbers" in text for text in found)


def test_roundoff_is_half_an_ulp_of_what_is_multiplied():
    found = {name: loss_curves.roundoff(name) for name in ("fp32", "bf16", "mixed_fp16", "tf32")}
    assert found == {"fp32": 2**-24, "bf16": 2**-8, "mixed_fp16": 2**-11, "tf32": 2**-11}
