"""Training learns, in an order that the seed alone gives, on any mesh, and shows what it did."""

import dataclasses
import functools
import io
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_refused
from jax.sharding import NamedSharding, PartitionSpec
from rich.console import Console
from test_record import make
from test_report import scripts, source

from accel_bench import comparison, loss_curves, measure, record, tables, train
from accel_bench.course import MAX_TIMES, Course, Samples
from accel_bench.data import feed
from accel_bench.errors import RequestError
from accel_bench.report import html_text
from accel_bench.workloads import WORKLOADS, learning
from accel_bench.workloads.base import UnsupportedCase, Workload, fetch, make_mesh
from accel_bench.workloads.training_params import Training

SMALL = {"num_layers": 1, "width": 32, "mlp_width": 64, "num_heads": 2, "scan_layers": False}
TEXT = {
    "task": "text", "model": "tiny", "batch": 8, "length": 16, "steps": 20, "learning_rate": 1e-2,
    "warmup": 2, "eval_every": 5, "checkpoint_every": 5, "overrides": SMALL,
}  # fmt: skip
DIGITS = {
    "task": "digits", "model": "digits_fast", "batch": 96, "steps": 60, "learning_rate": 4e-3,
    "warmup": 10, "eval_every": 30, "checkpoint_every": 0,
}  # fmt: skip


def setup(params: dict, axes: dict[str, int] | None = None, precision: str = "fp32"):
    axes = axes or {}
    mesh = make_mesh(jax.devices()[: math.prod(axes.values())], axes)
    return WORKLOADS["training"].builder()(Training(**params), precision, mesh)


def trained(params: dict, axes: dict[str, int] | None = None, folder=None, seed: int = 0):
    result = measure.Measurement()
    stages: list[str] = []
    setup(params, axes).run(seed, None, folder, result, stages.append)
    return result, stages


@functools.cache
def undisturbed(axes: tuple = ()):
    return trained(TEXT, dict(axes))[0]


@pytest.mark.alone
def test_digits_are_learnt_in_seconds_and_looked_at_in_other_precisions_too():
    result, stages = trained(DIGITS | {"also_in": "bf16, int8,fp8_e4m3"})
    curve = result.facts["curve"]
    assert curve["step"] == [30, 60]
    assert curve["accuracy"][-1] > 0.5
    assert curve["loss"][0] > curve["loss"][1]
    assert curve["test_loss"][0] > curve["test_loss"][1]
    assert curve["tokens"] == [30 * 96 * 64, 60 * 96 * 64]
    assert len(result.samples_s) == 59  # the first step stands apart
    # The clock runs through all steps and nothing else.
    assert result.first_call_s
    assert sum(result.samples_s) + result.first_call_s == pytest.approx(curve["elapsed_s"][-1])
    # Batches are made while steps run: what is waited for is a small part of it.
    assert 0 < result.facts["input_wait_s"] < 0.3 * curve["elapsed_s"][-1]
    assert any(stage.startswith("step ") and "tokens/s" in stage for stage in stages)

    end = curve["accuracy"][-1]
    found = result.facts["also_in"]
    assert list(found) == ["bf16", "int8", "fp8_e4m3"]
    for precision, figures in found.items():
        assert figures["accuracy"] == pytest.approx(end, abs=0.05), precision
        assert figures["test_loss"] != curve["test_loss"][-1]
    sizes = [figures["weight_bytes"] for figures in found.values()]
    whole = WORKLOADS["training"].builder()(
        Training(**DIGITS), "fp32", make_mesh(jax.devices()[:1], {})
    )
    assert sizes[0] == whole.facts["weight_bytes"] / 2
    assert sizes[1] == sizes[2] < 0.7 * sizes[0]
    row = a_record(also_in=found, weight_bytes=whole.facts["weight_bytes"])
    assert "rounded after it was trained: bf16 " in shown(row)
    record.to_line(row)


