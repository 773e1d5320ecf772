"""solve_basis: unitary, exact at quarter turns, and not to be improved upon."""

import itertools

import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.bases import closed_form
from gconv_jax.bases.quality import judge, patch_moments


@pytest.fixture(scope="module")
def images():
    data = gj.data.load("cifar10", source="embedded", size=60)
    mean, std = gj.data.colour_statistics(data.images)
    return np.asarray(gj.data.normalise(data.images, mean=mean, std=std))


@pytest.mark.parametrize(("g", "k"), [(4, 3), (8, 3), (12, 3), (16, 3), (8, 5)])
def test_unitary_and_exact_at_quarter_turns(images, g, k):
    basis = np.asarray(gj.solve_basis(images, orientations=g, kernel_size=k))
    assert basis.shape == (g, k * k, k, k)
    turned = np.rot90(basis, axes=(2, 3))
    np.testing.assert_array_equal(np.roll(basis, -g // 4, axis=0), turned)
    quality = gj.basis_quality(basis, images)
    assert quality.condition_number < 1.0001
    assert quality.residual < 1e-4
    weiler = gj.make_basis("weiler", orientations=g, kernel_size=k)
    if g == 4:  # nothing but quarter turns, which are exact in both
        assert quality.error < 1e-6
    else:
        assert quality.error < gj.basis_quality(weiler, images).error


def test_no_other_unitary_basis_nearby_is_better(images, rng):
    basis = np.asarray(gj.solve_basis(images), np.float64).reshape(8, 9, 9)
    moments = patch_moments(images, 8, 3)
    best = judge(basis.reshape(8, 9, 3, 3), moments).error
    for size, _ in itertools.product((0.01, 0.1, 1), range(10)):
        skew = rng.normal(size=(9, 9)) * size
        rotation, _ = np.linalg.qr(np.eye(9) + skew - skew.T)
        q = (rotation @ basis[1]).reshape(1, 9, 3, 3)
        first = np.concatenate([basis[0].reshape(1, 9, 3, 3), q])
        moved = np.concatenate([np.rot90(first, t, axes=(2, 3)) for t in range(4)])
        assert judge(moved, moments).error > best


@pytest.mark.parametrize("g", [12, 16])
def test_sweeps_never_make_it_worse_and_end(images, g, monkeypatch):
    moments = patch_moments(images, g, 3)
    errors = []

    def watched(*arguments, agreement=closed_form._agreement):
        errors.append(2 - 2 * agreement(*arguments))
        return agreement(*arguments)

    monkeypatch.setattr(closed_form, "_agreement", watched)
    q = closed_form._sweep(moments, 3, 1e-9, 1000)
    assert len(errors) > 2
    assert np.all(np.diff(errors) <= 1e-12)
    # What is minimised is what is reported, but for |a|^2 + |b|^2 in place of 2 |a| |b|.
    basis = closed_form._unfold(q, 3).reshape(g, 9, 3, 3)
    assert judge(basis, moments).error == pytest.approx(errors[-1], rel=1e-4)


def test_the_choice_of_e0_changes_nothing_else(images):
    e0 = np.linalg.qr(np.random.default_rng(5).normal(size=(9, 9)))[0].reshape(9, 3, 3)
    mine, default = gj.solve_basis(images, e0=e0), gj.solve_basis(images)
    np.testing.assert_allclose(mine[0], e0, atol=1e-6)
    np.testing.assert_allclose(
        gj.basis_quality(mine, images), gj.basis_quality(default, images), atol=1e-5
    )


def test_gives_up_with_a_sentence(images):
    with pytest.raises(RuntimeError, match="not converged to tolerance = 0 in max_sweeps = 1"):
        gj.solve_basis(images, orientations=16, tolerance=0.0, max_sweeps=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"orientations": 6}, "orientations must be a multiple of 4"),
        ({"kernel_size": 2}, "kernel_size must be odd"),
        ({"e0": np.ones((4, 3, 3))}, r"e0 must have shape \(9, 3, 3\) .* got shape \(4, 3, 3\)"),
        ({"e0": np.ones((9, 3, 3))}, "e0 must have orthonormal elements"),
    ],
)
def test_bad_input(images, options, message):
    with pytest.raises(ValueError, match=message):
        gj.solve_basis(images, **options)
