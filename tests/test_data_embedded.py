"""The subset in the package: small, real, stratified; and the whole sets, where they are there."""

import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.data import embedded, formats, loading, sets, splits


def whole(name):
    """Returns "train" and "test" of a set that is prepared on this machine, or skips."""
    if loading.find_prepared(sets.SETS[name], None) is None:
        pytest.skip(f"{name} is not prepared on this machine (`make data` does it)")
    return {
        part: gj.data.load(name, split=split, source="prepared")
        for part, split in (("train", "train+validation"), ("test", "test"))
    }


def test_it_is_small():
    assert embedded.names() == ("cifar10", "mnist")
    assert sum(path.stat().st_size for path in embedded.DIRECTORY.iterdir()) <= 4_000_000


@pytest.mark.parametrize(("name", "shape"), [("cifar10", (32, 32, 3)), ("mnist", (28, 28, 1))])
@pytest.mark.parametrize(("part", "n"), [("train", 1000), ("test", 500)])
def test_shapes_and_classes(name, shape, part, n):
    images, labels = embedded.read(name, part)
    assert images.shape == (n, *shape)
    assert images.dtype == np.uint8
    assert labels.shape == (n,)
    assert labels.dtype == np.int32
    counts = np.bincount(labels, minlength=10)
    if name == "cifar10":
        assert counts.tolist() == [n // 10] * 10
    else:
        assert counts.min() > 0.08 * n  # MNIST is not quite balanced: 5s are 9 %, 1s are 11 %
    assert len(np.unique(images.reshape(n, -1), axis=0)) == n


def test_pictures_are_pictures():
    """Neighbouring pixels of real images are alike: the mosaic is cut where it should be."""
    for name in embedded.names():
        images = embedded.read(name, "train").images.astype(float)
        across = np.abs(np.diff(images, axis=2)).mean()
        shuffled = np.random.default_rng(0).permuted(images, axis=2)
        assert across < 0.6 * np.abs(np.diff(shuffled, axis=2)).mean()
    zeros = embedded.read("mnist", "train").images[embedded.read("mnist", "train").labels == 0]
    assert zeros[:, 14, 14].mean() < 30 < zeros.mean()  # a zero has a hole in the middle


def test_write_and_read(tmp_path, monkeypatch):
    data = embedded.read("cifar10", "train")
    embedded.write("cifar10", "test", data, tmp_path)
    monkeypatch.setattr(embedded, "DIRECTORY", tmp_path)
    back, expected = embedded.read("cifar10", "test"), embedded.subset(data, 500)
    np.testing.assert_array_equal(back.images, expected.images)
    np.testing.assert_array_equal(back.labels, expected.labels)


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_it_is_cut_from_the_whole_set(name):
    for part, data in whole(name).items():
        expected, found = embedded.subset(data, embedded.SIZES[part]), embedded.read(name, part)
        np.testing.assert_array_equal(found.images, expected.images)
        np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize("name", ["cifar10", "mnist", "fashion_mnist"])
def test_whole_set_has_the_official_bytes(name):
    """The official files, rebuilt from what `load` returns, have the official MD5s."""
    described = sets.SETS[name]
    rebuilt = {}
    for part, data in whole(name).items():
        for file, content in formats.encode(described, part, data).items():
            rebuilt[file] = formats.md5(content)
    assert rebuilt == dict(described.files)


def test_whole_rotated_mnist_is_what_the_generator_makes():
    made = whole("rotated_mnist")
    for part, data in made.items():
        assert formats.digest(data) == sets.SETS["rotated_mnist"].sha256[part]
        assert len(data.labels) == sets.SETS["rotated_mnist"].sizes[part]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("cifar10", (45_000, 5_000, 10_000)),
        ("mnist", (55_000, 5_000, 10_000)),
        ("fashion_mnist", (55_000, 5_000, 10_000)),
        ("rotated_mnist", (10_000, 2_000, 50_000)),
    ],
)
def test_whole_splits(name, sizes):
    parts = whole(name)
    train, validation, test = (
        gj.data.load(name, split=split, source="prepared")
        for split in ("train", "validation", "test")
    )
    assert tuple(len(data.labels) for data in (train, validation, test)) == sizes
    # Official order: each split is a subsequence of the official file, and both make all of it.
    labels = parts["train"].labels
    held_out = sets.SETS[name].held_out
    where = [
        splits.indices(labels, s, held_out=held_out, size=None) for s in ("train", "validation")
    ]
    assert len(np.union1d(*where)) == len(labels)
    for data, indices in zip((train, validation), where, strict=True):
        np.testing.assert_array_equal(data.labels, labels[indices])
        assert all(
            (data.images[i] == parts["train"].images[k]).all()
            for i, k in list(enumerate(indices))[::50]
        )
    shares = [np.bincount(d.labels, minlength=10) / len(d.labels) for d in (train, validation)]
    np.testing.assert_allclose(*shares, atol=1e-3)
