"""What is judged: a trained network, and test images as it knows them."""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import gconv_jax as gj
from gconv_jax.training.trained import Trained, read_trained


class Subject(NamedTuple):
    """A trained network, test images, and the colours that it was trained with."""

    trained: Trained
    test: gj.data.Images
    mean: np.ndarray
    std: np.ndarray

    def batches(self, size: int) -> list[tuple[jax.Array, np.ndarray]]:
        """Returns normalised images `[B, H, W, C]` and labels, all batches of one size."""
        n = len(self.test.labels)
        if n % size:
            raise ValueError(f"images must be a multiple of {size}, but got {n}.")
        return [
            (
                gj.data.normalise(self.test.images[i : i + size], mean=self.mean, std=self.std),
                self.test.labels[i : i + size],
            )
            for i in range(0, n, size)
        ]


def load(path: Path, images: int, *, split: str = "test") -> Subject:
    """Loads what a run trained, and a fixed part of a split: at most so many images."""
    trained, card = read_trained(path)
    settings = card["settings"]
    source = "embedded" if settings["embedded"] else "prepared"
    train = gj.data.load(settings["dataset"], source=source, size=settings["images"])
    test = gj.data.load(settings["dataset"], split=split, source=source)
    if images < len(test.labels):
        test = gj.data.load(settings["dataset"], split=split, source=source, size=images)
    return Subject(trained, test, *gj.data.colour_statistics(train.images))
