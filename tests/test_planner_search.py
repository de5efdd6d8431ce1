"""The search goes down its ladders, stops where it says, and adds up what it found."""

import dataclasses

import pytest
from test_record import make as make_record

from accel_bench.chips import CHIPS
from accel_bench.planner import forecast as forecasts
from accel_bench.planner import json_text, measured, published, search, show
from accel_bench.planner.request import make
from accel_bench.target import parse
from models import costs

GIB = 2**30
TARGET = "gpu:h100_sxm:8x8"


def request(named=TARGET, **fields):
    fields = {"batch_tokens": 256 * 4096, **fields}
    return make(model="llama2_7b", tokens=1e12, named=named, **fields)


class Compiler:
    """Says of each job what a rule says: memory that grows with the pass, time that shrinks."""

    def __init__(self, room: float = 8, status=None, cycles=False, slow=1.0):
        self.room, self.status, self.cycles, self.slow = room, status, cycles, slow
        self.jobs = []

    def __call__(self, job):
        self.jobs.append(job)
        micro = int(job.case.params["batch"].partition("/")[0])
        kept = 4 if job.case.params["overrides"]["remat"] == "none" else 1
        needed = (10 + 65 * micro * kept / self.room) * GIB
        fits = needed <= 75 * GIB
        status = self.status or ("ok" if fits else "oom_compile")
        seconds = self.slow * (0.1 * micro * (1 if kept == 4 else 1.3) + 0.01)
        estimate = {"bound_s": seconds, "compiler_s": None, "exposed_s": None, "binds": "compute"}
        if self.cycles:
            estimate |= {"compiler_s": 2 * seconds, "exposed_s": 0.0}
        facts = {"memory": {"needed": needed, "usable": 75 * GIB}, "estimate": estimate}
        return make_record(
            workload="model", params=dict(job.case.params), precision=job.case.precision,
            mesh=dict(job.axes), target=job.target.record(), status=status, samples_s=[],
            reason=None if status == "ok" else "because", facts=facts,
        )  # fmt: skip


def run(compiler, clock=lambda: 0.0, **fields):
    asked = request(**fields)
    return asked, search.search(asked, asked.targets[0], compiler, clock)


def test_each_ladder_is_gone_down_until_something_fits():
    compiler = Compiler(room=2)
    _, found = run(compiler, compiles=64)
    assert found.stopped == ""
    by_ladder = {}
    for tried in found.tried:
        key = (tried.candidate.axes, tried.candidate.remat)
        by_ladder.setdefault(key, []).append(tried)
    for ladder in by_ladder.values():
        assert [t.fits for t in ladder[:-1]] == [False] * (len(ladder) - 1)
    assert any(len(ladder) > 1 for ladder in by_ladder.values())
    assert found.best
    assert found.best.seconds == min(t.seconds or 0.0 for t in found.tried if t.fits)


def test_what_a_larger_pass_shows_to_be_too_large_is_left_out():
    """With 65 GiB for each sequence and more, a pass of two or four needs no compiling."""
    compiler = Compiler(room=1)
    _, found = run(compiler, compiles=64, axes="fsdp:*")
    assert next(t.candidate.micro for t in found.tried if t.candidate.remat == "full") > 1
    assert len(found.tried) < sum(len(ladder.rungs) for ladder in found.enumeration.ladders)


@pytest.mark.parametrize("compiles", [1, 3])
def test_a_budget_of_compilations_is_kept_and_named(compiles):
    compiler = Compiler()
    _, found = run(compiler, compiles=compiles)
    assert len(compiler.jobs) == len(found.tried) == compiles
    assert f"the {compiles} compilations of --plan_compiles" in found.stopped


def test_a_budget_of_seconds_is_kept_and_named():
    ticks = iter(range(0, 1000, 100))
    _, found = run(Compiler(), clock=lambda: next(ticks), budget_s=150.0)
    assert 1 <= len(found.tried) <= 2
    assert "the 150 s of --plan_budget_s" in found.stopped


def test_a_compiler_that_takes_nothing_for_a_chip_leaves_formulas():
    asked, found = run(Compiler(status="unsupported"))
    assert (found.tried, found.refusal) == ((), "because")
    said = forecasts.forecast(asked, found, None)
    assert not said.compiled
    assert "by formulas alone" in said.verdict
    assert said.totals[0].says.startswith("analytic, of no compiled program")


def test_a_compiler_that_dies_is_no_answer():
    asked, found = run(Compiler(status="crashed"), compiles=2)
    said = forecasts.forecast(asked, found, None)
    assert said.fits is None
    assert "the compiler ended as crashed (because)" in said.verdict


