import pytest

from accel_bench import checks
from accel_bench.cases import Case
from accel_bench.execute import measured_target
from accel_bench.measure import Measurement
from accel_bench.record import FLAGS

MATMUL = Case("m", "matmul", {"shape": "4096"}, "bf16")
H100 = measured_target("gpu", "NVIDIA H100 80GB HBM3", 1, 1)
T4 = measured_target("gpu", "Tesla T4", 1, 1)
UNKNOWN = measured_target("gpu", "NVIDIA H100 96GB HBM3", 1, 1)
CPU = measured_target("cpu", "Some CPU", 1, 1)


def measurement(step_s: float, **facts) -> Measurement:
    base = {"work": {"flops": 2 * 4096**3}, "launch_queued_s": 1e-6, "steps_per_call": 1}
    return Measurement(samples_s=[step_s] * 20, facts=base | facts)


def checked(case, target, result):
    checks.check(case, target, result)
    return result.facts["flags"]


def test_a_rate_above_the_peak_is_no_result():
    """137 GFLOP in 0.1 ms would be 1374 TFLOP/s; an H100 has 989."""
    with pytest.raises(checks.Untrue) as error:
        checks.check(MATMUL, H100, measurement(1e-4))
    assert str(error.value) == "1374 TFLOP/s is above the published peak of 989"
    assert checked(MATMUL, H100, measurement(2e-4)) == []


def test_the_peak_is_that_of_all_chips_used():
    eight = measured_target("gpu", "NVIDIA H100 80GB HBM3", 8, 8)
    assert checked(MATMUL, eight, measurement(1e-4)) == []


def test_a_chip_of_two_devices_gives_one_device_half_its_peak():
    one_core = measured_target("tpu", "TPU v3", 1, 8)
    with pytest.raises(checks.Untrue, match="above the published peak of 61.5"):
        checks.check(MATMUL, one_core, measurement(2 * 4096**3 / 100e12))


def test_a_chip_that_is_not_known_has_no_limit_and_no_guess():
    assert checked(MATMUL, UNKNOWN, measurement(1e-4)) == []


def test_a_cpu_cannot_multiply_faster_than_its_cores():
    with pytest.raises(checks.Untrue, match="any CPU of as many cores"):
        checks.check(MATMUL, CPU, measurement(1e-6))


@pytest.mark.parametrize("step_s", [0.0, -1.0])
def test_a_clock_that_saw_nothing_is_no_result(step_s):
    with pytest.raises(checks.Untrue):
        checks.check(MATMUL, H100, measurement(step_s))


def test_precision_without_a_unit_is_emulated():
    assert "emulated" in checked(MATMUL, T4, measurement(10e-3))
    assert "emulated" not in checked(MATMUL, H100, measurement(10e-3))


def test_operands_that_the_compiler_widened_are_emulated():
    assert "emulated" in checked(MATMUL, H100, measurement(10e-3, dot_operands=["f32"]))
    assert "emulated" not in checked(MATMUL, H100, measurement(10e-3, dot_operands=["bf16"]))


def test_a_step_of_under_ten_launches_is_dispatch_bound():
    small = Case("m", "matmul", {"shape": "64"}, "fp32")
    assert "dispatch-bound" in checked(small, CPU, measurement(9e-6, work={"flops": 2 * 64**3}))
    assert "dispatch-bound" not in checked(small, CPU, measurement(11e-6, work={"flops": 1}))


def test_a_working_set_under_four_caches_is_cache_resident(monkeypatch):
    monkeypatch.setattr(checks.detect, "cpu_caches", lambda: {"L1": 32 << 10, "L3": 32 << 20})
    triad = Case("t", "memory", {"op": "triad", "bytes": 0}, "fp32")
    for working_set, resident in ((127 << 20, True), (128 << 20, False)):
        result = measurement(1.0, working_set=working_set, work={"bytes": working_set})
        assert ("cache-resident" in checked(triad, CPU, result)) is resident


def test_bandwidth_above_the_memorys_is_no_result_unless_it_was_a_cache():
    triad = Case("t", "memory", {"op": "triad", "bytes": 0}, "fp32")
    large, small = 1 << 30, 100 << 20
    with pytest.raises(checks.Untrue, match="GB/s is above the published memory bandwidth"):
        checks.check(triad, H100, measurement(1e-4, working_set=large, work={"bytes": large}))
    result = measurement(1e-5, working_set=small, work={"bytes": small})
    assert "cache-resident" in checked(triad, H100, result)


def test_every_flag_is_explained():
    result = measurement(1e-6, working_set=1, work={}, drift=0.2, linearity=1.0)
    result.samples_s = [1e-6, 2e-6] * 10
    found = set(checked(MATMUL, T4, result))
    few = measurement(10e-3)
    few.samples_s = few.samples_s[:5]
    found |= set(checked(MATMUL, H100, few))
    compiled_only = {"not-autotuned", "over-default-share"}
    assert found == set(FLAGS) - compiled_only
