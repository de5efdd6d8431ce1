import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel_bench import stats


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=100))
def test_the_interval_holds_the_median_and_lies_within_the_samples(samples):
    found = stats.median(samples)
    assert min(samples) <= found.low <= found.value <= found.high <= max(samples)
    assert found.value == np.median(samples)


@pytest.mark.parametrize("count", [10, 30, 101])
def test_the_interval_covers_the_true_median_as_often_as_it_says(count):
    rng = np.random.default_rng(count)
    true = 1.0  # of exp(normal)
    hits = 0
    for _ in range(2000):
        found = stats.median(np.exp(rng.standard_normal(count)).tolist())
        hits += found.low <= true <= found.high
    assert 0.94 < hits / 2000 < 0.995


def test_more_samples_narrow_the_interval():
    rng = np.random.default_rng(0)
    few, many = rng.normal(100, 5, 12).tolist(), rng.normal(100, 5, 400).tolist()
    assert stats.median(many).half_width < stats.median(few).half_width / 2


def test_too_few_samples_give_the_whole_range():
    assert stats.median([3.0, 1.0, 2.0]) == stats.Median(2.0, 1.0, 3.0)


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="no samples"):
        stats.median([])


def test_drift_is_seen_and_noise_is_not():
    rng = np.random.default_rng(0)
    steady = rng.normal(1, 0.05, 60)
    assert stats.drift(steady.tolist()) == 0
    slower = steady * np.linspace(1, 1.3, 60)
    assert 0.1 < stats.drift(slower.tolist()) < 0.3
    assert stats.drift([1.0, 2.0, 3.0]) == 0
