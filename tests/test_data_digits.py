import hashlib
import sys

import numpy as np
import pytest

from accel_bench.data import digits
from accel_bench.errors import RequestError


@pytest.fixture(scope="module")
def data():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    return digits.load()


def images(tokens_NT):
    return {row.tobytes() for row in tokens_NT[:, : digits.PIXELS]}


def sha256(tokens_NT):
    return hashlib.sha256(tokens_NT.astype("<i4").tobytes()).hexdigest()


def test_sequences_are_grey_levels_then_the_class(data):
    assert data.train.shape == (1438, 65)
    assert data.test.shape == (359, 65)
    assert data.vocab_size == 27
    for tokens_NT in (data.train, data.test):
        assert tokens_NT.dtype == np.int32
        pixels_NT, class_N = tokens_NT[:, :-1], tokens_NT[:, -1]
        assert set(np.unique(pixels_NT)) == set(range(17))
        assert set(np.unique(class_N - data.class_offset)) == set(range(10))


def test_rows_follow_one_another_and_the_token_names_the_digit_that_is_drawn(data):
    from sklearn.datasets import load_digits

    drawn, digits_drawn = load_digits(return_X_y=True)
    digit_of = {
        image.astype(np.int32).tobytes(): digit
        for image, digit in zip(drawn.reshape(-1, 8, 8), digits_drawn, strict=True)
    }
    for row in np.concatenate([data.train, data.test]):
        image_RC = row[: digits.PIXELS].reshape(8, 8)
        assert digit_of[image_RC.tobytes()] == row[-1] - data.class_offset


def test_a_fifth_of_each_class_is_held_out_and_no_image_twice(data):
    train_K, test_K = (np.bincount(x[:, -1])[17:] for x in (data.train, data.test))
    assert np.all(np.abs(test_K - (train_K + test_K) / 5) <= 0.5)
    assert len(images(data.train)) == len(data.train)
    assert len(images(data.test)) == len(data.test)
    assert not images(data.train) & images(data.test)
    assert not images(digits.with_shifts(data.train)) & images(data.test)


def test_the_split_is_the_same_everywhere(data):
    again = digits.load()
    assert np.array_equal(again.train, data.train)
    assert np.array_equal(again.test, data.test)
    assert sha256(data.train) == "da2d0997d146d3f955d24f00795c51f213a5c483f14e0ca97a845a756137267b"
    assert sha256(data.test) == "ec89c0d8246bb6f948ad324b461be59d63d77104ee199642a98361f6e74dfd66"


def test_another_seed_holds_out_other_images(data):
    other = digits.load(seed=1)
    assert images(other.test) != images(data.test)
    every = images(data.train) | images(data.test)
    assert images(other.train) | images(other.test) == every


def test_shifts_move_the_image_by_one_pixel_and_keep_the_class():
    image_RC = np.zeros((8, 8), np.int32)
    image_RC[0, 7], image_RC[4, 2] = 16, 5
    tokens_NT = np.append(image_RC.ravel(), 20)[None]
    copies_NT = digits.with_shifts(tokens_NT)
    assert np.array_equal(copies_NT[:1], tokens_NT)
    assert set(copies_NT[:, -1]) == {20}
    same, right, left, down, up = copies_NT[:, :-1].reshape(5, 8, 8)
    assert same[0, 7] == 16
    assert right[4, 3] == left[4, 1] == down[5, 2] == up[3, 2] == 5
    assert left[0, 6] == down[1, 7] == 16
    assert right.sum() == up.sum() == 5  # the other pixel has left the image


def test_without_scikit_learn_the_request_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(RequestError, match="pip install scikit-learn"):
        digits.load()
