"""Official files to arrays and back."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gconv_jax.data import formats, sets
from gconv_jax.data.errors import SourceError
from tests import toy_data


def test_cifar_record_by_hand():
    """A label byte, then all red, all green, all blue, row by row."""
    image = np.arange(32 * 32 * 3, dtype=np.uint32).astype(np.uint8).reshape(1, 32, 32, 3)
    files = formats.encode(
        sets.SETS["cifar10"], "test", formats.Images(image, np.asarray([7], np.int32))
    )
    record = files["test_batch.bin"]
    assert len(record) == 3073
    assert record[0] == 7
    assert record[1 + 33] == image[0, 1, 1, 0]  # red of row 1, column 1
    assert record[1 + 1024] == image[0, 0, 0, 1]
    assert record[1 + 2 * 1024 + 5] == image[0, 0, 5, 2]


def test_idx_by_hand():
    image = np.arange(4, dtype=np.uint8).reshape(1, 2, 2, 1)
    files = formats.encode(
        sets.SETS["mnist"], "test", formats.Images(image, np.asarray([7], np.int32))
    )
    assert files["t10k-labels-idx1-ubyte"] == bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])
    assert files["t10k-images-idx3-ubyte"] == bytes(
        [0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 0, 1, 2, 3]
    )


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
@given(batch=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_decode_undoes_encode(name, batch, seed):
    described = sets.SETS[name]
    rng = np.random.default_rng(seed)
    arrays = {
        part: formats.Images(
            rng.integers(0, 256, (n, *described.shape), np.uint8),
            rng.integers(0, 10, n, np.int32),
        )
        for part, n in (("train", 5 * batch), ("test", 2))
    }
    files = {}
    for part, part_data in arrays.items():
        files |= formats.encode(described, part, part_data)
    assert list(files) == list(described.files)
    for part, decoded in formats.decode(described, files).items():
        np.testing.assert_array_equal(decoded.images, arrays[part].images)
        np.testing.assert_array_equal(decoded.labels, arrays[part].labels)
        assert decoded.labels.dtype == np.int32


def test_digest_sees_pixels_labels_and_order():
    data = toy_data.arrays("mnist", {"test": 10})["test"]
    expected = hashlib.sha256(data.images.tobytes() + bytes(data.labels.tolist())).hexdigest()
    assert formats.digest(data) == expected
    changed = data.images.copy()
    changed[3, 4, 5] ^= 1
    assert formats.digest(formats.Images(changed, data.labels)) != expected
    assert formats.digest(formats.Images(data.images, (data.labels + 1) % 10)) != expected
    assert formats.digest(formats.Images(data.images[::-1], data.labels[::-1])) != expected


def test_check_files_names_the_file_and_both_checksums():
    described, _, files = toy_data.toy("cifar10")
    formats.check_files(described, files, "here")
    wrong = files | {"data_batch_3.bin": b"other"}
    expected = described.files["data_batch_3.bin"]
    found = hashlib.md5(b"other").hexdigest()
    with pytest.raises(SourceError, match=f"data_batch_3.bin of here .* {found} .* {expected}"):
        formats.check_files(described, wrong, "here")
    del wrong["data_batch_3.bin"]
    with pytest.raises(SourceError, match=r"here lacks .*data_batch_3\.bin"):
        formats.check_files(described, wrong, "here")
