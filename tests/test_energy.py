"""Energy: what is read where, what is refused, and the arithmetic between."""

import dataclasses
import itertools
import json
import sys
import types
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from test_measure import BUDGET, LAUNCH, N, square
from test_record import make
from test_tables import printed

from accel_bench import (
    compare_findings,
    comparison,
    energy,
    energy_counters,
    execute,
    measure,
    summary,
)
from accel_bench.cases import Case
from accel_bench.chips import CHIPS
from accel_bench.energy import Meter, Stretch
from accel_bench.energy_counters import Counter, Unknown
from accel_bench.measure import Measurement
from accel_bench.record import from_dict, to_line

RANGE = 262_143_328_850


def zone(root, name, kind, energy_uj, range_uj=RANGE):
    folder = root / name
    folder.mkdir(parents=True)
    for file, value in (("name", kind), ("energy_uj", energy_uj),
                        ("max_energy_range_uj", range_uj)):  # fmt: skip
        (folder / file).write_text(f"{value}\n")
    return folder


@pytest.fixture
def two_packages(tmp_path):
    """Two packages, their parts, and the zones that would count them again."""
    first = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    other = zone(tmp_path, "intel-rapl:1", "package-1", RANGE - 1_000_000)
    for name, kind in (("intel-rapl:0:0", "core"), ("intel-rapl:0:1", "dram"),
                       ("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0")):  # fmt: skip
        zone(tmp_path, name, kind, 0)
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path, first, other


def test_packages_are_added_up_and_nothing_counts_twice(two_packages):
    root, first, other = two_packages
    counter = energy_counters.rapl(root)
    assert counter.source == "RAPL, 2 processor packages"
    assert counter.limit_watts == 2000
    assert counter.read() == 0
    (first / "energy_uj").write_text("7500000")
    for name in ("intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2", "intel-rapl-mmio:0"):
        (root / name / "energy_uj").write_text("999999999")
    assert counter.read() == pytest.approx(2.5)
    # One is full, begins again at 0 and goes on from there.
    (other / "energy_uj").write_text("3000000")
    assert counter.read() == pytest.approx(2.5 + 4.0)
    assert counter.read() == pytest.approx(2.5 + 4.0)


def test_a_counter_that_goes_away_is_said(two_packages):
    root, first, _ = two_packages
    counter = energy_counters.rapl(root)
    (first / "energy_uj").unlink()
    with pytest.raises(Unknown, match="RAPL can no longer be read"):
        counter.read()


def test_without_rapl_the_reason_names_the_place(tmp_path):
    with pytest.raises(Unknown, match=r"no RAPL: .*intel-rapl:0 is not there; virtual machines"):
        energy_counters.rapl(tmp_path)
    zone(tmp_path, "intel-rapl:0", "psys", 1)  # the platform alone is no processor
    with pytest.raises(Unknown, match="is not there"):
        energy_counters.rapl(tmp_path)


def test_what_may_not_be_read_is_said_with_what_to_do(two_packages, monkeypatch):
    root, _, other = two_packages
    read = energy_counters._text

    def guarded(place, name):  # root may read everything, so that a mode would not do
        if place == other and name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(place / name))
        return read(place, name)

    monkeypatch.setattr(energy_counters, "_text", guarded)
    with pytest.raises(Unknown, match=r"intel-rapl:1/energy_uj is not readable; run as root, or"):
        energy_counters.rapl(root)


def test_a_package_that_says_nonsense_is_no_counter(tmp_path):
    zone(tmp_path, "intel-rapl:0", "package-0", "")
    with pytest.raises(Unknown, match="cannot be read"):
        energy_counters.rapl(tmp_path)


