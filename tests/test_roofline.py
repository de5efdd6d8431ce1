import pytest

from accel_bench import roofline
from accel_bench.network import Busy
from accel_bench.target import parse

GB = 10**9
SIZES = {"arguments": 2 * GB, "outputs": GB, "aliased": GB, "temporaries": 5 * GB}
IDLE = Busy(0.0, {}, {})
TERA = 1e12


def bound(text, precision, flops, traffic: float | None = 0.0, busy=IDLE):
    program = {"flops_by_type": flops, "bytes": traffic}
    return roofline.bound(parse(text), precision, program, SIZES, busy)


@pytest.mark.parametrize(
    ("text", "precision", "operands", "rate"),
    [
        ("tpu:v5e:1x1", "bf16", "bf16", 197),
        ("tpu:v5e:1x1", "int8", "s8", 394),
        ("tpu:v5e:1x1", "fp32", "f32", 197 / 6),  # six passes of the bf16 unit
        ("tpu:v5e:1x1", "fp32_default", "f32", 197),
        ("tpu:tpu7x:1x1x1", "bf16", "bf16", 2307 / 2),  # a device is half a chip
        ("gpu:h100_sxm:1", "bf16", "bf16", 989),
        ("gpu:h100_sxm:1", "fp32", "f32", 67),
        ("gpu:h100_sxm:1", "tf32", "f32", 494.5),
        ("gpu:h100_sxm:1", "fp8_e4m3", "f8e4m3fn", 1979),
        ("gpu:v100_sxm2:1", "fp32_default", "f32", 15.7),  # no TF32 unit
    ],
)
def test_the_compute_part_is_the_products_over_the_peak_of_what_multiplies_them(
    text, precision, operands, rate
):
    found = bound(text, precision, {operands: rate * TERA})
    assert found["compute_s"] == pytest.approx(1.0)
    assert found["binds"] == "compute"
    assert found["unknown"] == []


def test_a_chip_without_the_unit_is_bounded_by_its_best_and_says_so():
    found = bound("gpu:t4:1", "bf16", {"bf16": 130 * TERA})
    assert found["compute_s"] == pytest.approx(1.0)  # int8's rate: nothing is faster
    assert "no published rate for bf16" in found["unknown"][0]


def test_the_largest_part_binds():
    found = bound("tpu:v5e:1x1", "bf16", {"bf16": 197 * TERA}, 2 * 819e9, Busy(1.5, {}, {}))
    assert found["memory_s"] == pytest.approx(2.0)
    assert (found["binds"], found["bound_s"]) == ("memory", found["memory_s"])


def test_what_is_not_known_is_null_and_said():
    found = bound("tpu:v2:2x2", "bf16", None, None, Busy(None, {}, {}, "no link bandwidth"))
    assert found["bound_s"] is found["binds"] is found["network_s"] is None
    assert [line.split(":")[0] for line in found["unknown"]] == ["compute", "memory", "network"]


def test_what_a_gpus_cache_may_keep_is_no_bound():
    found = bound("gpu:h100_sxm:1", "bf16", {}, 10 * GB)
    assert found["memory_s"] == pytest.approx(10 / 3352)
    assert found["binds"] == "memory"
    # Arguments and results, each once, less the cache.
    assert found["bound_s"] == pytest.approx((2 * GB - 52428800) / 3352e9)
    small = bound("gpu:h100_sxm:1", "bf16", {"bf16": 989e9}, 1 << 20)
    assert small["bound_s"] == small["compute_s"] == pytest.approx(1e-3)
    # A TPU's program says itself what it moves.
    tpu = bound("tpu:v5e:1x1", "bf16", {}, 10 * GB)
    assert tpu["bound_s"] == tpu["memory_s"]
