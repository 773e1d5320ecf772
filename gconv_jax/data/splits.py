"""Which images make a split or a subset: fixed by the labels alone, on every machine alike.

All choices are prefixes of one order, in which every prefix holds the classes in their proportions.
"""

import numpy as np

from gconv_jax import _checks

SPLITS = ("train", "validation", "train+validation", "test")

_VALIDATION, _SUBSET = 1, 2  # keys of the two independent orders


def official_split(split: str) -> str:
    """Returns which official part, `"train"` or `"test"`, a split is cut from."""
    _checks.check_choice("split", split, SPLITS)
    return "test" if split == "test" else "train"


def indices(labels: np.ndarray, split: str, *, held_out: int, size: int | None) -> np.ndarray:
    """Returns which images of an official part belong to a split, in ascending order.

    Args:
      labels: integers `[n]` of the whole official part.
      split: one of `SPLITS`.
      held_out: how many images of the official training set make the validation split.
      size: how many images to keep, in the proportions of the classes; `None` for all. A smaller
        subset lies within a larger one.

    Returns:
      Positions `[m]` in the official part.

    """
    chosen = np.arange(len(labels))
    if split in ("train", "validation"):
        order = stratified_order(labels, _VALIDATION)
        chosen = np.sort(order[:held_out] if split == "validation" else order[held_out:])
    if size is not None:
        _checks.as_int("size", size)
        if size > len(chosen):
            raise ValueError(
                f"size must be at most {len(chosen)}, the number of images in split {split!r}, "
                f"but got {size}."
            )
        chosen = np.sort(chosen[stratified_order(labels[chosen], _SUBSET)[:size]])
    return chosen


def stratified_order(labels: np.ndarray, key: int) -> np.ndarray:
    """Returns an order of all images, any prefix of which has the classes in their proportions.

    Image number `r` of its shuffled class, of `m` images, is put at `(r + 1/2) / m`; ties fall to
    the lower class.
    """
    shuffled = permutation(len(labels), key)
    position = np.empty(len(labels))
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        position[members] = (np.arange(len(members)) + 0.5) / len(members)
    return np.lexsort((labels, position))


def permutation(n: int, *key: int) -> np.ndarray:
    """Returns a permutation of `0..n-1` that depends on the key alone.

    NumPy keeps the raw words of a bit generator the same from version to version, which it does not
    promise for shuffles; so the words are sorted.
    """
    words = np.random.Philox(np.random.SeedSequence(key)).random_raw(n)
    return np.argsort(words, kind="stable")
