"""The paper's experiments, all of them, one after the other: nothing -> results.

    make evidence                                      # what has no result yet
    python -m experiments.evidence --only mnist-partial-none-seed0

Each run trains a network, turns its test images, looks at its layers, and leaves one JSON in
`experiments/results/evidence/<preset>`. Stop it when you like: the same command goes on.
"""

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import gconv_jax as gj
from experiments import classify, judging, layers, onset, reporting, rotations
from experiments.plan import SCALES, Cell, cells, training
from experiments.presets import PresetName
from experiments.tuning import tune
from gconv_jax.training.runs import write_whole

RESULTS = Path(__file__).parent / "results" / "evidence"


def run(cell: Cell, preset: PresetName, folder: Path) -> dict[str, Any]:
    """Trains and judges; returns what goes into the file."""
    scale, config = SCALES[preset], training(cell, preset, folder)
    with contextlib.redirect_stdout(io.StringIO()):
        code = classify.train(config)
    if code:
        raise KeyboardInterrupt
    trained = json.loads((folder / "result.json").read_text())
    subject = judging.load(folder, scale.turned[cell.dataset])
    few = judging.load(folder, scale.looked_into)
    some = judging.load(folder, min(scale.turned[cell.dataset], 1000))
    network, variables, basis = subject.trained
    return {
        "command": f"python -m experiments.evidence --preset {preset} --only {cell.name}",
        "cell": dataclasses.asdict(cell),
        "preset": preset,
        "scale": {
            "network": type(network).__name__,
            "widths": list(config.recipe.widths),
            "parameters": sum(p.size for p in jax.tree.leaves(variables["params"])),
            "train_images": trained["data"]["train"],
            "epochs": config.recipe.epochs,
            "batch": config.recipe.batch,
        },
        "settings": config.settings,
        "final": trained["final"],
        "angles": rotations.measure(subject, degrees=scale.degrees),
        "layers": layers.measure(few),
        "onset": onset.measure(some) if cell.augment == "none" else None,
        "basis_quality": None if basis is None else quality(basis, preset),
        "pictures": pictures(few) if cell == Cell("cifar10", "partial") else None,
        "training_seconds": trained["seconds"],
        "peak_memory_bytes": trained["peak_memory_bytes"],
        **reporting.surroundings(),
    }


def quality(basis: jax.Array, preset: PresetName) -> dict[str, float]:
    """Judges a basis on CIFAR-10, whatever its network was trained on."""
    source = "embedded" if preset == "smoke" else "prepared"
    test = gj.data.load("cifar10", split="test", source=source, size=500)
    x = test.images.astype(np.float32) / 255
    found = gj.basis_quality(basis, x - x.mean((0, 1, 2), keepdims=True))
    return found._asdict()


def pictures(subject: judging.Subject, *, image: int = 0, channels: int = 4) -> dict[str, Any]:
    """Returns what the paper's appendix shows: filters of layer 1, and activations of layer 6.

    The map of layer 6 at orientation S, for the image turned by S, should be that of the upright
    image at orientation 0, turned by S.
    """
    _, variables, basis = subject.trained
    assert basis is not None
    g = len(basis)
    coeffs = variables["params"]["conv1"]["coeffs"][:, :, :channels]
    filters = np.einsum("nco,gnij->goijc", coeffs, basis)
    x = subject.batches(len(subject.test.labels))[0][0][image : image + 1]
    outputs = layers.convolutions(subject)
    shown, back = [], []
    channel = None
    for s in range(g):
        turned = outputs(gj.rotate(x, 2 * np.pi * s / g, method=rotations.METHOD))["conv6"]
        if channel is None:  # the one with the most to see
            channel = int(np.asarray(turned)[0, ..., 0, :].std((0, 1)).argmax())
        y = turned[..., s, channel : channel + 1]  # [1, H, W, 1]
        y_back = gj.rotate(y, -2 * np.pi * s / g, method=rotations.METHOD)
        shown.append(np.asarray(y)[0, ..., 0].tolist())
        back.append(np.asarray(y_back)[0, ..., 0].tolist())
    return {"filters": filters.tolist(), "activations": shown, "turned_back": back}


@dataclasses.dataclass(frozen=True)
class Config:
    """Runs every experiment that has no result yet."""

    preset: PresetName = "cpu"
    """paper: the full protocol, for accelerators; cpu: about 8 hours on 2 cores; smoke: minutes"""
    only: str | None = None
    """one run, by the name of its result; or some, by a pattern such as "mnist-*-seed0\""""
    results: Path | None = None
    """folder of the results; by default experiments/results/evidence/<preset>"""
    runs: Path = Path("runs/evidence")
    """folder for checkpoints while a run is not done"""
    jobs: int | None = None
    """runs at a time, of one thread each; by default one for each core"""
    minutes: float | None = None
    """begin no run after so many minutes"""


