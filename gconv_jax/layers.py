"""Flax layers: they own parameters and call the functions of `conv`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import ArrayLike, DTypeLike

from gconv_jax import _checks
from gconv_jax.conv import group_conv, lift_conv
from gconv_jax.correlate import Padding
from gconv_jax.norm import batch_statistics, norm_relu


def variance_preserving(
    key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> jax.Array:
    """He's initialisation for coefficients `[..., C_out]`: every other axis counts as fan-in.

    The squared norm of a filter is that of its coefficients if the elements are orthonormal, so N
    takes the place that the number of pixels has in an ordinary convolution.
    """
    *inputs, _ = shape
    # Drawn along one axis: the same numbers, but along several XLA takes 2 s to compile a draw.
    normal = jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)
    return normal * math.sqrt(2 / math.prod(inputs))


class _BasisConv(nn.Module):
    """The options that the two layers share."""

    features: int
    kernel_size: int = 3
    strides: int = 1
    padding: Padding = "SAME"
    use_bias: bool = False
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    coeffs_init: nn.initializers.Initializer = variance_preserving
    plain: bool = False

    def _check_options(self, basis: jax.Array | None) -> None:
        _checks.as_int("features", self.features)
        _checks.check_dtype("param_dtype", self.param_dtype)
        if self.dtype is not None:
            _checks.check_dtype("dtype", self.dtype)
        wanted = _checks.as_kernel_size("kernel_size", self.kernel_size)
        k = 1 if basis is None else basis.shape[-1]
        if k != wanted:
            came = "no basis, which is for kernel_size = 1" if basis is None else f"{k}x{k} filters"
            advice = (
                "leave the basis out"
                if wanted == 1
                else f"make one with make_basis(..., kernel_size={wanted})"
            )
            raise ValueError(
                f"basis must have filters of kernel_size = {wanted}, but got {came}; {advice}."
            )

    def _coeffs(self, axes: str, *shape: int) -> jax.Array:
        if self.has_variable("params", "coeffs"):
            there: tuple[int, ...] = self.get_variable("params", "coeffs").shape
            if there != shape:
                raise ValueError(
                    f"the layer's coeffs {axes} must fit its input and basis, which ask for shape "
                    f"{shape}, but got shape {there}; use the channels, orientations and basis "
                    "that it was made with."
                )
        coeffs: jax.Array = self.param("coeffs", self.coeffs_init, shape, self.param_dtype)
        return coeffs

    def _compute_dtype(self, x: jax.Array) -> DTypeLike:
        return self.dtype or jnp.promote_types(x.dtype, self.param_dtype)

    def _windows(self) -> dict[str, Any]:
        # What runs once had better compile quickly.
        plain = self.plain or self.is_initializing()
        return {"strides": self.strides, "padding": self.padding, "plain": plain}

    def _add_bias(self, y: jax.Array) -> jax.Array:
        """Adds one number a channel, the same at every orientation: a turn does not change it."""
        if not self.use_bias:
            return y
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,), self.param_dtype)
        return y + bias.astype(y.dtype).reshape(1, 1, 1, 1, -1)


class LiftConv(_BasisConv):
    """Lifts images to the group: `lift_conv` with learned coefficients `[N, C_in, features]`.

    The first layer of a network. The basis is an argument of the call, not a parameter: it stays
    as it is while the coefficients learn.

    Attributes:
      features: number of output channels, each at every orientation.
      kernel_size: k of the basis.
      strides: step of the windows. Stride 2 on even sizes breaks the symmetry under quarter turns
        (see `lift_conv`).
      padding: `"SAME"`, `"VALID"`, or `((top, bottom), (left, right))`.
      use_bias: whether to add a bias, one number a channel for all orientations.
      dtype: to compute in; by default that of the input and the parameters together. Filters are
        always synthesised in the precision of the parameters.
      param_dtype: of the parameters.
      coeffs_init: initialiser of the coefficients; by default it preserves variance for a basis
        with orthonormal elements.
      plain: whether to use XLA's convolution on CPU too, as in the function.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> images, basis = jnp.ones((2, 8, 8, 3)), gj.make_basis("weiler")
      >>> layer = gj.LiftConv(features=5)
      >>> variables = layer.init(jax.random.key(0), images, basis)
      >>> layer.apply(variables, images, basis).shape  # [B, H, W, G, C]
      (2, 8, 8, 8, 5)

    """

    @nn.compact
    def __call__(self, x: ArrayLike, basis: ArrayLike) -> jax.Array:
        """Maps images `[B, H, W, C_in]`, basis `[G, N, k, k]` to `[B, H', W', G, features]`."""
        x, basis = _checks.as_floating("x", x, "[B, H, W, C_in]"), _checks.as_basis(basis)
        self._check_options(basis)
        coeffs = self._coeffs("[N, C_in, C_out]", basis.shape[1], x.shape[-1], self.features)
        x = x.astype(self._compute_dtype(x))
        return self._add_bias(lift_conv(x, coeffs, basis, **self._windows()))


class GroupConv(_BasisConv):
    """Convolves on the group: `group_conv` with learned coefficients `[G, N, C_in, features]`.

    With `kernel_size=1` it takes no basis, and has coefficients `[G, C_in, features]`.

    Attributes:
      features: number of output channels, each at every orientation.
      kernel_size: k of the basis; 1 for the convolution without one.
      strides: step of the windows. Stride 2 on even sizes breaks the symmetry under quarter turns
        (see `group_conv`).
      padding: `"SAME"`, `"VALID"`, or `((top, bottom), (left, right))`.
      use_bias: whether to add a bias, one number a channel for all orientations.
      dtype: to compute in; by default that of the input and the parameters together. Filters are
        always synthesised in the precision of the parameters.
      param_dtype: of the parameters.
      coeffs_init: initialiser of the coefficients; by default it preserves variance for a basis
        with orthonormal elements.
      plain: whether to use XLA's convolution on CPU too, as in the function.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> y, basis = jnp.ones((2, 8, 8, 8, 5)), gj.make_basis("weiler")
      >>> layer = gj.GroupConv(features=6)
      >>> variables = layer.init(jax.random.key(0), y, basis)
      >>> layer.apply(variables, y, basis).shape  # [B, H, W, G, C]
      (2, 8, 8, 8, 6)

    """

    @nn.compact
    def __call__(self, y: ArrayLike, basis: ArrayLike | None = None) -> jax.Array:
        """Maps `[B, H, W, G, C_in]`, basis `[G, N, k, k]` to `[B, H', W', G, features]`."""
        y = _checks.as_floating("y", y, "[B, H, W, G, C_in]")
        basis = None if basis is None else _checks.as_basis(basis)
        self._check_options(basis)
        g, c = y.shape[-2:]
        if basis is None:
            coeffs = self._coeffs("[G, C_in, C_out]", g, c, self.features)
        else:
            _checks.check_agree("G, the number of orientations", y=(y, -2), basis=(basis, 0))
            coeffs = self._coeffs("[G, N, C_in, C_out]", g, basis.shape[1], c, self.features)
        y = y.astype(self._compute_dtype(y))
        return self._add_bias(group_conv(y, coeffs, basis, **self._windows()))


class NormReLU(nn.Module):
    """Batch norm over all but the last axis, ReLU, and 2x2 max pooling if asked for.

    Its variables are those of `nn.BatchNorm`, and its result the same. With `axis_name` the batch
    is that of all devices along it.
    """

    pool: bool = False
    momentum: float = 0.9
    param_dtype: DTypeLike = jnp.float32
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
        """Maps `[B, H, W, ..., C]` to the same, or with pooling `[B, H // 2, W // 2, ..., C]`."""
        shape = x.shape[-1:]
        mean = self.variable("batch_stats", "mean", jnp.zeros, shape, jnp.float32)
        var = self.variable("batch_stats", "var", jnp.ones, shape, jnp.float32)
        scale = self.param("scale", nn.initializers.ones_init(), shape, self.param_dtype)
        bias = self.param("bias", nn.initializers.zeros_init(), shape, self.param_dtype)
        statistics = mean.value, var.value
        if train:
            alone = self.is_initializing()  # outside of the devices' common program
            statistics = batch_statistics(x, None if alone else self.axis_name)
            if not alone:
                for running, new in zip((mean, var), statistics, strict=True):
                    kept = self.momentum * running.value
                    running.value = kept + (1 - self.momentum) * new.astype(kept.dtype)
        return norm_relu(x, *statistics, scale, bias, pool=self.pool)
