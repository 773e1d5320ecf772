"""The three losses that a basis is learned by (section "Learning To Rotate" of the paper).

All three are zero for a basis that is unitary and rotates perfectly.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax.bases.turned import crop, patches, turn, turned


def equivariance_loss(basis: ArrayLike, images: ArrayLike, s: ArrayLike, r: ArrayLike) -> jax.Array:
    """How differently a turned image meets the turned elements, and the response turns along.

        L_equiv = sum_i | R_S[f] * e_R^i  -  R_S[f * e_{R - S}^i] |_1

    with the mean over pixels, channels and images. Images are turned with the paper's Gaussian
    interpolator; the left side goes through it once more, at angle 0, to be blurred like the right.
    A quarter of the maps is cropped on every side.

    Args:
      basis: `[G, N, k, k]`.
      images: `[B, H, W, C]`, floating-point; each channel counts as an image of its own.
      s: by how many orientations to turn the images; an integer or `[B]`. May be traced.
      r: at which orientation to take the elements; an integer or `[B]`. May be traced.

    Returns:
      A scalar.

    Example:
      >>> import jax, gconv_jax as gj
      >>> images = jax.random.normal(jax.random.key(0), (2, 16, 16, 1))
      >>> basis = gj.make_basis("weiler")
      >>> print(gj.equivariance_loss(basis, images, 2, 5) < 1e-5)  # exact at quarter turns
      True

    """
    basis, images = _check(basis, images)
    g, _, k, _ = basis.shape
    s, r = (_each("s", s, images), _each("r", r, images))
    first, second = turned(images, s, g, k)
    left = respond(first, elements(basis, r))
    right = respond(second, elements(basis, r - s))
    return jnp.abs(left - right).mean(axis=(0, 1, 2, 3)).sum()


def orthogonality_loss(basis: ArrayLike) -> jax.Array:
    """How far the elements are from orthonormal at each orientation.

        L_orth = sum_R | e_R e_R^T - I |_1

    An overcomplete basis, N > k^2, cannot have orthonormal rows. It is asked to be a tight frame of
    unit vectors on average, `| e_R^T e_R - (N / k^2) I |_1`, which for N = k^2 means the same.

    Args:
      basis: `[G, N, k, k]`.

    Returns:
      A scalar.

    Example:
      >>> import gconv_jax as gj
      >>> print(gj.orthogonality_loss(gj.make_basis("weiler")) < 1e-4)
      True

    """
    basis = _checks.as_basis(basis)
    return jnp.abs(gram_residual(basis)).sum()


def gram_residual(basis: Any) -> Any:
    """Returns `e_R e_R^T - I` `[G, N, N]`, or for N > k^2 `e_R^T e_R - (N / k^2) I`."""
    g, n, k, _ = basis.shape
    e = basis.reshape(g, n, k * k)
    if n <= k * k:
        return e @ e.swapaxes(1, 2) - np.eye(n, dtype=e.dtype)[None]
    return e.swapaxes(1, 2) @ e - n / k**2 * np.eye(k * k, dtype=e.dtype)[None]


def reconstruction_loss(
    basis: ArrayLike, images: ArrayLike, s: ArrayLike, r: ArrayLike
) -> jax.Array:
    """How far the turned responses are from giving back the turned image.

        L_rec = | R_S[f]  -  1/N sum_i R_S[f * e_{R - S}^i] * bar(e)_R^i |_1

    with the mean over pixels, channels and images, where `bar` flips a filter in both directions.
    As printed in the paper it lacks the 1/N; but N orthonormal elements give back N times the
    image, so without it this loss and orthogonality could not be zero together.

    Args:
      basis: `[G, N, k, k]`.
      images: `[B, H, W, C]`, floating-point; each channel counts as an image of its own.
      s: by how many orientations to turn the images; an integer or `[B]`. May be traced.
      r: at which orientation to reconstruct; an integer or `[B]`. May be traced.

    Returns:
      A scalar.

    Example:
      >>> import jax, gconv_jax as gj
      >>> images = jax.random.normal(jax.random.key(0), (2, 16, 16, 1))
      >>> basis = gj.make_basis("weiler")
      >>> print(gj.reconstruction_loss(basis, images, 2, 5) < 1e-5)  # exact at quarter turns
      True

    """
    basis, images = _check(basis, images)
    s, r = (_each("s", s, images), _each("r", r, images))
    target = turn(images, s, len(basis))
    return jnp.abs(crop(target) - crop(reconstruct(basis, images, s, r))).mean()


def reconstruct(basis: jax.Array, images: jax.Array, s: jax.Array, r: jax.Array) -> jax.Array:
    """Returns `1/N sum_i R_S[f * e_{R - S}^i] * bar(e)_R^i`, `[B, H, W, C]`, for `s`, `r` `[B]`."""
    g, n, k, _ = basis.shape
    b, h, w, c = images.shape
    maps = patches(images, k).reshape(b, h, w, c * k * k)
    maps = turn(maps, s, g).reshape(b, h, w, c, k * k)
    # Responses times flipped elements are patches again, each to be put back where it was cut.
    cut = jnp.einsum("bhwcp,bip,biq->bhwcq", maps, elements(basis, r - s), elements(basis, r))
    margin = k // 2
    cut = jnp.pad(cut, ((0, 0), (margin, margin), (margin, margin), (0, 0), (0, 0)))
    out = jnp.zeros_like(images)
    for i in range(k):
        for j in range(k):
            out += cut[:, k - 1 - i :, k - 1 - j :, :, i * k + j][:, :h, :w]
    return out / n


def elements(basis: jax.Array, r: jax.Array) -> jax.Array:
    """Returns the elements at orientations `r` `[B]`, as vectors `[B, N, k*k]`."""
    g, n, k, _ = basis.shape
    return basis.reshape(g, n, k * k)[r % g]


def respond(patch_maps: jax.Array, vectors: jax.Array) -> jax.Array:
    """Correlates `[B, H, W, C, k*k]` with each image's elements `[B, N, k*k]`."""
    return jnp.einsum("bhwcp,bip->bhwci", patch_maps, vectors)


def _check(basis: ArrayLike, images: ArrayLike) -> tuple[jax.Array, jax.Array]:
    basis = _checks.as_basis(basis)
    images = check_images(images, basis.shape[-1])
    return basis.astype(images.dtype), images


def check_images(images: ArrayLike, kernel_size: int) -> jax.Array:
    """Returns square floating-point images that are large enough for their centre to be used."""
    images = _checks.as_floating("images", images, "[B, H, W, C]")
    _, h, w, _ = images.shape
    # What is left after cropping must not have seen the border through patches and blurs.
    smallest = 4 * (kernel_size // 2 + 2)
    if h != w or h < smallest or not len(images):
        raise ValueError(
            f"images must be at least one, square, with {smallest} pixels a side or more for a "
            f"kernel of {kernel_size}, but got shape {images.shape}."
        )
    return images


def _each(name: str, steps: ArrayLike, images: jax.Array) -> jax.Array:
    """Returns orientations, one for each image."""
    steps = jnp.asarray(steps)
    if not jnp.issubdtype(steps.dtype, jnp.integer) or steps.shape not in ((), images.shape[:1]):
        raise ValueError(
            f"{name} must be an integer or one for each of the {len(images)} images, but got "
            f"{steps.dtype} of shape {steps.shape}."
        )
    return jnp.broadcast_to(steps, images.shape[:1])
