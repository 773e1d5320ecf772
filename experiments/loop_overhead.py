"""What the training loop costs beyond its steps, and whether its memory grows.

    python -m experiments.loop_overhead         # on a machine that does nothing else

In one process: rounds of the bare compiled step before and after, and between them the whole loop
with its batches, metrics, log, event files and checkpoints. Then what the process held in memory,
by step.
"""

import dataclasses
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np
import tyro

import gconv_jax as gj
from experiments import fit, reporting
from experiments.presets import PRESETS, PresetName
from gconv_jax.training import parallel
from gconv_jax.training.checkpoints import read
from gconv_jax.training.classification import Augmentation, train_step


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures the loop against the bare step."""

    preset: PresetName = "cpu"
    """whose network, batch and augmentation to use, on embedded images"""
    steps: int = 50
    """in each block, with a checkpoint at its end"""
    blocks: int = 3
    """of the loop, the first of which compiles and is not timed; at most as many as are kept"""


def make_task(config: Config, folder: Path) -> fit.Task:
    recipe = PRESETS["cifar10"][config.preset]
    total = config.steps * config.blocks
    data = {
        split: gj.data.load("cifar10", split=split, source="embedded")
        for split in ("train", "validation", "test")
    }
    train = data["train"]
    # One long epoch, so that no validation comes in between.
    times = -(-total * recipe.batch // len(train.labels))
    images = np.concatenate([train.images] * times)[: total * recipe.batch]
    labels = np.concatenate([train.labels] * times)[: total * recipe.batch]
    data["train"] = gj.data.Images(images, labels)
    recipe = dataclasses.replace(recipe, epochs=1, checkpoint_every=config.steps)
    network = gj.GroupAllCNN(widths=recipe.widths)
    return fit.Task(folder, data, network, gj.load_basis("partial"), recipe, {})


def bare(task: fit.Task, augmentation: Augmentation, steps: int) -> float:
    """Returns the seconds that so many steps take, after one that compiles."""
    step = parallel.data_parallel(
        partial(train_step, augmentation=augmentation), common=2, donate=(0,)
    )
    state, examples = parallel.everywhere(fit.begin(task, 0)), task.examples("train")
    plan = task.plan("train", seed=0)
    shares = [parallel.shares(plan.batch(epoch=0, step=i)[0]) for i in range(steps + 1)]
    start = 0.0
    for i, share in enumerate(shares):
        state, metrics = step(state, examples, share)
        if i == 0:
            jax.block_until_ready(state)
            start = time.perf_counter()
    jax.block_until_ready((state, metrics))
    return time.perf_counter() - start


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
    if config.steps < 1 or not 2 <= config.blocks <= 3:
        raise ValueError(
            "steps must be at least 1 and blocks 2 or 3, "
            f"but got {config.steps} and {config.blocks}."
        )
    with tempfile.TemporaryDirectory() as name:
        task = make_task(config, Path(name))
        recipe = task.recipe
        augmentation = Augmentation(recipe.flip, recipe.translate)
        before = bare(task, augmentation, config.steps)
        memory = Memory(task.folder / reporting.LOG)
        fit.fit(task, augmentation, 0, print)
        memory.stop()
        after = bare(task, augmentation, config.steps)
        blocks = range(config.steps, task.total + 1, config.steps)
        ends = [read(task.folder / "checkpoints" / str(step))[1]["seconds"] for step in blocks]
        steps = [memory.at(step) for step in blocks[:-1]] + [memory.samples[-1][1] / 1e6]
    loop = np.diff(ends)
    print(
        f"\n{recipe.widths} channels, batch {recipe.batch}, {config.steps} steps a block, seconds:"
    )
    print(f"bare step, before and after:  {before:.2f} {after:.2f}")
    print(f"loop with a checkpoint:       {' '.join(f'{seconds:.2f}' for seconds in loop)}")
    print(f"loop over bare:               {np.mean(loop) / np.mean([before, after]):.3f}")
    print(f"megabytes after each block:   {' '.join(f'{size:.0f}' for size in steps)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, prog="python -m experiments.loop_overhead")))