def test_the_sum_of_gradients_is_added_where_several_passes_make_a_batch():
    _, found = run(Compiler(), compiles=64)
    several = [t for t in found.tried if t.candidate.passes > 1]
    assert several
    for tried in several:
        shards = tried.candidate.mesh.get("fsdp", 1) * tried.candidate.mesh.get("model", 1)
        sum_of_gradients = 4 * costs.param_count(request().size) / shards
        compiled = tried.record.facts["memory"]["needed"]
        assert tried.needed == pytest.approx(compiled + sum_of_gradients)
        if tried.record.status == "ok":
            one_pass = tried.record.facts["estimate"]["bound_s"]
            assert tried.bound_s == pytest.approx(one_pass * tried.candidate.passes)


def test_what_fits_only_without_that_sum_does_not_fit():
    record = Compiler()(search.job_of(request(), parse(TARGET), _candidate()))
    record.facts["memory"]["needed"] = record.facts["memory"]["usable"] - 1
    assert search._read(_candidate(), record).fits is False
    assert search._read(dataclasses.replace(_candidate(), accumulator=0.0), record).fits


def _candidate():
    found = search.candidates.enumerate_for(request(), parse(TARGET))
    return next(c for ladder in found.ladders for c in ladder.rungs if c.passes > 1)


def test_of_equal_bounds_the_one_with_the_least_to_overlap_is_taken():
    compiler, sent = Compiler(), iter([3.0, 1.0, 2.0, *[9.0] * 60])

    def do(job):
        record = compiler(job)
        passes = 256 // (int(job.case.params["batch"][0]) * job.axes.get("fsdp", 1))
        parts = {"bound_s": 1 / passes, "compute_s": 1 / passes, "network_s": next(sent) / passes}
        record.facts["estimate"] = parts
        return record

    asked, found = run(do, compiles=3, batch_tokens=64 * 4096, axes="fsdp:*")
    alike = [t for t in found.tried if t.fits]
    assert len(alike) == len(found.fastest) > 1
    assert found.best is min(alike, key=lambda t: t.parts_s)
    said = forecasts.forecast(asked, found, None)
    assert any("candidates are alike to a per cent" in line for line in said.assumed)


def forecast(compiler=None, near=None, **fields):
    asked, found = run(compiler or Compiler(), **fields)
    return asked, forecasts.forecast(asked, found, near)


def test_days_chip_hours_energy_and_money_are_one_time():
    asked, said = forecast(prices="h100_sxm=2.5")
    assert said.fits is True
    for total in said.totals:
        days = total.step_low_s * asked.steps / 86400
        assert total.days_low == pytest.approx(days)
        assert total.chip_hours_low == pytest.approx(days * 24 * 64)
        assert total.mwh_low == pytest.approx(total.chip_hours_low * 700 / 1e6)
        assert total.money_low == pytest.approx(total.chip_hours_low * 2.5)
    bound = said.totals[0]
    assert (bound.origin, bound.days_high, bound.mfu_low) == ("bound", None, None)


def test_without_a_price_or_a_power_there_is_no_figure():
    _, said = forecast(named="tpu:v5p:4x4x4")
    for total in said.totals:
        assert (total.money_low, total.money_high) == (None, None)
    if said.watts is None:
        assert said.watts_reason == "no board power of v5p is in the chip table"
        assert all(total.mwh_low is None for total in said.totals)


def test_no_range_is_shorter_than_the_bound_of_the_program():
    _, said = forecast(Compiler(slow=10.0))
    bound = said.totals[0].step_low_s
    share = published.efficiency("h100_sxm")
    assert said.at_peak_s
    assert bound > said.at_peak_s / share.low  # this compiler is slow
    by_share = next(t for t in said.totals if t.origin == "published")
    assert by_share.step_low_s == bound
    assert "no shorter than the bound" in by_share.says


def test_cycles_are_an_estimate_of_their_own():
    _, said = forecast(Compiler(cycles=True), named="tpu:v5p:4x4x4")
    origins = {total.origin: total for total in said.totals}
    assert origins["compiler"].step_low_s == pytest.approx(2 * origins["bound"].step_low_s)
    assert origins["compiler"].step_low_s == origins["compiler"].step_high_s


def test_published_shares_of_other_precisions_are_said_to_be_of_16_bits():
    _, said = forecast(precisions="fp32")
    assert any("multiplied in 16 bits" in line for line in said.assumed)
    _, said = forecast()
    assert not any("multiplied in 16 bits" in line for line in said.assumed)


