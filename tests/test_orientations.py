"""roll, act and pooling: the group action and what it leaves alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gconv_jax as gj
from tests import reference
from tests.reference import relative_error


@given(a=st.integers(-20, 20), b=st.integers(-20, 20), g=st.integers(1, 9))
def test_rolls_add_up(a, b, g):
    y = np.arange(2.0 * g * 3).reshape(2, g, 3)
    np.testing.assert_array_equal(gj.roll(gj.roll(y, a), b), gj.roll(y, a + b))
    np.testing.assert_array_equal(gj.roll(y, a), [[s[(r - a) % g] for r in range(g)] for s in y])


def test_roll_takes_traced_steps(rng):
    y = rng.normal(size=(3, 8, 2)).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(gj.roll)(y, 3), gj.roll(y, 3))


@pytest.mark.parametrize("method", ["bilinear", "gaussian"])
@pytest.mark.parametrize("g", [4, 8, 12])
def test_act_is_rotate_of_the_slice_before(rng, method, g):
    y = rng.normal(size=(2, 6, 6, g, 3)).astype(np.float32)
    traced = jax.jit(lambda y, s: gj.act(y, s, method=method))
    for step in range(-1, g + 2):
        expected = np.stack(
            [
                reference.rotate(y[:, :, :, (r - step) % g], 2 * np.pi * step / g, method)
                for r in range(g)
            ],
            axis=3,
        )
        assert relative_error(gj.act(y, step, method=method), expected) < 1e-5
        assert relative_error(traced(y, step), expected) < 2e-5


@given(a=st.integers(-9, 9), b=st.integers(-9, 9))
def test_quarter_turns_act_as_a_group(a, b):
    y = np.random.default_rng(0).normal(size=(5, 5, 8, 2)).astype(np.float32)
    np.testing.assert_array_equal(gj.act(gj.act(y, 2 * a), 2 * b), gj.act(y, 2 * (a + b)))
    np.testing.assert_array_equal(gj.act(y, 8 * a), y)


def test_pooling(rng):
    y = rng.normal(size=(2, 3, 3, 8, 4)).astype(np.float32)
    np.testing.assert_array_equal(gj.pool_orientations(y), y.max(axis=3))
    np.testing.assert_allclose(gj.pool_orientations(y, how="mean"), y.mean(axis=3), atol=1e-6)
    for how in ("max", "mean"):
        once = gj.pool_orientations(gj.act(y, 2), how=how)
        then = gj.rotate(gj.pool_orientations(y, how=how), np.pi / 2)
        np.testing.assert_allclose(once, then, atol=1e-6)


def test_means_are_taken_in_float32():
    y = jnp.full((1024, 1), 300.0, jnp.float16)  # their sum is beyond float16
    assert gj.pool_orientations(y, how="mean") == 300
    y = jnp.asarray([256.0, 1, 1, 1, 1, 1, 1, 1])[:, None].astype(jnp.bfloat16)
    assert gj.pool_orientations(y, how="mean") == jnp.bfloat16(263 / 8)


def test_steps_do_not_compile_again(caplog):
    y = np.ones((3, 3, 8, 2), np.float32)
    gj.act(y, 1)
    with jax.log_compiles():
        gj.act(y, 5)
        gj.act(y, -2)
        gj.roll(y, 3)
    assert "XLA compilation" not in caplog.text


def test_narrow_integers_are_wide_enough():
    y = np.ones((4, 4, 256, 1), np.float32)
    np.testing.assert_allclose(gj.act(y, np.uint8(64)), y)
    np.testing.assert_allclose(gj.act(y, np.int8(-64)), y)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_dtypes_stay(rng, dtype):
    y = jnp.asarray(rng.normal(size=(4, 4, 8, 2)), dtype)
    for out in (gj.roll(y, 1), gj.act(y, 1), gj.pool_orientations(y, how="mean")):
        assert out.dtype == dtype


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: gj.act(y[:, :3], 1), "y must be square in space .* H = 3 and W = 4"),
        (lambda y: gj.act(y[..., :6, :], 1), r"y\.shape\[-2\].* multiple of 4 .* got 6; .* is 8"),
        (lambda y: gj.act(y[0, 0, 0], 1), r"y must have shape \[\.\.\., H, W, G, C\]"),
        (lambda y: gj.act(y, 1.5), "steps must be one integer .* got 1.5"),
        (lambda y: gj.act(y, np.arange(2)), r"steps must be one integer .* array\(\[0, 1\]\)"),
        (lambda y: gj.roll(y[0, 0, 0, 0], 1), r"y must have shape \[\.\.\., G, C\]"),
        (lambda y: gj.roll(y.astype(int), 1), "y must be floating-point, but got int"),
        (lambda y: gj.pool_orientations(y, how="sum"), "how must be one of 'max', 'mean'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.ones((2, 4, 4, 8, 1), np.float32))
