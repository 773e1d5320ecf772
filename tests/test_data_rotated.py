"""Rotated MNIST: turned as `rotate` turns, in integers, from disjoint images."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gconv_jax as gj
from gconv_jax.data import embedded, formats, rotated, sets


def test_turn_is_rotate_rounded():
    images = embedded.read("mnist", "test").images[:50]
    angles = rotated.angles(50, 0)
    expected = gj.rotate(jnp.asarray(images, jnp.float32), jnp.asarray(angles, jnp.float32))
    difference = np.abs(rotated.turn(images, angles) - np.asarray(expected))
    assert difference.max() <= 0.51  # rounding to a grey level, and no more


@given(st.integers(0, 3), st.integers(2, 7), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_quarter_turns_are_exact(turns, size, channels, seed):
    images = np.random.default_rng(seed).integers(0, 256, (2, size, size, channels), np.uint8)
    turned = rotated.turn(images, np.full(2, turns * np.pi / 2))
    np.testing.assert_array_equal(turned, np.rot90(images, turns, axes=(1, 2)))


def test_angles_cover_the_circle():
    angles = rotated.angles(12_000, 0)
    assert angles.min() >= 0
    assert angles.max() < 2 * np.pi
    counts, _ = np.histogram(angles, bins=12, range=(0, 2 * np.pi))
    assert abs(counts - 1000).max() < 130  # four standard deviations
    assert not np.array_equal(angles[:100], rotated.angles(100, 1))


def test_training_and_test_images_are_different_images():
    """Each image carries its own number, as the colour of its centre, which no turn moves."""
    n = 60
    pixels = np.arange(1, n + 1, dtype=np.uint8)
    images = np.broadcast_to(pixels[:, None, None, None], (n, 5, 5, 1))
    labels = (np.arange(n) % 10).astype(np.int32)
    made = rotated.generate(
        formats.Images(images[:50], labels[:50]), formats.Images(images[50:], labels[50:]), (20, 30)
    )
    train, test = (made[part].images[:, 2, 2, 0] for part in ("train", "test"))
    assert len(set(train)) == 20
    assert len(set(test)) == 30
    assert not set(train) & set(test)
    assert train.max() <= 50  # the official test set is never trained on
    assert set(range(51, 61)) <= set(test)
    for part, numbers in (("train", train), ("test", test)):
        np.testing.assert_array_equal(made[part].labels, labels[numbers - 1])
    assert np.bincount(made["train"].labels).tolist() == [2] * 10


def test_embedded_rotated_mnist_is_the_same_everywhere():
    data = gj.data.load("rotated_mnist", split="test", source="embedded")
    assert data.images.shape == (500, 28, 28, 1)
    assert formats.digest(data) == (
        "525a7599e3a1fb7695ba26d35124d7b3a7348609aa87e3e3eaa8aae32d017cbc"
    )
    upright = gj.data.load("mnist", split="test", source="embedded")
    np.testing.assert_array_equal(data.labels, upright.labels)
    assert (data.images != upright.images).any(axis=(1, 2, 3)).all()


def test_it_is_labelled_as_generated():
    described = sets.SETS["rotated_mnist"]
    assert "generated from MNIST" in described.title
    assert described.made_from == "mnist"
    assert dict(described.sizes) == {"train": 12_000, "test": 50_000}


@pytest.mark.parametrize("part", ["train", "test"])
def test_the_official_sizes_can_be_made(part):
    mnist, made = sets.SETS["mnist"].sizes, sets.SETS["rotated_mnist"].sizes
    assert made["train"] + made["test"] - mnist["test"] <= mnist["train"], part