def test_what_fits_without_a_known_time_has_no_bound_of_its_own():
    compiler = Compiler()

    def do(job):
        record = compiler(job)
        record.facts["estimate"] = {"bound_s": None, "compiler_s": None}
        return record

    asked, found = run(do, compiles=1)
    said = forecasts.forecast(asked, found, None)
    assert said.fits is True
    assert said.totals[0].says.startswith("analytic, of no compiled program")


def test_what_does_not_fit_says_by_how_much_and_gives_no_days():
    asked = make(model="llama2_70b", tokens=2e12, named="gpu:t4:1")
    found = search.search(asked, asked.targets[0], Compiler(), lambda: 0.0)
    said = forecasts.forecast(asked, found, None)
    assert (said.fits, said.totals) == (False, ())
    state = costs.train_state_bytes(dataclasses.replace(asked.size, param_dtype="float32"))
    assert f"{state / GIB:.0f} GiB of weights and moments on each device" in said.verdict
    assert "too much" in said.verdict
    assert "fill 53 chips of t4" in said.verdict


def test_what_only_an_estimate_puts_above_the_memory_is_not_said_not_to_fit():
    """Weights and moments fit, activations of one long sequence do not by the formula."""
    asked = make(
        model="llama2_7b", tokens=1e12, named="gpu:h100_sxm:8", length=65_536,
        batch_tokens=8 * 65_536,
    )  # fmt: skip
    found = search.analytic(asked, asked.targets[0], "")
    assert found.enumeration.ladders == ()
    said = forecasts.forecast(asked, found, None)
    assert said.fits is None
    assert said.verdict.startswith("not known, and not compiled for it is far too large")


def test_of_what_was_compiled_the_nearest_is_named():
    _, said = forecast(Compiler(room=0.5), compiles=64, named="gpu:h100_sxm:1x8")
    assert said.fits is False
    assert "does not fit: of " in said.verdict
    assert "GiB too much" in said.verdict


H100 = {
    "kind": "measured", "platform": "gpu", "device_kind": "NVIDIA H100 80GB HBM3",
    "chip": "h100_sxm", "num_devices": 8, "num_chips": 8, "attached": 8,
}  # fmt: skip


def step(share, model="llama2_7b", precision="mixed_bf16", target=H100, **fields):
    flops = share * CHIPS[target["chip"]].peaks["bf16"] * 1e12 * target["num_chips"]
    params = {"phase": "train_step", "model": model, "batch": 8, "length": 64}
    return make_record(
        workload="model", params=params, precision=precision, target=target,
        samples_s=[1.0] * 10, facts={"work": {"flops": flops}, **fields},
    )  # fmt: skip


def near(*records, chip="h100_sxm"):
    rows = [("runs/a", record) for record in records]
    return measured.on_chip(rows, chip, "mixed_bf16", "llama2_7b")  # type: ignore[arg-type]


def test_a_measured_share_is_of_the_nearest_model_and_says_so():
    found = near(step(0.2, "tiny"), step(0.4), step(0.5, precision="fp16"))
    assert found
    assert found.value == pytest.approx(0.4)
    assert "llama2_7b" in found.row
    assert "runs/a" in found.row
    assert near(step(0.4), chip="a100_80") is None
    assert near(step(1.1)) is None  # nothing reaches that


def test_a_measured_share_makes_a_total_beside_the_published_one():
    _, said = forecast(Compiler(room=1e9), near=near(step(0.4)), compiles=64)
    total = next(t for t in said.totals if t.origin == "measured")
    assert total.step_low_s >= said.totals[0].step_low_s
    assert "40 % of the peak: llama2_7b train_step" in total.says
    assert any("of 8 chips and is taken for 64" in line for line in said.assumed)


def test_rows_that_say_nothing_of_speed_are_not_taken(tmp_path):
    from test_compare import write

    path = write(tmp_path / "w", [step(0.3), step(0.9, flags=["noisy"])])
    assert len(measured.read([path])) == 1


def test_tables_markdown_and_json_hold_the_same_candidates():
    import io
    import json

    from rich.console import Console

    asked, said = forecast()
    plain = json.loads(json_text.plan_text(asked, [said]))
    (target,) = plain["targets"]
    assert [c["best"] for c in target["candidates"] if c["status"] == "ok"].count(True) == 1
    assert len(target["candidates"]) == len(show.candidate_rows(said.found))
    out = io.StringIO()
    show.print_plan(asked, [said], Console(file=out, width=250))
    for text in (out.getvalue(), show.plan_markdown(asked, [said])):
        assert "the best of these" in text
        assert "chip-hours" in text
        assert "no failures, restarts" in text
        for default in asked.defaults:
            assert default.split(" (")[0].replace("_", "") in text.replace("\\_", "").replace(
                "_", ""
            )
