"""Bad days of the disk, on the real code paths: full, read-only, shared, damaged.

Nothing half-prepared may ever be taken for whole, and a rerun repairs.
"""

import os
import shutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.data import __main__ as command
from gconv_jax.data import formats, rotated, sets, store
from gconv_jax.data.errors import DataError, SourceError
from tests import toy_data


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    toy_data.isolate(monkeypatch, tmp_path)


@pytest.fixture
def prepared(monkeypatch, tmp_path):
    """A toy set, prepared from a folder; yields its directory, its arrays and the folder."""
    described, data, files = toy_data.toy("mnist")
    monkeypatch.setitem(sets.SETS, "toy", described)
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    directory, _ = gj.data.prepare("toy", files=folder)
    return directory, data, folder


def test_full_disk_then_rerun(prepared, tmp_path):
    """A limit on the size of files stops array_record in the middle of its writing."""
    directory, data, folder = prepared
    shutil.rmtree(directory.parent)
    script = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            gj.data.prepare("toy", files={str(folder)!r})
        except gj.data.DataError as error:
            print(error)
        """
    out = toy_data.finish(toy_data.run(script))
    assert out.count("\n") == 1
    assert f"{tmp_path / 'data'} is full: preparing this set takes about" in out
    assert "name another directory in GCONV_DATA_DIR, then run it again." in out
    assert {p.name for p in (tmp_path / "data").iterdir()} == {".toy.lock"}  # and cleaned up
    toy_data.assert_nothing_prepared(tmp_path)
    toy_data.assert_whole(data, files=folder)


def test_disk_that_is_known_to_be_too_small(prepared, monkeypatch):
    directory, _, folder = prepared
    shutil.rmtree(directory.parent)
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DataError, match=r"has 1 kB free, but preparing toy takes about .*room"):
        gj.data.prepare("toy", files=folder)


@pytest.fixture
def read_only():
    """A directory that this process may not write to, not even as root."""
    directory = Path(tempfile.mkdtemp(prefix="gconv_jax_"))
    directory.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield directory
    finally:
        if root:
            os.seteuid(0)
        directory.chmod(0o755)
        shutil.rmtree(directory)


def test_read_only_directory(monkeypatch, read_only):
    described, _, _ = toy_data.toy("mnist")
    monkeypatch.setitem(sets.SETS, "toy", described)
    for data_dir in (read_only, read_only / "deeper"):
        with pytest.raises(DataError, match=r"cannot be written to .*Permission denied.*GCONV"):
            gj.data.prepare("toy", data_dir=data_dir)


def test_file_in_the_way_of_the_directory(monkeypatch, tmp_path):
    described, _, _ = toy_data.toy("mnist")
    monkeypatch.setitem(sets.SETS, "toy", described)
    (tmp_path / "file").write_text("")
    for data_dir in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(DataError, match="must be a directory, but a file is in the way"):
            gj.data.prepare("toy", data_dir=data_dir)


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "info", "bit", "swapped"])
def test_damaged_records_are_refused_and_a_rerun_repairs(prepared, damage):
    directory, data, folder = prepared
    path = directory / "gconv_toy-train.array_record-00000"
    whole = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
        expected = "it holds 0 of 100 records"
    elif damage == "empty":
        path.write_bytes(b"")
        expected = "it holds 0 of 100 records"
    elif damage == "missing":
        path.unlink()
        expected = "00000 is missing"
    elif damage == "info":
        (directory / "dataset_info.json").unlink()
        expected = "dataset_info.json is missing"
    elif damage == "bit":
        flipped = bytearray(whole)
        flipped[500] ^= 1
        path.write_bytes(flipped)
        expected = "hash mismatch"
    else:  # a whole and valid file, of other images
        other = toy_data.arrays("mnist", {"train": 100, "test": 50})
        other["train"].images[0, 0, 0] ^= 1
        store._write_records(sets.SETS["toy"], directory, other, "elsewhere")
        expected = "its images are not the official ones"
    with pytest.raises(DataError, match=f"train.* is damaged .*{expected}.*gconv_jax.data toy`"):
        gj.data.load("toy")
    said = []
    _, source = gj.data.prepare("toy", files=folder, say=said.append)
    assert source.startswith("official files in ")
    assert "is damaged" in said[0]
    toy_data.assert_whole(data, source="prepared")
    assert {p.name for p in directory.parent.parent.iterdir()} == {".toy.lock", "gconv_toy"}


def test_killed_in_the_middle_of_writing_then_rerun(prepared, tmp_path):
    directory, data, folder = prepared
    shutil.rmtree(directory.parent)
    script = f"""
        import os, signal
        from gconv_jax.data import store
        write = store._write_records
        def write_and_die(*arguments):
            write(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        store._write_records = write_and_die
        gj.data.prepare("toy", files={str(folder)!r})
        """
    process = toy_data.run(script)
    process.communicate(timeout=100)
    assert process.returncode == -9
    assert len(list((tmp_path / "data").glob(".toy-*"))) == 1  # what it left behind
    toy_data.assert_nothing_prepared(tmp_path)
    toy_data.assert_whole(data, files=folder)
    assert {p.name for p in (tmp_path / "data").iterdir()} == {".toy.lock", "gconv_toy"}


def test_two_processes_preparing_at_once(prepared, tmp_path):
    """Both succeed, one prepares, and the other one waits and takes what it finds."""
    directory, data, folder = prepared
    shutil.rmtree(directory.parent)
    (tmp_path / "go").mkdir()
    script = f"""
        import os, pathlib, time
        go = pathlib.Path({str(tmp_path / "go")!r})
        (go / str(os.getpid())).touch()
        while len(list(go.iterdir())) < 2:
            time.sleep(0.01)
        print(gj.data.prepare("toy", files={str(folder)!r})[1])
        assert len(gj.data.load("toy", source="prepared").labels) == 90
        """
    processes = [toy_data.run(script) for _ in range(2)]
    said = sorted(toy_data.finish(process).strip() for process in processes)
    assert said == [f"official files in {folder}", "prepared directory"]
    toy_data.assert_whole(data, source="prepared")


def test_the_lock_keeps_others_out_and_dies_with_its_process(prepared, tmp_path):
    directory, _, folder = prepared
    shutil.rmtree(directory.parent)
    done = threading.Event()
    said = []

    def prepare():
        gj.data.prepare("toy", files=folder, say=said.append)
        done.set()

    with store.locked(sets.SETS["toy"], tmp_path / "data"):
        thread = threading.Thread(target=prepare)
        thread.start()
        assert not done.wait(0.3)
        assert not directory.exists()
    thread.join(20)
    assert done.is_set()
    assert said == ["toy: waiting for another process that is preparing it"]


def test_command_prepares_says_the_source_and_repeats_itself_cheaply(prepared, capsys):
    directory, _, folder = prepared
    shutil.rmtree(directory.parent)
    for source in (f"official files in {folder}", "prepared directory"):
        assert command.main(["toy", "--files", str(folder)]) == 0
        out, _ = capsys.readouterr()
        assert f"toy: 100 train + 50 test images, 118 kB, from {source}; checksums match" in out
        assert out.count("\n") == 1


def test_command_fails_in_one_line(monkeypatch, tmp_path, capsys):
    described, _, _ = toy_data.toy("mnist")
    monkeypatch.setitem(sets.SETS, "toy", described)
    assert command.main(["toy", "--data-dir", str(tmp_path)]) == 1
    assert command.main(["imagenet"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("toy: no source could serve toy: TFDS_DATA_DIR is not set; ")
    assert "imagenet: name must be one of" in err
    assert err.count("\n") == 2


def test_generated_set_is_prepared_with_its_origin(prepared, monkeypatch, tmp_path):
    directory, data, folder = prepared
    shutil.rmtree(directory.parent)
    sizes = {"train": 20, "test": 60}
    made = rotated.generate(data["train"], data["test"], (20, 60))
    described = toy_data.replace(
        sets.SETS["toy"],
        name="turned",
        made_from="toy",
        sizes=sizes,
        held_out=5,
        files={},
        sha256={part: formats.digest(made[part]) for part in sizes},
    )
    monkeypatch.setitem(sets.SETS, "turned", described)
    _, source = gj.data.prepare("turned", files=folder)
    assert source == "the generator, out of toy"
    toy_data.assert_whole(data, source="prepared")
    for split, part in (("train+validation", "train"), ("test", "test")):
        loaded = gj.data.load("turned", split=split, source="prepared")
        np.testing.assert_array_equal(loaded.images, made[part].images)
    assert len(gj.data.load("turned", split="validation", source="prepared").labels) == 5
    assert (tmp_path / "data" / "gconv_turned").is_dir()


def test_tensorflow_datasets_reads_what_we_write(prepared):
    import tensorflow_datasets as tfds

    directory, data, _ = prepared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what that library warns about is not ours
        builder = tfds.builder_from_directory(directory)
        assert builder.info.features["label"].names == list(sets.SETS["mnist"].class_names)
        assert "official files in" in builder.info.description
        for part, (images, labels) in data.items():
            source = builder.as_data_source(part)
            assert len(source) == len(labels)
            for i in (0, 7, len(labels) - 1):
                np.testing.assert_array_equal(source[i]["image"], images[i])
                assert source[i]["label"] == labels[i]
    assert "tensorflow" not in sys.modules


def test_source_errors_are_data_errors():
    assert issubclass(SourceError, DataError)
