"""What is measured on trained networks, and the list of runs that is worked through."""

import json

import jax
import numpy as np
import pytest

import gconv_jax as gj
from experiments import evidence, judging, layers, rotations
from experiments.evidence import SCALES, Cell, Config
from gconv_jax.training.trained import Trained


@pytest.fixture(scope="module")
def subject():
    """A small network that has seen nothing, and real images."""

    def make(basis="weiler"):
        test = gj.data.load("cifar10", split="test", source="embedded", size=40)
        mean, std = gj.data.colour_statistics(test.images)
        arrays = () if basis is None else (gj.make_basis(basis, orientations=4),)
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
    every = list(evidence.cells(scale))
    assert len({cell.name for cell in every}) == len(every)
    for basis in (*evidence.OURS, *evidence.OTHERS):
        for dataset, augment in (("mnist", "none"), ("cifar10", "none"), ("cifar10", "full")):
            for seed in range(scale.seeds[dataset]):
                assert Cell(dataset, basis, augment, seed) in every
    for augment in ("90", "45", "full"):
        assert Cell("cifar10", "partial", augment) in every
    assert Cell("mnist", "closed_form", kernel_size=5) in every
    assert Cell("mnist", "closed_form", orientations=16).name == "mnist-closed_form-g16-none-seed0"


def test_what_has_a_result_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def run(cell, _, folder):
        folder.mkdir(parents=True, exist_ok=True)
        ran.append(cell)
        if len(ran) == 3:
            raise KeyboardInterrupt
        errors = [0.1, 0.1234567891]
        return {"final": {"test": {"accuracy": 0.9}}, "angles": {"errors": errors}}

    monkeypatch.setattr(evidence, "run", run)
    config = Config(preset="smoke", results=tmp_path / "results", runs=tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        evidence.main(config)
    assert len(list((tmp_path / "results").iterdir())) == 2
    assert "test accuracy 90.00 %, worst angle + 2.35 points, about" in capsys.readouterr().out
    evidence.main(config)
    assert len(ran) == len(set(ran)) + 1
    assert set(ran) == set(evidence.cells(SCALES["smoke"]))
    out = capsys.readouterr().out
    assert out.startswith(f"preset smoke: 2 of {len(set(ran))} runs have results")
    assert out.endswith("all done\n")
    found = json.loads((tmp_path / "results" / f"{ran[0].name}.json").read_text())
    assert found["angles"]["errors"][1] == 0.123457
    with pytest.raises(ValueError, match="only must be the name of a run of preset smoke"):
        evidence.main(Config(preset="smoke", only="mnist", results=tmp_path))


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
    }
    assert found["scale"]["train_images"] == 50
    assert found["angles"]["errors"][0] == found["angles"]["errors"][2]
    assert len(found["layers"]["errors"]["conv9"]) == 8
    assert found["basis_quality"]["error"] < 0.01
    assert np.shape(found["pictures"]["turned_back"]) == (8, 16, 16)
    assert not any((tmp_path / "runs" / "smoke").iterdir())
