"""Rotated MNIST, generated from MNIST: digits turned by angles drawn evenly from the full circle.

The set of Larochelle et al. (2007), 12,000 images to train and 50,000 to test, is not on any server
that can be relied on, so it is made anew in the same sizes, with a fixed seed. All arithmetic on
pixels is in integers: the bytes are the same on every machine, and have a checksum.
"""

import math

import numpy as np

from gconv_jax.data.formats import Images
from gconv_jax.data.splits import stratified_order

_SEED = 2007
_BITS = 20  # of the fractions: coordinates are counted in 1 / 2**20 of a pixel
_AT_ONCE = 1000


def generate(train: Images, test: Images, sizes: tuple[int, int]) -> dict[str, Images]:
    """Makes the training and the test set out of those of MNIST.

    Training images come from MNIST's training set alone; the test set is MNIST's test set, filled
    up with training images that are not in the first.

    Args:
      train: official MNIST training set.
      test: official MNIST test set.
      sizes: how many images to train and to test.

    Returns:
      `"train"` and `"test"`.

    """
    n_train, n_test = sizes
    order = stratified_order(train.labels, _SEED)
    fill = max(0, n_test - len(test.labels))
    assert n_train + fill <= len(order)
    chosen = np.sort(order[:n_train])
    rest = np.sort(order[n_train : n_train + fill])
    turned_train = Images(train.images[chosen], train.labels[chosen])
    turned_test = Images(
        np.concatenate([test.images, train.images[rest]])[:n_test],
        np.concatenate([test.labels, train.labels[rest]])[:n_test],
    )
    return {
        "train": Images(_turn(turned_train.images, angles(n_train, 0)), turned_train.labels),
        "test": Images(_turn(turned_test.images, angles(n_test, 1)), turned_test.labels),
    }


def angles(n: int, part: int) -> np.ndarray:
    """Returns the angles `[n]` in radians; part 0 is the training set, part 1 the test set."""
    words = np.random.Philox(np.random.SeedSequence((_SEED, part))).random_raw(n)
    return words * (2 * math.pi / 2**64)


def _turn(images: np.ndarray, radians: np.ndarray) -> np.ndarray:
    blocks = range(0, len(images), _AT_ONCE)
    return np.concatenate(
        [turn(images[i : i + _AT_ONCE], radians[i : i + _AT_ONCE]) for i in blocks]
    )


def turn(images: np.ndarray, radians: np.ndarray) -> np.ndarray:
    """Turns each image counter-clockwise about its centre, bilinear, in integers.

    Args:
      images: uint8 `[n, H, W, C]`; what lies outside is 0.
      radians: `[n]`.

    Returns:
      uint8 `[n, H, W, C]`, each value rounded to the nearest.

    """
    n, h, w, c = images.shape
    one = 1 << _BITS
    cos = np.asarray([round(math.cos(a) * one) for a in radians], np.int64)[:, None, None]
    sin = np.asarray([round(math.sin(a) * one) for a in radians], np.int64)[:, None, None]
    # Distances from the centre in half pixels, so that they are whole numbers.
    down = 2 * np.arange(h, dtype=np.int64)[None, :, None] - (h - 1)
    right = 2 * np.arange(w, dtype=np.int64)[None, None, :] - (w - 1)
    row = (sin * right + cos * down + one * (h - 1)) >> 1  # [n, H, W], in 1 / 2**20 pixels
    column = (cos * right - sin * down + one * (w - 1)) >> 1
    first_row, first_column = row >> _BITS, column >> _BITS
    row_part, column_part = row & (one - 1), column & (one - 1)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    which = np.arange(n)[:, None, None]
    total = np.full((n, h, w, c), 1 << (2 * _BITS - 1), np.int64)  # one half, to round
    for i, row_weight in ((0, one - row_part), (1, row_part)):
        for j, column_weight in ((0, one - column_part), (1, column_part)):
            r = np.clip(first_row + i, -1, h) + 1
            s = np.clip(first_column + j, -1, w) + 1
            total += (row_weight * column_weight)[..., None] * padded[which, r, s].astype(np.int64)
    return (total >> (2 * _BITS)).astype(np.uint8)
