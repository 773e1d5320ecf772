"""The command line that trains: it learns, says what it should, and survives what may happen."""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import experiments.classify
import gconv_jax as gj
from experiments.classify import Config
from experiments.presets import PRESETS
from gconv_jax.training.checkpoints import Checkpoints
from gconv_jax.training.classification import fingerprint

ROOT = Path(__file__).parents[1]
COMPILED = ROOT / ".pytest_cache" / "compiled"  # the same few programs, started many times

# 240 steps of a tiny network: 12 epochs of 20, with a checkpoint every 10.
TINY = ["--preset", "smoke", "--dataset", "mnist", "--basis", "conv", "--widths", "2", "3"]
TINY += ["--batch", "8", "--images", "160", "--epochs", "12", "--checkpoint-every", "10"]


def command(workdir, *options, devices=1):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    return {
        "args": [sys.executable, "-m", "experiments.classify", "--workdir", str(workdir), *options],
        "cwd": ROOT,
        "env": os.environ | {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": str(COMPILED)},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }


def classify(workdir, *options, code=0, devices=1):
    """Runs it to its end; returns what it said."""
    done = subprocess.run(**command(workdir, *options, devices=devices), check=False)
    assert done.returncode == code, done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


def result(workdir):
    return json.loads((workdir / "result.json").read_text())


def log(workdir):
    return [json.loads(line) for line in (workdir / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke") / "run"
    start = processor_seconds()
    said = classify(folder, "--preset", "smoke")
    return folder, said, processor_seconds() - start


def processor_seconds():
    """What processes started from here have computed so far: whatever else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "run"
    return folder, classify(folder, *TINY)


def test_smoke_is_quick_and_learns(smoke):
    folder, _, seconds = smoke
    assert seconds < 90
    first, *_, last = result(folder)["epochs"]
    assert last["train_loss"] < 0.5 * first["train_loss"]
    assert last["train_accuracy"] > 2 * first["train_accuracy"]


def test_it_says_what_it_does(smoke):
    folder, said, _ = smoke
    first = said.splitlines()[0]
    assert re.match(r"preset smoke: cifar10, .* partial basis, .* about \d+ (s|min) to go$", first)
    assert re.search(r"epoch \d+/\d+: .*images/s, loss \d.\d+, accuracy \d.\d+", said)
    final = result(folder)["final"]
    assert f"test accuracy {final['test']['accuracy']:.4f}" in said
    assert str(folder / "log.jsonl") in said
    [checkpoint] = re.findall(r"^checkpoint: (\S+)", said, re.MULTILINE)
    assert Path(checkpoint).is_dir()


def test_the_result_tells_all(smoke):
    folder, _, _ = smoke
    found = result(folder)
    assert set(found["final"]) == {"validation", "test", "params_sha256"}
    assert set(found["final"]["test"]) == {"loss", "accuracy"}
    assert found["config"]["preset"] == "smoke"
    assert found["config"]["batch"] == PRESETS["cifar10"]["smoke"].batch
    assert found["data"]["source"] == "embedded"
    assert found["data"]["test"] == 500
    assert found["versions"]["jax"] == jax.__version__
    assert found["devices"] == {"platform": "cpu", "kind": "cpu", "count": 1, "processes": 1}
    assert found["seed"] == 0
    assert found["seconds"] > 0
    assert found["estimated_seconds"] > 0
    assert 1e8 < found["peak_memory_bytes"] < 1e10
    assert re.fullmatch(r"[0-9a-f]{40}\+?", found["commit"] or "0" * 40)
    epochs = found["epochs"]
    assert [e["epoch"] for e in epochs] == list(range(1, len(epochs) + 1))
    best = max(epochs, key=lambda e: (e["validation_accuracy"], -e["validation_loss"]))
    assert found["chosen_step"] == best["step"]
    assert found["final"]["validation"]["loss"] == best["validation_loss"]
    assert [r["step"] for r in log(folder)] == list(range(1, epochs[-1]["step"] + 1))
    assert list((folder / "tensorboard").glob("events*"))
    names = {p.name for p in folder.iterdir()}
    assert names == {"checkpoints", "config.json", "log.jsonl", "result.json", "tensorboard"}


def test_evaluate_gives_the_same_numbers(smoke, tmp_path):
    folder, _, _ = smoke
    said = classify(tmp_path, "--evaluate", result(folder)["checkpoint"])
    for split in ("validation", "test"):
        numbers = result(folder)["final"][split]
        line = f"{split} accuracy {numbers['accuracy']:.4f}, loss {numbers['loss']:.4f}"
        assert line in said.splitlines()
    assert not any(tmp_path.iterdir())


def test_restore_gives_the_chosen_model(smoke):
    folder, _, _ = smoke
    network, variables, basis = gj.restore(folder)
    np.testing.assert_array_equal(basis, gj.load_basis("partial"))
    test = gj.data.load("cifar10", split="test", source="embedded")
    found = result(folder)
    x = gj.data.normalise(test.images, mean=found["data"]["mean"], std=found["data"]["std"])
    logits = jax.jit(network.apply)(variables, x, basis)
    accuracy = np.mean(np.argmax(logits, -1) == test.labels)
    assert accuracy == pytest.approx(found["final"]["test"]["accuracy"], abs=1 / 500)


def test_restore_of_something_else_gets_a_sentence(tiny, tmp_path):
    folder, _ = tiny
    network, _, basis = gj.restore(folder / "checkpoints" / "240")
    assert isinstance(network, gj.AllCNN)
    assert basis is None
    copy = shutil.copytree(folder / "checkpoints" / "240", tmp_path / "copy")
    card = copy / "card" / "metadata"
    card.write_text(
        card.read_text().replace('"widths": [2, 3], "dtype"', '"widths": [2, 4], "dtype"')
    )
    with pytest.raises(ValueError, match=r"do not belong to its AllCNN .* is \(.*\) there and"):
        gj.restore(copy)
    card.unlink()
    with pytest.raises(ValueError, match="is not a whole checkpoint of a network"):
        gj.restore(copy)
    with pytest.raises(ValueError, match="path must be a checkpoint or the folder of a run"):
        gj.restore(tmp_path / "nothing")


def test_a_finished_run_is_not_done_again(tiny):
    folder, said = tiny
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    again = classify(folder, *TINY)
    assert "this run is done already" in again
    assert again.splitlines()[-3:] == said.splitlines()[-3:]
    assert before == {p: p.stat().st_mtime_ns for p in folder.rglob("*")}


def same_as(whole, other):
    assert result(whole)["final"] == result(other)["final"]
    assert result(whole)["epochs"] == result(other)["epochs"]
    assert (whole / "log.jsonl").read_text() == (other / "log.jsonl").read_text()


def lines(folder):
    path = folder / "log.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_killed_ten_times_it_ends_the_same(tiny, tmp_path):
    whole, _ = tiny
    folder, moments, within_a_write = tmp_path / "run", random.Random(3), 0
    for kill in range(10):
        process = subprocess.Popen(**command(folder, *TINY))
        deadline = time.monotonic() + 120

        def writes():
            return bool(list((folder / "checkpoints").glob("*tmp*")))

        # Two lines more than the last time, so that it gets on; then at random, or in a write.
        while process.poll() is None and time.monotonic() < deadline:
            if lines(folder) > 18 * kill + 2 and (kill % 2 or writes()):
                break
            time.sleep(0.002)
        if kill % 2:
            time.sleep(moments.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        within_a_write += writes()
        assert not (folder / "result.json").exists()
    assert within_a_write >= 2
    classify(folder, *TINY)
    same_as(whole, folder)
    assert not list((folder / "checkpoints").glob("*tmp*"))


def newest_files(folder):
    return sorted(p for p in (folder / "checkpoints" / "240").rglob("*") if p.is_file())


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_checkpoint_is_passed_over(tiny, tmp_path, damage):
    whole, _ = tiny
    folder = shutil.copytree(whole, tmp_path / "run")
    (folder / "result.json").unlink()
    largest = max(newest_files(folder), key=lambda p: p.stat().st_size)
    if damage == "deleted":
        largest.unlink()
    else:
        os.truncate(largest, largest.stat().st_size // 2)
    said = classify(folder, *TINY)
    assert "checkpoint 240 cannot be read and is passed over" in said
    assert "going on from step 230 of 240" in said
    same_as(whole, folder)


# Where a file is damaged, orbax leaves its coroutines to be collected with their loop closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_whatever_file_is_gone_nothing_wrong_is_read(tiny, tmp_path):
    whole, _ = tiny
    right = {}
    for step in (240, 230):
        tree, _ = read_newest(shutil.copytree(whole, tmp_path / "w", dirs_exist_ok=True), step)
        right[fingerprint(tree)] = step
    assert len(right) == 2
    read_back = []
    for i, file in enumerate(newest_files(whole)):
        for damage in ("truncated", "deleted"):
            folder = shutil.copytree(whole, tmp_path / f"{damage}{i}")
            path = folder / file.relative_to(whole)
            if damage == "deleted":
                path.unlink()
            else:
                os.truncate(path, path.stat().st_size // 2)
            tree, said = read_newest(folder)
            assert fingerprint(tree) in right
            assert bool(said) == (right[fingerprint(tree)] == 230), (file, said)
            read_back.append(right[fingerprint(tree)])
    assert read_back.count(230) > 4


def read_newest(folder, step=None):
    from gconv_jax.training.checkpoints import read

    if step:
        return read(folder / "checkpoints" / str(step))
    said = []
    with Checkpoints(folder / "checkpoints") as checkpoints:
        tree, _ = checkpoints.restore(None, say=said.append)
    return tree, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_goes_on(tiny, tmp_path, number):
    whole, _ = tiny
    folder = tmp_path / "run"
    process = subprocess.Popen(**command(folder, *TINY))
    while process.poll() is None and lines(folder) < 25:
        time.sleep(0.01)
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "stopped and saved; the same command goes on from here" in said
    assert "Traceback" not in said
    saved = max(int(p.name) for p in (folder / "checkpoints").iterdir())
    assert saved == lines(folder)
    assert f"going on from step {saved} of 240" in classify(folder, *TINY)
    same_as(whole, folder)


def test_numbers_that_are_not_finite_stop_it(tmp_path):
    options = [*TINY, "--learning-rate", "1e30", "--checkpoint-every", "1"]
    said = classify(tmp_path / "run", *options, code=2)
    message = r"classify: training has left the finite numbers at step \d+ .*the last good "
    assert re.search(message + r"checkpoint is \S+/\d+; try a smaller learning_rate", said)


def test_two_processes_are_one_run(tmp_path):
    options = [*TINY, "--epochs", "1"]
    classify(tmp_path / "one", *options)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folders = [tmp_path / "two", tmp_path / "two-elsewhere"]  # no disk in common
    processes = []
    for i, folder in enumerate(folders):
        together = ["--coordinator", address, "--num-processes", "2", "--process-id", str(i)]
        processes.append(subprocess.Popen(**command(folder, *options, *together, devices=2)))
    said = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "test accuracy" in said[0]
    assert "accuracy" not in said[1]
    assert not folders[1].exists()
    one, two = (result(tmp_path / name) for name in ("one", "two"))
    assert two["devices"] == {"platform": "cpu", "kind": "cpu", "count": 4, "processes": 2}
    assert [r["step"] for r in log(folders[0])] == list(range(1, 21))
    for a, b in zip(log(tmp_path / "one")[:5], log(folders[0])[:5], strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-4)
    assert two["final"]["test"]["accuracy"] == pytest.approx(
        one["final"]["test"]["accuracy"], abs=0.05
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "1"], "workdir .* holds another run .*seed is 0 there and 1 here"),
        (["--basis", "wavelets"], "basis must be conv, one of .* got 'wavelets'"),
        (["--epochs", "0"], r"epochs must be above 0, but got 0\."),
        (["--widths", "0", "3"], r"widths must be at least 1, but got \(0, 3\)"),
        (["--batch", "1000"], "batch must be at most the 160 training images, but got 1000"),
        (["--num-processes", "2"], "coordinator, num_processes and process_id must be given"),
        (["--evaluate", "nowhere"], "path must be a checkpoint or the folder of a run"),
    ],
)
def test_bad_options_get_a_sentence(tiny, say, options, message):
    folder, _ = tiny
    code, said = say(experiments.classify, "--workdir", folder, *TINY, *options)
    assert code == 2
    assert re.search(f"^classify: {message}", said, re.MULTILINE), said


def test_a_batch_that_the_devices_cannot_share_is_refused(tmp_path):
    said = classify(tmp_path / "run", *TINY, "--batch", "12", code=2, devices=8)
    assert "must be a multiple of the 8 devices, but got 12; use 8 or 16." in said
    assert not (tmp_path / "run").exists()


def test_folders_follow_the_options():
    assert Config().folder == Path("runs/classify/cifar10-partial-none-cpu-seed0")
    config = Config(dataset="mnist", basis="a/mine.npz", augment="45", seed=3, dtype="bfloat16")
    assert config.folder.name == "mnist-mine-45-cpu-seed3-bfloat16"
    assert Config(preset="smoke", widths=(4, 8), epochs=2).folder.name == (
        "cifar10-partial-none-smoke-seed0-widths(4,8)-epochs2"
    )
    assert Config(workdir=Path("mine")).folder == Path("mine")


def test_presets_are_the_paper_to_the_letter():
    for dataset, flip in (("cifar10", True), ("mnist", False)):
        recipe = Config(dataset=dataset, preset="paper").recipe
        assert (recipe.widths, recipe.batch, recipe.epochs) == ((33, 67), 100, 100)
        assert (recipe.learning_rate, recipe.weight_decay) == (1e-3, 1e-6)
        assert (recipe.schedule, recipe.translate, recipe.flip) == ("constant", 4, flip)
        assert recipe.images is None
        assert not recipe.embedded
        assert Config(dataset=dataset, preset="paper", basis="conv").recipe.widths == (96, 192)
