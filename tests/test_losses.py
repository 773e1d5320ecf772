"""The three losses and the quality of a basis, against the paper's equations written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import gconv_jax as gj
from gconv_jax.bases.quality import patch_moments
from gconv_jax.bases.turned import blur, turn
from tests import reference

G, K, N = 8, 3, 4


@pytest.fixture
def images(rng):
    return rng.normal(size=(3, 16, 16, 2)).astype(np.float32)


@pytest.fixture
def basis(rng):
    return rng.normal(size=(G, N, K, K)).astype(np.float32)


def turned(image, s, g=G):
    return reference.rotate(image[..., None], 2 * np.pi * s / g, "gaussian", 0.5)[..., 0]


def correlate(image, kernel):
    return reference.correlate(image, kernel, 1, "SAME")


def centre(image):
    h = len(image)
    return image[h // 4 : h - h // 4, h // 4 : h - h // 4]


def channels(images):
    """Each channel of each image by itself: (index of the image, [H, W])."""
    return [(b, images[b, :, :, c]) for b, c in np.ndindex(images.shape[0], images.shape[-1])]


S, R = np.array([1, 6, 3]), np.array([2, 5, 0])


def test_equivariance_loss_is_the_papers(basis, images):
    total = []
    for b, f in channels(images):
        s, r = S[b], R[b]
        total.append(
            sum(
                np.abs(
                    centre(turned(correlate(turned(f, s), basis[r, i]), 0))
                    - centre(turned(correlate(turned(f, 0), basis[(r - s) % G, i]), s))
                ).mean()
                for i in range(N)
            )
        )
    np.testing.assert_allclose(gj.equivariance_loss(basis, images, S, R), np.mean(total), rtol=1e-4)


def test_reconstruction_loss_is_the_papers(basis, images):
    total = []
    for b, f in channels(images):
        s, r = S[b], R[b]
        rebuilt = sum(
            correlate(turned(correlate(f, basis[(r - s) % G, i]), s), np.flip(basis[r, i]))
            for i in range(N)
        )
        total.append(np.abs(centre(turned(f, s)) - centre(rebuilt / N)).mean())
    actual = gj.reconstruction_loss(basis, images, S, R)
    np.testing.assert_allclose(actual, np.mean(total), rtol=1e-4)


def test_orthogonality_loss_is_the_papers(basis):
    e = basis.reshape(G, N, -1)
    expected = sum(np.abs(e[r] @ e[r].T - np.eye(N)).sum() for r in range(G))
    np.testing.assert_allclose(gj.orthogonality_loss(basis), expected, rtol=1e-5)


def test_overcomplete_bases_are_asked_for_a_tight_frame(rng):
    unions = [np.linalg.qr(rng.normal(size=(9, 9)))[0] for _ in range(3)]
    frame = np.concatenate(unions).reshape(1, 27, 3, 3).repeat(4, axis=0)
    assert gj.orthogonality_loss(frame) < 1e-4
    assert gj.orthogonality_loss(1.1 * frame) > 1


@pytest.mark.parametrize("name", ["weiler", "closed_form"])
def test_all_three_vanish_at_quarter_turns_for_a_unitary_basis(images, name):
    basis = gj.make_basis(name)
    assert gj.orthogonality_loss(basis) < 1e-4
    for s in (0, 2, 4, 6):
        assert gj.equivariance_loss(basis, images, s, 3) < 1e-5
        assert gj.reconstruction_loss(basis, images, s, 3) < 1e-5
    assert gj.equivariance_loss(basis, images, 1, 3) > 0.1  # white noise does not turn well
    assert gj.equivariance_loss(gj.make_basis("random"), images, 2, 3) > 0.5


def test_one_turn_for_all_or_one_each(basis, images):
    for loss in (gj.equivariance_loss, gj.reconstruction_loss):
        apart = [loss(basis, images[b : b + 1], int(S[b]), int(R[b])) for b in range(3)]
        np.testing.assert_allclose(loss(basis, images, S, R), np.mean(apart), rtol=1e-5)
        np.testing.assert_allclose(
            loss(basis, images, 1, 2), loss(basis, images, [1] * 3, [2] * 3), rtol=1e-5
        )
        traced = jax.jit(loss)
        np.testing.assert_allclose(
            traced(basis, images, S, R), loss(basis, images, S, R), rtol=1e-5
        )
        traced(basis, images, R, S)
        assert traced._cache_size() == 1  # other turns do not compile again


@pytest.mark.usefixtures("x64")
def test_gradients(rng):
    images = rng.normal(size=(2, 12, 12, 1))
    basis = rng.normal(size=(4, 3, 3, 3))
    s, r = jnp.array([1, 2]), jnp.array([3, 0])
    for loss in (gj.equivariance_loss, gj.reconstruction_loss):
        check_grads(lambda e, loss=loss: loss(e, images, s, r), (basis,), order=1, eps=1e-6)
    check_grads(gj.orthogonality_loss, (basis,), order=1, modes=["rev"], eps=1e-6)


def test_blur_is_a_turn_by_nothing(images):
    np.testing.assert_allclose(blur(images), turn(images, 0, G), atol=1e-6)


def test_quality_is_the_definition(rng):
    """Error(S) summed from responses to the whitened elements, image by image."""
    images = rng.normal(size=(2, 16, 16, 2)).astype(np.float32)
    basis = rng.normal(size=(4, 10, 3, 3))
    e = basis.reshape(4, 10, 9)
    white = (np.linalg.pinv(e[0]) @ e).reshape(4, 9, 3, 3)
    errors = []
    for s in range(1, 4):
        a, b = np.zeros((4, 9, 4, 8, 8)), np.zeros((4, 9, 4, 8, 8))
        for n, (_, f) in enumerate(channels(images)):
            for r, i in np.ndindex(4, 9):
                a[r, i, n] = centre(turned(correlate(turned(f, s, 4), white[r, i]), 0, 4))
                b[r, i, n] = centre(turned(correlate(turned(f, 0, 4), white[(r - s) % 4, i]), s, 4))
        norms = [np.sqrt((v**2).sum(axis=(1, 2, 3, 4))) for v in (a, b)]
        errors.append(((a - b) ** 2).sum() / (norms[0] * norms[1]).sum())
    quality = gj.basis_quality(basis, images)
    np.testing.assert_allclose(quality.error, np.mean(errors), rtol=1e-4)
    np.testing.assert_allclose(quality.condition_number, max(map(np.linalg.cond, e)), rtol=1e-4)
    unit = e / np.sqrt((e**2).sum(-1).mean())
    residual = np.mean([np.abs(m.T @ m - 10 / 9 * np.eye(9)).sum() for m in unit])
    np.testing.assert_allclose(quality.residual, residual, rtol=1e-4)


def test_moments_do_not_depend_on_the_blocks(rng):
    images = rng.normal(size=(7, 12, 12, 1)).astype(np.float32)
    whole, cut = (patch_moments(images, 4, 3, at_once=n) for n in (7, 3))
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(a).max())


def test_quality_does_not_depend_on_the_choice_of_elements(rng, images):
    basis = np.asarray(gj.make_basis("weiler"))
    mixing = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    mixed = np.einsum("ij,gjyx->giyx", mixing, basis)
    np.testing.assert_allclose(
        gj.basis_quality(mixed, images), gj.basis_quality(basis, images), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, x: gj.equivariance_loss(e[0], x, 0, 0), r"basis must have shape \[G, N, k, k\]"),
        (lambda e, x: gj.equivariance_loss(e, x[:, :8], 0, 0), "images must be .* square"),
        (lambda e, x: gj.equivariance_loss(e, x[:, :8, :8], 0, 0), "with 12 pixels a side or more"),
        (lambda e, x: gj.equivariance_loss(e, x, 0.5, 0), "s must be an integer .* got float"),
        (
            lambda e, x: gj.reconstruction_loss(e, x, 0, [1, 2]),
            r"r must .* 3 images.* shape \(2,",
        ),
        (lambda e, x: gj.basis_quality(e, x[:0]), "images must be at least one"),
        (lambda e, x: gj.basis_quality(e, 0 * x), "images must show something in their centre"),
        (lambda e, x: gj.basis_quality(e, x.astype(np.uint8)), "images must be floating-point"),
    ],
)
def test_bad_input(basis, images, call, message):
    with pytest.raises(ValueError, match=message):
        call(basis, images)
