"""make_basis: exact quarter turns, orthonormal harmonics, the right interpolations, a control."""

import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj
from tests import reference

EXACT = ("weiler", "bilinear", "gaussian")
sizes = pytest.mark.parametrize("k", [3, 5, 7])
counts = pytest.mark.parametrize("g", [4, 8, 12, 16])


def as_matrices(basis):
    """[G, N, k, k] -> [G, N, k*k] in float64."""
    return np.asarray(basis, np.float64).reshape(*basis.shape[:2], -1)


@sizes
@counts
@pytest.mark.parametrize("name", [*EXACT, "random"])
def test_shape_and_dtype(name, g, k):
    basis = gj.make_basis(name, orientations=g, kernel_size=k)
    assert basis.shape == (g, k * k, k, k)
    assert basis.dtype == jnp.float32
    assert np.isfinite(basis).all()


@sizes
@counts
@pytest.mark.parametrize("name", EXACT)
def test_quarter_turns_are_exact(name, g, k):
    basis = np.asarray(gj.make_basis(name, orientations=g, kernel_size=k))
    turned = np.rot90(basis, axes=(2, 3))
    np.testing.assert_array_equal(np.roll(basis, -g // 4, axis=0), turned)


@sizes
def test_random_is_not_exact_at_quarter_turns(k):
    basis = np.asarray(gj.make_basis("random", kernel_size=k))
    turned = np.rot90(basis, axes=(2, 3))
    assert np.abs(np.roll(basis, -2, axis=0) - turned).mean() > 0.5 / k
    assert np.var(basis) == pytest.approx(1 / k**2, rel=0.2)


@sizes
def test_harmonics_are_orthonormal_at_multiples_of_45_degrees(k):
    for e in as_matrices(gj.make_basis("weiler", kernel_size=k)):
        np.testing.assert_allclose(e @ e.T, np.eye(k * k), atol=1e-6)


def test_harmonics_move_the_ring_by_whole_pixels_at_45_degrees():
    # The pixel right of the centre becomes the one up and right of it.
    e = as_matrices(gj.make_basis("weiler"))
    rotation = e[1].T @ e[0]  # takes a filter at orientation 0 to orientation 1
    right, up_right = np.zeros((3, 3)), np.zeros((3, 3))
    right[1, 2] = up_right[0, 2] = 1
    np.testing.assert_allclose(rotation @ right.ravel(), up_right.ravel(), atol=1e-6)


@pytest.mark.parametrize(("g", "rank"), [(8, 9), (12, 9), (16, 8)])
def test_harmonics_lose_the_nyquist_frequency_between_pixels(g, rank):
    e = as_matrices(gj.make_basis("weiler", orientations=g))
    assert np.linalg.matrix_rank(e[1], tol=1e-6) == rank


@pytest.mark.parametrize("method", ["bilinear", "gaussian"])
@sizes
def test_interpolated_elements_are_rotated_images(rng, method, k):
    e0 = rng.normal(size=(4, k, k)).astype(np.float32)
    basis = gj.make_basis(method, orientations=12, kernel_size=k, e0=e0, sigma=0.6)
    for g in range(12):
        expected = reference.rotate(e0[..., None], 2 * np.pi * g / 12, method, 0.6)[..., 0]
        np.testing.assert_allclose(basis[g], expected, atol=1e-5)


@pytest.mark.parametrize(("name", "condition"), [("bilinear", 2.8), ("gaussian", 3.8)])
def test_interpolation_is_not_unitary(name, condition):
    # The paper's point against it; the numbers do not depend on the orthonormal e0.
    for seed in range(3):
        matrices = as_matrices(gj.make_basis(name, seed=seed))
        assert max(map(np.linalg.cond, matrices)) == pytest.approx(condition, abs=0.06)


def test_default_elements_are_orthonormal_and_follow_the_seed():
    first, again, other = (as_matrices(gj.make_basis("bilinear", seed=s)) for s in (1, 1, 2))
    np.testing.assert_allclose(first[0] @ first[0].T, np.eye(9), atol=1e-6)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


def test_dtype():
    assert gj.make_basis("weiler", dtype=jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gj.make_basis("fourier"), "name must be one of 'weiler', .*, but got 'fourier'"),
        (lambda: gj.make_basis("weiler", orientations=6), "orientations must be a multiple of 4"),
        (lambda: gj.make_basis("weiler", orientations=8.0), "orientations must be an integer"),
        (lambda: gj.make_basis("weiler", kernel_size=4), "kernel_size must be odd .* use 3 or 5"),
        (lambda: gj.make_basis("weiler", e0=np.ones((9, 3, 3))), "e0 is .* but name is 'weiler'"),
        (
            lambda: gj.make_basis("bilinear", e0=np.ones((9, 5, 5))),
            r"e0 .* \[N, 3, 3\] .*\(9, 5,",
        ),
        (lambda: gj.make_basis("gaussian", sigma=-1), "sigma must be positive, .* got -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
