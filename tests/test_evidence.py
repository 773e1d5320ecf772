"""What is measured on trained networks, and the list of runs that is worked through."""

import dataclasses
import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import gconv_jax as gj
from experiments import evidence, judging, layers, onset, plan, rotations, weight_decay
from experiments.evidence import Config
from experiments.plan import SCALES, Cell
from gconv_jax.training.trained import Trained


@pytest.fixture(scope="module")
def subject():
    """A small network that has seen nothing, and real images."""

    def make(basis="weiler", orientations=4):
        test = gj.data.load("cifar10", split="test", source="embedded", size=40)
        mean, std = gj.data.colour_statistics(test.images)
        arrays = () if basis is None else (gj.make_basis(basis, orientations=orientations),)
        network = (gj.AllCNN if basis is None else gj.GroupAllCNN)(widths=(2, 3), plain=True)
        x = gj.data.normalise(test.images[:1], mean=mean, std=std)
        variables = jax.jit(network.init)(jax.random.key(1), x, *arrays)
        trained = Trained(network, variables, arrays[0] if arrays else None)
        return judging.Subject(trained, test, mean, std)

    return make


def test_error_against_angle_is_that_of_turned_images(subject):
    found = subject()
    measured = rotations.measure(found, degrees=(0, 30, 90, 270), batch=20)
    network, variables, basis = found.trained
    x = gj.data.normalise(found.test.images, mean=found.mean, std=found.std)

    def error(x):
        logits = network.apply(variables, x, basis)
        return float(np.mean(np.argmax(logits, -1) != found.test.labels))

    blurred = [gj.rotate(x, np.deg2rad(d), method="gaussian") for d in (0, 30)]
    assert measured["errors"][:2] == pytest.approx([error(b) for b in blurred])
    assert measured["plain_error"] == pytest.approx(error(x))
    assert measured["errors"][0] == measured["errors"][2] == measured["errors"][3]
    assert measured["images"] == 40
    with pytest.raises(ValueError, match="images must be a multiple of 30, but got 40"):
        rotations.measure(found, batch=30)


def test_layers_turn_along_at_quarter_turns_and_those_without_a_group_do_not(subject):
    found = layers.measure(subject(), batch=20)["errors"]
    assert list(found) == [f"conv{i}" for i in range(1, 10)]
    assert np.shape(list(found.values())) == (9, 4)
    assert np.max(list(found.values())) < 1e-8
    without = layers.measure(subject(None), batch=20)["errors"]
    assert np.shape(list(without.values())) == (9, 8)
    for errors in without.values():
        assert errors[0] < 1e-12 < 1e-2 < min(errors[1:])


def test_it_does_not_matter_where_a_quarter_turn_happens(subject):
    def change(found, after, eighths):
        x, predict = found.batches(40)[0][0], onset.turning(found, after)
        as_it_is, turned = (predict(found.trained.variables, x, n) for n in (0, eighths))
        return np.abs(turned - as_it_is).max() / np.abs(as_it_is).max()

    exact, without = subject(orientations=8), subject(None)
    for after in (0, 1, 3, 9):
        assert change(exact, after, 2) < 1e-5
    assert change(exact, 0, 1) > 1e-2
    assert change(without, 0, 2) > 1e-2


def test_maps_that_cannot_turn_by_an_eighth_are_refused(subject):
    with pytest.raises(ValueError, match="8 or 16 orientations"):
        onset.turning(subject(orientations=4), 1)


def test_a_turn_of_the_input_is_that_of_the_curve(subject):
    found = subject(orientations=8)
    measured = onset.measure(found, after=(0,), batch=20)
    curve = rotations.measure(found, degrees=(0, 45), batch=20)
    assert measured["upright"] + measured["turned"] == curve["errors"]


def test_pictures_of_an_exact_basis_turn_along(subject):
    found = evidence.pictures(subject(), channels=2)
    filters = np.asarray(found["filters"])
    assert filters.shape == (4, 2, 3, 3, 3)
    np.testing.assert_allclose(filters[1], np.rot90(filters[0], axes=(1, 2)), atol=1e-6)
    shown = np.asarray(found["activations"])
    np.testing.assert_allclose(shown[1], np.rot90(shown[0]), atol=1e-5)
    back = np.asarray(found["turned_back"])
    np.testing.assert_allclose(back[3], back[0], atol=1e-5)


@pytest.mark.parametrize("preset", SCALES)
def test_the_list_of_runs_is_whole(preset):
    scale = SCALES[preset]
    every = list(plan.cells(scale))
    assert len({cell.name for cell in every}) == len(every)
    for basis in (*plan.OURS, *plan.OTHERS):
        for dataset, augment in (("mnist", "none"), ("cifar10", "none"), ("cifar10", "full")):
            for seed in range(scale.seeds[dataset]):
                assert Cell(dataset, basis, augment, seed) in every
    for augment in ("90", "45", "full"):
        assert Cell("cifar10", "partial", augment) in every
    assert Cell("mnist", "closed_form", kernel_size=5) in every
    assert Cell("mnist", "closed_form", orientations=16).name == "mnist-closed_form-g16-none-seed0"


def test_runs_on_all_images_have_the_weight_decay_that_was_best_there():
    measured = json.loads(weight_decay.Config().path.read_text())
    cell = Cell("mnist", "partial", whole=True)
    assert cell in plan.cells(SCALES["cpu"])
    assert cell.name == "mnist-partial-all-none-seed0"
    settings = plan.training(cell, "cpu").settings
    assert settings["images"] is None
    assert settings["epochs"] == measured["recipe"]["epochs"]
    assert settings["weight_decay"] == measured["best"]
    assert not SCALES["paper"].whole  # there everything is on all images


