"""How the test error changes as the images turn: trained network -> error against angle.

    python -m experiments.rotations runs/classify/mnist-partial-none-cpu-seed0

Figures 3 and 4 of the paper. All images go through the same interpolator, those at 0 degrees too,
and what it brings in from outside is the mean colour.
"""

import dataclasses
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

import gconv_jax as gj
from experiments import judging, reporting
from experiments.tuning import tune

DEGREES = range(0, 360, 15)
METHOD = "gaussian"  # with the width of `gj.rotate`; it blurs at every angle, 0 included


def measure(
    subject: judging.Subject, *, degrees: Iterable[int] = DEGREES, batch: int = 100
) -> dict[str, Any]:
    """Returns the error at each angle and without interpolation, as fractions of the images."""
    predict = gj.fold(*subject.trained)

    @jax.jit
    def wrong(predict: Any, x: jax.Array, labels: jax.Array) -> jax.Array:
        return (predict(x).argmax(-1) != labels).sum()

    @jax.jit
    def turn(x: jax.Array, angle: jax.Array) -> jax.Array:
        return gj.rotate(x, angle, method=METHOD)

    batches = subject.batches(batch)

    def error(degree: int | None) -> float:
        angle = None if degree is None else np.float32(np.deg2rad(degree))
        counts = [
            wrong(predict, x if angle is None else turn(x, angle), labels) for x, labels in batches
        ]
        return float(sum(jax.device_get(counts))) / len(subject.test.labels)

    degrees = list(degrees)
    return {
        "degrees": degrees,
        "errors": [error(degree) for degree in degrees],
        "plain_error": error(None),
        "images": len(subject.test.labels),
        "interpolator": f"{METHOD}, sigma 0.5",
    }


@dataclasses.dataclass(frozen=True)
class Config:
    """Prints the test error of a trained network at every angle."""

    checkpoint: Annotated[Path, tyro.conf.Positional]
    """a checkpoint, or the folder of a run"""
    images: int = 2000
    """how many test images, at most: a fixed part of them"""


def main(config: Config) -> int:
    found = measure(judging.load(config.checkpoint, config.images))
    print(f"{found['images']} test images, {found['interpolator']}")
    for degree, error in zip(found["degrees"], found["errors"], strict=True):
        print(f"{degree:4d} degrees  error {100 * error:6.2f} %")
    rise = max(found["errors"]) - min(found["errors"])
    print(f"not interpolated  {100 * found['plain_error']:6.2f} %")
    print(f"worst over best   {100 * rise:6.2f} points")
    return 0


if __name__ == "__main__":
    tune()
    sys.exit(
        reporting.in_a_sentence("rotations", lambda: main(tyro.cli(Config, description=__doc__)))
    )