def main(config: Config) -> int:
    every = list(cells(SCALES[config.preset]))
    if config.only is not None:
        first, every = every[0], [c for c in every if fnmatchcase(c.name, config.only)]
        if not every:
            raise ValueError(
                f"only must be the name of a run of preset {config.preset}, such as {first.name}, "
                f"or a pattern that some fit, such as mnist-*, but got {config.only!r}."
            )
        if every[0].name == config.only:
            found = result_of(every[0], config) or finish(every[0], config)
            print(f"{config.only}: {in_brief(found)}; {path_of(every[0], config)}")
            return 0
    jobs = config.jobs
    if config.preset == "paper":  # a run takes all devices
        jobs = 1
    if jobs is None:
        jobs = os.cpu_count() or 1
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, but got {jobs}.")
    todo = [cell for cell in every if result_of(cell, config) is None]
    print(f"preset {config.preset}: {len(every) - len(todo)} of {len(every)} runs have results")
    work_through(todo, config, jobs)
    return 0


def path_of(cell: Cell, config: Config) -> Path:
    """Where its result is, or will be."""
    return (config.results or RESULTS / config.preset) / f"{cell.name}.json"


def result_of(cell: Cell, config: Config) -> dict[str, Any] | None:
    """Returns its result; none if there is none yet, or only one of another recipe."""
    path = path_of(cell, config)
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    wanted = json.loads(json.dumps(training(cell, config.preset).settings))
    images = SCALES[config.preset].turned[cell.dataset]
    same = found["settings"] == wanted and found["angles"]["images"] == images
    return found if same else None


def finish(cell: Cell, config: Config) -> dict[str, Any]:
    """Runs a cell in this process and writes its result."""
    start, workdir = time.perf_counter(), config.runs / config.preset / cell.name
    found = run(cell, config.preset, workdir)
    found["seconds"] = round(time.perf_counter() - start, 1)
    path = path_of(cell, config)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, as_text(found))
    shutil.rmtree(workdir)
    return found


def work_through(todo: list[Cell], config: Config, jobs: int) -> None:
    """Runs cells in processes of their own, so many at a time, and says how each went.

    Two processes of one thread do more than one of two, and their results do not depend on how
    many cores there are.
    """
    begun, waiting = time.perf_counter(), list(todo)
    taken: dict[Cell, float] = {}
    running: dict[Cell, tuple[subprocess.Popen[bytes], Path, float]] = {}

    def late() -> bool:
        return config.minutes is not None and time.perf_counter() - begun > 60 * config.minutes

    try:
        while running or (waiting and not late()):
            while waiting and len(running) < jobs and not late():
                cell = waiting.pop(0)
                running[cell] = (*launch(cell, config), time.perf_counter())
            time.sleep(0.1)
            for cell, (process, said, start) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[cell]
                if process.returncode == 130:
                    raise KeyboardInterrupt
                if process.returncode:
                    raise ValueError(f"{cell.name} did not end well:\n{said.read_text()[-2000:]}")
                said.unlink()
                taken[cell] = time.perf_counter() - start
                found = json.loads(path_of(cell, config).read_text())
                rest = left(taken, [*running, *waiting], jobs)
                count = f"[{len(taken)}/{len(todo)}]"
                print(f"{count} {cell.name:40s}{in_brief(found)}, {rest}", flush=True)
        if waiting:
            print("time is up; the same command goes on from here")
    finally:
        for process, _, _ in running.values():
            process.terminate()  # it saves, and goes on from there next time
        for process, _, _ in running.values():
            process.wait()


def launch(cell: Cell, config: Config) -> tuple[subprocess.Popen[bytes], Path]:
    """Starts a process for a cell; returns it and the file with what it says."""
    said = config.runs / config.preset / f"{cell.name}.txt"
    said.parent.mkdir(parents=True, exist_ok=True)
    options = ["--preset", config.preset, "--only", cell.name, "--runs", str(config.runs)]
    if config.results is not None:
        options += ["--results", str(config.results)]
    with said.open("wb") as file:
        command = [sys.executable, "-m", "experiments.evidence", *options]
        return subprocess.Popen(command, stdout=file, stderr=file), said


def as_text(result: dict[str, Any]) -> str:
    """JSON with a line for each top-level name, and numbers of six digits."""
    lines = [f'"{name}": {json.dumps(_rounded(value))}' for name, value in result.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def in_brief(result: dict[str, Any]) -> str:
    """Says a result in a few words."""
    errors = result["angles"]["errors"]
    return (
        f"test accuracy {100 * result['final']['test']['accuracy']:5.2f} %, "
        f"worst angle +{100 * (max(errors) - min(errors)):5.2f} points"
    )


def left(taken: dict[Cell, float], todo: list[Cell], jobs: int) -> str:
    """Says how long the rest will take, by what runs on the same data took."""
    if not todo:
        return "all done"
    means = {
        cell.dataset: np.mean([t for other, t in taken.items() if other.dataset == cell.dataset])
        for cell in taken
    }
    known = float(np.mean(list(taken.values())))
    seconds = sum(float(means.get(cell.dataset, known)) for cell in todo) / jobs
    return f"about {reporting.in_words(seconds)} to go"


def start() -> int:
    config = tyro.cli(Config, prog="python -m experiments.evidence", description=__doc__)
    tune(threads=None if config.preset == "paper" else 1)
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        return main(config)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130


def _as_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(reporting.in_a_sentence("evidence", start))
