"""Every way to get a basis: arrays `[G, N, k, k]`, N filters of k x k pixels at G orientations."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from gconv_jax import _checks
from gconv_jax.bases import analytic
from gconv_jax.bases.closed_form import solve_basis
from gconv_jax.bases.files import PRETRAINED, basis_card, load_basis, save_basis
from gconv_jax.bases.losses import equivariance_loss, orthogonality_loss, reconstruction_loss
from gconv_jax.bases.quality import BasisQuality, basis_quality

__all__ = [
    "BasisQuality",
    "basis_card",
    "basis_quality",
    "equivariance_loss",
    "load_basis",
    "make_basis",
    "orthogonality_loss",
    "reconstruction_loss",
    "save_basis",
    "solve_basis",
]

NAMES = ("weiler", "bilinear", "gaussian", "random", *PRETRAINED)
_INTERPOLATED = ("bilinear", "gaussian")


def make_basis(
    name: str,
    *,
    orientations: int = 8,
    kernel_size: int = 3,
    e0: ArrayLike | None = None,
    sigma: float = 0.5,
    seed: int = 0,
    dtype: DTypeLike = jnp.float32,
) -> jax.Array:
    """Makes a basis by its name: `basis[g]` is `basis[0]` turned by `2 pi g / G`.

    - `"weiler"`: circular harmonics on square rings, rotated by their phase. Orthonormal and
      complete at multiples of 45 degrees. At others the highest frequency of a ring falls between
      the pixels: it shrinks by half at 30 degrees (G = 12), and is lost at 22.5 (G = 16).
    - `"bilinear"`: the elements `e0` rotated as images by bilinear interpolation.
    - `"gaussian"`: the elements `e0` rotated as images by the 3x3 Gaussian of width `sigma`.
    - `"random"`: independent normal numbers at every orientation. The control: not equivariant.
    - `"partial"`, `"full"`, `"overcomplete"`, `"closed_form"`: the learned ones that ship with the
      package; see `load_basis`.

    All but `"random"`, `"full"` and `"overcomplete"` are exact at quarter turns: `basis[g + G/4]`
    is `rot90(basis[g])` to the bit.

    Args:
      name: one of the names above.
      orientations: G, a multiple of 4.
      kernel_size: k, odd; 3, 5 and 7 are usual.
      e0: the elements at orientation 0, `[N, k, k]`, for `"bilinear"` and `"gaussian"`; a random
        orthonormal set of k^2 elements by default.
      sigma: width of the interpolator of `"gaussian"` in pixels.
      seed: for `"random"`, and for the default `e0`.
      dtype: of the result.

    Returns:
      Basis `[G, N, k, k]`, with N = k^2 unless `e0` says otherwise.

    Example:
      >>> import gconv_jax as gj
      >>> gj.make_basis("weiler").shape
      (8, 9, 3, 3)
      >>> gj.make_basis("gaussian", orientations=16, kernel_size=5).shape
      (16, 25, 5, 5)

    """
    _checks.check_choice("name", name, NAMES)
    orientations = _checks.as_orientations("orientations", orientations)
    kernel_size = _checks.as_kernel_size("kernel_size", kernel_size)
    seed = _checks.as_int("seed", seed, least=0)
    _checks.check_positive("sigma", sigma)
    _checks.check_dtype("dtype", dtype)
    if e0 is not None and name not in _INTERPOLATED:
        raise ValueError(
            f"e0 is rotated by 'bilinear' and 'gaussian' only, but name is {name!r}; leave e0 out."
        )
    if name in PRETRAINED:
        return load_basis(name, orientations=orientations, kernel_size=kernel_size, dtype=dtype)
    if name == "weiler":
        return jnp.asarray(analytic.harmonic(orientations, kernel_size), dtype)
    if name == "random":
        return jnp.asarray(analytic.random(orientations, kernel_size, seed), dtype)
    if e0 is None:
        e0 = analytic.random_orthonormal(kernel_size, seed)
    elements = _checks.as_floating("e0", e0, "[N, k, k]")
    if elements.shape[1:] != (kernel_size, kernel_size):
        raise ValueError(
            f"e0 must have shape [N, {kernel_size}, {kernel_size}] for kernel_size = "
            f"{kernel_size}, but got shape {elements.shape}."
        )
    return analytic.interpolated(elements, orientations, name, sigma).astype(dtype)
