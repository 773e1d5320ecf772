"""How far each layer is from turning along with its input: trained network -> error per layer.

    python -m experiments.layers runs/classify/cifar10-partial-none-cpu-seed0

Figure 5 of the paper: its squared normalised L2 error of the output of every convolution, turned
and rolled back, over all orientations; see `gj.equivariance_error`.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

import gconv_jax as gj
from experiments import judging, reporting
from experiments.rotations import METHOD
from experiments.tuning import tune


def convolutions(subject: judging.Subject) -> Any:
    """Returns the function from images to the outputs of `conv1` to `conv9`."""
    network, variables, basis = subject.trained
    network = network.clone(plain=True)  # forward only, on few images: quick to compile

    @jax.jit
    def outputs(x: jax.Array) -> dict[str, jax.Array]:
        _, state = network.apply(
            variables,
            x,
            *(() if basis is None else (basis,)),
            capture_intermediates=lambda module, _: (module.name or "").startswith("conv"),
            mutable=["intermediates"],
        )
        found: Any = state["intermediates"]
        return {name: found[name]["__call__"][0] for name in sorted(found)}

    return outputs


def measure(subject: judging.Subject, *, batch: int = 32) -> dict[str, Any]:
    """Returns the error of each layer for every turn S, the mean over images."""
    outputs = convolutions(subject)
    parts = [
        jax.device_get(gj.equivariance_error(outputs, x, method=METHOD))
        for x, _ in subject.batches(batch)
    ]
    means = jax.tree.map(lambda *part: np.mean(part, axis=0).tolist(), *parts)
    return {"images": len(subject.test.labels), "errors": means}


@dataclasses.dataclass(frozen=True)
class Config:
    """Prints the equivariance error of every layer of a trained network."""

    checkpoint: Annotated[Path, tyro.conf.Positional]
    """a checkpoint, or the folder of a run"""
    images: int = 256
    """how many test images, at most: a fixed part of them"""


def main(config: Config) -> int:
    found = measure(judging.load(config.checkpoint, config.images))
    print(f"{found['images']} test images: mean over all turns but 0, and the worst")
    for name, errors in found["errors"].items():
        print(f"{name}  {np.mean(errors[1:]):.5f}  {max(errors):.5f}")
    return 0


if __name__ == "__main__":
    tune()
    sys.exit(reporting.in_a_sentence("layers", lambda: main(tyro.cli(Config, description=__doc__))))
