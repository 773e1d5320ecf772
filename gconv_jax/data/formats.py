"""The official files and the arrays they hold, in both directions, and their checksums.

- CIFAR-10 batch: one record an image, the label byte, then 1024 red, 1024 green, 1024 blue.
- idx: a magic number, the sizes of the axes as big-endian 32-bit integers, then the bytes.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from gconv_jax.data.errors import SourceError
from gconv_jax.data.sets import ImageSet

_IDX_IMAGES, _IDX_LABELS = 0x00000803, 0x00000801


class Images(NamedTuple):
    """Images and their labels: uint8 `[n, H, W, C]` and int32 `[n]`."""

    images: np.ndarray
    labels: np.ndarray


def digest(data: Images) -> str:
    """Returns the SHA-256 of all pixels, followed by all labels as bytes."""
    sha = hashlib.sha256(np.ascontiguousarray(data.images).data)
    sha.update(data.labels.astype(np.uint8).tobytes())
    return sha.hexdigest()


def md5(content: bytes | memoryview) -> str:
    """Returns the MD5 of some bytes: it identifies the official files, it secures nothing."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def check_files(described: ImageSet, files: Mapping[str, bytes], where: str) -> None:
    """Refuses contents that are not, byte for byte, those of the official files."""
    for name, expected in described.files.items():
        if name not in files:
            raise SourceError(f"{where} lacks the official file {name}")
        found = md5(files[name])
        if found != expected:
            raise SourceError(f"{name} of {where} has MD5 {found} where {expected} is official")


def decode(described: ImageSet, files: Mapping[str, bytes]) -> dict[str, Images]:
    """Returns the arrays of `"train"` and `"test"` that official files hold.

    Args:
      described: the set.
      files: contents by official name, already checked.

    """
    if described.layout == "cifar":
        h, w, c = described.shape
        out = {}
        for split in described.sizes:
            parts = [files[name] for name in described.files if _split_of(name) == split]
            records = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 1 + c * h * w)
            planes = records[:, 1:].reshape(-1, c, h, w)
            images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))  # [n, H, W, C]
            out[split] = Images(images, records[:, 0].astype(np.int32))
        return out
    return {
        split: Images(
            _from_idx(files[f"{stem}-images-idx3-ubyte"], 3)[..., None],  # [n, H, W, 1]
            _from_idx(files[f"{stem}-labels-idx1-ubyte"], 1).astype(np.int32),
        )
        for split, stem in (("train", "train"), ("test", "t10k"))
    }


def encode(described: ImageSet, split: str, data: Images) -> dict[str, bytes]:
    """Returns the contents of the official files that `"train"` or `"test"` came from."""
    images, labels = data
    n, h, w, c = images.shape
    if described.layout == "cifar":
        records = np.empty((n, 1 + c * h * w), np.uint8)
        records[:, 0] = labels
        records[:, 1:] = images.transpose(0, 3, 1, 2).reshape(n, -1)
        names = [name for name in described.files if _split_of(name) == split]
        parts = np.split(records, len(names))
        return {name: part.tobytes() for name, part in zip(names, parts, strict=True)}
    stem = {"train": "train", "test": "t10k"}[split]
    return {
        f"{stem}-images-idx3-ubyte": _to_idx(_IDX_IMAGES, images[..., 0]),
        f"{stem}-labels-idx1-ubyte": _to_idx(_IDX_LABELS, labels),
    }


def _split_of(file: str) -> str:
    return "test" if file.startswith("test") else "train"


def _from_idx(content: bytes, axes: int) -> np.ndarray:
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _to_idx(magic: int, array: np.ndarray) -> bytes:
    header = np.asarray([magic, *array.shape], ">u4")
    return header.tobytes() + array.astype(np.uint8).tobytes()
