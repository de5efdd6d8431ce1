"""Weights are normal enough to train from, and their bits follow from integers alone."""

import jax
import numpy as np
import pytest
from scipy import stats

from models import portable_random

SHAPE = (500, 400)


@pytest.fixture(scope="module")
def drawn():
    return np.asarray(portable_random.normal(jax.random.key(3), SHAPE, 0.02))


def test_mean_deviation_and_tails(drawn):
    assert drawn.dtype == np.float32
    assert abs(drawn.mean()) < 5 * 0.02 / drawn.size**0.5
    assert drawn.std() == pytest.approx(0.02, rel=0.01)
    # Of four uniform numbers: 3 - 0.3 (a normal number's is 3), and nothing beyond sqrt(12).
    assert stats.kurtosis(drawn.ravel()) == pytest.approx(-0.3, abs=0.05)
    assert 4 * 0.02 > np.abs(drawn).max() > 3 * 0.02


def test_every_number_is_an_integer_times_one_factor(drawn):
    """So there is one way to compute it: NumPy from the same integers has the same bits."""
    factor = np.float32(0.02 / portable_random._STD)
    numbers = np.rint(drawn.astype(np.float64) / np.float64(factor)).astype(np.int32)
    assert np.abs(numbers).max() <= portable_random._MEAN
    assert np.array_equal(numbers.astype(np.float32) * factor, drawn)
    assert len(np.unique(numbers)) > 0.4 * numbers.size  # not a few coarse values


def test_bits_are_the_same_compiled_and_not():
    key = jax.random.key(3)
    draw = jax.jit(portable_random.normal, static_argnums=(1, 2))
    plain = portable_random.normal(key, SHAPE, 0.02)
    assert np.array_equal(np.asarray(draw(key, SHAPE, 0.02)), np.asarray(plain))
    other = portable_random.normal(jax.random.key(4), SHAPE, 0.02)
    assert not np.array_equal(np.asarray(other), np.asarray(plain))