def test_the_weight_decay_with_the_least_error_in_the_mean_is_the_best(monkeypatch, tmp_path):
    worse = {0.01: 0.1, 0.001: 0.2, 0.0001: 0.3}
    monkeypatch.setattr(
        weight_decay,
        "angles",
        lambda basis, decay, _: {"errors": [worse[decay], worse[decay] + (basis == "partial")]},
    )
    found = weight_decay.compare(tmp_path)
    assert found["best"] == 0.01
    assert found["mean_error"]["0.01"] == pytest.approx(0.1 + 1 / 8)


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """Starts processes that only write a result; returns their settings and what was started."""
    config = Config(preset="smoke", results=tmp_path / "results", runs=tmp_path / "runs", jobs=3)
    result = {"final": {"test": {"accuracy": 0.9}}}
    angles = {"errors": [0.1, 0.1234], "images": 100}
    started, ends = [], {}
    (tmp_path / "results").mkdir()

    def launch(cell, config):
        started.append(cell)
        said = tmp_path / f"{cell.name}.txt"
        said.write_text("what it said")
        settings = plan.training(cell, config.preset).settings
        text = json.dumps(result | {"angles": angles, "settings": settings})
        writes = f"open({str(evidence.path_of(cell, config))!r}, 'w').write({text!r})"
        script = ends.get(len(started), writes)
        return subprocess.Popen([sys.executable, "-I", "-S", "-c", script]), said

    monkeypatch.setattr(evidence, "launch", launch)
    return config, started, ends


def test_what_has_a_result_is_not_run_again(pretend, capsys):
    config, started, ends = pretend
    ends[4] = "import sys; sys.exit(130)"  # as if it had been stopped
    with pytest.raises(KeyboardInterrupt):
        evidence.main(config)
    stopped = started.pop(3)
    first = len(list(config.results.iterdir()))
    assert "test accuracy 90.00 %, worst angle + 2.34 points, about" in capsys.readouterr().out
    evidence.main(config)
    every = list(plan.cells(SCALES["smoke"]))
    assert stopped in started
    assert sorted(c.name for c in every) == sorted(p.stem for p in config.results.iterdir())
    out = capsys.readouterr().out
    assert out.startswith(f"preset smoke: {first} of {len(every)} runs have results")
    assert out.endswith("all done\n")
    started.clear()
    evidence.main(config)
    assert not started


def test_what_has_a_result_of_another_recipe_is_run_again(pretend):
    config, started, _ = pretend
    evidence.main(config)
    stale, fewer, *_ = started
    for cell, old, new in ((stale, '"epochs": 2', '"epochs": 3'), (fewer, ": 100}", ": 50}")):
        path = evidence.path_of(cell, config)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
    started.clear()
    evidence.main(config)
    assert started == [stale, fewer]


def test_a_run_that_fails_stops_the_others_and_is_quoted(pretend):
    config, started, ends = pretend
    ends[1] = "import time; time.sleep(600)"
    ends[2] = "import sys; sys.exit(2)"
    with pytest.raises(ValueError, match=r"did not end well:\nwhat it said"):
        evidence.main(config)
    assert 2 <= len(started) <= 5


def test_a_pattern_names_several_runs(pretend):
    config, started, _ = pretend
    evidence.main(dataclasses.replace(config, only="mnist-*-none-*"))
    whole = [cell for cell in plan.cells(SCALES["smoke"]) if cell.dataset == "mnist"]
    assert started == [cell for cell in whole if cell.augment == "none"]


def test_begins_nothing_when_time_is_up(pretend, capsys):
    config, started, _ = pretend
    evidence.main(dataclasses.replace(config, minutes=-1.0))
    assert not started
    assert "time is up" in capsys.readouterr().out


def test_bad_options_of_evidence_are_refused(pretend):
    config, started, _ = pretend
    with pytest.raises(ValueError, match="only must be the name of a run of preset smoke"):
        evidence.main(dataclasses.replace(config, only="mnist"))
    with pytest.raises(ValueError, match=r"or a pattern .* but got 'svhn-\*'"):
        evidence.main(dataclasses.replace(config, only="svhn-*"))
    with pytest.raises(ValueError, match="jobs must be at least 1, but got 0"):
        evidence.main(dataclasses.replace(config, jobs=0))
    assert not started


def test_results_are_written_with_six_digits():
    assert evidence.as_text({"a": [0.1234567891], "b": {"c": 1}}) == (
        '{\n"a": [0.123457],\n"b": {"c": 1}\n}\n'
    )


def test_one_run_from_end_to_end(tmp_path, run_python):
    name = "cifar10-partial-none-seed0"
    script = "import sys; from experiments import evidence; sys.exit(evidence.start())"
    options = ("--preset", "smoke", "--only", name, "--results", tmp_path / "results")
    said = run_python(script, *options, "--runs", tmp_path / "runs")
    assert name in said
    found = json.loads((tmp_path / "results" / f"{name}.json").read_text())
    assert found["cell"] == {
        "dataset": "cifar10",
        "basis": "partial",
        "augment": "none",
        "seed": 0,
        "orientations": 8,
        "kernel_size": 3,
        "whole": False,
    }
    assert found["scale"]["train_images"] == 50
    assert found["angles"]["errors"][0] == found["angles"]["errors"][2]
    assert len(found["layers"]["errors"]["conv9"]) == 8
    assert found["basis_quality"]["error"] < 0.01
    assert np.shape(found["pictures"]["turned_back"]) == (8, 16, 16)
    assert not any((tmp_path / "runs" / "smoke").iterdir())
    assert evidence.in_brief(found) in run_python(script, *options)  # said again, not run again
