"""The README's example prints what the README says."""

import contextlib
import html
import io
import json
import re
from pathlib import Path

import pytest

from experiments import ship
from experiments.readme import fill
from experiments.report.__main__ import Config, in_readme
from experiments.report.findings import read
from experiments.report.sentences import in_short
from experiments.report.tables import markdown, tables

README = Path(__file__).parents[1] / "README.md"


def test_example_prints_what_it_says():
    text = README.read_text()
    [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [printed] = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    assert out.getvalue() == printed


def test_tables_are_those_of_the_results():
    text = README.read_text()
    results = json.loads(ship.RESULTS.read_text())
    for table in ship.tables(results).split("\n\n"):
        assert table in text


def test_evidence_is_that_of_the_results():
    """In the README, and in the report that is kept beside the results."""
    config = Config()
    runs = read(README.parent / config.folder, config.preset)
    assert f"<!-- evidence -->\n{in_readme(runs)}\n<!-- /evidence -->" in README.read_text()
    out = README.parent / config.out
    assert (out / "tables.md").read_text() == markdown(runs, list(tables(runs))) + "\n"
    page = (out / "report.html").read_text()
    for sentence in in_short(runs):
        assert html.escape(sentence) in page


def test_a_part_is_filled(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n")
    fill("speed", "| 1 |\n| 2 |", path)
    assert path.read_text() == "before\n<!-- speed -->\n| 1 |\n| 2 |\n<!-- /speed -->\nafter\n"
    with pytest.raises(ValueError, match="must have a line <!-- costs -->, and <!-- /costs -->"):
        fill("costs", "", path)
    assert "| 2 |" in path.read_text()


def test_trained_networks_are_those_of_the_results():
    found = sorted((README.parent / "experiments" / "results" / "classify").glob("*.json"))
    assert len(found) == 2
    for path in found:
        result = json.loads(path.read_text())
        target = {"cifar10": "cifar", "mnist": "mnist"}[result["config"]["dataset"]]
        row = (
            f"| `make {target} PRESET=cpu` | {100 * result['final']['test']['accuracy']:.2f} % | "
            f"{result['seconds'] / 60:.0f} min | {result['estimated_seconds'] / 60:.0f} min | "
            f"{result['peak_memory_bytes'] / 1e9:.1f} GB |"
        )
        assert row in README.read_text()


def test_pictures_are_there():
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text()):
        assert (README.parent / picture).read_bytes().startswith(b"\x89PNG")


def test_targets_exist():
    makefile = (README.parent / "Makefile").read_text()
    targets = set(re.findall(r"`?make ([a-z]+)", README.read_text()))
    assert targets
    assert targets <= set(re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE))