def test_losses_of_all_steps_are_kept_and_inputs_are_the_same_on_any_mesh():
    alone, divided = undisturbed(), undisturbed((("data", 2),))
    values = alone.facts["losses"]["values"]
    assert alone.facts["losses"]["every"] == 1
    assert len(values) == TEXT["steps"]
    np.testing.assert_allclose(
        np.mean(np.reshape(values, (4, 5)), axis=1), alone.facts["curve"]["loss"], rtol=1e-12
    )
    assert alone.facts["inputs_checksum"] == divided.facts["inputs_checksum"]
    other_seed = trained(TEXT, seed=1)[0]
    assert alone.facts["inputs_checksum"] != other_seed.facts["inputs_checksum"]
    assert alone.facts["result_checksum"] != alone.facts["inputs_checksum"]
    near, far = (
        loss_curves.parting(a_training(alone), a_training(other)) for other in (divided, other_seed)
    )
    assert near and near.is_rounding
    assert far and not far.is_rounding


def a_training(result):
    return make(workload="training", params=TEXT, facts=result.facts)


def test_bytes_of_a_text_are_learnt_and_have_no_accuracy():
    curve = undisturbed().facts["curve"]
    assert curve["accuracy"] == [None] * 4
    assert curve["test_loss"][0] < np.log(256)
    assert curve["test_loss"][-1] < curve["test_loss"][0]


def test_the_same_is_learnt_on_any_mesh():
    alone = undisturbed().facts["curve"]
    divided = trained(TEXT, {"data": 2, "fsdp": 2, "model": 2})[0].facts["curve"]
    for name in ("loss", "test_loss"):
        np.testing.assert_allclose(divided[name], alone[name], rtol=1e-3)
    assert divided["tokens"] == alone["tokens"]


def test_local_steps_and_micro_batches_go_through_the_same_sequences():
    """On one replica they change nothing but how many steps there are in a call."""
    params = TEXT | {"exchange": "fp32", "local_steps": 5, "accumulate": 2, "batch": 4}
    result, _ = trained(params)
    curve, plain = result.facts["curve"], undisturbed().facts["curve"]
    assert curve["step"] == [5, 10, 15, 20]
    assert curve["tokens"] == plain["tokens"]
    np.testing.assert_allclose(curve["test_loss"], plain["test_loss"], rtol=1e-3)
    assert result.facts["steps_per_call"] == 5
    assert len(result.samples_s) == 3  # of a call, per step, without the first


def test_the_order_of_data_is_the_same_on_any_mesh():
    found = []
    for axes in ({}, {"data": 2}, {"data": 8}):
        workload = setup(TEXT, axes)
        batches = workload.run.__self__.feed(3, 0)
        found.append([fetch(batches.next()) for _ in range(3)])
        batches.close()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_the_rate_rises_to_its_height_and_falls_to_nothing():
    params = Training(**DIGITS | {"learning_rate": 0.5, "warmup": 10, "steps": 110})
    rate = learning.schedule(params)
    expected = {0: 0.0, 5: 0.25, 10: 0.5, 35: 0.5 * (1 + np.cos(np.pi / 4)) / 2, 60: 0.25, 110: 0.0}
    for step, value in expected.items():
        assert float(rate(step)) == pytest.approx(value, abs=1e-7)
    flat = learning.schedule(dataclasses.replace(params, warmup=0))
    assert float(flat(0)) == 0.5


def test_times_that_are_kept_are_few_and_evenly_spread():
    samples = Samples(100)
    for step in range(5000):
        samples.add(float(step))
    assert 50 <= len(samples.kept) <= 100
    assert samples.kept == [float(x) for x in range(0, 5000, samples.every)]


def test_a_course_is_carried_on_from_its_json():
    course = Course({"mesh": {}}, step=5)
    course.recent, course.elapsed_s = [0.1, 0.2], 1 / 3
    course.losses.add(0.1)
    course.add_point(0.7, None, 10)
    course.samples.add(0.1)
    plain = json.loads(json.dumps(course.to_plain()))
    again = Course.resumed_from(plain, {"mesh": {}})
    assert again.curve == course.curve
    assert again.samples == course.samples
    assert again.losses == course.losses
    assert again.resumed == [{"step": 5, "mesh": {}}]
    # Times from elsewhere are no times of this place.
    plain = json.loads(json.dumps(course.to_plain()))
    assert Course.resumed_from(plain, {"mesh": {"data": 2}}).samples == Samples(MAX_TIMES)


