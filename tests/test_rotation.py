"""rotate: against dense matrices, exact at quarter turns, differentiable, and picky."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.test_util import check_grads

import gconv_jax as gj
from gconv_jax import rotation
from tests import reference
from tests.reference import relative_error

ANGLES = 2 * np.pi * np.arange(24) / 24
METHODS = ("bilinear", "gaussian")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [7, 28, 32])
def test_matches_dense_matrices(rng, method, size):
    x = rng.normal(size=(2, size, size, 3)).astype(np.float32)
    traced = jax.jit(lambda x, a: gj.rotate(x, a, method=method))
    for angle in ANGLES:
        expected = reference.rotate(x, angle, method)
        assert relative_error(gj.rotate(x, angle, method=method), expected) < 1e-5
        assert relative_error(traced(x, angle), expected) < 1e-5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(6, 9), (9, 7), (1, 5)])
def test_matches_dense_matrices_off_the_square(rng, method, shape):
    x = rng.normal(size=(*shape, 2)).astype(np.float32)
    for angle in ANGLES:
        actual = gj.rotate(x, angle, method=method)
        assert np.abs(actual - reference.rotate(x, angle, method)).max() < 1e-5


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("method", METHODS)
def test_float64_is_float64(rng, method):
    x = rng.normal(size=(9, 9, 1))
    for angle in ANGLES:
        actual = gj.rotate(x, angle, method=method, sigma=0.7)
        assert actual.dtype == jnp.float64
        assert relative_error(actual, reference.rotate(x, angle, method, 0.7)) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_sums_in_float32(rng, method):
    x = jnp.asarray(rng.normal(size=(8, 8, 2)), jnp.bfloat16)
    actual = gj.rotate(x, 0.4, method=method)
    assert actual.dtype == jnp.bfloat16
    exact = gj.rotate(x.astype(jnp.float32), 0.4, method=method)
    np.testing.assert_array_equal(actual, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize("turns", range(-9, 10))
@pytest.mark.parametrize("size", [1, 2, 5, 32])
def test_quarter_turns_are_rot90_to_the_bit(rng, turns, size):
    x = rng.normal(size=(2, size, size, 3)).astype(np.float32)
    expected = np.rot90(x, turns, axes=(1, 2))
    angle = turns * np.pi / 2
    for actual in (
        gj.rotate(x, angle),
        jax.jit(gj.rotate)(x, angle),
        gj.rotate(x, jnp.float32(turns) * jnp.float32(np.pi / 2)),
        gj.rotate(x, np.full(2, angle)),
    ):
        assert np.asarray(actual).tobytes() == expected.tobytes()


@given(angle=st.floats(-20, 20), size=st.integers(1, 9), method=st.sampled_from(METHODS))
def test_a_quarter_turn_more_is_rot90(angle, size, method):
    x = np.random.default_rng(1).normal(size=(size, size, 1)).astype(np.float32)
    once = np.rot90(gj.rotate(x, angle, method=method))
    np.testing.assert_allclose(gj.rotate(x, angle + np.pi / 2, method=method), once, atol=1e-5)


@pytest.mark.parametrize("g", [4, 8, 12, 16, 20])
@pytest.mark.parametrize("method", METHODS)
def test_traced_orientations_a_quarter_apart_choose_the_same_pixels(rng, g, method):
    # The Gaussian's window jumps: a bit of rounding in the angle must not move it.
    x = rng.normal(size=(8, 8, 2)).astype(np.float32)
    at = jax.jit(lambda step: gj.rotate(x, 2 * jnp.pi / g * step, method=method))
    for step in range(g):
        expected = np.rot90(at(step % (g // 4)), step // (g // 4))
        np.testing.assert_allclose(at(step), expected, atol=1e-5)


@given(angle=st.floats(-7, 7), method=st.sampled_from(METHODS))
def test_constant_stays_constant_away_from_the_border(angle, method):
    inside = gj.rotate(np.ones((15, 15, 1), np.float32), angle, method=method)[5:10, 5:10]
    np.testing.assert_allclose(inside, 1, atol=1e-6)


@given(angle=st.floats(-7, 7), method=st.sampled_from(METHODS))
def test_never_exceeds_the_image(angle, method):
    x = np.random.default_rng(2).uniform(size=(7, 7, 1)).astype(np.float32)
    y = np.asarray(gj.rotate(x, angle, method=method))
    assert y.min() >= 0
    assert y.max() <= x.max() + 1e-6


def test_is_counter_clockwise():
    x = np.zeros((21, 21, 1), np.float32)
    x[10, 18] = 1  # right of the centre
    y = np.asarray(gj.rotate(x, np.pi / 4))[..., 0]
    row, column = np.unravel_index(y.argmax(), y.shape)
    assert row < 10 < column  # up and right


def test_gaussian_at_zero_is_the_blur_of_the_paper():
    x = np.zeros((5, 5, 1), np.float32)
    x[2, 2] = 1
    y = np.asarray(gj.rotate(x, 0.0, method="gaussian", sigma=0.5))[..., 0]
    side = np.exp(-1 / (2 * 0.5**2))
    line = np.array([0, side, 1, side, 0]) / (1 + 2 * side)
    np.testing.assert_allclose(y, np.outer(line, line), atol=1e-6)
    assert y[2, 2] == pytest.approx(0.62, abs=0.005)


@pytest.mark.parametrize("method", METHODS)
def test_one_angle_per_entry(rng, method):
    x = rng.normal(size=(2, 3, 8, 8, 2)).astype(np.float32)
    angles = rng.uniform(0, 7, size=(2, 3)).astype(np.float32)
    one_each = gj.rotate(x, angles, method=method)
    per_batch = gj.rotate(x, angles[:, 0], method=method)
    mapped = jax.vmap(jax.vmap(lambda x, a: gj.rotate(x, a, method=method)))(x, angles)
    for i, j in np.ndindex(2, 3):
        np.testing.assert_allclose(
            one_each[i, j], gj.rotate(x[i, j], angles[i, j], method=method), atol=1e-5
        )
        np.testing.assert_allclose(
            per_batch[i, j], gj.rotate(x[i, j], angles[i, 0], method=method), atol=1e-5
        )
    np.testing.assert_allclose(mapped, one_each, atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("method", METHODS)
def test_gradients(rng, method):
    x = rng.normal(size=(6, 6, 2))
    check_grads(
        lambda x, a: gj.rotate(x, a, method=method), (x, jnp.float64(0.3)), order=1, eps=1e-5
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("turns", range(4))
def test_the_angle_keeps_its_gradient_at_quarter_turns(rng, turns):
    x, angle, h = rng.normal(size=(6, 6, 1)), turns * np.pi / 2, 1e-6

    def energy(angle):
        return (gj.rotate(x, angle, method="gaussian") ** 3).sum()

    slope = (energy(angle + h) - energy(angle - h)) / (2 * h)
    assert abs(slope) > 0.1
    np.testing.assert_allclose(jax.grad(energy)(angle), slope, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_the_last_bit_of_an_angle_does_not_matter(rng, method):
    # At 45 degrees and even sizes the Gaussian's window is a matter of taste; always the same one.
    x = rng.normal(size=(8, 8, 1)).astype(np.float32)
    for step in range(-9, 17):
        angle = np.float32(np.pi / 4 * step)
        for near in (np.nextafter(angle, np.float32(99)), np.nextafter(angle, np.float32(-99))):
            for a, b in ((angle, near), (jnp.asarray(angle), jnp.asarray(near))):
                one, two = (gj.rotate(x, v, method=method) for v in (a, b))
                np.testing.assert_allclose(one, two, atol=1e-4)


def test_traced_angles_are_accurate_beyond_the_circle(rng):
    x = rng.normal(size=(9, 9, 1)).astype(np.float32)
    traced = jax.jit(gj.rotate)
    for angle in np.float32(rng.uniform(-60, 60, size=40)):
        np.testing.assert_allclose(traced(x, angle), gj.rotate(x, float(angle)), atol=1e-5)


def test_whole_numbers_are_angles_too(rng):
    x = rng.normal(size=(9, 9, 1)).astype(np.float32)
    for angle in (0, 1, -7, 100_000):
        np.testing.assert_array_equal(gj.rotate(x, angle), gj.rotate(x, float(angle)))
        np.testing.assert_array_equal(gj.rotate(x, np.array(angle)), gj.rotate(x, float(angle)))
        np.testing.assert_allclose(
            jax.jit(gj.rotate)(x, angle), gj.rotate(x, float(angle)), atol=1e-5
        )
        np.testing.assert_allclose(
            gj.rotate(x, jnp.int32(angle)), gj.rotate(x, float(angle)), atol=1e-5
        )


def test_coarse_angles_are_quarter_turns_within_their_own_rounding(rng):
    x = rng.normal(size=(9, 9, 1)).astype(np.float32)
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
        turned = gj.rotate(x, jnp.asarray(np.pi / 2, dtype))
        np.testing.assert_array_equal(turned, np.rot90(x))


def test_a_narrow_gaussian_is_the_nearest_pixel(rng):
    x = rng.normal(size=(9, 9, 1)).astype(np.float32)
    narrow = np.asarray(gj.rotate(x, 0.6, method="gaussian", sigma=1e-3))
    distances = np.abs(narrow.ravel()[:, None] - np.append(x, 0)[None])
    assert distances.min(axis=1).max() < 1e-5


def test_new_angles_do_not_compile_again(rng):
    x = rng.normal(size=(4, 5, 5, 1)).astype(np.float32)
    gj.rotate(x, 0.1)
    compiled = rotation._rotate._cache_size()
    gj.rotate(x, 0.2)
    gj.rotate(x, np.pi / 2)
    assert rotation._rotate._cache_size() == compiled


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: gj.rotate(x[0, 0], 0), r"x must have shape \[\.\.\., H, W, C\], .* \(3, 1\)"),
        (lambda x: gj.rotate(x.astype(np.uint8), 0), "x must be floating-point, but got uint8; .*"),
        (lambda x: gj.rotate(x, 0, method="cubic"), "method .* 'bilinear', 'gaussian', .* 'cubic'"),
        (lambda x: gj.rotate(x, 0, sigma=0), "sigma must be positive, .* got 0"),
        (
            lambda x: gj.rotate(x, np.ones(3)),
            r"angle must .* leading axes \(2,\) of x.*shape \(3,",
        ),
        (lambda x: gj.rotate(x, 1j), "angle must be real .* radians, but got 1j"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 3, 3, 1), np.float32))
