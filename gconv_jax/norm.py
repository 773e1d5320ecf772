"""Batch norm, ReLU and 2x2 max pooling as one function, in a form whose gradients are cheap.

Normalising is one multiplication and one addition a channel, `a x + c`. It does not change which
entry of a window is the largest (for a < 0: the smallest), so pooling goes first, and the rest has
a quarter of the work.
"""

import operator
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gconv_jax._dtypes import sum_dtype
from gconv_jax._fusion import stored

EPSILON = 1e-5  # what keeps a constant channel from being divided by zero


def batch_statistics(x: jax.Array, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
    """Mean and variance `[C]` of `x` `[B, H, W, ..., C]`, over all devices along `axis_name`."""
    c = x.shape[-1]
    x = _flat(x).astype(sum_dtype(x.dtype))
    sums = jnp.stack([y.sum((0, 1, 2)) for y in (x, jnp.square(x))])  # [2, ... * C]
    moments = _mean(sums, count=x.size // c, channels=c)
    mean, square = moments if axis_name is None else lax.pmean(moments, axis_name)
    return mean, jnp.maximum(square - jnp.square(mean), 0.0)  # not below zero by rounding


def norm_relu(
    x: jax.Array,
    mean: jax.Array,
    var: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
    *,
    pool: bool,
) -> jax.Array:
    """Normalises `x` `[B, H, W, ..., C]` by `[C]` each, and rectifies; pools 2x2 if asked to."""
    *_, c = shape = x.shape
    x = _flat(x)
    a, shift = _affine(mean, var, scale, bias, copies=x.shape[-1] // c)
    if pool:
        x = max_pool(x, a >= 0)
    y = jax.nn.relu(x.astype(a.dtype) * a + shift).astype(x.dtype)
    return y.reshape(*y.shape[:3], *shape[3:])


def _flat(x: jax.Array) -> jax.Array:
    """Lays `[B, H, W, ..., C]` out as `[B, H, W, -1]`: C alone is short to compute along."""
    return x.reshape(*x.shape[:3], -1)


# These two are stored, and so are their gradients. Otherwise XLA on CPU computes them again, dozens
# of operations, for every entry of the maps.


@stored
def _mean(sums: jax.Array, *, count: int, channels: int) -> tuple[jax.Array, jax.Array]:
    """From sums over places, `[2, ... * C]`, to means over all but the channels."""
    mean, square = sums.reshape(2, -1, channels).sum(1) / count
    return mean, square


@stored
def _affine(
    mean: jax.Array, var: jax.Array, scale: jax.Array, bias: jax.Array, *, copies: int
) -> tuple[jax.Array, jax.Array]:
    """The factor and the shift that normalise, `[1, 1, 1, ... * C]`."""
    a = scale * lax.rsqrt(var + EPSILON)
    shift = bias - mean * a
    return jnp.tile(a, (1, 1, 1, copies)), jnp.tile(shift, (1, 1, 1, copies))


def max_pool(x: jax.Array, largest: jax.Array | bool = True) -> jax.Array:
    """Pools 2x2 windows of `x` `[B, H, W, ..., C]`; where not `largest`, to the smallest.

    Of odd sizes, the last row and column are left out.
    """
    _, h, w, *_ = x.shape
    return _pool(x[:, : h - h % 2, : w - w % 2], jnp.asarray(largest))


@jax.custom_jvp
def _pool(x: jax.Array, largest: jax.Array) -> jax.Array:
    corners = _corners(x)
    return jnp.where(largest, reduce(jnp.maximum, corners), reduce(jnp.minimum, corners))


@_pool.defjvp
def _pool_jvp(
    primals: tuple[jax.Array, jax.Array], tangents: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """A weighted sum over each window, whose transpose is no more than a product.

    Equals share the weight, so that turning an image turns its gradient along.
    """
    x, largest = primals
    chosen = _chosen(x, largest)
    share = 1.0 / lax.population_count(chosen).astype(x.dtype)
    b, h, w, *others = x.shape
    bits = jnp.asarray(_BITS).reshape(1, 1, 2, 1, 2, *(1 for _ in others))
    weights = jnp.where(_inside(chosen) & bits, _inside(share), 0.0)
    windows = tangents[0].reshape(b, h // 2, 2, w // 2, 2, *others)
    return _pool(x, largest), (weights * windows).sum((2, 4))


@stored
def _chosen(x: jax.Array, largest: jax.Array) -> jax.Array:
    """Which entries of a window are the pooled one, as bits.

    Found once and kept: looked for again by comparing, they could be missed where XLA computes `x`
    anew with other rounding.
    """
    top = _pool(x, largest)
    hits = [jnp.where(x == top, bit, 0) for x, bit in zip(_corners(x), _BITS, strict=True)]
    return reduce(operator.or_, hits)


_BITS = np.asarray([1, 2, 4, 8], np.uint8)


def _corners(x: jax.Array) -> list[jax.Array]:
    return [x[:, i::2, j::2] for i in range(2) for j in range(2)]


def _inside(y: jax.Array) -> jax.Array:
    return jnp.expand_dims(y, (2, 4))
