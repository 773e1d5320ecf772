"""Measures the data layer: loading CIFAR-10, and augmenting batches of 100 on this machine.

    python -m experiments.data_speed

It takes about 20 s after `make data` and prints the best of several short runs: load in seconds
(wanted: under 2), images a second for flip + translate + normalise (wanted: 30,000), and the same
with a rotation by any angle (wanted: 5,000).
"""

import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np

import gconv_jax as gj

RUNS, BATCHES, BATCH_SIZE = 8, 20, 100


def best(run: Callable[[], object], runs: int = RUNS) -> float:
    """Returns the seconds that the fastest of several runs takes."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    start = time.perf_counter()
    data = gj.data.load("cifar10", split="train+validation", source="prepared")
    first = time.perf_counter() - start
    again = best(lambda: gj.data.load("cifar10", source="prepared"), runs=4)
    print(f"load: {len(data.labels):,} images in {first:.2f} s, imports included; {again:.2f} s")

    mean, std = gj.data.colour_statistics(data.images)
    images = jax.device_put(data.images[:BATCH_SIZE])
    indices = np.arange(BATCH_SIZE)
    for rotation in gj.data.ROTATIONS:

        @partial(jax.jit, static_argnames="rotation")
        def augment(
            images: jax.Array, indices: jax.Array, epoch: int, rotation: str = rotation
        ) -> jax.Array:
            keys = gj.data.image_keys(jax.random.fold_in(jax.random.key(0), epoch), indices)
            return gj.data.augment(
                images, keys, mean=mean, std=std, flip=True, translate=4, rotation=rotation
            )

        def batches(augment: Callable[..., jax.Array] = augment) -> None:
            for epoch in range(BATCHES):
                augment(images, indices, epoch).block_until_ready()

        batches()
        rate = BATCHES * BATCH_SIZE / best(batches)
        print(f"augment: {rate:,.0f} images/s, flip + translate + normalise, rotation {rotation}")


if __name__ == "__main__":
    main()
