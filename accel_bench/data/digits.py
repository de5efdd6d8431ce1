"""Handwritten digits as token sequences: an image row by row, then the token of its class.

The images are the 1797 of `sklearn.datasets.load_digits`, which ships inside scikit-learn: 8x8
pixels of grey level 0 (paper) to 16 (ink), the test part of "Optical Recognition of Handwritten
Digits" (E. Alpaydin and C. Kaynak, 1998, UCI Machine Learning Repository, doi 10.24432/C50P49).
They were written by 13 people, and the held-out ones by the same people as the rest.

A sequence is 65 tokens: 64 pixels, each the token of its grey level (0 to 16), and last the class
token, 17 + digit. A model that predicts the last token from the others classifies the image.

Names of dimensions: N images, R rows, C columns, T tokens of a sequence.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from accel_bench.errors import RequestError

SIDE = 8  # pixels a side
PIXELS = SIDE * SIDE
GREY_LEVELS = 17
CLASSES = 10
CLASS_OFFSET = GREY_LEVELS  # token of the digit 0
VOCAB_SIZE = GREY_LEVELS + CLASSES
TEST_SHARE = 0.2
STEPS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))  # pixels down, pixels right


@dataclasses.dataclass(frozen=True)
class Digits:
    """Training and held-out sequences, int32, each (N, 65); no image is in both."""

    train: np.ndarray
    test: np.ndarray
    vocab_size: int = VOCAB_SIZE  # tokens in use; a model's own may be larger
    class_offset: int = CLASS_OFFSET


def load(seed: int = 0) -> Digits:
    """All digits, split by `seed`: of each class a fifth (to the nearest image) is held out.

    The split and the order of the images depend on the seed alone: they are drawn from the raw
    output of PCG64, which numpy keeps the same from version to version.

    Raises:
      RequestError: scikit-learn is not installed.
    """
    tokens_NT = _tokens(*_images())
    bits = np.random.PCG64(seed)
    shuffled_NT = tokens_NT[_permutation(bits, len(tokens_NT))]
    held_out_N = _held_out(shuffled_NT[:, -1])
    return Digits(train=shuffled_NT[~held_out_N], test=shuffled_NT[held_out_N])


def with_shifts(tokens_NT: np.ndarray) -> np.ndarray:
    """The sequences and, of each, four copies with the image moved by one pixel: (5 N, 65).

    Moved right, left, down and up, in this order; what leaves the image is lost and blank pixels
    (grey level 0) come in. Nothing is random: sequence i is at i, its copies at i + N, i + 2 N, ...
    """
    return np.concatenate([_moved(tokens_NT, *step) for step in STEPS])


def _images() -> tuple[np.ndarray, np.ndarray]:
    """Grey levels (N, 64) and digits (N,) as scikit-learn has them."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise RequestError(
            "the handwritten digits ship inside scikit-learn, which is not installed:"
            " pip install scikit-learn"
        ) from error
    grey_NT, digit_N = load_digits(return_X_y=True)
    return grey_NT, digit_N


def _tokens(grey_NT: np.ndarray, digit_N: np.ndarray) -> np.ndarray:
    class_N1 = CLASS_OFFSET + digit_N[:, None]
    return np.concatenate([grey_NT, class_N1], axis=1).astype(np.int32)


def _permutation(bits: np.random.PCG64, size: int) -> np.ndarray:
    return np.argsort(bits.random_raw(size), kind="stable")


def _held_out(class_N: np.ndarray) -> np.ndarray:
    """True for the first fifth of the images of each class."""
    held_out_N = np.zeros(len(class_N), bool)
    for token in np.unique(class_N):
        of_class = np.flatnonzero(class_N == token)
        held_out_N[of_class[: round(TEST_SHARE * len(of_class))]] = True
    return held_out_N


def _moved(tokens_NT: np.ndarray, down: int, right: int) -> np.ndarray:
    image_NRC = tokens_NT[:, :PIXELS].reshape(-1, SIDE, SIDE)
    framed_NRC = np.pad(image_NRC, ((0, 0), (1, 1), (1, 1)))
    rows, columns = (slice(1 - step, 1 - step + SIDE) for step in (down, right))
    moved_NT = framed_NRC[:, rows, columns].reshape(-1, PIXELS)
    return np.concatenate([moved_NT, tokens_NT[:, PIXELS:]], axis=1)