@pytest.fixture
def pynvml(monkeypatch):
    """NVML with two boards, which is told what to answer."""
    module = types.ModuleType("pynvml")

    class NVMLError(Exception):
        pass

    def refuse(board):
        raise NVMLError("Not Supported")

    answers = {
        "NVMLError": NVMLError,
        "refuse": refuse,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByPciBusId": lambda bus_id: bus_id.decode(),
        "nvmlDeviceGetMigMode": refuse,
        "nvmlDeviceGetTotalEnergyConsumption": lambda board: {"a": 1_000, "b": 500}[board],
        "nvmlDeviceGetPowerUsage": lambda board: {"a": 70_000, "b": 30_000}[board],
    }
    for name, value in answers.items():
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_boards_energy_is_added_up_of_those_that_are_used(pynvml):
    counter = energy_counters.nvml(["a", "b"], 800.0)
    assert counter.read() == pytest.approx(1.5)
    assert (counter.source, counter.limit_watts) == ("NVML's energy counter, 2 GPUs", 800.0)
    assert energy_counters.nvml(["b"]).read() == pytest.approx(0.5)


def test_an_older_boards_power_is_added_up_over_time(pynvml):
    pynvml.nvmlDeviceGetTotalEnergyConsumption = pynvml.refuse
    counter = energy_counters.nvml(["a", "b"])
    assert counter.source == "NVML's power every 20 ms, 2 GPUs"
    assert counter.read() == 0
    with counter.running():
        while counter.read() < 10:  # 100 W for a tenth of a second
            pass
    stood = counter.read()
    assert 10 <= stood < 100
    assert counter.read() == stood  # nothing samples any more


def test_what_nvml_does_not_tell_is_said(pynvml, monkeypatch):
    pynvml.nvmlDeviceGetMigMode = lambda board: (1, 1)
    with pytest.raises(Unknown, match="split"):
        energy_counters.nvml(["a"])
    pynvml.nvmlDeviceGetMigMode = lambda board: (0, 0)
    pynvml.nvmlDeviceGetTotalEnergyConsumption = pynvml.refuse
    pynvml.nvmlDeviceGetPowerUsage = pynvml.refuse
    with pytest.raises(Unknown, match="NVML does not tell the GPU's energy: Not Supported"):
        energy_counters.nvml(["a"])
    pynvml.nvmlInit = partial(pynvml.refuse, None)
    with pytest.raises(Unknown, match="Not Supported"):
        energy_counters.nvml(["a"])
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unknown, match="nvidia-ml-py is not installed: pip install nvidia-ml-py"):
        energy_counters.nvml(["a"])


def test_each_platform_has_its_counter_or_its_reason(pynvml, two_packages, monkeypatch):
    monkeypatch.setattr(energy_counters, "POWERCAP", two_packages[0])
    monkeypatch.setattr(energy_counters, "_pci_bus_id", lambda ordinal: "ba"[ordinal])
    assert energy_counters.find("cpu", [0, 1], None).source.startswith("RAPL")
    # CUDA's first GPU is NVML's second; board power is of those that are used.
    watts = CHIPS["a100_80"].watts
    counter = energy_counters.find("gpu", [0], watts)
    assert counter.read() == pytest.approx(0.5)
    assert counter.limit_watts == pytest.approx(440)
    assert energy_counters.find("gpu", [0, 1], watts).limit_watts == pytest.approx(880)
    assert energy_counters.find("gpu", [0], None).limit_watts is None
    for platform, processes, reason in (
        ("tpu", 1, "no public counter of a TPU"), ("cpu", 2, "2 processes run the case"),
    ):  # fmt: skip
        with pytest.raises(Unknown, match=reason):
            energy_counters.find(platform, [0], None, processes)
    monkeypatch.setattr("accel_bench.detect.gpu_backend", lambda: "rocm")
    with pytest.raises(Unknown, match="AMD"):
        energy_counters.find("gpu", [0], None)