def test_a_loss_that_is_not_finite_ends_the_training():
    mesh = make_mesh(jax.devices(), {})
    place = NamedSharding(mesh, PartitionSpec())
    number = jax.ShapeDtypeStruct((), np.float32, sharding=place)
    step = Workload(
        lambda state, tokens: (state - 1, {"loss": 1 / jnp.maximum(state, 0)}),
        (number, number),
        init=lambda seed: ((), None),
        work={},
    )
    plan = train.Training(
        step,
        create=lambda seed: jax.device_put(np.float32(3), place),
        inputs=lambda state: (state,),
        evaluate=lambda state: (0.0, None),
        feed=lambda first: feed.Feed(np.zeros(9, np.float32), 1, 0, range(9), lambda x: x[0]),
        about={}, place={}, steps=9, steps_per_call=1, eval_every=9, checkpoint_every=0,
        tokens_per_step=1,
    )  # fmt: skip
    with pytest.raises(measure.NonFinite, match="the loss was inf at step 4"):
        train.train(plan, 0, None, None, measure.Measurement())


def test_a_held_out_loss_that_is_not_finite_ends_the_training_too(monkeypatch):
    monkeypatch.setattr(learning, "fetch", lambda totals: np.array([np.inf, 0.0]))
    with pytest.raises(measure.NonFinite, match="the held-out loss was inf at step 5"):
        trained(TEXT)


@pytest.mark.parametrize(
    ("precision", "why"), [("int8", "needs scaled operands"), ("fp16", "epsilon, 1e-8, is 0")]
)
def test_precisions_in_which_nothing_is_learnt_are_not_supported(precision, why):
    with pytest.raises(UnsupportedCase, match=why):
        setup(TEXT, precision=precision)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": "digit"}, "unknown training task 'digit': did you mean 'digits'?"),
        ({"model": "digitz"}, "unknown model 'digitz'"),
        ({"batch": 0}, "training batch must be a whole number of at least 1, got 0"),
        ({"steps": 2.5}, "training steps must be a whole number of at least 1, got 2.5"),
        (
            {"steps": 1},
            "training steps=1 is too few: of two calls at least, with local_steps=1 each",
        ),
        ({"warmup": 20}, "training warmup=20 takes all of steps=20"),
        ({"warmup": -1}, "training warmup, if not 0, must be a whole number"),
        ({"learning_rate": 0}, "training learning_rate must be a number above 0, got 0"),
        ({"learning_rate": "fast"}, "training learning_rate must be a number above 0, got 'fast'"),
        ({"clip": float("nan")}, "training clip must be a number of at least 0, got nan"),
        ({"weight_decay": -0.1}, "training weight_decay must be a number of at least 0"),
        ({"checkpoint_every": -5}, "training checkpoint_every, if not 0, must be"),
        ({"shifts": True}, "training shifts is for task digits, not text"),
        ({"length": 0}, "training length must be a whole number of at least 1, got 0"),
        ({"task": "digits"}, "training length=16: a digit has 64 pixels"),
        ({"task": "digits", "length": 0, "file": "x"}, "is for task text, not digits"),
        ({"file": 5}, "training file must be a path, got 5"),
        ({"model": "digits"}, "training text has 256 tokens, and model digits knows 32"),
        ({"also_in": "fp8_e5m2"}, "training also_in=fp8_e5m2: too few digits for weights"),
        (
            {"length": 100_000},
            "Python's own text has about 600000 bytes, too few for length=100000",
        ),
        ({"file": "/"}, "training file='/' is no file"),
        ({"file": "/nowhere"}, "training file='/nowhere' does not exist"),
        ({"also_in": "int7"}, "unknown precision 'int7'"),
        ({"also_in": ("int8",)}, "training also_in must be precisions as in"),
        ({"exchange": "fp16"}, "unknown training exchange 'fp16'"),
        ({"local_steps": 2}, "training accumulate and local_steps need an exchange"),
        ({"exchange": "fp32", "local_steps": 2}, "eval_every=5 is no multiple of local_steps=2"),
        ({"batch": 9}, "training: batch=9 does not divide over mesh axis 'data' of size 2"),
    ],
    ids=lambda value: str(value),
)
def test_what_cannot_be_trained_is_said_in_a_line(changed, message):
    params = TEXT | {"overrides": {}} | changed
    with pytest.raises(RequestError) as error:
        Training(**params).check({"data": 2})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_text_that_is_too_short_is_refused_before_anything_starts(main_py, tmp_path):
    (tmp_path / "in").mkdir()
    short = tmp_path / "in" / "short.txt"
    short.write_text("too little")
    out = tmp_path / "out"
    out.mkdir()
    for file, message in (("none.txt", "does not exist"), (str(short), "has 10 bytes, too few")):
        done = main_py(
            "run", "--config=text", f"--config.cases.text.file={file}", f"--workdir={out}"
        )
        assert_refused(done, message, out)


