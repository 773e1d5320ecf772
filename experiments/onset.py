"""In which layers a turn costs a network its accuracy: trained network -> error against depth.

    python -m experiments.onset runs/classify/mnist-partial-none-cpu-seed0

If all layers turned along with their input, it would not matter where in the network the turn
happens. So let it happen after layer k, to the feature map of the upright image: the layers up to k
are then perfect, and what the error still rises by is due to those behind. The map that is not
turned goes through the interpolator too.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro
from flax import linen as nn

import gconv_jax as gj
from experiments import judging, reporting
from experiments.rotations import METHOD
from experiments.tuning import tune

AFTER = (0, 1, 3, 6, 9)  # layers; 0 is the input
EIGHTH = 45  # degrees: as far as can be from all turns that are exact


def turn(y: jax.Array, eighths: jax.Array) -> jax.Array:
    """Turns images, maps on the group or maps without orientations by multiples of 45 degrees."""
    if y.ndim == 5:
        return gj.act(y, y.shape[-2] // 8 * eighths, method=METHOD)
    return gj.rotate(y, np.pi / 4 * eighths, method=METHOD)


def turning(subject: judging.Subject, after: int) -> Callable[..., jax.Array]:
    """Returns the function from variables, images and eighths of a turn to logits."""
    network, _, basis = subject.trained
    if basis is not None and len(basis) % 8:
        raise ValueError(
            "path must be of a network with 8 or 16 orientations, or more in steps of 8, so "
            f"that its maps can turn by {EIGHTH} degrees, but got one with {len(basis)}."
        )

    @jax.jit
    def predict(variables: Any, x: jax.Array, eighths: jax.Array) -> jax.Array:
        def intercept(
            call: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
        ) -> Any:
            y = call(*args, **kwargs)
            return turn(y, eighths) if context.module.name == f"norm{after}" else y

        if after == 0:
            x = turn(x, eighths)
        with nn.intercept_methods(intercept):
            logits: Any = network.apply(variables, x, *(() if basis is None else (basis,)))
        return logits

    return predict


def measure(
    subject: judging.Subject, *, after: Iterable[int] = AFTER, batch: int = 100
) -> dict[str, Any]:
    """Returns the error for a turn by nothing and by 45 degrees, after each layer."""
    batches = subject.batches(batch)
    found: dict[str, Any] = {"after": list(after), "upright": [], "turned": []}
    for layer in found["after"]:
        predict = turning(subject, layer)
        for eighths, name in enumerate(("upright", "turned")):
            wrong = [
                (predict(subject.trained.variables, x, np.int32(eighths)).argmax(-1) != y).sum()
                for x, y in batches
            ]
            found[name].append(float(sum(jax.device_get(wrong))) / len(subject.test.labels))
    return {"degrees": EIGHTH, "images": len(subject.test.labels), **found}


@dataclasses.dataclass(frozen=True)
class Config:
    """Prints how much a turn by 45 degrees costs, by the layer after which it happens."""

    checkpoint: Annotated[Path, tyro.conf.Positional]
    """a checkpoint, or the folder of a run"""
    images: int = 1000
    """how many test images, at most: a fixed part of them"""


def main(config: Config) -> int:
    found = measure(judging.load(config.checkpoint, config.images))
    print(
        f"{found['images']} test images: error when nothing turns, and {found['degrees']} degrees"
    )
    for layer, *errors in zip(found["after"], found["upright"], found["turned"], strict=True):
        place = f"after layer {layer}" if layer else "input"
        upright, turned = (100 * error for error in errors)
        print(f"turned {place:14s}{upright:6.2f} %{turned:7.2f} %  {turned - upright:+6.2f} points")
    return 0


if __name__ == "__main__":
    tune()
    sys.exit(reporting.in_a_sentence("onset", lambda: main(tyro.cli(Config, description=__doc__))))
