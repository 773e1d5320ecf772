"""The convolutions: filters from coefficients and basis, on images and on the group.

A filter is coefficients times a basis, and its rotation by `R` keeps the coefficients and swaps
the basis: `R[psi] = sum_i coeffs_i e[R, i]`. So a whole group convolution is an ordinary one with
a bank of such filters, which `filter_bank` makes.

The convolutions commute with quarter turns if the basis is exact there, the images are square and
the windows lie symmetrically on them. Stride 1 always keeps this symmetry. For stride s, size H:

- `"SAME"` keeps it if the padding it takes, `(ceil(H / s) - 1) s + k - H`, is even and not
  negative. With stride 2 that means **odd sizes; even sizes break the symmetry**.
- `"VALID"` keeps it if s divides `H - k`.

Between convolutions, 2x2 max pooling with stride 2 keeps it on **even sizes; odd sizes break it**.
"""

import operator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax._dtypes import sum_dtype
from gconv_jax.correlate import Padding, correlate


def filter_bank(coeffs: ArrayLike, basis: ArrayLike | None) -> jax.Array:
    """Makes the plain `[k, k, in, out]` kernel that a lifting or group convolution amounts to.

    With the group coefficients' first axis the relative orientation `R^-1 S`,

        lift:   bank[:, :, c, (R, o)]      = sum_i coeffs[i, c, o]              e[R, i]
        group:  bank[:, :, (S, c), (R, o)] = sum_i coeffs[(S - R) mod G, i, c, o] e[R, i]

    where `(R, o)` is the flat index `R * C_out + o`. It is also the way out of this library: a
    trained layer is `lax.conv` (or any framework's convolution) with this kernel.

    Args:
      coeffs: `[N, C_in, C_out]` for lifting, `[G, N, C_in, C_out]` on the group; with
        `basis=None`, `[G, C_in, C_out]`, the 1x1 convolution on the group (the roll alone).
      basis: `[G, N, k, k]`, or `None`.

    Returns:
      `[k, k, C_in, G * C_out]` for lifting, `[k, k, G * C_in, G * C_out]` on the group, in the
      dtype of `coeffs` and `basis`, float32 or better.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> basis = jnp.ones((4, 1, 3, 3))
      >>> gj.filter_bank(jnp.ones((1, 3, 5)), basis).shape
      (3, 3, 3, 20)
      >>> gj.filter_bank(jnp.ones((4, 1, 3, 5)), basis).shape
      (3, 3, 12, 20)

    """
    if basis is None:
        return _group_bank(*_check_group(coeffs, None))
    coeffs = _checks.as_floating("coeffs", coeffs, "[..., N, C_in, C_out]")
    if coeffs.ndim == 3:
        return _lift_bank(*_check_lift(coeffs, basis))
    return _group_bank(*_check_group(coeffs, basis))


def lift_conv(
    x: ArrayLike,
    coeffs: ArrayLike,
    basis: ArrayLike,
    *,
    strides: int = 1,
    padding: Padding = "SAME",
    plain: bool = False,
) -> jax.Array:
    """Convolves images with filters at every orientation: from the plane to the group.

    `out[z, R, o] = sum_c ( x_c * sum_i coeffs[i, c, o] e[R, i] )(z)`, where `*` is
    cross-correlation with zero padding (section "Convolving using a basis" of the paper).

    With a basis that is exact at quarter turns, on square images,
    `lift_conv(rotate(x, pi / 2)) == act(lift_conv(x), G // 4)`. Strides other than 1 keep this only
    where the windows lie symmetrically. Stride 2 does with `"SAME"` on odd sizes, and with
    `"VALID"` where 2 divides `H - k`; **`"SAME"` with stride 2 on even sizes breaks it**. So does
    2x2 pooling of odd sizes.

    Args:
      x: images `[B, H, W, C_in]`, floating-point.
      coeffs: `[N, C_in, C_out]`.
      basis: `[G, N, k, k]` with `G` a multiple of 4 and `k` odd, as `make_basis` gives it.
      strides: step of the windows, the same in both directions.
      padding: `"SAME"`, `"VALID"`, or `((top, bottom), (left, right))`.
      plain: whether to use XLA's convolution on CPU too, which is slower there; for comparison.

    Returns:
      Feature map `[B, H', W', G, C_out]` in the dtype of `x`; sums are taken in float32 or better.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> basis = jnp.zeros((4, 1, 3, 3)).at[:, :, 1, 1].set(1.0)  # the centre pixel
      >>> y = gj.lift_conv(jnp.ones((1, 5, 5, 2)), jnp.ones((1, 2, 3)), basis)
      >>> print(y.shape, y[0, 0, 0, 0])  # each filter sums its two input channels
      (1, 5, 5, 4, 3) [2. 2. 2.]

    """
    x = _checks.as_floating("x", x, "[B, H, W, C_in]")
    coeffs, basis = _check_lift(coeffs, basis)
    _checks.check_agree("C_in, the number of input channels", x=(x, -1), coeffs=(coeffs, -2))
    windows = _check_windows("x", x, basis.shape[-1], strides, padding)
    return _lift_conv(x, coeffs, basis, **windows, plain=bool(plain))


