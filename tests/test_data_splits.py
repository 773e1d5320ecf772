"""Splits and subsets: fixed, stratified, nested, and the same on every machine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gconv_jax as gj
from gconv_jax.data import splits

labels_of = st.lists(st.integers(0, 4), min_size=20, max_size=200).map(np.asarray)


def proportions_hold(labels, chosen):
    """Every class has its share of the chosen, give or take an image."""
    for label in np.unique(labels):
        share = len(chosen) * (labels == label).mean()
        assert abs((labels[chosen] == label).sum() - share) <= 1 + 1e-9


@given(labels_of, st.data())
def test_train_and_validation_part_the_official_training_set(labels, data):
    held_out = data.draw(st.integers(1, len(labels) - 1))
    train, validation, both = (
        splits.indices(labels, split, held_out=held_out, size=None)
        for split in ("train", "validation", "train+validation")
    )
    assert len(validation) == held_out
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), both)
    np.testing.assert_array_equal(both, np.arange(len(labels)))
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()
    proportions_hold(labels, validation)


@given(labels_of, st.data())
def test_subsets_are_stratified_nested_and_in_official_order(labels, data):
    large = data.draw(st.integers(1, len(labels)))
    small = data.draw(st.integers(1, large))
    a, b = (splits.indices(labels, "test", held_out=0, size=size) for size in (small, large))
    assert len(a) == small
    assert len(b) == large
    assert set(a) <= set(b)
    assert (np.diff(b) > 0).all()
    proportions_hold(labels, b)


def test_a_subset_is_not_the_beginning_of_the_file():
    labels = np.repeat(np.arange(10), 100)
    chosen = splits.indices(labels, "test", held_out=0, size=100)
    assert np.bincount(labels[chosen]).tolist() == [10] * 10
    assert (chosen % 100).max() > 50


def test_permutation_is_fixed_forever():
    """A changed value would quietly change every split, subset and batch that was ever made."""
    assert splits.permutation(10, 1).tolist() == [2, 0, 1, 4, 5, 6, 7, 8, 3, 9]
    assert splits.permutation(10, 4, 0, 0).tolist() == [8, 0, 6, 3, 4, 9, 1, 5, 2, 7]
    assert sorted(splits.permutation(1000, 5)) == list(range(1000))


def test_embedded_splits():
    sizes = {"train": 900, "validation": 100, "train+validation": 1000, "test": 500}
    for split, n in sizes.items():
        data = gj.data.load("cifar10", split=split, source="embedded")
        assert data.images.shape == (n, 32, 32, 3)
        assert np.bincount(data.labels).tolist() == [n // 10] * 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "valid"}, "split must be one of 'train', 'validation', .* but got 'valid'"),
        ({"size": 0}, "size must be a positive integer, but got 0"),
        ({"size": 901}, "size must be at most 900, .* split 'train', but got 901"),
        ({"source": "web"}, "source must be one of 'auto', 'prepared', 'embedded', but got 'web'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        gj.data.load("mnist", **{"source": "embedded"} | options)


def test_unknown_set():
    with pytest.raises(ValueError, match=r"name must be one of 'cifar10', .* but got 'imagenet'"):
        gj.data.load("imagenet")
