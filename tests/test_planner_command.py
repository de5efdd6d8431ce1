"""The command from outside, and a plan by the vendors' compilers where they are installed."""

import json
from pathlib import Path

import pytest
from conftest import assert_refused
from test_compare import write
from test_compile import needs_gpu, needs_tpu
from test_main import rows
from test_planner_search import H100, step

from accel_bench import compilers
from accel_bench.compilers import Compiler
from accel_bench.errors import RequestError
from accel_bench.planner import command, json_text, search, show
from accel_bench.planner.request import make

PLAN = ("plan", "--model=tiny", "--tokens=1e6", "--targets=tpu:v5e:1x1,gpu:l4:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan",), "plan needs --model=NAME: python main.py list models names them"),
        ((*PLAN, "here"), "plan takes flags only, not 'here'"),
        ((*PLAN, "--device=cpu"), "--device is for run, not for plan: leave it out"),
        ((*PLAN, "--json=there/plan.json"), "cannot write there/plan.json"),
        ((*PLAN, "--timeout_s=-1"), "--timeout_s=-1.0: a number of seconds above 0"),
        ((*PLAN, "--records=there"), "cannot read records from there"),
        (("plan", "--published", "--model=tiny"), "plan --published takes no --model"),
    ],
)
def test_a_wrong_request_is_one_line_and_nothing_is_written(
    quick_main_py, tmp_path, arguments, message
):
    assert_refused(quick_main_py(*arguments), message, tmp_path)


def plan(tmp_path: Path, **fields):
    request = make(model="tiny", tokens=1e6, named="tpu:v5e:1x1,gpu:l4:1", **fields)
    config = search.config_of(request, {"compile_cache": "off"})
    return request, command.plan(request, config, (), tmp_path / "w")


def test_without_compilers_all_is_analytic_and_said_to_be(tmp_path, monkeypatch):
    missing = Compiler(missing="the wheel is not installed: pip install it")
    monkeypatch.setattr(compilers, "find", lambda target: missing)
    request, found = plan(tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing was compiled, so there are no records
    assert [f.compiled for f in found] == [False, False]
    for each in json.loads(json_text.plan_text(request, found))["targets"]:
        assert each["why_not_compiled"] == missing.missing
        assert "by formulas alone" in each["verdict"]
        origins = [total["origin"] for total in each["totals"]]
        assert origins == ["bound", "published"]
        assert each["totals"][0]["says"].startswith("analytic, of no compiled program")
    assert "analytic, not compiled" in _printed(request, found)
    assert command.exit_status(found) == 0


def test_a_measured_row_of_the_chip_makes_a_total_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(compilers, "find", lambda target: Compiler(missing="none here"))
    target = H100 | {"chip": "l4", "device_kind": "NVIDIA L4", "num_devices": 1, "num_chips": 1}
    records = write(tmp_path / "l4", [step(0.25, "gpt2_124m", target=target)])
    request = make(model="tiny", tokens=1e6, named="tpu:v5e:1x1,gpu:l4:1", length=32)
    config = search.config_of(request, {})
    tpu, gpu = command.plan(request, config, [records], tmp_path / "w")
    assert [total.origin for total in tpu.totals] == ["bound", "published"]
    measured = gpu.totals[-1]
    assert measured.origin == "measured"
    assert gpu.at_peak_s
    assert measured.step_low_s == pytest.approx(gpu.at_peak_s / 0.25)
    assert str(records) in measured.says


def _printed(request, found):
    import io

    from rich.console import Console

    out = io.StringIO()
    show.print_plan(request, found, Console(file=out, width=200))
    return out.getvalue()


def test_a_compiler_that_does_not_match_is_never_loaded(tmp_path, monkeypatch):
    wrong = Compiler(mismatch="libtpu 1 does not match jax 2")
    monkeypatch.setattr(compilers, "find", lambda target: wrong)
    with pytest.raises(RequestError, match="libtpu 1 does not match jax 2"):
        plan(tmp_path)
    assert list(tmp_path.iterdir()) == []


@needs_tpu
@needs_gpu
def test_a_plan_is_made_by_the_vendors_compilers(main_py, tmp_path):
    done = main_py(
        *PLAN, "--plan_compiles=1", "--length=32", "--batch_tokens=128", "--workdir=w",
        "--compile_cache=off", "--json=plan.json", "--prices=v5e=1.2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tpu, gpu = json.loads((tmp_path / "plan.json").read_text())["targets"]
    assert [row.status for row in rows(tmp_path / "w")] == ["ok", "ok"]
    for each in (tpu, gpu):
        assert each["fits"]
        assert each["compiled"]
        (best,) = [c for c in each["candidates"] if c.get("best")]
        assert 0 < best["needed_bytes"] < best["usable_bytes"]
        bound = each["totals"][0]
        assert bound["origin"] == "bound"
        assert bound["step_low_s"] == pytest.approx(best["bound_s"])
        # What the formulas say of the work cannot take less than the work at the peak.
        assert each["step_at_peak_s"] > 0
    estimate = next(t for t in tpu["totals"] if t["origin"] == "compiler")
    assert estimate["step_low_s"] > tpu["totals"][0]["step_low_s"]
    assert all(total["origin"] != "compiler" for total in gpu["totals"])
    assert [tpu["totals"][0]["money_low"], gpu["totals"][0]["money_low"]].count(None) == 1
    assert "not everything was compiled" in done.stdout
