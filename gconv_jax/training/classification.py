"""Training a classifier (algorithm 1 of the paper), as optax train-state steps.

for minibatch in dataset:
filters <- coefficients . basis            the basis is frozen
L <- cross-entropy(network(images), labels)
coefficients <- update(dL / dcoefficients)
"""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import struct
from flax.training.train_state import TrainState
from jax.typing import ArrayLike

from gconv_jax.data import Images, Position, augment, colour_statistics, image_keys, normalise
from gconv_jax.training import parallel

Fetch = Callable[[], list[dict[str, float]]]


class ClassifierState(TrainState):
    """All that a run goes on from: also statistics, basis, key and the batch that comes next."""

    batch_stats: Any
    basis: jax.Array | None  # [G, N, k, k]; none for a network without one
    key: jax.Array  # uint32 [2], of all augmentation
    position: Position
    steps_per_epoch: int = struct.field(pytree_node=False)

    @property
    def variables(self) -> dict[str, Any]:
        """What the network is applied with."""
        return {"params": self.params, "batch_stats": self.batch_stats}


class Examples(NamedTuple):
    """A set on the device, and what its colours are normalised by."""

    images: Any  # uint8 [n, H, W, C]
    labels: Any  # int32 [n]
    mean: Any  # [C]
    std: Any  # [C]


class Augmentation(NamedTuple):
    """What is done to training images at random, as options of `gj.data.augment`."""

    flip: bool = False
    translate: int = 0
    rotation: str = "none"


def as_examples(data: Images, train: Images) -> Examples:
    """Returns a set with the colour statistics of the training images."""
    return Examples(data.images, data.labels, *colour_statistics(train.images))


def create_train_state(
    network: nn.Module,
    images: ArrayLike,
    basis: ArrayLike | None = None,
    *,
    steps_per_epoch: int,
    seed: int = 0,
    learning_rate: float | optax.Schedule = 1e-3,
    weight_decay: float = 1e-6,
) -> ClassifierState:
    """Returns the state at step 0: AMSGrad, with weight decay as an L2 term of the loss.

    Args:
      network: `GroupAllCNN` or `AllCNN`; its batch norm is made to span all devices.
      images: one or more, `[B, H, W, C]`, for their shape.
      basis: `[G, N, k, k]`; left out for `AllCNN`.
      steps_per_epoch: how many batches an epoch has.
      seed: of the parameters and of all augmentation.
      learning_rate: a number, or a function of the step.
      weight_decay: times the parameters, added to the gradient.

    Returns:
      The state.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> from gconv_jax.training.classification import create_train_state
      >>> net, basis = gj.GroupAllCNN(widths=(1, 2)), gj.make_basis("weiler")
      >>> state = create_train_state(net, jnp.ones((1, 8, 8, 3)), basis, steps_per_epoch=100)
      >>> print(int(state.step), state.params["conv1"]["coeffs"].shape)
      0 (9, 3, 1)

    """
    network = network.clone(axis_name=parallel.AXIS)
    start, draws = jax.random.split(jax.random.key(seed))
    x = jnp.zeros(np.shape(images), jnp.float32)
    # A copy: steps take over the memory of the state, and the basis is its owner's.
    basis = None if basis is None else jnp.array(basis, copy=True)
    # Compiled quickly rather than well: it runs once.
    init = jax.jit(network.init, compiler_options={"xla_backend_optimization_level": 0})
    variables = init(start, x, *_inputs(basis))
    state = ClassifierState.create(
        apply_fn=network.apply,
        params=variables["params"],
        tx=optax.chain(optax.add_decayed_weights(weight_decay), amsgrad(learning_rate)),
        batch_stats=variables["batch_stats"],
        basis=basis,
        key=jax.random.key_data(draws),
        position=Position(jnp.int32(0), jnp.int32(0)),
        steps_per_epoch=steps_per_epoch,
    )
    return state.replace(step=jnp.int32(0))  # as it will be after a step, so as to compile once


def amsgrad(learning_rate: float | optax.Schedule) -> optax.GradientTransformation:
    """Returns AMSGrad as the paper's authors had it, in PyTorch.

    There the maximum is over the plain running mean of the squares, `v = 0.999 v + 0.001 g^2`, and
    is corrected for its start at zero afterwards:

        w <- w - learning_rate m / sqrt(max(v) / (1 - 0.999^t))

    Optax corrects first, so that the square of the very first gradient, which is by far the
    largest, stays the maximum for good, and steps stay tiny.
    """
    decay = 0.999

    def corrected(step: jax.Array) -> jax.Array:
        rate = learning_rate(step) if callable(learning_rate) else learning_rate
        return rate * jnp.sqrt(1 - decay ** (step + 1.0))

    return optax.amsgrad(corrected, b2=decay, bias_correction_nu=False)


