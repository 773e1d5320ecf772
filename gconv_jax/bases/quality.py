"""How good a basis is: how well it rotates an arbitrary filter, and how well it spans them all."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax.bases.losses import check_images, gram_residual
from gconv_jax.bases.turned import turned

Matrices = npt.NDArray[np.float64]


class BasisQuality(NamedTuple):
    """The three numbers that a basis is judged by, together: each alone can be had cheaply."""

    error: float
    """Mean squared difference, relative, between turning the image and turning the filter."""
    condition_number: float
    """Of the elements as a matrix, the worst over orientations; 1 is best, infinity incomplete."""
    residual: float
    """Mean over orientations of `|e_R e_R^T - I|_1`, with unit mean norm; 0 is orthonormal."""


def basis_quality(basis: ArrayLike, images: ArrayLike) -> BasisQuality:
    """Judges a basis by how well it rotates arbitrary filters on real images.

    A filter drawn at random is white in pixel space, so the basis is whitened first,
    `e'_R = pinv(e_0) e_R`, and the sum over its k^2 elements is the exact average over filters.
    For every turn S of the images, with `a = R_S[f] * e'_R` and `b = R_S[f * e'_{R - S}]` as in
    `equivariance_loss`,

        error(S) = sum_R |a - b|^2 / sum_R |a| |b|

    and the error is the mean over S other than 0.

    Args:
      basis: `[G, N, k, k]`.
      images: `[B, H, W, C]`, floating-point, their mean colour taken off: a constant rotates
        perfectly and would make every basis look good.

    Returns:
      The error, the condition number and the residual.

    Example:
      >>> import jax, gconv_jax as gj
      >>> images = jax.random.normal(jax.random.key(0), (4, 16, 16, 1))
      >>> weiler = gj.basis_quality(gj.make_basis("weiler"), images)
      >>> bilinear = gj.basis_quality(gj.make_basis("bilinear"), images)
      >>> print(weiler.error < bilinear.error, round(bilinear.condition_number, 1))
      True 2.8

    """
    basis = _checks.as_basis(basis)
    g, _, k, _ = basis.shape
    return judge(np.asarray(basis, np.float64), patch_moments(images, g, k))


class Moments(NamedTuple):
    """Second moments, `[G, k*k, k*k]` for each turn S, of the two kinds of patches in `turned`."""

    first: Matrices
    cross: Matrices
    second: Matrices


def judge(basis: npt.NDArray[Any], moments: Moments) -> BasisQuality:
    """Returns the quality of a basis on the images whose moments are given."""
    g, n, k, _ = basis.shape
    e = basis.astype(np.float64).reshape(g, n, k * k)
    condition_number = max(float(np.linalg.cond(matrix)) for matrix in e)
    scaled = e / np.sqrt((e**2).sum(axis=-1).mean())
    residual = np.abs(gram_residual(scaled.reshape(basis.shape))).sum(axis=(1, 2)).mean()
    white = np.linalg.pinv(e[0]) @ e  # [G, k*k, k*k]
    errors = []
    for s in range(1, g):
        before = np.roll(white, s, axis=0)  # e'_{R - S} at R
        a = np.einsum("rip,pq,riq->r", white, moments.first[s], white)
        b = np.einsum("rip,pq,riq->r", before, moments.second[s], before)
        ab = np.einsum("rip,pq,riq->r", white, moments.cross[s], before)
        errors.append((a + b - 2 * ab).sum() / np.sqrt(a * b).sum())
    error = max(float(np.mean(errors)), 0.0)  # rounding may leave a perfect one a hair below
    return BasisQuality(error, condition_number, float(residual))


def patch_moments(
    images: ArrayLike, orientations: int, kernel_size: int, *, at_once: int = 100
) -> Moments:
    """Sums the moments over images `[B, H, W, C]`, so many `at_once`, in float64."""
    images = np.asarray(check_images(images, kernel_size))
    total = Moments(*np.zeros((3, orientations, kernel_size**2, kernel_size**2)))
    for start in range(0, len(images), at_once):
        block = images[start : start + at_once]
        # Images of zeros add nothing, and spare a compilation for the last block.
        block = np.pad(block, ((0, at_once - len(block)), (0, 0), (0, 0), (0, 0)))
        sums = _block_moments(block, orientations, kernel_size)
        total = Moments(
            *(t + np.asarray(new, np.float64) for t, new in zip(total, sums, strict=True))
        )
    if not total.first.any():
        raise ValueError("images must show something in their centre, but they are zero there.")
    return total


@partial(jax.jit, static_argnums=(1, 2))
def _block_moments(images: jax.Array, orientations: int, kernel_size: int) -> Any:
    def moments(s: jax.Array) -> tuple[jax.Array, ...]:
        first, second = (
            patches.reshape(-1, kernel_size**2)
            for patches in turned(images, s, orientations, kernel_size)
        )
        return first.T @ first, first.T @ second, second.T @ second

    return jax.lax.map(moments, jnp.arange(orientations))
