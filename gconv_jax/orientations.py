"""The orientation axis of a feature map on the group, `[..., H, W, G, C]`.

Turning an image turns every slice of its feature map and moves each slice on to the next
orientation: a corkscrew (figure 1 of the paper).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax.rotation import rotate


def roll(y: ArrayLike, steps: ArrayLike) -> jax.Array:
    """Moves every slice `steps` orientations on, cyclically.

    `roll(y, s)[..., R, :] = y[..., (R - s) mod G, :]`.

    Args:
      y: feature map `[..., G, C]`.
      steps: an integer of either sign; may be traced.

    Returns:
      Feature map `[..., G, C]`.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> y = jnp.arange(4.0)[:, None]  # [G=4, C=1]
      >>> print(gj.roll(y, 1)[:, 0])
      [3. 0. 1. 2.]

    """
    y = _checks.as_floating("y", y, "[..., G, C]")
    return _roll(y, _as_steps(steps))


@jax.jit
def _roll(y: jax.Array, steps: jax.Array) -> jax.Array:
    return jnp.roll(y, steps, axis=-2)  # traced steps: one compilation for all of them


def act(
    y: ArrayLike, steps: ArrayLike, *, method: str = "bilinear", sigma: float = 0.5
) -> jax.Array:
    """Turns a feature map on the group by `steps` orientations: rotates in space and rolls.

    `act(y, s)[..., R, :] = rotate(y[..., R - s, :], 2 pi s / G)`. This is what a feature map does
    when its image is turned: for a basis that is exact at quarter turns,
    `lift_conv(rotate(x, pi / 2), ...) == act(lift_conv(x, ...), G // 4)`.

    Args:
      y: feature map `[..., H, W, G, C]` with `H == W` and `G` a multiple of 4.
      steps: an integer of either sign; may be traced.
      method: how to interpolate, see `rotate`.
      sigma: width of the Gaussian in pixels, see `rotate`.

    Returns:
      Feature map `[..., H, W, G, C]`.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> y = jnp.zeros((3, 3, 4, 1)).at[1, 2, 0, 0].set(1.0)  # right of the centre, orientation 0
      >>> turned = gj.act(y, 1)  # one step of G = 4 is a quarter turn
      >>> print(turned[0, 1, 1, 0])  # above the centre, orientation 1
      1.0

    """
    y = _checks.as_floating("y", y, "[..., H, W, G, C]")
    *leading, h, w, g, c = y.shape
    if h != w:
        raise ValueError(
            f"y must be square in space to be turned, but got H = {h} and W = {w}; "
            "crop or pad it to a square first."
        )
    _checks.as_orientations("y.shape[-2], the number of orientations G,", g)
    steps = _as_steps(steps) % g
    slices = roll(y, steps).reshape(*leading, h, w, g * c)
    return rotate(slices, 2 * np.pi / g * steps, method=method, sigma=sigma).reshape(y.shape)


def pool_orientations(y: ArrayLike, *, how: str = "max") -> jax.Array:
    """Reduces the orientation axis, which leaves a map that only rotates in space.

    Args:
      y: feature map `[..., G, C]`.
      how: `"max"` or `"mean"`.

    Returns:
      Feature map `[..., C]`.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> y = jnp.asarray([[1.0, 2.0], [5.0, 0.0]])  # [G=2, C=2]
      >>> print(gj.pool_orientations(y), gj.pool_orientations(y, how="mean"))
      [5. 2.] [3. 1.]

    """
    y = _checks.as_floating("y", y, "[..., G, C]")
    _checks.check_choice("how", how, ("max", "mean"))
    if not y.shape[-2]:
        raise ValueError(f"y must have at least one orientation, but got shape {y.shape}.")
    return y.max(axis=-2) if how == "max" else y.mean(axis=-2)


def _as_steps(steps: ArrayLike) -> jax.Array | np.ndarray:
    """Returns `steps` as an integer scalar, in NumPy (which knows its value) where possible."""
    array = steps if isinstance(steps, jax.Array) else np.asarray(steps)
    if array.ndim or not jnp.issubdtype(array.dtype, jnp.integer):
        raise ValueError(f"steps must be one integer number of orientations, but got {steps!r}.")
    return array.astype(np.int32)  # wide enough to be multiplied
