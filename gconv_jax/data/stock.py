"""Sets that tensorflow-datasets has prepared by itself, read without TensorFlow.

The stock builders store PNGs in an order of their own: sorted by the MD5 of split and index. The
same hashes, sorted again, say where each image stood in the official files; the checksum proves it.
"""

import io
from pathlib import Path

import numpy as np

from gconv_jax.data.errors import SourceError
from gconv_jax.data.formats import Images, digest
from gconv_jax.data.sets import ImageSet


def find(described: ImageSet, root: Path) -> Path:
    """Returns the newest version of a stock set below a directory of tensorflow-datasets."""
    if described.stock_name is None:
        raise SourceError("tensorflow-datasets does not have it")
    found = [path.parent for path in (root / described.stock_name).glob("*/dataset_info.json")]
    if not found:
        raise SourceError(f"{root} holds no prepared {described.stock_name}")
    return max(found, key=_version)


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.split(".") if part.isdigit())


def read(described: ImageSet, directory: Path) -> dict[str, Images]:
    """Reads a stock set, in official order, and compares it with the checksums."""
    import tensorflow_datasets as tfds
    from array_record.python.array_record_module import ArrayRecordReader

    builder = tfds.builder_from_directory(directory)
    if builder.info.file_format.value != "array_record":
        raise SourceError(
            f"{directory} is in the format {builder.info.file_format.value}, which needs "
            "TensorFlow to be read (tensorflow-datasets writes array_record when asked to)"
        )
    out = {}
    for split, n in described.sizes.items():
        records: list[bytes] = []
        for path in builder.info.splits[split].filepaths:
            records += ArrayRecordReader(str(path), "max_parallelism:1").read_all()
        if len(records) != n:
            raise SourceError(f"{split} of {directory} holds {len(records)} of {n} images")
        out[split] = _official_order(split, _decode(described, records))
        if digest(out[split]) != described.sha256[split]:
            raise SourceError(f"{split} of {directory} differs from the official images")
    return out


def _decode(described: ImageSet, records: list[bytes]) -> Images:
    from PIL import Image
    from tensorflow_datasets.proto import tf_example_pb2

    images = np.empty((len(records), *described.shape), np.uint8)
    labels = np.empty(len(records), np.int32)
    for i, record in enumerate(records):
        feature = tf_example_pb2.Example.FromString(record).features.feature
        png = feature["image"].bytes_list.value[0]
        images[i] = np.asarray(Image.open(io.BytesIO(png))).reshape(described.shape)
        labels[i] = feature["label"].int64_list.value[0]
    return Images(images, labels)


def _official_order(split: str, stored: Images) -> Images:
    from tensorflow_datasets.core.hashing import Hasher

    hasher = Hasher(split)
    n = len(stored.labels)
    stored_order = sorted(range(n), key=hasher.hash_key)  # official index by stored position
    back = np.empty(n, np.int64)
    back[stored_order] = np.arange(n)
    return Images(stored.images[back], stored.labels[back])