def train_step(
    state: ClassifierState,
    examples: Examples,
    indices: jax.Array,
    *,
    augmentation: Augmentation = Augmentation(),  # noqa: B008 (a NamedTuple does not change)
) -> tuple[ClassifierState, dict[str, jax.Array]]:
    """Takes one step, within `parallel.data_parallel`; pure.

    Args:
      state: of `create_train_state`.
      examples: the training set, of which the batch is taken here, on the device.
      indices: this device's share of the batch, `[B]`.
      augmentation: what is done to the images.

    Returns:
      The new state; and loss, accuracy and norm of the gradient, over the whole batch.

    """
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.position.epoch)
    labels = examples.labels[indices]
    x = augment(
        examples.images[indices],
        image_keys(key, indices),
        mean=examples.mean,
        std=examples.std,
        **augmentation._asdict(),
    )

    def loss_of(params: Any) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            x,
            *_inputs(state.basis),
            train=True,
            mutable=["batch_stats"],
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), (logits, updates["batch_stats"])

    (loss, (logits, batch_stats)), gradient = jax.value_and_grad(loss_of, has_aux=True)(
        state.params
    )
    accuracy = (logits.argmax(-1) == labels).mean(dtype=jnp.float32)
    gradient, metrics = parallel.mean((gradient, {"loss": loss, "accuracy": accuracy}))
    metrics["gradient_norm"] = optax.tree.norm(gradient)
    step = state.position.step + 1
    position = Position(
        state.position.epoch + step // state.steps_per_epoch, step % state.steps_per_epoch
    )
    state = state.apply_gradients(grads=gradient, batch_stats=batch_stats, position=position)
    return state, metrics


def train_steps(
    state: ClassifierState,
    examples: Examples,
    count: ArrayLike,
    indices: jax.Array,
    *,
    augmentation: Augmentation = Augmentation(),  # noqa: B008
) -> tuple[ClassifierState, dict[str, jax.Array]]:
    """Takes `count` steps in one go, step `i` on `indices[i]`, of which there may be more.

    The count is traced, so rounds of any length run the same program and give the same state to
    the bit. Returns the new state, and the metrics of each step, `[len(indices)]`.
    """
    rounds = len(indices)

    def body(i: jax.Array, carry: Any) -> Any:
        state, kept = carry
        state, metrics = train_step(state, examples, indices[i], augmentation=augmentation)
        return state, {name: kept[name].at[i].set(value) for name, value in metrics.items()}

    kept = {name: jnp.zeros(rounds) for name in ("loss", "accuracy", "gradient_norm")}
    return jax.lax.fori_loop(0, count, body, (state, kept))


def make_advance(
    *, augmentation: Augmentation, most: int, at_once: bool | None = None
) -> Callable[[ClassifierState, Examples, np.ndarray], tuple[ClassifierState, Fetch]]:
    """Returns a function that takes a round of steps on all devices, and gives the state back.

    `advance(state, examples, indices)` takes one step for each row of `indices`, `[steps, B]`, at
    most `most` of them. It returns at once: the new state, whose memory is that of the old one, and
    a function that waits for the metrics and returns them, a dictionary for each step.

    Args:
      augmentation: of the training images.
      most: steps in a round, at most.
      at_once: whether a round is one program. By default it is on accelerators, where starting a
        program may cost as much as a step. On CPU a start costs nothing that can be measured, and
        XLA's own convolutions are 20 times slower within a loop (2.6 s a step against 0.14 s, 2/4
        channels, batch 50).

    """
    at_once = jax.default_backend() != "cpu" if at_once is None else at_once
    steps = parallel.data_parallel(
        partial(train_steps, augmentation=augmentation), common=3, donate=(0,)
    )
    step = parallel.data_parallel(
        partial(train_step, augmentation=augmentation), common=2, donate=(0,)
    )

    def together(
        state: ClassifierState, examples: Examples, indices: np.ndarray
    ) -> tuple[ClassifierState, Fetch]:
        count = len(indices)
        filled = np.concatenate([indices, np.zeros((most - count, *indices.shape[1:]), np.int32)])
        state, kept = steps(state, examples, count, parallel.shares(filled, axis=1))
        return state, lambda: [
            {name: float(values[i]) for name, values in jax.device_get(kept).items()}
            for i in range(count)
        ]

    def one_by_one(
        state: ClassifierState, examples: Examples, indices: np.ndarray
    ) -> tuple[ClassifierState, Fetch]:
        kept = []
        for row in indices:
            state, metrics = step(state, examples, parallel.shares(row))
            kept.append(metrics)
        return state, lambda: [
            {name: float(value) for name, value in metrics.items()}
            for metrics in jax.device_get(kept)
        ]

    return together if at_once else one_by_one


def eval_step(
    network: nn.Module,
    variables: Any,
    basis: jax.Array | None,
    examples: Examples,
    indices: jax.Array,
    mask: jax.Array,
) -> dict[str, jax.Array]:
    """Judges a batch, within `parallel.data_parallel`; pure.

    Args:
      network: `GroupAllCNN` or `AllCNN`.
      variables: its parameters and statistics.
      basis: `[G, N, k, k]`, or none for `AllCNN`.
      examples: the set, of which the batch is taken.
      indices: this device's share of the batch, `[B]`.
      mask: `[B]`, False for those that only fill the batch up.

    Returns:
      Sums over the whole batch: `loss`, `correct`, and how many were `seen`.

    """
    labels = examples.labels[indices]
    x = normalise(examples.images[indices], mean=examples.mean, std=examples.std)
    logits: Any = network.apply(variables, x, *_inputs(basis))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    correct = logits.argmax(-1) == labels
    return parallel.total(
        {
            "loss": jnp.where(mask, losses, 0).sum(),
            "correct": (correct & mask).sum(),
            "seen": mask.sum(),
        }
    )


def fingerprint(tree: Any) -> str:
    """Returns the SHA-256 of arrays: their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.device_get(tree)):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _inputs(basis: jax.Array | None) -> tuple[jax.Array, ...]:
    """What a network is called with after the images."""
    return () if basis is None else (basis,)
