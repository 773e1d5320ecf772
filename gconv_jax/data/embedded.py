"""The small real subset that ships with the package: 1,000 images to train, 500 to test, of each.

A part is a PNG in which the images stand in rows of 25, in official order, and a text file with a
digit for the label of each. Both are cut from the verified sets by `experiments/embed_subsets.py`.
"""

from pathlib import Path

import numpy as np

from gconv_jax.data.errors import DataError
from gconv_jax.data.formats import Images
from gconv_jax.data.splits import stratified_order

SIZES = {"train": 1000, "test": 500}
DIRECTORY = Path(__file__).parent / "subsets"

_COLUMNS = 25
_KEY = 3  # of the order that the subset is a prefix of


def names() -> tuple[str, ...]:
    """Returns the sets of which a subset is embedded."""
    return tuple(sorted(path.stem.removesuffix("_test") for path in DIRECTORY.glob("*_test.png")))


def read(name: str, part: str) -> Images:
    """Returns the embedded part of the official `"train"` or `"test"` of a set."""
    from PIL import Image

    if name not in names():
        raise DataError(
            f"{name} has no embedded subset, only {' and '.join(names())} have one; "
            f"prepare the whole set with `python -m gconv_jax.data {name}`."
        )
    labels = np.asarray([int(d) for d in (DIRECTORY / f"{name}_{part}.txt").read_text().strip()])
    with Image.open(DIRECTORY / f"{name}_{part}.png") as picture:
        mosaic = np.asarray(picture)
    rows = len(labels) // _COLUMNS
    h, w = mosaic.shape[0] // rows, mosaic.shape[1] // _COLUMNS
    tiles = mosaic.reshape(rows, h, _COLUMNS, w, -1).swapaxes(1, 2)  # [rows, columns, H, W, C]
    images = np.ascontiguousarray(tiles).reshape(len(labels), h, w, -1)
    return Images(images, labels.astype(np.int32))


def write(name: str, part: str, data: Images, directory: Path) -> None:
    """Writes what `read` reads: the subset of the official part that `data` holds whole."""
    from PIL import Image

    images, labels = subset(data, SIZES[part])
    n, h, w, c = images.shape
    rows = n // _COLUMNS
    mosaic = images.reshape(rows, _COLUMNS, h, w, c).swapaxes(1, 2)
    picture = Image.fromarray(mosaic.reshape(rows * h, _COLUMNS * w, c).squeeze())
    picture.save(directory / f"{name}_{part}.png", optimize=True)
    (directory / f"{name}_{part}.txt").write_text("".join(str(label) for label in labels) + "\n")


def subset(data: Images, size: int) -> Images:
    """Returns `size` images in the proportions of the classes, in official order."""
    chosen = np.sort(stratified_order(data.labels, _KEY)[:size])
    return Images(data.images[chosen], data.labels[chosen])
