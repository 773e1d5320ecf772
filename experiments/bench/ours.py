"""gconv_jax's side of the benchmark: `python -m experiments.bench.ours keep|default`."""

import sys
import time

START = time.perf_counter()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

import gconv_jax as gj  # noqa: E402

IMPORT = time.perf_counter() - START

from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from experiments.allocator import keep_memory  # noqa: E402
from experiments.bench.contender import peak_memory, seconds, serve  # noqa: E402
from gconv_jax.correlate import correlate  # noqa: E402

PROGRAMS: dict[str, Callable[[], Any]] = {}


def make(
    name: str,
    *,
    kind: str,
    widths: tuple[int, int],
    batch: int,
    size: int = 32,
    orientations: int = 8,
    plain: bool = False,
) -> dict[str, float]:
    """Makes a program: `train` for a step of training, `eval` for the folded network."""
    basis = gj.make_basis("weiler", orientations=orientations)
    network = gj.GroupAllCNN(widths=tuple(widths), plain=plain)
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(batch, size, size, 3)), jnp.float32)
    labels = jnp.asarray(rng.integers(10, size=batch))
    start = time.perf_counter()
    variables = jax.block_until_ready(jax.jit(network.init)(jax.random.key(0), images, basis))
    build = time.perf_counter() - start
    start = time.perf_counter()
    if kind == "eval":
        folded = gj.fold(network, variables, basis)
        PROGRAMS[name] = lambda: jax.block_until_ready(folded(images))
        PROGRAMS[name]()
        return {"build": build, "compile": time.perf_counter() - start}
    optimiser = optax.amsgrad(1e-3)

    def step(
        variables: Any, state: Any, images: jax.Array, labels: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        def loss_of(params: Any) -> tuple[jax.Array, Any]:
            logits, updated = network.apply(
                {"params": params, "batch_stats": variables["batch_stats"]},
                images,
                basis,
                train=True,
                mutable=["batch_stats"],
            )
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return loss, updated["batch_stats"]

        (loss, stats), grads = jax.value_and_grad(loss_of, has_aux=True)(variables["params"])
        updates, state = optimiser.update(grads, state, variables["params"])
        params = optax.apply_updates(variables["params"], updates)
        return {"params": params, "batch_stats": stats}, state, loss

    held = [variables, optimiser.init(variables["params"])]
    del variables
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*held, images, labels).compile()
    compiling = time.perf_counter() - start

    def run() -> None:
        held[0], held[1], loss = compiled(*held, images, labels)
        assert np.isfinite(float(loss))

    PROGRAMS[name] = run
    return {"build": build, "compile": compiling}


def layer(
    name: str, *, batch: int, size: int, channels: int, backward: bool, plain: bool = False
) -> None:
    """Makes a program of one 3x3 convolution, forward or forward and backward."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (batch, size, size, channels))
    kernel = jax.random.normal(keys[1], (3, 3, channels, channels))
    dy = jax.random.normal(keys[2], x.shape)

    def forward(x: jax.Array, kernel: jax.Array) -> jax.Array:
        return correlate(x, kernel, 1, "SAME", plain=plain)

    @jax.jit
    def both(x: jax.Array, kernel: jax.Array, dy: jax.Array) -> Any:
        out, pull_back = jax.vjp(forward, x, kernel)
        return out, pull_back(dy)

    if backward:
        PROGRAMS[name] = lambda: jax.block_until_ready(both(x, kernel, dy))
    else:
        once = jax.jit(forward)
        PROGRAMS[name] = lambda: jax.block_until_ready(once(x, kernel))
    PROGRAMS[name]()


def answer(what: str, **options: Any) -> Any:
    """Does what it is asked for."""
    match what:
        case "make":
            return make(**options)
        case "layer":
            return layer(**options)
        case "time":
            return seconds(PROGRAMS[options["name"]])
        case "memory":
            return peak_memory()
        case "about":
            return {"import": IMPORT, "jax": jax.__version__, "threads": len(jax.devices())}
        case _:
            raise ValueError(f"what must be make, layer, time, memory or about, not {what!r}.")


if __name__ == "__main__":
    if sys.argv[1] == "keep":
        assert keep_memory(), "there is no glibc to tell"
    serve(answer)
