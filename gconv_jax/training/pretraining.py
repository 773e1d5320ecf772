"""Learning a basis by descent (algorithm 2 of the paper), as optax train-state steps.

for minibatch in dataset:
draw S, R
L <- L_equiv + L_orth + L_rec
e <- update(dL / de)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax.typing import ArrayLike

from gconv_jax.bases import learned
from gconv_jax.bases.losses import equivariance_loss, orthogonality_loss, reconstruction_loss
from gconv_jax.training import parallel


class LossWeights(NamedTuple):
    """What each loss counts.

    Orthogonality (here the mean over orientations) is met exactly by any weight that is not tiny,
    since its L1 norm pulls with constant strength; a small one leaves the equivariance loss more
    room on the way. Measured for partial, 3x3, 8 orientations: see the ablation in the README.
    """

    equivariance: float = 1.0
    orthogonality: float = 0.1
    reconstruction: float = 1.0


class Draws(NamedTuple):
    """What a step looks at, all integers `[B]`: images, their colour channels, and S and R."""

    image: Any
    channel: Any
    s: Any
    r: Any


def create_pretrain_state(
    kind: str,
    *,
    orientations: int = 8,
    kernel_size: int = 3,
    seed: int = 0,
    learning_rate: float = 1e-2,
    steps: int = 1500,
) -> TrainState:
    """Returns the state at step 0: Adam with a cosine decay to zero over `steps`.

    The decay matters: with L1 losses the steps do not shrink by themselves.

    Args:
      kind: `"full"`, `"partial"` or `"overcomplete"`, see `bases.learned`.
      orientations: G.
      kernel_size: k.
      seed: of the start.
      learning_rate: at step 0.
      steps: when it reaches zero.

    """
    start = learned.initial_parameters(kind, orientations, kernel_size, seed)
    return TrainState.create(
        apply_fn=lambda params: learned.unfold_parameters(kind, params["elements"]),
        params={"elements": start},
        tx=optax.adam(optax.cosine_decay_schedule(learning_rate, steps)),
    )


def pretrain_step(
    state: TrainState, weights: LossWeights, images: jax.Array, s: jax.Array, r: jax.Array
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Takes one step, within `parallel.data_parallel`; pure.

    Args:
      state: of `create_pretrain_state`.
      weights: of the losses.
      images: this device's share of the batch, normalised, `[B, H, W, C]`.
      s: by how many orientations to turn each, `[B]`.
      r: at which orientation to take the elements for each, `[B]`.

    Returns:
      The new state and the three losses.

    """

    def loss_of(params: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        basis = state.apply_fn(params)
        losses = {
            "equivariance": equivariance_loss(basis, images, s, r),
            "orthogonality": orthogonality_loss(basis) / len(basis),
            "reconstruction": reconstruction_loss(basis, images, s, r),
        }
        return sum(getattr(weights, name) * loss for name, loss in losses.items()), losses

    gradient, losses = jax.grad(loss_of, has_aux=True)(state.params)
    gradient, losses = parallel.mean((gradient, losses))
    return state.apply_gradients(grads=gradient), losses


def pretrain_steps(
    state: TrainState, weights: LossWeights, images: jax.Array, count: ArrayLike, draws: Draws
) -> tuple[TrainState, dict[str, jax.Array]]:
    """Takes `count` steps in one go: step `i` looks at `draws[i]`, of which there may be more.

    The count is traced, so a shorter last round does not compile again. Returns the new state and
    the mean of the losses.
    """
    # Not one batch at a time: XLA would look each pixel up again whenever it is interpolated.
    chosen = images[draws.image, :, :, draws.channel][..., None]  # [steps, B, H, W, 1]

    def body(i: jax.Array, carry: Any) -> Any:
        state, sums = carry
        state, losses = pretrain_step(state, weights, chosen[i], draws.s[i], draws.r[i])
        return state, jax.tree.map(jnp.add, sums, losses)

    zeros = {name: jnp.zeros(()) for name in LossWeights._fields}
    state, sums = jax.lax.fori_loop(0, count, body, (state, zeros))
    return state, {name: total / count for name, total in sums.items()}


def draw(
    seed: int, step: int, count: int, *, images: int, channels: int, orientations: int, batch: int
) -> Draws:
    """Draws for `count` steps from `step` on, `[count, batch]`, from seed and step alone."""
    limits = (images, channels, orientations, orientations)
    rounds = [
        np.random.default_rng((seed, i)).integers(np.array(limits)[:, None], size=(4, batch))
        for i in range(step, step + count)
    ]
    return Draws(*np.stack(rounds, axis=1).astype(np.int32))