def group_conv(
    y: ArrayLike,
    coeffs: ArrayLike,
    basis: ArrayLike | None,
    *,
    strides: int = 1,
    padding: Padding = "SAME",
    plain: bool = False,
) -> jax.Array:
    """Convolves a feature map on the group: filters are rotated, and rolled along with it.

    `out[z, R, o] = sum_{c, S} ( y_{S, c} * sum_i coeffs[(S - R) mod G, i, c, o] e[R, i] )(z)`,
    where `*` is cross-correlation with zero padding (section "Convolving using a basis" of the
    paper).

    With a basis that is exact at quarter turns, on square maps,
    `group_conv(act(y, G // 4)) == act(group_conv(y), G // 4)`. Strides other than 1 keep this only
    where the windows lie symmetrically. Stride 2 does with `"SAME"` on odd sizes, and with
    `"VALID"` where 2 divides `H - k`; **`"SAME"` with stride 2 on even sizes breaks it**. So does
    2x2 pooling of odd sizes.

    Args:
      y: feature map `[B, H, W, G, C_in]`, floating-point.
      coeffs: `[G, N, C_in, C_out]`; with `basis=None`, `[G, C_in, C_out]`.
      basis: `[G, N, k, k]` with `G` a multiple of 4 and `k` odd, as `make_basis` gives it; or
        `None` for the 1x1 convolution, which is the roll alone.
      strides: step of the windows, the same in both directions.
      padding: `"SAME"`, `"VALID"`, or `((top, bottom), (left, right))`.
      plain: whether to use XLA's convolution on CPU too, which is slower there; for comparison.

    Returns:
      Feature map `[B, H', W', G, C_out]` in the dtype of `y`; sums are taken in float32 or better.

    Example:
      >>> import jax.numpy as jnp, gconv_jax as gj
      >>> y = jnp.zeros((1, 1, 1, 4, 1)).at[0, 0, 0, 1, 0].set(1.0)  # active at orientation 1
      >>> ahead = jnp.asarray([0.0, 1.0, 0.0, 0.0]).reshape(4, 1, 1)  # looks at S - R = 1
      >>> print(gj.group_conv(y, ahead, None)[0, 0, 0, :, 0])  # orientation 0 sees it
      [1. 0. 0. 0.]

    """
    y = _checks.as_floating("y", y, "[B, H, W, G, C_in]")
    coeffs, basis = _check_group(coeffs, basis)
    _checks.check_agree("G, the number of orientations", y=(y, -2), coeffs=(coeffs, 0))
    _checks.check_agree("C_in, the number of input channels", y=(y, -1), coeffs=(coeffs, -2))
    windows = _check_windows("y", y, 1 if basis is None else basis.shape[-1], strides, padding)
    return _group_conv(y, coeffs, basis, **windows, plain=bool(plain))


@partial(jax.jit, static_argnames=("strides", "padding", "plain"))
def _lift_conv(x: jax.Array, coeffs: jax.Array, basis: jax.Array, **windows: Any) -> jax.Array:
    out = correlate(x, _lift_bank(coeffs, basis), **windows)
    return out.reshape(*out.shape[:3], basis.shape[0], coeffs.shape[-1])


@partial(jax.jit, static_argnames=("strides", "padding", "plain"))
def _group_conv(
    y: jax.Array, coeffs: jax.Array, basis: jax.Array | None, **windows: Any
) -> jax.Array:
    b, h, w, g, c = y.shape
    bank = _group_bank(coeffs, basis)
    out = correlate(y.reshape(b, h, w, g * c), bank, **windows)
    return out.reshape(*out.shape[:3], g, coeffs.shape[-1])


