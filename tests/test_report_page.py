"""The report as files: whole, the same every time, and in need of nothing else."""

import re

import pytest

from experiments.report.__main__ import Config, main, write
from experiments.report.findings import METHODS
from experiments.report.page import html
from experiments.report.tables import markdown, tables
from tests.toy_evidence import COMMAND, loaded, record, save, some_evidence


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("evidence"), *some_evidence())


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    write(runs, out)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_command_says_a_sentence(run_python, tmp_path):
    (tmp_path / "cut.json").write_text("{")
    printed = run_python(
        """
        import contextlib, io, sys
        from experiments.report.__main__ import run
        sys.argv[1:] = ["--results", sys.argv[1]]
        with contextlib.redirect_stderr(sys.stdout):
            print(run())
        """,
        tmp_path,
    )
    sentence, code = printed.splitlines()
    assert sentence.startswith(f"report: {tmp_path / 'cut.json'} is not valid JSON")
    assert code == "2"


def test_everything_is_written(written):
    names = ("figure3", "figure4", "figure5", "bases", "basis", "filters", "activations")
    for name in (*names, "reconstructions", "rotations"):
        assert written[f"{name}.png"].startswith(b"\x89PNG")
        assert b"<svg" in written[f"{name}.svg"]
    assert len(written) == 2 * 9 + 2


def test_page_needs_nothing_else(written):
    page = written["report.html"].decode()
    assert not re.findall(r"https?://|//[a-z]+\.[a-z]|<script|<link|@import|url\(", page)
    sources = re.findall(r'src="(.{0,26})', page)
    assert len(sources) == 9
    assert all(re.match("data:image/(png|svg[+]xml);base64,", source) for source in sources)
    assert len(re.findall(r'<img[^>]* alt="[^"]{20,}"', page)) == 9
    anchors = re.findall(r'href="#(\w+)"', page)
    assert len(anchors) == 8
    assert all(f'id="{anchor}"' in page for anchor in anchors)
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page
    assert "81.00 ± 1.41 (2)" in page
    assert f"<code>{COMMAND} cifar10-partial-full-seed1</code>" in page
    assert "14 networks were trained and judged: 6 on MNIST and 8 on CIFAR-10, in 7.0 hours" in page
    assert "PRESET=paper" in page
    assert re.search(r"tried on a CPU for \d+ steps only \(<code>python -m", page)
    assert "runs with 0.001 were begun and left (results/evidence/tried; MNIST: GroupAllCNN" in page
    assert "AMSGrad, learning rate up to 0.005, weight decay 0.01, images moved by up to 2" in page


def test_page_is_well_formed(written):
    """Every element that is opened is closed, in order."""
    page = re.sub(r'src="[^"]*"', "", written["report.html"].decode())
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    stack = []
    for closing, name in re.findall(r"<(/?)([a-z0-9]+)", page):
        if name in ("meta", "img"):
            continue
        if closing:
            assert stack.pop() == name
        else:
            stack.append(name)
    assert not stack
    assert "ATTENTION" not in page


def test_attention_is_marked_on_the_page(tmp_path):
    runs = loaded(tmp_path, record("cifar10", "partial"), record("cifar10", "weiler", epochs=5))
    names = ("figure3", "figure4", "figure5", "bases", "basis", "filters", "activations")
    blank = dict.fromkeys((*names, "reconstructions", "rotations"), "")
    assert '<span class="odd">ATTENTION' in html(runs, tables(runs), blank)


def test_a_second_time_gives_the_same_bytes(runs, written, tmp_path):
    write(runs, tmp_path)
    again = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in again if again[name] != written.get(name)} == set()
    assert again.keys() == written.keys()


def test_markdown_is_for_the_readme(runs):
    blocks = markdown(runs, ["table1", "figure3"]).split("\n\n")
    assert len(blocks) == 4
    head, rule, *lines = blocks[0].splitlines()
    assert head.endswith(f"| parameters | `{COMMAND}` … |")
    assert rule == "|" + 7 * "---|"
    assert len(lines) == len(METHODS)
    assert lines[6] == (
        "| partial | 81.00 ± 1.41 (2) | 90.93 | 76.00 ± 1.41 (2) | 89.60 | 78,450 | "
        "`cifar10-partial-none-seed0`, `cifar10-partial-full-seed0` |"
    )
    assert "Reduced scale (preset cpu)" in blocks[1].replace("\n", " ")
    assert max(map(len, blocks[1].splitlines())) <= 100


def test_main_writes_where_it_is_told(monkeypatch, tmp_path, capsys):
    folder = save(tmp_path / "results", record("mnist", "partial"))
    monkeypatch.setattr("experiments.report.__main__.pictures", lambda _: [])
    monkeypatch.setattr("experiments.report.page.html", lambda *_: "page")
    monkeypatch.setattr("experiments.readme.fill", lambda *_: pytest.fail("not for the README"))
    assert main(Config(results=folder, out=tmp_path / "out")) == 0
    assert (tmp_path / "out" / "report.html").read_text() == "page"
    assert "1 run in" in capsys.readouterr().out
    assert str(Config(preset="smoke").folder) == "experiments/results/evidence/smoke"
