"""What weight decay does on MNIST: candidates -> error over all angles, of methods of both sides.

    python -m experiments.weight_decay            # half an hour on 2 cores; goes on if stopped

Trained upright, judged on validation images at every angle. The best has the least error, averaged
over angles and over methods, ours and others'. Leaves weight_decay.json.
"""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from experiments import classify, judging, reporting, rotations
from experiments.tuning import tune
from gconv_jax.training.runs import write_whole

RECIPE: dict[str, Any] = {"images": 50_000, "epochs": 2}  # besides the preset's
CANDIDATES = (1e-2, 1e-3, 1e-4)
METHODS = ("partial", "closed_form", "gaussian", "weiler")
IMAGES = 2000
SEED = 100  # not one that the evidence is run with


@dataclasses.dataclass(frozen=True)
class Config:
    """Trains with each candidate and each method, and compares the candidates."""

    only: tuple[str, float] | None = None
    """one method and one weight decay, in this process"""
    runs: Path = Path("runs/weight_decay")
    """folder for what is trained"""
    path: Path = Path(__file__).parent / "results" / "weight_decay.json"
    """the file to write"""


def angles(basis: str, weight_decay: float, runs: Path) -> dict[str, Any]:
    """Trains one network; returns its validation error at every angle."""
    folder = runs / f"{basis}-{weight_decay:g}"
    path = folder / "angles.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    config = classify.Config(
        dataset="mnist",
        basis=basis,
        seed=SEED,
        preset="cpu",
        weight_decay=weight_decay,
        workdir=folder,
        **RECIPE,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        if classify.train(config):
            raise KeyboardInterrupt
    found = rotations.measure(judging.load(folder, IMAGES, split="validation"))
    write_whole(path, json.dumps(found) + "\n")
    return found


def compare(runs: Path) -> dict[str, Any]:
    """Returns errors of all, and which candidate has the least in the mean."""
    errors = {
        f"{decay:g}": {basis: angles(basis, decay, runs)["errors"] for basis in METHODS}
        for decay in CANDIDATES
    }
    means = {decay: float(np.mean(list(of.values()))) for decay, of in errors.items()}
    return {
        "command": "python -m experiments.weight_decay",
        "recipe": RECIPE,
        "seed": SEED,
        "validation_images": IMAGES,
        "degrees": list(rotations.DEGREES),
        "errors": errors,
        "mean_error": means,
        "best": float(min(means, key=means.__getitem__)),
        **reporting.surroundings(),
    }


def main(config: Config) -> int:
    if config.only is not None:
        angles(*config.only, config.runs)
        return 0

    def process(basis: str, decay: float) -> None:
        options = ["--only", basis, str(decay), "--runs", str(config.runs)]
        subprocess.run([sys.executable, "-m", "experiments.weight_decay", *options], check=True)
        found = angles(basis, decay, config.runs)["errors"]
        print(
            f"{basis:12s} weight decay {decay:<8g} mean error {100 * np.mean(found):5.2f} %, "
            f"worst angle +{100 * (max(found) - min(found)):5.2f} points",
            flush=True,
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        pairs = [(basis, decay) for decay in CANDIDATES for basis in METHODS]
        list(pool.map(lambda pair: process(*pair), pairs))
    found = compare(config.runs)
    write_whole(config.path, json.dumps(found, indent=1) + "\n")
    for decay, error in found["mean_error"].items():
        print(f"weight decay {decay:8s} mean error {100 * error:5.2f} %")
    print(f"best: {found['best']:g}, in {config.path}")
    return 0


if __name__ == "__main__":
    tune(threads=1)
    sys.exit(
        reporting.in_a_sentence("weight_decay", lambda: main(tyro.cli(Config, description=__doc__)))
    )
