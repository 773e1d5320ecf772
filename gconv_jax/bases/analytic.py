"""Bases by formula: circular harmonics, interpolated rotations, and the random control."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from gconv_jax.rotation import rotate

Array = npt.NDArray[np.floating]


def unfold(first_quarter: Any) -> Any:
    """Fills the circle from the orientations in [0, 90) degrees by exact quarter turns.

    `e[g + G/4] = rot90(e[g])`: `[G/4, N, k, k] -> [G, N, k, k]`, in NumPy or in JAX.
    """
    turned = [first_quarter]
    for _ in range(3):
        turned.append(turned[-1].swapaxes(-2, -1)[..., ::-1, :])  # rot90
    return (jnp if isinstance(first_quarter, jax.Array) else np).concatenate(turned)


def harmonic(orientations: int, kernel_size: int) -> Array:
    """Circular harmonics on square rings, `[G, k^2, k, k]`, rotated by their phase.

    The k x k pixels are the centre and `k // 2` square rings; ring `r` has `8 r` pixels. Its
    elements are `cos(m (phi - theta))` and `sin(m (phi - theta))` for the frequencies
    `m = 0 .. 4 r`, where `theta = 2 pi g / G` and `phi` counts the pixels along the ring from 0 to
    2 pi. That makes k^2 elements, orthonormal at orientation 0. Wherever `theta` moves every ring
    by whole pixels (multiples of 45 degrees) they stay orthonormal, and rotation is a permutation
    of pixels along the rings.

    At other angles the highest frequency of a ring, which has a cosine but no sine, shrinks by
    `cos(4 r theta)`: to zero at 22.5 degrees for the ring of 8. That is what sampling does
    to a wave at the Nyquist frequency; with G = 16 the basis is not complete at odd orientations.
    """
    thetas = 2 * np.pi / orientations * np.arange(orientations // 4)
    return unfold(np.stack([_harmonic_at(theta, kernel_size) for theta in thetas]))


def _harmonic_at(theta: float, k: int) -> Array:
    radius = k // 2
    up, right = radius - np.arange(k)[:, None], np.arange(k)[None, :] - radius
    ring = np.maximum(abs(up), abs(right))  # [k, k]
    polar = np.arctan2(up, right) % (2 * np.pi)
    elements = [(ring == 0).astype(float)]
    for r in range(1, radius + 1):
        pixels = np.nonzero(ring == r)
        phi = np.empty(8 * r)
        phi[np.argsort(polar[pixels])] = 2 * np.pi * np.arange(8 * r) / (8 * r)
        for m in range(4 * r + 1):
            for wave in (np.cos,) if m in (0, 4 * r) else (np.cos, np.sin):
                element = np.zeros((k, k))
                element[pixels] = wave(m * (phi - theta)) / np.linalg.norm(wave(m * phi))
                elements.append(element)
    return np.stack(elements)  # [k^2, k, k]


def interpolated(e0: ArrayLike, orientations: int, method: str, sigma: float) -> jax.Array:
    """The elements `e0` `[N, k, k]` rotated like images, `[G, N, k, k]`.

    Orientation 0 goes through the interpolator too, so that all orientations are blurred alike.
    """
    pixels = jnp.stack([jnp.asarray(e0)[..., None]] * (orientations // 4))  # [G/4, N, k, k, 1]
    thetas = 2 * np.pi / orientations * np.arange(orientations // 4)
    return unfold(rotate(pixels, thetas, method=method, sigma=sigma)[..., 0])


def random_orthonormal(kernel_size: int, seed: int) -> Array:
    """A uniformly random orthonormal set of k^2 elements, `[k^2, k, k]`."""
    n = kernel_size**2
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))
    return (q * np.sign(np.diag(r))).reshape(n, kernel_size, kernel_size)


def random(orientations: int, kernel_size: int, seed: int) -> Array:
    """Independent normal numbers of variance 1/k^2 at every orientation, `[G, k^2, k, k]`."""
    n = kernel_size**2
    shape = (orientations, n, kernel_size, kernel_size)
    return np.random.default_rng(seed).normal(scale=1 / kernel_size, size=shape)
