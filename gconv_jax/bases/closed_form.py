"""The exactly unitary basis, without descent: orthogonal Procrustes on patch moments.

Take the squared error of the equivariance loss in place of L1, and ask for exact unitarity and
exact quarter turns. With e_0 fixed and the orientations in (0, 90) degrees as unknown orthogonal
matrices, every term that involves one unknown Q is `const - 2 tr(Q^T C)`, where C is made of
cross-moments between the patches of turned images and the turned patches. Its minimum is the polar
factor U V^T of C = U D V^T. For G = 8 there is one unknown, so that one SVD gives the global
minimum; for more, each is solved in turn until nothing changes, and no step can make the error
larger.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax.bases import analytic
from gconv_jax.bases.quality import Matrices, Moments, patch_moments


def solve_basis(
    images: ArrayLike,
    *,
    orientations: int = 8,
    kernel_size: int = 3,
    e0: ArrayLike | None = None,
    tolerance: float = 1e-9,
    max_sweeps: int = 1000,
) -> jax.Array:
    """Solves for the unitary basis, exact at quarter turns, that rotates filters best on `images`.

    It minimises the error that `basis_quality` measures, over all bases with orthonormal elements
    at every orientation and `e_{g + G/4} = rot90(e_g)`: globally for G = 8, to a stationary point
    for more orientations. G = 4 leaves nothing to solve.

    Args:
      images: `[B, H, W, C]`, floating-point, their mean colour taken off; a few hundred are enough.
      orientations: G, a multiple of 4.
      kernel_size: k, odd.
      e0: orthonormal elements at orientation 0, `[k^2, k, k]`; circular harmonics by default. It
        changes how the elements look and nothing that they can do.
      tolerance: sweeps end when the error falls by less than this, relative to the signal.
      max_sweeps: more than this raises `RuntimeError`.

    Returns:
      Basis `[G, k^2, k, k]`, float32.

    Example:
      >>> import jax, gconv_jax as gj
      >>> images = jax.random.normal(jax.random.key(0), (8, 16, 16, 1))
      >>> solved = gj.basis_quality(gj.solve_basis(images), images)
      >>> print(solved.error < gj.basis_quality(gj.make_basis("weiler"), images).error)
      True

    """
    orientations = _checks.as_orientations("orientations", orientations)
    kernel_size = _checks.as_kernel_size("kernel_size", kernel_size)
    n = kernel_size**2
    if e0 is None:
        start = analytic.harmonic(4, kernel_size)[0].reshape(n, n)
    else:
        start = np.asarray(_checks.as_floating("e0", e0, "[N, k, k]"), np.float64)
        if start.shape != (n, kernel_size, kernel_size):
            raise ValueError(
                f"e0 must have shape {(n, kernel_size, kernel_size)} for kernel_size = "
                f"{kernel_size}, but got shape {start.shape}."
            )
        start = start.reshape(n, n)
        if np.abs(start @ start.T - np.eye(n)).max() > 1e-4:
            raise ValueError("e0 must have orthonormal elements; make them so, as with a QR.")
    first_quarter = _sweep(
        patch_moments(images, orientations, kernel_size), kernel_size, tolerance, max_sweeps
    )
    rotated = (start @ first_quarter).reshape(-1, n, kernel_size, kernel_size)
    return jnp.asarray(analytic.unfold(rotated), jnp.float32)


def _sweep(moments: Moments, k: int, tolerance: float, max_sweeps: int) -> Matrices:
    """Returns the orthogonal matrices `[G/4, k*k, k*k]` that take e_0 to the first quarter."""
    g = len(moments.cross)
    quarter = g // 4
    # With orthogonal matrices error(S) = 2 - 2 * agreement(S): weigh the turns as the error does.
    powers = np.trace(moments.first, axis1=1, axis2=2) * np.trace(moments.second, axis1=1, axis2=2)
    cross = moments.cross / (g * np.sqrt(powers))[:, None, None]
    q = np.stack([np.eye(k * k)] * quarter)
    agreement = _agreement(q, cross, k)
    for _ in range(max_sweeps):
        for unknown in range(1, quarter):
            u, _, vt = np.linalg.svd(_linear_term(q, unknown, cross, k))
            q[unknown] = u @ vt
        before, agreement = agreement, _agreement(q, cross, k)
        if agreement - before <= tolerance or quarter <= 2:
            return q
    raise RuntimeError(
        f"the basis has not converged to tolerance = {tolerance:g} in max_sweeps = {max_sweeps}; "
        "allow more of either."
    )


def _unfold(q: Matrices, k: int) -> Matrices:
    """Fills the circle: `[G/4, k*k, k*k] -> [G, k*k, k*k]`."""
    return analytic.unfold(q.reshape(-1, k * k, k, k)).reshape(-1, k * k, k * k)


def _agreement(q: Matrices, cross: Matrices, k: int) -> float:
    """Returns the mean over S other than 0 of `sum_R tr(e_R C_S e_{R - S}^T)`, at most 1."""
    e = _unfold(q, k)
    sums = [np.einsum("rip,pq,riq->", e, cross[s], np.roll(e, s, axis=0)) for s in range(1, len(e))]
    return float(np.mean(sums))


def _linear_term(q: Matrices, unknown: int, cross: Matrices, k: int) -> Matrices:
    """Returns the C of `tr(Q^T C)` that collects all terms with one unknown in them.

    Orientations `unknown + j G/4` are quarter turns of the unknown: what they meet is turned back.
    Two of them together give a constant.
    """
    e = _unfold(q, k)
    g, quarter = len(e), len(q)
    term = np.zeros((k * k, k * k))
    for r in range(unknown, g, quarter):
        met = np.zeros((k * k, k * k))
        for other in range(g):
            if other % quarter != unknown:
                met += e[other] @ cross[(r - other) % g].T + e[other] @ cross[(other - r) % g]
        back = -(r // quarter)
        term += np.rot90(met.reshape(-1, k, k), back, axes=(1, 2)).reshape(k * k, k * k)
    return term
