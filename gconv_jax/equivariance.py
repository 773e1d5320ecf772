"""How far a function is from commuting with rotation (section "Testing equivariance")."""

import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax._dtypes import sum_dtype
from gconv_jax.orientations import act
from gconv_jax.rotation import rotate


def equivariance_error(
    fn: Callable[[jax.Array], Any],
    x: ArrayLike,
    *,
    orientations: int | None = None,
    steps: Iterable[int] | None = None,
    crop: float = 0.25,
    method: str = "bilinear",
    sigma: float = 0.5,
) -> Any:
    """Measures how much the output of `fn` changes, beyond turning along, when its input turns.

    For each orientation S, with `a_S = fn(rotate(x, S))` turned back by S,

        error(S) = mean over images of  |a_0 - a_S|^2 / (|a_0| |a_S|)

    the paper's squared normalised L2. (As printed there, the division is inside the sums over
    channels and positions, where a single zero makes it infinite; here the norms are over all
    positions, orientations and channels.) Everything goes through the interpolator, S = 0 too, so
    that its blur cancels. Images with an output of zero at both angles say nothing and are left
    out; if none is left, the error is NaN.

    Args:
      fn: maps images `[B, H, W, C]` to a feature map on the group `[B, H', W', G, C']`, which turns
        back by `act`; or to maps without orientations `[B, H', W', C']`, which turn back by
        `rotate`; or to vectors `[B, D]`, which should not change at all; or to a dictionary of
        these, such as the outputs of all layers.
      x: square images `[B, H, W, C]`.
      orientations: G, in how many steps the circle is divided; by default that of the feature map,
        and 8 where there is none.
      steps: which orientations S to measure, in steps of `2 pi / G`; all, by default.
      crop: how much of the feature map to leave out on each side, where rotation has brought in
        zeros; a fraction of its size.
      method: how to interpolate, see `rotate`.
      sigma: width of the Gaussian in pixels, see `rotate`.

    Returns:
      One error for each of `steps`: `[G]` by default. For a dictionary, one of these.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> x = jax.random.normal(jax.random.key(0), (2, 8, 8, 1))
      >>> mean = lambda x: x.mean(axis=(1, 2))  # invariant to quarter turns: steps 2, 4, 6 of 8
      >>> bool(jnp.all(gj.equivariance_error(mean, x, steps=(2, 4, 6)) < 1e-10))
      True
      >>> corner = lambda x: x[:, 0, 0]
      >>> bool(jnp.all(gj.equivariance_error(corner, x, steps=(2, 4, 6)) > 0.1))
      True

    """
    g, errors = _errors(fn, x, orientations, crop, method=method, sigma=sigma)
    found = [errors(step) for step in _as_steps(steps, range(g))]
    return jax.tree.map(lambda *one: jnp.stack(one), *found)


