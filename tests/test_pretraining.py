"""Learning a basis by descent: it learns, on one device as on several, killed or not."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj
from experiments import pretrain
from experiments.pretrain import Config
from gconv_jax.bases import learned
from gconv_jax.bases.quality import judge, patch_moments
from gconv_jax.training import parallel
from gconv_jax.training.checkpoints import Checkpoints
from gconv_jax.training.pretraining import (
    LossWeights,
    create_pretrain_state,
    draw,
    pretrain_steps,
)
from gconv_jax.training.runs import JsonLines, claim

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def images():
    data = gj.data.load("cifar10", source="embedded", size=200)
    mean, std = gj.data.colour_statistics(data.images)
    return np.asarray(gj.data.normalise(data.images, mean=mean, std=std))


def take_steps(kind, images, steps, *, count=None, batch=16):
    """Takes `count` of `steps` steps in one round; returns the state and the mean losses."""
    state = create_pretrain_state(kind, steps=steps)
    options = {"images": len(images), "channels": 3, "orientations": 8, "batch": batch}
    advance = parallel.data_parallel(pretrain_steps, common=4)
    draws = parallel.shares(draw(0, 0, steps, **options), axis=1)
    return advance(state, LossWeights(), images, count or steps, draws)


@pytest.mark.parametrize("kind", learned.KINDS)
def test_start(kind):
    state = create_pretrain_state(kind)
    basis = np.asarray(state.apply_fn(state.params))
    n = 27 if kind == "overcomplete" else 9
    assert basis.shape == (8, n, 3, 3)
    assert state.params["elements"].shape[0] == (2 if kind == "partial" else 8)
    e = basis[0].reshape(n, 9)
    np.testing.assert_allclose(e.T @ e, n / 9 * np.eye(9), atol=1e-5)
    other = create_pretrain_state(kind, seed=1)
    assert not np.allclose(other.params["elements"], state.params["elements"])


@pytest.mark.parametrize("kind", learned.KINDS)
def test_learns(kind, images):
    moments = patch_moments(images[:50], 8, 3)
    start = create_pretrain_state(kind)
    before = judge(np.asarray(start.apply_fn(start.params)), moments)
    state, losses = take_steps(kind, images, 150)
    after = judge(np.asarray(state.apply_fn(state.params)), moments)
    assert after.error < 0.3 * before.error
    assert after.residual < before.residual
    assert after.condition_number < before.condition_number  # it does not collapse on the way
    assert set(losses) == set(LossWeights._fields)
    assert int(state.step) == 150


def test_a_shorter_round_does_not_compile_again(images, caplog):
    state = create_pretrain_state("partial", steps=20)
    advance = parallel.data_parallel(pretrain_steps, common=4)
    options = {"images": len(images), "channels": 3, "orientations": 8, "batch": 4}
    draws = parallel.shares(draw(0, 0, 4, **options), axis=1)
    with jax.log_compiles():
        for count in (4, 4):  # after the first round the state lives on the devices
            state, _ = advance(state, LossWeights(), images, count, draws)
        assert "XLA compilation" in caplog.text
        caplog.clear()
        for count in (3, 2):
            state, _ = advance(state, LossWeights(), images, count, draws)
    assert "XLA compilation" not in caplog.text
    assert int(state.step) == 13


def test_draws_depend_on_seed_and_step_alone():
    options = {"images": 100, "channels": 3, "orientations": 8, "batch": 5}
    whole, later = draw(3, 0, 10, **options), draw(3, 6, 4, **options)
    for a, b in zip(whole, later, strict=True):
        assert a.shape == (10, 5)
        np.testing.assert_array_equal(a[6:], b)
    assert not np.array_equal(whole.image, draw(4, 0, 10, **options).image)
    assert [int(v.max()) for v in draw(0, 0, 500, **options)] == [99, 2, 7, 7]
    assert min(int(v.min()) for v in whole) >= 0


def test_two_and_eight_devices_give_the_basis_of_one(run_python, tmp_path):
    """In float64: in float32, rounding may flip the sign that an L1 loss takes its gradient by."""
    script = """
        import sys, jax, numpy as np, gconv_jax as gj
        from gconv_jax.training import parallel
        from gconv_jax.training.pretraining import *
        jax.config.update("jax_enable_x64", True)
        data = gj.data.load("cifar10", source="embedded", size=100)
        images = data.images / 64 - 2
        state = create_pretrain_state("partial", steps=200)
        params = jax.tree.map(lambda x: x.astype(np.float64), state.params)
        state = state.replace(params=params, opt_state=state.tx.init(params))
        draws = draw(0, 0, 50, images=100, channels=3, orientations=8, batch=16)
        advance = parallel.data_parallel(pretrain_steps, common=4)
        draws = parallel.shares(draws, axis=1)
        state, losses = advance(state, LossWeights(), images, 50, draws)
        assert len(draws.s) == jax.device_count() == int(sys.argv[2])
        np.save(sys.argv[1], state.apply_fn(state.params))
        """
    bases = {}
    for devices in (1, 2, 8):
        path = tmp_path / f"{devices}.npy"
        flags = f"--xla_force_host_platform_device_count={devices}"
        run_python(script, path, devices, XLA_FLAGS=flags)
        bases[devices] = np.load(path)
    assert bases[1].dtype == np.float64
    start = create_pretrain_state("partial")
    assert np.abs(bases[1] - start.apply_fn(start.params)).max() > 0.1
    np.testing.assert_allclose(bases[2], bases[1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(bases[8], bases[1], rtol=0, atol=1e-11)


def test_a_batch_that_does_not_divide_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 8)
    with pytest.raises(ValueError, match=r"multiple of the 8 devices, but got 12; use 8 or 16"):
        parallel.shares(np.ones((12, 3)))
    with pytest.raises(ValueError, match=r"but got 5; use 8\."):
        parallel.shares(np.ones((3, 5)), axis=1)
    assert parallel.shares(np.ones((3, 16)), axis=1).shape == (8, 3, 2)


def halve_files(folder):
    for file in folder.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_checkpoints_pass_over_what_is_damaged(tmp_path):
    said = []
    state = {"w": jnp.arange(3.0), "step": jnp.int32(0)}
    folder = tmp_path / "c"
    with Checkpoints(folder, keep=2) as checkpoints:
        assert checkpoints.restore(state, say=said.append) is None
        for step in (1, 2, 3):
            checkpoints.save(step, {"w": state["w"] * step, "step": jnp.int32(step)})
    assert sorted(p.name for p in folder.iterdir() if p.name.isdigit()) == ["2", "3"]
    halve_files(folder / "3")
    (folder / "4.orbax-checkpoint-tmp-0").mkdir()  # what a kill leaves of one being written
    with Checkpoints(folder, keep=2) as checkpoints:
        restored, _ = checkpoints.restore(state, say=said.append)
        assert int(restored["step"]) == 2
        np.testing.assert_array_equal(restored["w"], 2 * state["w"])
        [sentence] = said
        assert "checkpoint 3 cannot be read and is passed over" in sentence
        checkpoints.save(3, {"w": state["w"], "step": jnp.int32(3)})
    assert not list(folder.glob("*tmp*"))
    with Checkpoints(folder, keep=2) as checkpoints:
        assert int(checkpoints.restore(state, say=said.append)[0]["step"]) == 3
    for damaged in ("2", "3"):
        halve_files(folder / damaged)
    with (
        Checkpoints(folder) as checkpoints,
        pytest.raises(ValueError, match=r"none of the checkpoints .* remove the folder"),
    ):
        checkpoints.restore(state, say=said.append)


def test_a_folder_belongs_to_one_configuration(tmp_path):
    claim(tmp_path / "run", {"seed": 1, "steps": 5})
    claim(tmp_path / "run", {"seed": 1, "steps": 5})
    message = r"holds another run \(seed is 1 there and 2 here\); name another workdir"
    with pytest.raises(ValueError, match=message):
        claim(tmp_path / "run", {"seed": 2, "steps": 5})


def test_the_log_has_each_step_once(tmp_path):
    path = tmp_path / "log.jsonl"
    with JsonLines(path, after=0) as log:
        for step in (10, 20, 30):
            log.write(step, loss=1 / step)
    with path.open("a") as file:
        file.write('{"step": 40, "lo')  # cut off by a kill
    with JsonLines(path, after=20) as log:
        log.write(30, loss=0.0)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["step"], r["loss"]) for r in records] == [(10, 0.1), (20, 0.05), (30, 0.0)]


def test_folders_and_commands_follow_the_options():
    assert Config().command == "python -m experiments.pretrain"
    assert Config().folder == Path("runs/pretrain/partial-g8-k3-seed0")
    config = Config(basis="full", kernel=5, steps=10, weights=LossWeights(reconstruction=0))
    assert config.command.split()[3:] == (
        ["--basis", "full", "--kernel", "5", "--steps", "10", "--weights.reconstruction", "0"]
    )
    assert config.folder.name == "full-g8-k5-seed0-steps10-weights.reconstruction0"
    assert Config(workdir=Path("mine"), seed=3).folder == Path("mine")
    assert Config(solver="closed_form", orientations=16).name == "closed_form"


# The command line, on embedded images, in a process of its own.

OPTIONS = ["--steps", "200", "--batch", "8", "--images", "100", "--checkpoint-every", "50"]


def command(workdir, *options):
    environment = os.environ | {"GCONV_DATA_DIR": str(workdir / "no-data"), "PATH": "/nonexistent"}
    arguments = [*OPTIONS, "--workdir", str(workdir / "run"), *options]
    return {
        "args": [sys.executable, "-m", "experiments.pretrain", *arguments],
        "cwd": ROOT,
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    done = subprocess.run(**command(folder), check=False)
    assert done.returncode == 0, done.stdout
    return folder / "run", done.stdout


def test_command_says_and_leaves_all_it_should(uninterrupted):
    run, out = uninterrupted
    assert "embedded in the package instead" in out  # nothing else could be reached
    rows = dict(re.findall(r"^(\w+) +(\d\.\d{4}) +\S+ +\S+$", out, re.MULTILINE))
    assert set(rows) == {"partial", "weiler", "gaussian", "bilinear", "random"}
    assert float(rows["partial"]) < float(rows["bilinear"])
    assert str(run / "basis.npz") in out
    for picture in ("basis.png", "reconstructions.png", "rotations.png"):
        assert str(run / picture) in out
        assert (run / picture).read_bytes().startswith(b"\x89PNG")
    basis, card = gj.load_basis(run / "basis.npz"), gj.basis_card(run / "basis.npz")
    assert basis.shape == (8, 9, 3, 3)
    assert card["command"].startswith("python -m experiments.pretrain --steps 200")
    assert f"{card['quality']['error']:.4f}" == rows["partial"]
    steps = [json.loads(line)["step"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert steps == [50, 100, 150, 200]
    assert list((run / "tensorboard").glob("events*"))


def test_killed_three_times_it_ends_with_the_same_basis(uninterrupted, tmp_path):
    run, _ = uninterrupted
    moments = random.Random(7)
    log = tmp_path / "run" / "log.jsonl"
    for kill in range(3):
        process = subprocess.Popen(**command(tmp_path))
        seen = kill  # wait for one more line of the log than last time, then a little
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if log.exists() and len(log.read_text().splitlines()) > seen:
                break
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    done = subprocess.run(**command(tmp_path), check=False)
    assert done.returncode == 0, done.stdout
    again = tmp_path / "run"
    np.testing.assert_array_equal(
        gj.load_basis(again / "basis.npz"), gj.load_basis(run / "basis.npz")
    )
    assert log.read_text() == (run / "log.jsonl").read_text()


def test_ctrl_c_saves_and_goes_on(uninterrupted, tmp_path):
    run, _ = uninterrupted
    process = subprocess.Popen(**command(tmp_path, "--checkpoint-every", "1000"))
    log = tmp_path / "run" / "log.jsonl"
    while process.poll() is None and not (log.exists() and log.read_text()):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    if process.returncode == 130:
        assert "stopped and saved" in out
    done = subprocess.run(**command(tmp_path, "--checkpoint-every", "1000"), check=False)
    assert done.returncode == 0, done.stdout
    assert "going on from step" in done.stdout
    np.testing.assert_array_equal(
        gj.load_basis(tmp_path / "run/basis.npz"), gj.load_basis(run / "basis.npz")
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "1"], "pretrain: workdir .* holds another run .*seed is 0 there and 1 here"),
        (["--kernel", "4"], "pretrain: kernel_size must be odd"),
        (["--orientations", "6"], "pretrain: orientations must be a multiple of 4"),
        (
            ["--solver", "closed_form", "--basis", "full"],
            "pretrain: solver closed_form gives",
        ),
        (["--checkpoint-every", "30"], "pretrain: checkpoint_every must be a multiple of 50"),
        (["--steps", "0"], "pretrain: steps must be at least 1, but got 0"),
    ],
)
def test_bad_options_get_a_sentence(uninterrupted, say, options, message):
    run, _ = uninterrupted
    code, said = say(pretrain, *command(run.parent, *options)["args"][3:])
    assert code == 2
    assert re.search(message, said)
