"""What the training loop costs beyond its steps, and whether its memory grows.

    python -m experiments.loop_overhead         # on a machine that does nothing else

Before each round of the whole loop, with its batches, metrics, log, event files and checkpoints,
the same steps are taken bare, on a state of their own: both see the same moods of the machine.
"""

import dataclasses
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import tyro

import gconv_jax as gj
from experiments import fit, reporting
from experiments.presets import PRESETS, PresetName
from experiments.tuning import tune
from gconv_jax.training import classification, parallel
from gconv_jax.training.classification import Augmentation, train_step


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the loop against the bare step."""

    preset: PresetName = "cpu"
    """whose network, batch, augmentation and checkpoints to use, on embedded images"""
    steps: int = 550
    """of the loop, and of the bare step"""
    warm: int = 50
    """steps that are not counted, at the start"""


def make_task(config: Config, folder: Path) -> fit.Task:
    recipe = PRESETS["cifar10"][config.preset]
    data = {
        split: gj.data.load("cifar10", split=split, source="embedded")
        for split in ("train", "validation", "test")
    }
    train = data["train"]
    # One long epoch, so that no validation comes in between.
    chosen = np.resize(np.arange(len(train.labels)), config.steps * recipe.batch)
    data["train"] = gj.data.Images(train.images[chosen], train.labels[chosen])
    recipe = dataclasses.replace(recipe, epochs=1)
    network = gj.GroupAllCNN(widths=recipe.widths)
    return fit.Task(folder, data, network, gj.load_basis("partial"), recipe, {})


class InTurns:
    """The loop's way to advance, with the same steps bare before each round, and the time of both.

    The loop's time is from the end of the bare steps to the next round: all that it does.
    """

    def __init__(self, advance: Any, task: fit.Task, augmentation: Augmentation) -> None:
        """Compiles the bare step."""
        self._advance = advance
        self._step = parallel.data_parallel(
            partial(train_step, augmentation=augmentation), common=2, donate=(0,)
        )
        self._state = parallel.everywhere(fit.begin(task, 0))
        self._mark = 0.0
        self.rounds: list[int] = []
        self.bare: list[float] = []
        self.loop: list[float] = []

    def __call__(self, state: Any, examples: Any, rows: np.ndarray) -> Any:
        """Takes a round bare, and begins one of the loop."""
        jax.block_until_ready(state)
        begun = time.perf_counter()
        if self.rounds:
            self.loop.append(begun - self._mark)
        shares = [parallel.shares(row) for row in rows]
        begun = time.perf_counter()
        for share in shares:
            self._state, _ = self._step(self._state, examples, share)
        jax.block_until_ready(self._state)
        self.bare.append(time.perf_counter() - begun)
        self.rounds.append(len(rows))
        self._mark = time.perf_counter()
        return self._advance(state, examples, rows)

    def seconds(self, warm: int) -> tuple[float, float]:
        """Returns the bare time and the loop's, of all rounds but the first steps and the last."""
        first = int(np.searchsorted(np.cumsum(self.rounds), warm)) + 1
        return sum(self.bare[first:-1]), sum(self.loop[first:])


class Memory:
    """Samples, in a thread, the resident size beside the number of steps in the log."""

    def __init__(self, log: Path) -> None:
        """Begins at once."""
        self.samples: list[tuple[int, int]] = []
        self._log, self._done = log, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._done.wait(0.2):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            steps = self._log.read_bytes().count(b"\n") if self._log.exists() else 0
            self.samples.append((steps, pages * 4096))

    def stop(self) -> None:
        """Ends the sampling."""
        self._done.set()
        self._thread.join()

    def at(self, step: int) -> float:
        """Returns the megabytes at the first sample at which so many steps were logged."""
        return next(size for steps, size in self.samples if steps >= step) / 1e6


def main(config: Config) -> int:
    if not 0 < config.warm < config.steps:
        raise ValueError(
            f"warm must be above 0 and less than steps, but got {config.warm} and {config.steps}."
        )
    turns: list[InTurns] = []

    def make_advance(**options: Any) -> InTurns:
        advance = classification.make_advance(**options)
        turns.append(InTurns(advance, task, options["augmentation"]))
        return turns[0]

    with (
        tempfile.TemporaryDirectory() as name,
        mock.patch.object(fit, "make_advance", make_advance),
    ):
        task = make_task(config, Path(name))
        recipe = task.recipe
        memory = Memory(task.folder / reporting.LOG)
        augmentation = Augmentation(recipe.flip, recipe.translate)
        fit.fit(task, augmentation, 0, fit.make_judge(task), print)
        memory.stop()
    bare, loop = turns[0].seconds(config.warm)
    at = sorted({config.warm, *range(100, config.steps, 100)})
    shown = ", ".join(f"{memory.at(step):.0f} at step {step}" for step in at)
    print(f"\n{recipe.widths} channels, batch {recipe.batch}, {config.steps - config.warm} steps")
    print(f"bare steps {bare:.1f} s, the loop {loop:.1f} s: {loop / bare:.3f} times as long")
    print(f"megabytes: {shown}")
    return 0


if __name__ == "__main__":
    tune()
    sys.exit(main(tyro.cli(Config, prog="python -m experiments.loop_overhead")))
