"""Rotation of images by any angle, exact at quarter turns.

A rotated image takes its values from between the pixels of the original:
`rotate(x, t)[p] = x(R_t^-1 p)`. Both interpolators are separable, so a value is a sum over a small
window of rows times a small window of columns, `sum_ij  a_i b_j x[r_i, c_j]`; they differ only in
the window and its weights.
"""

from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax._dtypes import sum_dtype

METHODS = ("bilinear", "gaussian")

# pi / 2 in two parts, the first so short that its small multiples have no rounding in float32.
_HALF_PI_HIGH = 1.5703125
_HALF_PI_LOW = np.pi / 2 - _HALF_PI_HIGH


def rotate(
    x: ArrayLike, angle: ArrayLike, *, method: str = "bilinear", sigma: ArrayLike = 0.5
) -> jax.Array:
    """Rotates images counter-clockwise by `angle` radians about their centre.

    `rotate(x, angle)[p] = x(R^-1 p)`, where `R` turns the plane by `angle` as seen on a screen
    (rows run down, columns run right). The angle is split into quarter turns, which are exact, and
    a remainder in [-45, 45) degrees, which is interpolated; so on square images

    - `rotate(x, pi / 2)` is `jnp.rot90(x, axes=(-3, -2))`, to the bit, for `"bilinear"`;
    - `rotate(x, angle + pi / 2)` is the `rot90` of `rotate(x, angle)` for both methods.

    Remainders within the rounding of `angle` itself count as zero.

    Args:
      x: images `[..., H, W, C]`, floating-point. What lies outside is zero. An image that is not
        square keeps its canvas: what leaves it is lost, and when `H - W` is odd a quarter turn
        falls between the pixels.
      angle: radians, counter-clockwise; a scalar, or one for each entry of the leading axes of `x`
        (`[B]` for `[B, H, W, C]`). May be traced.
      method: `"bilinear"`, or `"gaussian"`: the 3x3 window around the nearest pixel, with weights
        `exp(-d^2 / (2 sigma^2))` that sum to one (section "Rotating images" of the paper). The
        Gaussian blurs at every angle, 0 included: compare like with like.
      sigma: width of the Gaussian in pixels; only `"gaussian"` looks at it.

    Returns:
      Rotated images `[..., H, W, C]` in the dtype of `x`; sums are taken in float32 or better.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> x = jnp.zeros((3, 3, 1)).at[1, 2, 0].set(1.0)  # a dot right of the centre
      >>> print(gj.rotate(x, jnp.pi / 2)[..., 0])  # a quarter turn later it is above
      [[0. 1. 0.]
       [0. 0. 0.]
       [0. 0. 0.]]

    """
    x = _checks.as_floating("x", x, "[..., H, W, C]")
    _checks.check_choice("method", method, METHODS)
    _checks.check_positive("sigma", sigma)
    angles = _as_angle(angle)
    leading = x.shape[:-3]
    if angles.shape != leading[: angles.ndim]:
        raise ValueError(
            f"angle must be a scalar or match the leading axes {leading} of x, one angle an entry, "
            f"but got shape {angles.shape}."
        )
    turns, remainder = _split(angles)
    sigma = sigma if isinstance(sigma, jax.Array) else float(sigma)  # type: ignore[arg-type]
    return _rotate(x, turns, remainder, sigma, method=method)


def _as_angle(angle: ArrayLike) -> Any:
    """Returns angles that are known as a NumPy array, others as a JAX one, of floating-point."""
    known = not isinstance(angle, jax.Array)
    try:
        array: Any = np.asarray(angle) if known else angle
    except ValueError:  # a ragged list
        array = np.asarray(None)
    if jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(np.float64 if known else np.float32)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"angle must be real numbers in radians, but got {angle!r}.")
    if known and not np.isfinite(array).all():
        raise ValueError(f"angle must be finite, but got {angle!r}.")
    return array


