"""Two ways to the patches of a turned image, which learning makes agree.

Correlation with a filter is a product with patches: `(f * e)(z) = patches(f)(z) . e`. So what the
paper compares, a turned image met by a turned filter and a response that is turned afterwards,

    R_S[f] * e_R    and    R_S[f * e_{R - S}],

is one set of numbers, the patches of the turned image, times `e_R`, and another, the turned patches
of the image, times `e_{R - S}`. Both sets are independent of the basis.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax.correlate import correlate
from gconv_jax.rotation import rotate

SIGMA = 0.5


class Turned(NamedTuple):
    """Patches around the same pixels, `[B, H/2, W/2, C, k*k]`, got in two ways."""

    patches_of_turned: jax.Array
    turned_patches: jax.Array


def turned(images: jax.Array, s: jax.Array, orientations: int, kernel_size: int) -> Turned:
    """Returns the patches of images `[B, H, W, C]` turned by `s` steps, a scalar or `[B]`.

    Both go through the Gaussian interpolator twice, once turning by `s` and once by nothing, so
    that they are blurred alike. A quarter of the map is cropped on every side.
    """
    # A blur moves past the cutting of patches: once on the image is as good as on every patch.
    first = blur(turn(images, s, orientations))
    second = patches(blur(images), kernel_size)
    b, h, w, c, p = second.shape
    second = turn(second.reshape(b, h, w, c * p), s, orientations).reshape(b, h, w, c, p)
    return Turned(crop(patches(first, kernel_size)), crop(second))


def turn(images: jax.Array, s: ArrayLike, orientations: int) -> jax.Array:
    """Turns images `[B, H, W, C]` by `s` steps of `2 pi / G` with the paper's interpolator."""
    return rotate(images, 2 * np.pi / orientations * s, method="gaussian", sigma=SIGMA)


def blur(images: jax.Array) -> jax.Array:
    """Turns images `[B, H, W, C]` by nothing, which with this interpolator is a blur.

    It is `turn(images, 0)` as a convolution: XLA computes the input of a convolution once, but that
    of a gather again for every pixel that it is gathered to, all nine times nine.
    """
    line = np.exp(-(np.arange(-1, 2) ** 2) / (2 * SIGMA**2))
    kernel = np.outer(line, line) / line.sum() ** 2
    b, h, w, c = images.shape
    alone = jnp.moveaxis(images, -1, 1).reshape(b * c, h, w, 1)
    blurred = correlate(alone, jnp.asarray(kernel, images.dtype)[:, :, None, None], 1, "SAME")
    return jnp.moveaxis(blurred.reshape(b, c, h, w), 1, -1)


def patches(images: jax.Array, kernel_size: int) -> jax.Array:
    """Returns the k x k neighbourhood of every pixel: `[B, H, W, C] -> [B, H, W, C, k*k]`."""
    k, margin = kernel_size, kernel_size // 2
    _, h, w, _ = images.shape
    padded = jnp.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    return jnp.stack([padded[:, i : i + h, j : j + w] for i in range(k) for j in range(k)], axis=-1)


def crop(maps: jax.Array) -> jax.Array:
    """Leaves out a quarter of `[B, H, W, ...]` on every side, where rotation brings in zeros."""
    _, h, w, *_ = maps.shape
    return maps[:, h // 4 : h - h // 4, w // 4 : w - w // 4]