def assert_equivariant(
    fn: Callable[[jax.Array], Any],
    x: ArrayLike,
    *,
    tolerance: float = 1e-5,
    orientations: int | None = None,
    steps: Iterable[int] | None = None,
    crop: float = 0.0,
    method: str = "bilinear",
    sigma: float = 0.5,
) -> None:
    """Raises `AssertionError` unless `fn` commutes with rotation: a check for your own layers.

    Compares the relative L2 error, the square root of `equivariance_error`, with `tolerance`. It
    needs to see numbers: do not call it under `jit`.
    Quarter turns, the default, are exact on the pixel grid: there a function has the symmetry to
    rounding, or it does not have it. At other angles choose a tolerance that you have measured,
    and crop the borders.

    Args:
      fn: maps images `[B, H, W, C]` to `[B, H', W', G, C']`, `[B, H', W', C']` or `[B, D]`, see
        `equivariance_error`.
      x: square images `[B, H, W, C]`. Take random ones: symmetric images prove nothing.
      tolerance: the largest relative error that passes.
      orientations: G, see `equivariance_error`.
      steps: which orientations to check, in steps of `2 pi / G`; the quarter turns, by default.
      crop: how much of the feature map to leave out on each side, a fraction of its size.
      method: how to interpolate, see `rotate`.
      sigma: width of the Gaussian in pixels, see `rotate`.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> x = jax.random.normal(jax.random.key(0), (2, 8, 8, 1))
      >>> gj.assert_equivariant(lambda x: x.mean(axis=(1, 2)), x)
      >>> gj.assert_equivariant(lambda x: x[:, 0, 0], x)
      Traceback (most recent call last):
        ...
      AssertionError: ...

    """
    _checks.check_positive("tolerance", tolerance)
    g, errors = _errors(fn, x, orientations, crop, method=method, sigma=sigma)
    chosen = _as_steps(steps, range(g // 4, g, g // 4))
    relative = [(math.sqrt(e), step) for step in chosen for e in jax.tree.leaves(errors(step))]
    error, worst = max(relative, key=lambda found: (math.isnan(found[0]), found[0]))
    if not error <= tolerance:
        nothing = "; nan means zero or not finite" if math.isnan(error) else ""
        raise AssertionError(
            f"fn is not equivariant: turned by {360 * worst / g:g} degrees (step {worst} of {g}) "
            f"its output is off by {error:.2g} in relative L2{nothing}; the tolerance is "
            f"{tolerance:g}, and this is the worst of {len(chosen)} angles."
        )


def _as_steps(steps: Iterable[int] | None, default: Iterable[int]) -> list[int]:
    try:
        chosen = [operator.index(step) for step in (default if steps is None else steps)]
    except TypeError:
        chosen = []
    if not chosen:
        raise ValueError(f"steps must be integers, at least one, but got {steps!r}.")
    return chosen


def _errors(
    fn: Callable[[jax.Array], Any],
    x: ArrayLike,
    orientations: int | None,
    crop: float,
    **interpolator: Any,
) -> tuple[int, Callable[[int], Any]]:
    """Returns G, and the function that gives the error, or the tree of errors, for a step."""
    x = _checks.as_floating("x", x, "[B, H, W, C]")
    if x.shape[1] != x.shape[2] or not len(x):
        raise ValueError(f"x must be square images, at least one, but got shape {x.shape}.")
    if not isinstance(crop, int | float) or not 0 <= crop < 0.5:
        raise ValueError(f"crop must be at least 0 and less than 0.5, but got {crop!r}.")
    upright = _as_outputs(fn(rotate(x, 0, **interpolator)))
    g = _count_orientations(jax.tree.leaves(upright), orientations)

    def turn_back(a: jax.Array, step: int) -> jax.Array:
        if a.ndim == 2:
            return a
        if a.ndim == 4:
            a = rotate(a, -2 * np.pi * step / g, **interpolator)
        else:
            a = act(a, -step, **interpolator)
        margin = int(crop * a.shape[1])
        return a[:, margin : a.shape[1] - margin, margin : a.shape[2] - margin]

    a_0 = jax.tree.map(partial(turn_back, step=0), upright)

    def error(step: int) -> Any:
        outputs = _as_outputs(fn(rotate(x, 2 * np.pi * step / g, **interpolator)))
        a_s = jax.tree.map(partial(turn_back, step=step), outputs)
        return jax.tree.map(_normalised_distance, a_0, a_s)

    return g, error


def _as_outputs(outputs: Any) -> Any:
    """Checks an array, or a dictionary of them."""
    return jax.tree.map(_as_output, outputs) if isinstance(outputs, dict) else _as_output(outputs)


def _as_output(output: Any) -> jax.Array:
    array = _checks.as_floating("the output of fn", output, "[...]")
    if array.ndim not in (2, 4, 5):
        raise ValueError(
            "the output of fn must be [B, H, W, G, C], [B, H, W, C] or [B, D], "
            f"but got shape {array.shape}."
        )
    if array.ndim > 2 and array.shape[1] != array.shape[2]:
        raise ValueError(
            f"the output of fn must be square in space to be turned, but got shape {array.shape}."
        )
    return array


def _count_orientations(outputs: list[jax.Array], orientations: int | None) -> int:
    """Returns G: as told, or that of the maps on the group, or 8 where there is none."""
    if orientations is not None:
        orientations = _checks.as_orientations("orientations", orientations)
    for output in outputs:
        if output.ndim != 5:
            continue
        _checks.as_orientations("the output of fn, in axis 3 for orientations,", output.shape[3])
        if output.shape[3] != (orientations or output.shape[3]):
            raise ValueError(
                f"orientations must be that of the output of fn, {output.shape[3]} (shape "
                f"{output.shape}), but got {orientations}; leave it out."
            )
        orientations = output.shape[3]
    return orientations or 8


def _normalised_distance(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the mean over images, where there is anything, of `|a - b|^2 / (|a| |b|)`."""
    dtype = sum_dtype(a.dtype)
    a, b = (v.astype(dtype).reshape(len(v), -1) for v in (a, b))
    # Squares of small numbers underflow; the scale of an image cancels, so take it out.
    largest = jax.lax.stop_gradient(jnp.abs(jnp.stack([a, b])).max(axis=(0, 2)))
    scale = jnp.where(largest == 0, 1, largest)[:, None]
    a, b = a / scale, b / scale
    distance, *squares = ((v**2).sum(axis=1) for v in (a - b, a, b))
    shown = (squares[0] != 0) | (squares[1] != 0)
    # Where nothing is shown, divide by 1: a division by zero would spoil the gradient of the rest.
    norms = [jnp.sqrt(jnp.where(shown, square, 1)) for square in squares]
    return (distance / (norms[0] * norms[1])).mean(where=shown)