def a_record(**facts):
    curve = {
        "step": [500, 1000], "loss": [0.4, 0.1], "test_loss": [0.3, 0.05],
        "accuracy": [0.91, 0.9861], "elapsed_s": [41.0, 82.0], "tokens": [10, 20],
    }  # fmt: skip
    known = {"work": {"tokens": 6400.0, "flops": 1e9}, "curve": curve, "input_wait_s": 0.164}
    params = {k: v for k, v in DIGITS.items() if k != "overrides"}
    return make(
        workload="training", params=params, samples_s=[0.1 + i * 1e-5 for i in range(10)],
        facts=known | facts,
    )  # fmt: skip


def shown(*records) -> str:
    out = io.StringIO()
    tables.print_run(list(records), Console(file=out, width=250))
    return out.getvalue()


def test_the_table_and_a_sentence_say_what_was_learnt():
    text = shown(
        a_record(
            resumed=[{"step": 300, "mesh": {}, "device_kind": "Some CPU", "processes": 1}],
            checkpoint_problems=["checkpoint 400: torn"],
        )
    )
    assert "98.6 %" in text
    assert "0.0500" in text
    assert (
        "digits in fp32: 98.6 % of held-out images after 1000 steps in 82.0 s; the input took "
        "0.20 % of the time." in text
    )
    assert "It was carried on at step 300." in text
    assert "checkpoint 400: torn." in text


def test_a_text_is_told_in_nats_and_a_place_of_before_is_named():
    curve = a_record().facts["curve"] | {"accuracy": [None, None], "test_loss": [3.0, 1.386294]}
    before = [{"step": 500, "mesh": {"data": 8}, "device_kind": "Some CPU", "processes": 1}]
    text = shown(a_record(curve=curve, resumed=before))
    assert "1.39 nats/byte (2.00 bits) on held-out text" in text
    assert "at step 500, on other devices before: the seconds are those of both." in text


def test_records_of_trainings_fit_the_schema():
    record.to_line(a_record(resumed=[{"step": 3, "mesh": {}}]))


def test_the_report_has_curves_over_steps_and_over_seconds():
    text = html_text(comparison.pair([source(letter, [a_record()]) for letter in "AB"]))
    plots = scripts(text)
    for name in ("accuracy", "loss"):
        by_step, by_time = plots[f"plot-{name}-steps"], plots[f"plot-{name}-time"]
        assert by_step["data"][0]["x"] == [500, 1000]
        assert by_time["data"][0]["x"] == [41.0, 82.0]
        assert {tuple(line["meta"]["s"]) for line in by_time["data"]} == {(0,), (1,)}
    assert plots["plot-accuracy-steps"]["data"][1]["y"] == [0.91, 0.9861]
