"""gconv_jax's side of the benchmark; see `contender`."""

import sys
import time

_START = time.perf_counter()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import gconv_jax as gj  # noqa: E402

_IMPORTED = time.perf_counter() - _START

from functools import partial  # noqa: E402
from typing import Any  # noqa: E402
from unittest import mock  # noqa: E402

from experiments.bench.contender import Program, serve  # noqa: E402
from experiments.memory import give_back  # noqa: E402
from experiments.tuning import tune_cpu  # noqa: E402
from gconv_jax import correlate as correlation  # noqa: E402
from gconv_jax.correlate import Way  # noqa: E402


class Network:
    """A network with its variables, and a batch for it."""

    def __init__(
        self, widths: list[int], batch: int, size: int, orientations: int, plain: bool
    ) -> None:
        """Makes all of them, with random weights and images."""
        rng = np.random.default_rng(0)
        self.images = jnp.asarray(rng.normal(size=(batch, size, size, 3)), jnp.float32)
        self.labels = jnp.asarray(rng.integers(10, size=batch))
        self.basis = gj.make_basis("weiler", orientations=orientations)
        self.network = gj.GroupAllCNN(widths=(widths[0], widths[1]), plain=plain)
        start = time.perf_counter()
        self.variables: Any = self.network.init(jax.random.key(0), self.images[:1], self.basis)
        jax.block_until_ready(self.variables)
        self.facts: dict[str, Any] = {
            "import": _IMPORTED,
            "build": time.perf_counter() - start,
            "parameters": sum(p.size for p in jax.tree.leaves(self.variables["params"])),
        }


def training(
    *,
    widths: list[int],
    batch: int,
    size: int = 32,
    orientations: int = 8,
    plain: bool = False,
    tuned: bool = False,
) -> Program:
    """Makes a step of training: loss, gradients, AMSGrad, all in one `jax.jit`."""
    made = Network(widths, batch, size, orientations, plain)
    optimiser = optax.amsgrad(1e-3)

    def step(variables: Any, moments: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss_of(params: Any) -> tuple[jax.Array, Any]:
            logits, updated = made.network.apply(
                {"params": params, "batch_stats": variables["batch_stats"]},
                images,
                made.basis,
                train=True,
                mutable=["batch_stats"],
            )
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return loss, updated["batch_stats"]

        params = variables["params"]
        (loss, stats), gradient = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, moments = optimiser.update(gradient, moments, params)
        variables = {"params": optax.apply_updates(params, updates), "batch_stats": stats}
        return (variables, moments), (loss, optax.tree.norm(gradient))

    held = (made.variables, optimiser.init(made.variables["params"]))
    batched = (made.images, made.labels)
    start = time.perf_counter()
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*held, *batched).compile()
    made.facts["compile"] = time.perf_counter() - start
    made.variables = None  # they are donated
    if tuned:  # as the experiments do
        give_back()

    def run() -> tuple[float, float]:
        nonlocal held
        held, (loss, norm) = compiled(*held, *batched)
        return float(loss), float(norm)

    made.facts["loss"], made.facts["gradient_norm"] = run()
    return run, made.facts


def evaluation(*, widths: list[int], batch: int, plain: bool = False) -> Program:
    """Makes the folded network."""
    made = Network(widths, batch, 32, 8, plain)
    folded = gj.fold(made.network, made.variables, made.basis)

    def run() -> jax.Array:
        return jax.block_until_ready(folded(made.images))

    start = time.perf_counter()
    run()
    return run, made.facts | {"compile": time.perf_counter() - start}


def layer(
    *,
    batch: int,
    size: int,
    channels: int,
    backward: bool,
    inputs: int | None = None,
    kernel_size: int = 3,
    way: Way | None = None,
    plain: bool = False,
) -> Program:
    """Makes one convolution, forward or forward and backward; in a given way, if told to."""
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = channels if inputs is None else inputs
    x = jax.random.normal(keys[0], (batch, size, size, inputs))
    kernel = jax.random.normal(keys[1], (kernel_size, kernel_size, inputs, channels))
    dy = jax.random.normal(keys[2], (batch, size, size, channels))

    @jax.jit
    def forward(x: jax.Array, kernel: jax.Array) -> jax.Array:
        choice = correlation.way if way is None else lambda *_: way
        with mock.patch.object(correlation, "way", choice):
            return correlation.correlate(x, kernel, 1, "SAME", plain=plain)

    @jax.jit
    def both(x: jax.Array, kernel: jax.Array, dy: jax.Array) -> Any:
        out, pull_back = jax.vjp(forward, x, kernel)
        return out, pull_back(dy)

    def run() -> Any:
        return jax.block_until_ready(both(x, kernel, dy) if backward else forward(x, kernel))

    run()
    return run, {}


if __name__ == "__main__":
    if tuned := sys.argv[1] == "keep":
        tune_cpu()
    train = partial(training, tuned=tuned)
    serve({"training": train, "evaluation": evaluation, "layer": layer})