@jax.jit
def _lift_bank(coeffs: jax.Array, basis: jax.Array) -> jax.Array:
    rotated = _rotated(coeffs, basis)  # [R, k, k, C_in, C_out]
    k, _, c = rotated.shape[1:4]
    return rotated.transpose(1, 2, 3, 0, 4).reshape(k, k, c, -1)


@jax.jit
def _group_bank(coeffs: jax.Array, basis: jax.Array | None) -> jax.Array:
    if basis is None:  # a 1x1 filter is one number, the same at every orientation
        coeffs = coeffs[:, None]
        basis = jnp.ones((len(coeffs), 1, 1, 1), coeffs.dtype)
    g, _, c, o = coeffs.shape
    k = basis.shape[-1]
    rotated = jnp.unstack(_rotated(coeffs, basis))  # G x [k, k, t, C_in, C_out]
    # From the relative orientation t = S - R to S itself: one roll for each R.
    rolled = [jnp.roll(filters, r, axis=2) for r, filters in enumerate(rotated)]
    return jnp.stack(rolled, axis=4).reshape(k, k, g * c, g * o)


def _rotated(coeffs: jax.Array, basis: jax.Array) -> jax.Array:
    """Sums coefficients `[..., N, C_in, C_out]` times basis over i: `[R, k, k, ..., C_in, C_out]`.

    In float32 or better, also on a TPU. As one product of matrices, which is also the quickest for
    gradients.
    """
    dtype = sum_dtype(coeffs.dtype, basis.dtype)
    coeffs = jnp.moveaxis(coeffs.astype(dtype), -3, 0)  # [N, ..., C_in, C_out]
    elements = jnp.moveaxis(basis.astype(dtype), 1, -1)  # [R, k, k, N]
    n, *channels = coeffs.shape
    filters = jnp.matmul(
        elements.reshape(-1, n), coeffs.reshape(n, -1), precision=jax.lax.Precision.HIGHEST
    )
    return filters.reshape(*elements.shape[:3], *channels)


def _check_lift(coeffs: ArrayLike, basis: ArrayLike) -> tuple[jax.Array, jax.Array]:
    coeffs = _checks.as_floating("coeffs", coeffs, "[N, C_in, C_out]")
    basis = _checks.as_basis(basis)
    _checks.check_agree("N, the number of elements", coeffs=(coeffs, 0), basis=(basis, 1))
    return coeffs, basis


def _check_group(coeffs: ArrayLike, basis: ArrayLike | None) -> tuple[jax.Array, jax.Array | None]:
    if basis is None:
        coeffs = _checks.as_floating("coeffs", coeffs, "[G, C_in, C_out]")
        _checks.as_orientations("coeffs.shape[0], the number of orientations G,", len(coeffs))
        return coeffs, None
    coeffs = _checks.as_floating("coeffs", coeffs, "[G, N, C_in, C_out]")
    basis = _checks.as_basis(basis)
    _checks.check_agree("G, the number of orientations", coeffs=(coeffs, 0), basis=(basis, 0))
    _checks.check_agree("N, the number of elements", coeffs=(coeffs, 1), basis=(basis, 1))
    return coeffs, basis


def _check_windows(
    name: str, x: jax.Array, k: int, strides: int, padding: Padding
) -> dict[str, Any]:
    """Checks that a k x k window fits; returns the strides, and `"SAME"` or padding in pixels."""
    strides = _checks.as_int("strides", strides)
    if isinstance(padding, str) and padding == "SAME":
        return {"strides": strides, "padding": padding}
    try:
        valid = isinstance(padding, str) and padding == "VALID"
        margins: Any = ((0, 0), (0, 0)) if valid else padding
        rows, columns = margins
        top, bottom = map(operator.index, rows)
        left, right = map(operator.index, columns)
        if min(top, bottom, left, right) < 0:
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            'padding must be "SAME", "VALID" or ((top, bottom), (left, right)) in pixels, '
            f"but got {str(padding)!r}."
        ) from None
    _, h, w, *_ = x.shape
    if top + h + bottom < k or left + w + right < k:
        raise ValueError(
            f"{name} must be at least as large as the {k}x{k} kernel, padding included, "
            f"but got H = {h} and W = {w} with padding {padding!r}."
        )
    return {"strides": strides, "padding": ((top, bottom), (left, right))}