def _split(angle: Any) -> tuple[Any, Any]:
    """Returns whole quarter turns in 0..3 and the remainder in radians, [-pi/4, pi/4)."""
    # An angle that is known is split in float64 by NumPy: 3 * pi / 2 has no remainder there.
    xp: ModuleType = jnp if isinstance(angle, jax.Array) else np
    # As much as two roundings, such as those of 2 * pi / G * step, may have put it off.
    resolution = abs(angle) * (2 * jnp.finfo(angle.dtype).eps)
    angle, resolution = (v.astype(sum_dtype(angle.dtype)) for v in (angle, resolution))
    turns = xp.floor((angle + resolution) / (np.pi / 2) + 0.5)
    remainder = (angle - turns * _HALF_PI_HIGH) - turns * _HALF_PI_LOW
    # Set to zero what is rounding, in value but not in slope: the angle keeps its gradient.
    rounding = xp.where(abs(remainder) <= resolution, remainder, 0)
    remainder = remainder - (jax.lax.stop_gradient(rounding) if xp is jnp else rounding)
    return (turns % 4).astype(np.int32), remainder


@partial(jax.jit, static_argnames="method")
def _rotate(
    x: jax.Array, turns: jax.Array, remainder: jax.Array, sigma: ArrayLike, *, method: str
) -> jax.Array:
    if turns.ndim:
        one = partial(_rotate, sigma=sigma, method=method)
        return jax.vmap(one)(x, turns, remainder)
    *_, h, w, c = x.shape
    dtype = sum_dtype(x.dtype)
    pixels = x.reshape(*x.shape[:-3], h * w, c)
    (rows, row_weights), (columns, column_weights) = (
        _window(coordinate, size, method, sigma)
        for coordinate, size in zip(_sources(h, w, turns, remainder, dtype), (h, w), strict=True)
    )
    out = jnp.zeros(x.shape, dtype)
    for r, a in zip(rows, row_weights, strict=True):
        for s, b in zip(columns, column_weights, strict=True):
            taps = pixels[..., r * w + s, :]  # [..., H, W, C]
            out += jnp.expand_dims(a * b, (*range(x.ndim - 3), -1)) * taps
    return out.astype(x.dtype)


def _sources(
    h: int, w: int, turns: jax.Array, remainder: jax.Array, dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Returns the row and the column, each `[H, W]`, that every output pixel is taken from."""
    down = jnp.arange(h, dtype=dtype)[:, None] - (h - 1) / 2
    right = jnp.arange(w, dtype=dtype)[None, :] - (w - 1) / 2
    # R^-1 p in two steps. The quarter turns come first and are exact, so what is interpolated does
    # not depend on them, to the bit.
    cos = (turns == 0).astype(dtype) - (turns == 2).astype(dtype)
    sin = (turns == 1).astype(dtype) - (turns == 3).astype(dtype)
    down, right = sin * right + cos * down, cos * right - sin * down
    cos, sin = jnp.cos(remainder).astype(dtype), jnp.sin(remainder).astype(dtype)
    down, right = sin * right + cos * down, cos * right - sin * down
    return down + (h - 1) / 2, right + (w - 1) / 2


def _window(
    coordinate: jax.Array, size: int, method: str, sigma: Any
) -> tuple[jax.Array, jax.Array]:
    """Returns the indices along one axis that a coordinate looks at, and their weights.

    Both have shape `[taps, H, W]`; weights of indices outside of the image are zero.
    """
    if method == "bilinear":
        first = jnp.floor(coordinate)
        fraction = coordinate - first
        weights = jnp.stack([1 - fraction, fraction])
    else:
        # Source points half-way between two pixels are common (45 degrees, even sizes). They go to
        # the upper pixel, also when rounding has put them a few bits below.
        tie = 8 * jnp.finfo(coordinate.dtype).eps * size
        first = jnp.floor(coordinate + (0.5 + tie)) - 1
        distances = jnp.stack([coordinate - (first + i) for i in range(3)])
        weights = jax.nn.softmax(-(distances**2) / (2 * sigma**2), axis=0)
    indices = jnp.stack([first.astype(jnp.int32) + i for i in range(len(weights))])
    inside = (indices >= 0) & (indices < size)
    return jnp.where(inside, indices, 0), jnp.where(inside, weights, 0)