def test_without_cudas_driver_no_gpu_is_guessed(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open")

    monkeypatch.setattr(energy_counters.ctypes, "CDLL", missing)
    with pytest.raises(Unknown, match="which GPU is used: libcuda"):
        energy_counters._pci_bus_id(0)


COUNTER = Counter("a counter", lambda: 0.0, limit_watts=300.0)


def test_the_arithmetic():
    idle = Stretch(joules=50.0, seconds=1.0, calls=0, updates=20)
    found = energy.figures(COUNTER, idle, Stretch(400.0, 2.0, 10, 20), steps=4, tokens=5)
    assert found == {
        "source": "a counter", "watts": 200, "seconds": 2, "calls": 10, "updates": 20,
        "joules_per_call": 40, "joules_per_step": 10, "joules_per_token": 2,
        "idle_watts": 50, "idle_s": 1,
        "joules_per_call_above_idle": 30, "joules_per_step_above_idle": 7.5,
        "joules_per_token_above_idle": 1.5,
    }  # fmt: skip
    # Whatever unit: calls x joules of each is what was counted, and idle is never more than all.
    assert found["joules_per_call"] * found["calls"] == 400
    assert found["joules_per_call"] > found["joules_per_call_above_idle"]
    without = energy.figures(COUNTER, idle, Stretch(400.0, 2.0, 10, 20), 1, None)
    assert not [name for name in without if "token" in name]


@pytest.mark.parametrize(
    ("idle", "taken", "said"),
    [
        (None, Stretch(0.0, 5.0, 10, 0), "a counter stood still for 5.0 s"),
        (None, Stretch(700.0, 2.0, 10, 20), "says 350 W, more than the 300 W that the devices"),
    ],
)
def test_a_figure_that_cannot_be_is_withheld(idle, taken, said):
    with pytest.raises(Unknown, match=said):
        energy.figures(COUNTER, idle, taken, 1, None)


@pytest.mark.parametrize(
    ("idle", "said"),
    [(Stretch(250.0, 1.0, 0, 20), "not above idle"), (Stretch(0.0, 5.0, 0, 0), "stood still")],
)
def test_what_is_not_above_idle_is_no_figure_above_idle(idle, said):
    found = energy.figures(COUNTER, idle, Stretch(400.0, 2.0, 10, 20), 1, None)
    assert found["joules_per_call"] == 40
    assert "joules_per_call_above_idle" not in found
    assert said in found["reason"]


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [0.0]
    monkeypatch.setattr(energy.time, "perf_counter", lambda: now[0])
    return now


def drawing(clock, watts, every_s=0.05):
    """A counter that draws so much and moves in steps."""
    return Counter("a counter", lambda: watts * every_s * (clock[0] // every_s), 1e4)


def test_a_stretch_is_long_against_the_counters_steps(clock):
    def batch():
        clock[0] += 0.01
        return 3

    taken = energy.busy(drawing(clock, 200.0), batch)
    assert taken.seconds >= energy.MIN_S
    assert taken.updates >= energy.MIN_UPDATES
    assert taken.watts == pytest.approx(200.0, rel=0.06)
    assert taken.calls == pytest.approx(3 * taken.seconds / 0.01)
    # One that moves twice a second is not waited for longer than that.
    clock[0] = 0.0
    slow = energy.busy(drawing(clock, 200.0, every_s=0.5), batch)
    assert energy.PATIENCE_S <= slow.seconds < energy.PATIENCE_S + 0.1


def test_idle_power_is_read_before_the_case_while_nothing_runs(clock):
    def sleep(seconds):
        clock[0] += seconds

    meter = energy.open_meter(lambda: drawing(clock, 40.0), sleep)
    assert meter.idle and meter.idle.calls == 0
    assert meter.idle.watts == pytest.approx(40.0, rel=0.06)
    assert clock[0] >= energy.SETTLE_S + energy.IDLE_S

    def none():
        raise Unknown("there is none")

    assert energy.open_meter(none).facts(lambda: 1, 1, None) == {
        "source": None, "joules_per_call": None, "reason": "there is none",
    }  # fmt: skip


def quick(monkeypatch):
    for name, value in (("MIN_S", 0.02), ("WARM_S", 0.0), ("MIN_UPDATES", 2), ("IDLE_S", 0.01),
                        ("SETTLE_S", 0.0)):  # fmt: skip
        monkeypatch.setattr(energy, name, value)


def test_it_is_taken_after_the_timing_and_times_nothing(monkeypatch):
    quick(monkeypatch)
    events = []
    count = itertools.count()

    def read():
        events.append("read")
        return 1e-3 * next(count)

    meter = Meter(Counter("a counter", read), Stretch(0.0, 1.0, 0, 20))
    assert not events
    result = Measurement()
    workload = square(lambda a, b: a @ b, work={"flops": 2 * N**3, "tokens": 8})
    measure.measure(
        workload, 0, BUDGET, LAUNCH, None, result, meter=meter,
        on_stage=lambda stage: events.append(stage),
    )  # fmt: skip
    before = events[: events.index("taking the energy")]
    assert "timing" in before and "read" not in before
    taken = result.facts["energy"]
    assert taken["calls"] % result.facts["calls_per_sample"] == 0
    assert taken["joules_per_token"] == pytest.approx(taken["joules_per_call"] / 8)
    assert len(result.samples_s) <= BUDGET.max_samples


def test_a_donated_state_runs_on_through_the_stretch(monkeypatch):
    quick(monkeypatch)
    count = itertools.count()
    meter = Meter(Counter("a counter", lambda: float(next(count)), 1e9))
    fields = {"donate": (0,), "feed": lambda args, out: (out, args[1]), "holds": ()}
    result = Measurement()
    workload = square(lambda a, b: a * 0.5 + b, **fields)
    measure.measure(workload, 0, BUDGET, LAUNCH, None, result, meter=meter)
    assert result.facts["energy"]["joules_per_call"] > 0


def test_a_counter_that_fails_costs_the_figure_and_not_the_row(monkeypatch):
    quick(monkeypatch)

    def read():
        raise Unknown("it broke")

    result = Measurement()
    meter = Meter(Counter("a counter", read))
    measure.measure(square(lambda a, b: a @ b), 0, BUDGET, LAUNCH, None, result, meter=meter)
    assert result.facts["energy"]["reason"] == "it broke"
    assert result.samples_s


def row(shape, precision, joules, **fields):
    found = energy.figures(
        Counter("RAPL, 1 processor package", float), Stretch(10.0, 1.0, 0, 20),
        Stretch(joules, 1.0, 1, 20), 1, fields.pop("tokens", None),
    )  # fmt: skip
    facts = {"work": {"flops": 2.0 * int(shape) ** 3}, "error": 1e-7, "energy": found, "flags": []}
    return make(params={"shape": shape}, precision=precision, facts=facts, **fields)


UNKNOWN = make(params={"shape": "9"}, facts={"energy": energy.unknown("no RAPL here")})


def test_tables_and_summaries_say_it_where_it_is_known(tmp_path):
    rows = [row("1000", "fp32", 40.0), row("1000", "bf16", 20.0)]
    text = printed(200, *rows, UNKNOWN, UNKNOWN)
    assert "40.0 J" in text and "30.0 J" in text
    assert "Most arithmetic a joule: 100 MFLOP/J, 1000 in bf16" in text
    assert "Energy is not told of 2 rows: no RAPL here" in text
    assert (
        printed(200, row("10", "fp32", 40.0, tokens=8)).count("Least energy a token: 5.00 J") == 1
    )
    assert "energy" not in printed(200, make()).lower()
    path = tmp_path / "records.jsonl"
    path.write_text("".join(to_line(r) + "\n" for r in [*rows, UNKNOWN]))
    lines = summary.lines(path)
    assert any("Most arithmetic a joule: 100 MFLOP/J" in line for line in lines)
    assert any("Energy is not told of 1 row: no RAPL here" in line for line in lines)


def test_sources_are_compared_with_what_each_counted(tmp_path):
    def source(letter, *records):
        return comparison.Source(letter, tmp_path / letter, "", list(records), [], None)

    other = row("1000", "fp32", 20.0)
    other.facts["energy"] |= {"source": "NVML's energy counter, 1 GPU"}
    small, big = row("10", "fp32", 1.0), row("1000", "fp32", 80.0)
    texts = [f.text for f in compare_findings.of_comparison(
        comparison.pair([source("A", small, big), source("B", small, other)])
    )]  # fmt: skip
    assert (
        "Energy of a step of matmul 1000 fp32: A 80.0 J (RAPL, 1 processor package), B 20.0 J "
        "(NVML's energy counter, 1 GPU); these do not count the same parts. A takes 4.0 times as "
        "much as B."
    ) in texts
    alike = comparison.pair([source("A", big), source("B", row("1000", "fp32", 40.0))])
    assert any(
        "package). A takes 2.0 times as" in f.text for f in compare_findings.of_comparison(alike)
    )
    same = comparison.pair([source("A", big), source("B", row("1000", "fp32", 81.0))])
    assert any(f.text.endswith("package).") for f in compare_findings.of_comparison(same))
    silent = comparison.pair([source("A", big), source("B", make(params={"shape": "1000"}))])
    assert not any("Energy" in f.text for f in compare_findings.of_comparison(silent))


def test_a_record_holds_it_and_its_schema_knows_every_field():
    from test_schema import PROPERTIES

    full = row("10", "fp32", 40.0, tokens=8).facts["energy"] | {"reason": "x"}
    known = PROPERTIES["facts"]["properties"]["energy"]["properties"]
    assert set(full) == set(known)
    for record in (row("10", "fp32", 40.0), UNKNOWN):
        assert from_dict(json.loads(to_line(record))).facts["energy"] == record.facts["energy"]


@pytest.mark.parametrize(
    ("workload", "params", "energies"),
    [("matmul", {"shape": "64"}, True), ("transfer", {"direction": "h2d", "bytes": 4096}, False)],
)
def test_a_case_is_taken_from_the_machines_counter(workload, params, energies, monkeypatch):
    quick(monkeypatch)
    moved = itertools.count(5_000_000, 1_000)
    monkeypatch.setattr(
        energy_counters, "rapl", lambda: Counter("RAPL", lambda: next(moved) * 1e-6)
    )
    session = execute.Session("cpu", jax.devices("cpu"), 1, LAUNCH)
    case = Case("it", workload, params, "fp32")
    budget = dataclasses.replace(BUDGET, max_seconds=0.02, energy=True)
    outcome = execute.execute(session, case, {}, 0, budget)
    found = outcome.measurement.facts["energy"]
    if not energies:
        assert "compiled calls" in found["reason"]
        return
    assert outcome.status == "ok", outcome.reason
    assert found["joules_per_call"] == pytest.approx(1e-3 * found["updates"] / found["calls"])
    assert found["idle_watts"] > 0


def test_a_run_says_what_it_took_or_why_it_cannot(main_py, tmp_path):
    """End to end: mostly there is no counter here, and then the row is whole without it."""
    done = main_py(
        "run", "--config=smoke", "--device=cpu", "--precision=fp32", f"--workdir={tmp_path}/w",
        '--config.cases={"one": {"workload": "matmul", "shape": "64"}}',
        "--config.measure.energy=True", "--config.measure.max_seconds=0.1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "w" / "records.jsonl").read_text().splitlines()
    found = json.loads(line)["facts"]["energy"]
    if found["joules_per_call"] is None:
        assert found["reason"]
        assert "Energy is not told of 1 row: " in done.stdout
    else:
        assert found["seconds"] >= energy.MIN_S
        assert "Most arithmetic a joule" in done.stdout


def test_without_asking_a_record_says_nothing(monkeypatch):
    result = Measurement()
    measure.measure(square(lambda a, b: jnp.dot(a, b)), 0, BUDGET, LAUNCH, None, result)
    assert "energy" not in result.facts
