"""Ulps, error figures and growth, against NumPy and against what is known exactly."""

import jax.numpy as jnp
import numpy as np
import pytest

from accel_bench import accuracy
from accel_bench.accuracy import errors, format_of, growth, order_errors, spacing, ulps


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_an_ulp_is_what_numpy_calls_the_spacing(dtype):
    form = format_of(dtype)
    edges = [0.0, form.smallest, 3 * form.smallest, form.normal / 2, form.normal]
    edges += [form.normal * 1.5, 0.1, 1.0, 1.5, 2.0, -2.0, 1000.0]
    drawn = np.random.default_rng(0).standard_normal(200) * 10.0 ** np.arange(-4, 4).repeat(25)
    values = np.array([*edges, *drawn]).astype(dtype)
    expected = np.spacing(np.abs(values)).astype(np.float64)
    np.testing.assert_array_equal(spacing(values.astype(np.float64), dtype), expected)
    # NumPy's step beyond the largest number is infinite; an ulp there is that below it.
    below = form.largest - float(np.nextafter(dtype(form.largest), dtype(0)))
    assert spacing(np.array([form.largest, np.inf]), dtype).tolist() == [below, below]


def test_ulps_of_formats_that_numpy_does_not_have():
    assert spacing(np.array([1.0, 1e-40, 0.0]), jnp.bfloat16).tolist() == [2**-7, 2**-133, 2**-133]
    assert spacing(np.array([1.0, 0.0, 300.0]), jnp.float8_e4m3fn).tolist() == [1 / 8, 2**-9, 32.0]
    assert ulps(np.array([7, 9]), np.array([7.0, 7.0]), np.int32).tolist() == [0.0, 2.0]


def test_rounding_to_bf16_is_off_by_half_an_ulp_at_most_and_a_quarter_in_the_median():
    exact = np.random.default_rng(0).standard_normal(20_000)
    found = errors([exact.astype(jnp.bfloat16)], [exact])
    assert found["ulps"]["median"] == pytest.approx(0.25, abs=0.01)
    assert 0.49 < found["ulps"]["max"] <= 0.5
    # Half an ulp is 2^-9 to 2^-8 of a number; on the average the error is 1.66e-3.
    assert found["error"] == pytest.approx(1.66e-3, rel=0.02)
    assert found["max_relative"] <= 2**-8
    assert (found["count"], found["nonfinite"], found["flushed"]) == (20_000, 0, 0)


def test_what_is_lost_is_counted_by_its_kind():
    reference = np.array([1e38, 1e39, 1e-40, 1e-40, 1e-30, 1e-60, 2.0, 3.0])
    result = np.array([np.inf, np.inf, 0, 1e-40, 0, 0, np.nan, 3.0], np.float32)
    found = errors([result], [reference])
    assert found["nonfinite"] == 2  # 1e38 and 2 fit
    assert found["beyond"] == 1
    assert (found["denormal"], found["flushed"], found["lost"]) == (2, 1, 1)
    assert found["max_relative"] == 1.0
    # A denormal number that is flushed is off by as many ulps as it is smallest numbers.
    assert found["ulps"]["max"] == pytest.approx(1e-30 / np.spacing(np.float32(1e-30)), rel=1e-6)


def test_without_a_finite_number_there_is_no_error():
    found = errors([np.array([np.nan], np.float32)], [np.array([1.0])])
    assert (found["error"], found["ulps"], found["nonfinite"]) == (None, None, 1)
    zero = errors([np.zeros(3, np.float32)], [np.zeros(3)])
    assert (zero["error"], zero["ulps"]["max"]) == (None, 0.0)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_exponent_of_a_growth_is_recovered(exponent):
    sizes = [2.0**n for n in range(6, 21)]
    noise = np.exp(0.1 * np.random.default_rng(0).standard_normal(len(sizes)))
    figures = [1e-7 * k**exponent * e for k, e in zip(sizes, noise, strict=True)]
    assert growth(sizes, figures) == pytest.approx(exponent, abs=0.03)


def test_a_growth_needs_three_sizes_with_an_error():
    assert growth([1, 2, 4], [1e-7, 0.0, 1e-7]) is None
    assert growth([2, 2, 2], [1e-7, 2e-7, 3e-7]) is None


def test_errors_of_sums_grow_with_the_root_of_their_terms_or_hardly():
    """Rounding errors are as good as independent (Higham and Mary 2019, doi 10.1137/18M1226312)."""
    sizes = [4**n for n in range(3, 9)]
    rng = np.random.default_rng(0)
    found = [order_errors(rng.standard_normal((64, k), dtype=np.float32)) for k in sizes]
    exponents = {name: growth(sizes, [f[name] or 0 for f in found]) for name in accuracy.ORDERS}
    assert exponents["sequential"] == pytest.approx(0.5, abs=0.1)
    assert abs(exponents["pairwise"] or 1) < 0.2


def test_small_whole_numbers_are_added_up_exactly_in_any_order():
    terms = np.random.default_rng(0).integers(-8, 9, (4, 1024)).astype(np.float32)
    assert set(order_errors(terms).values()) <= {0.0, None}
