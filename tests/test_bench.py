"""The benchmark: its processes answer, ratios are ratios, and the README says what was measured."""

import json
import sys

import numpy as np
import pytest

from experiments.bench import measure, report, ways
from experiments.bench.__main__ import same_gradients
from experiments.bench.measure import ROOT, Side, compiled_again, race, races, ratios, sides, slope
from gconv_jax.correlate import way

RESULTS = ROOT / "experiments" / "results" / "bench.json"


def test_sides_take_turns_and_compute_the_same(monkeypatch):
    monkeypatch.setattr(measure, "SPAN", 0.0)
    everyone = sides(None)
    assert set(everyone) == {"gconv_jax", "gconv_jax, nothing set", "lax.conv"}
    del everyone["gconv_jax"]  # the same as with nothing set, but for the allocator
    program = {"kind": "training", "widths": [2, 3], "batch": 4, "size": 8, "orientations": 4}
    result = race("training", everyone, program, rounds=2)
    for name in everyone:
        assert len(result["seconds"][name]) == 2
        assert min(result["seconds"][name]) > 0
        assert result["peak_memory_bytes"][name] > 1e8
        assert min(result["facts"][name][cost] for cost in ("import", "build", "compile")) > 0
        assert result["facts"][name]["parameters"] == 1690
    anew = result["facts"]["gconv_jax, nothing set"]
    assert 0 < compiled_again(everyone["gconv_jax, nothing set"], program) < anew["compile"]
    result["facts"]["gconv_jax"] = anew
    same_gradients(result)
    result["facts"]["lax.conv"]["gradient_norm"] *= 1.01
    with pytest.raises(RuntimeError, match="the gradient_norm is"):
        same_gradients(result)


def test_other_programs_run():
    ours = {"gconv_jax": sides(None)["gconv_jax"]}
    layer = {"kind": "layer", "batch": 1, "size": 4, "channels": 16, "backward": True}
    layer |= {"inputs": 2, "kernel_size": 5, "way": "winograd"}
    programs = [{"kind": "evaluation", "widths": [2, 3], "batch": 1}, layer]
    results = races("others", ours, programs, rounds=1)
    assert [result["kind"] for result in results] == ["evaluation", "layer"]


def test_a_contender_that_fails_is_told():
    broken = {"gconv_jax": Side("experiments.bench.ours", sys.executable)}
    with pytest.raises(RuntimeError, match="a contender ended with exit code 1"):
        race("broken", broken, {"kind": "nothing"}, rounds=1)


def test_ratios_are_of_the_same_round():
    result = {"seconds": {"slow": [2.0, 6.0, 4.0], "fast": [1.0, 2.0, 4.0]}}
    assert ratios(result, "slow", "fast") == (2.0, 1.0, 3.0)


def test_the_way_is_chosen_by_what_was_measured():
    """But for sizes between, where either will do: within a quarter of the better one."""
    for found in json.loads(ways.RESULTS.read_text())["ways"]:
        k, inputs = found["kernel_size"], found["inputs"]
        chosen = way((k, k, inputs, ways.OUTPUTS), 1)
        assert found[chosen] < 1.25 * min(found["winograd"], found["patches"]), found


def test_slope_is_the_power():
    sizes = [1, 2, 5]
    assert slope(sizes, np.power(sizes, 1.5)) == pytest.approx(1.5)


def test_readme_says_what_was_measured(tmp_path):
    results = json.loads(RESULTS.read_text())
    text = (ROOT / "README.md").read_text()
    for table in (report.speed(results), report.costs(results), report.growth(results)):
        assert "\n".join(table) in text
    assert report.tables(results).count("\n\n") == 3
    assert report.draw(results, tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
