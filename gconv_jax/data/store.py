"""Prepared sets on disk: a directory that tensorflow-datasets reads, whole or not there at all.

A set is written beside its place, read back, compared with its checksums and only then renamed. The
format is array_record, which needs no TensorFlow:

    tfds.builder_from_directory("~/.cache/gconv_jax/gconv_cifar10/1.0.0").as_data_source("train")
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gconv_jax.data.errors import DataError, explained
from gconv_jax.data.formats import Images, digest
from gconv_jax.data.sets import ImageSet

VERSION = "1.0.0"

# Records that are compressed together: one by one, as tensorflow-datasets does it, they take
# three times as long to read.
_GROUPED = "group_size:64"

_AT_ONCE = 1000  # records read in one go: the buffers stay small and are used again


def data_directory(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Returns where sets are kept: `data_dir`, or `GCONV_DATA_DIR`, or `~/.cache/gconv_jax`."""
    chosen = data_dir or os.environ.get("GCONV_DATA_DIR") or "~/.cache/gconv_jax"
    return Path(chosen).expanduser()


def place(described: ImageSet, root: Path) -> Path:
    """Returns the directory of a set below a data directory."""
    return root / f"gconv_{described.name}" / VERSION


def bytes_needed(described: ImageSet) -> int:
    """Returns how much room preparing takes: the set, and what it is unpacked from."""
    fetched = described.package.size if described.package else 0
    return int(1.1 * described.bytes) + fetched


@contextmanager
def locked(
    described: ImageSet, root: Path, say: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Lets one process at a time prepare a set; the others wait for it to finish or to die."""
    import fcntl

    with explained(root, bytes_needed(described)):
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / f".{described.name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{described.name}: waiting for another process that is preparing it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(described: ImageSet, root: Path, arrays: Mapping[str, Images], source: str) -> Path:
    """Writes a set beside its place, reads it back, and renames it; call it under the lock.

    Args:
      described: the set.
      root: the data directory.
      arrays: `"train"` and `"test"`, in official order.
      source: where the bytes came from, kept in the description.

    Returns:
      The directory of the prepared set.

    """
    final = place(described, root)
    needed = bytes_needed(described)
    with explained(root, needed):
        _clean(described, root)
        beside = Path(tempfile.mkdtemp(prefix=f".{described.name}-", dir=root))
    try:
        with explained(root, needed):
            _write_records(described, beside, arrays, source)
            os.chmod(beside, 0o755)
            final.parent.mkdir(parents=True, exist_ok=True)
        for split in described.sizes:
            read(described, beside, split)
        with explained(root, needed):
            if final.exists():  # damaged, or there would be nothing to write
                final.rename(beside.with_name(f"{beside.name}-damaged"))
            beside.rename(final)
    finally:
        _clean(described, root)
    return final


def _clean(described: ImageSet, root: Path) -> None:
    """Removes what preparing leaves beside; under the lock, so nobody is still at it."""
    for leftover in root.glob(f".{described.name}-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _write_records(
    described: ImageSet, directory: Path, arrays: Mapping[str, Images], source: str
) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    tfds = _tensorflow_datasets()
    info = tfds.core.DatasetInfo(
        builder=tfds.core.dataset_info.DatasetIdentity(
            name=f"gconv_{described.name}",
            version=tfds.core.Version(VERSION),
            data_dir=os.fspath(directory),
            module_name="gconv_jax.data",
        ),
        description=f"{described.title}, in official order. Source: {source}.",
        homepage=described.homepage,
        license=described.licence,
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Tensor(
                    shape=described.shape,
                    dtype=np.uint8,
                    encoding=tfds.features.Encoding.BYTES,
                ),
                "label": tfds.features.ClassLabel(names=list(described.class_names)),
            }
        ),
        supervised_keys=("image", "label"),
        disable_shuffling=True,
    )
    info.set_file_format("array_record")
    splits = []
    for split in described.sizes:
        template = tfds.core.ShardedFileTemplate(
            dataset_name=info.name,
            data_dir=directory,
            split=split,
            filetype_suffix="array_record",
            template="{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_INDEX}",
        )
        path = template.sharded_filepath(shard_index=0, num_shards=None)
        writer = ArrayRecordWriter(os.fspath(path), _GROUPED)
        size = 0
        for image, label in zip(*arrays[split], strict=True):
            record = info.features.serialize_example({"image": image, "label": label})
            writer.write(record)
            size += len(record)
        writer.close()
        splits.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(arrays[split].labels)],
                num_bytes=size,
                filename_template=template,
            )
        )
    info.set_splits(tfds.core.splits.SplitDict(splits))
    info.write_to_directory(directory)
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def read(described: ImageSet, directory: Path, split: str) -> Images:
    """Reads `"train"` or `"test"` whole and compares it with its checksum.

    Raises:
      DataError: a file is missing, cut off or altered.

    """
    from array_record.python.array_record_module import ArrayRecordReader

    n, shape = described.sizes[split], described.shape
    path = directory / f"gconv_{described.name}-{split}.array_record-00000"
    images = np.empty((n, int(np.prod(shape))), np.uint8)
    labels = np.empty(n, np.int32)
    try:
        for needed in (path.name, "dataset_info.json", "features.json"):
            if not (directory / needed).is_file():
                raise ValueError(f"{needed} is missing")
        reader = ArrayRecordReader(os.fspath(path), "max_parallelism:1,readahead_buffer_size:2M")
        if reader.num_records() != n:  # a file that is cut off has lost its index, and counts none
            raise ValueError(f"it holds {reader.num_records()} of {n} records")
        for start in range(0, n, _AT_ONCE):
            stop = min(n, start + _AT_ONCE)
            pixels, labels[start:stop] = _parse(reader.read(start, stop))
            images[start:stop] = np.frombuffer(pixels, np.uint8).reshape(stop - start, -1)
        reader.close()
        data = Images(images.reshape(n, *shape), labels)
        if digest(data) != described.sha256[split]:
            raise ValueError("its images are not the official ones")
    except (ValueError, KeyError, IndexError, RuntimeError, OSError) as error:
        raise DataError(
            f"{path} is damaged ({error}); run `python -m gconv_jax.data {described.name}` "
            "to prepare it again."
        ) from error
    return data


def _parse(records: list[bytes]) -> tuple[bytes, list[int]]:
    """Returns the pixels of all records in one piece, and their labels."""
    # The parser of tensorflow-datasets spends ten times as long on the same protocol buffers.
    from tensorflow_datasets.proto import tf_example_pb2

    pixels, labels = [], []
    for record in records:
        feature = tf_example_pb2.Example.FromString(record).features.feature
        pixels.append(feature["image"].bytes_list.value[0])
        labels.append(feature["label"].int64_list.value[0])
    return b"".join(pixels), labels


def _tensorflow_datasets() -> Any:
    """Imports tensorflow-datasets when it is needed: it takes longer than all of this package."""
    import tensorflow_datasets as tfds

    return tfds
