"""Small sets with checksums of their own, cut from the embedded images: real code, little data."""

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from gconv_jax.data import embedded, formats, sets
from gconv_jax.data.formats import Images


def arrays(name, sizes):
    """The first images of the embedded subset of a set."""
    out = {}
    for part, n in sizes.items():
        data = embedded.read(name, part)
        out[part] = Images(data.images[:n], data.labels[:n])
    return out


def toy(like, *, name="toy", sizes=None, **changes):
    """A set of few images in the layout of `like`, and its arrays and official files."""
    sizes = sizes or {"train": 100, "test": 50}
    data = arrays(like, sizes)
    original = sets.SETS[like]
    files = {}
    for part in sizes:
        files |= formats.encode(original, part, data[part])
    described = replace(
        original,
        name=name,
        title="Toy",
        sizes=sizes,
        held_out=sizes["train"] // 10,
        sha256={part: formats.digest(data[part]) for part in sizes},
        files={file: formats.md5(content) for file, content in files.items()},
        **{"downloads": (), "package": None, "stock_name": None} | changes,
    )
    return described, data, files


def archive(files, **extra):
    """A tar.gz that holds the files in a folder; `extra` are members with names of their own."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in {f"folder/{n}": c for n, c in files.items()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra.get("members", ()):
            tar.addfile(member)
    return buffer.getvalue()


def download(url, content):
    return sets.Download(url, hashlib.md5(content).hexdigest(), len(content))


def npm_package(data, *, batches=5):
    """What the package of CIFAR-10 looks like: wide pictures and two lists of labels."""
    files = {}
    for part, count in (("train", batches), ("test", 1)):
        images, labels = data[part]
        files[f"{part}_lables.json"] = json.dumps(labels.tolist()).encode()
        for i, block in enumerate(np.split(images, count)):
            stem = f"data_batch_{i + 1}" if part == "train" else "test_batch"
            buffer = io.BytesIO()
            Image.fromarray(block.reshape(len(block), -1, 3)).save(buffer, "PNG")
            files[f"{stem}.png"] = buffer.getvalue()
    return archive(files)


def compressed(files):
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
