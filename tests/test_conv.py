"""lift_conv, group_conv, filter_bank: against loops over the equations, and all they promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import gconv_jax as gj
from tests import reference
from tests.reference import relative_error


def lifting(rng, g=4, k=3, h=6, w=6, n=2, c_in=2, c_out=2, batch=1, dtype=np.float32):
    x = rng.normal(size=(batch, h, w, c_in)).astype(dtype)
    coeffs = rng.normal(size=(n, c_in, c_out)).astype(dtype)
    return x, coeffs, rng.normal(size=(g, n, k, k)).astype(dtype)


def on_group(rng, g=4, k=3, h=6, w=6, n=2, c_in=2, c_out=2, batch=1, dtype=np.float32):
    y = rng.normal(size=(batch, h, w, g, c_in)).astype(dtype)
    coeffs = rng.normal(size=(g, n, c_in, c_out)).astype(dtype)
    return y, coeffs, rng.normal(size=(g, n, k, k)).astype(dtype)


CASES = [
    (gj.lift_conv, reference.lift_conv, lifting),
    (gj.group_conv, reference.group_conv, on_group),
]
both = pytest.mark.parametrize(("conv", "oracle", "make"), CASES, ids=["lift", "group"])


SQUARES = [(g, size) for g in (4, 8, 12) for size in ((6, 6), (7, 7))]


@both
@pytest.mark.parametrize(("g", "size"), [*SQUARES, (8, (5, 8))])
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("strides", [1, 2])
def test_matches_the_loop(rng, conv, oracle, make, g, k, strides, size):
    h, w = size
    arrays = make(rng, g, k, h, w, n=2, c_in=2, c_out=1, dtype=np.float64)
    for padding in ("SAME", "VALID"):
        expected = oracle(*arrays, strides, padding)
        with jax.enable_x64(True):
            actual = conv(*arrays, strides=strides, padding=padding)
            assert actual.dtype == jnp.float64
            assert actual.shape == expected.shape
            assert relative_error(actual, expected) < 1e-12
    in_float32 = [a.astype(np.float32) for a in arrays]
    actual = conv(*in_float32, strides=strides, padding=padding)
    assert actual.dtype == jnp.float32
    assert relative_error(actual, expected) < 1e-5


@both
@settings(max_examples=25)
@given(data=st.data())
def test_matches_the_loop_on_any_shape(conv, oracle, make, data):
    size = st.integers(1, 6)
    arrays = make(
        np.random.default_rng(data.draw(st.integers(0, 99))),
        g=data.draw(st.sampled_from([4, 8])),
        k=data.draw(st.sampled_from([1, 3])),
        h=data.draw(size),
        w=data.draw(size),
        n=data.draw(st.integers(1, 4)),
        c_in=data.draw(st.integers(1, 3)),
        c_out=data.draw(st.integers(1, 3)),
        batch=data.draw(st.integers(1, 2)),
    )
    strides = data.draw(st.integers(1, 3))
    expected = oracle(*(a.astype(np.float64) for a in arrays), strides)
    assert relative_error(conv(*arrays, strides=strides), expected) < 1e-5


def test_one_by_one_is_the_roll_alone(rng):
    g, c_in, c_out = 8, 3, 2
    y = rng.normal(size=(2, 5, 4, g, c_in))
    coeffs = rng.normal(size=(g, c_in, c_out))
    expected = np.stack(
        [sum(y[:, :, :, s] @ coeffs[(s - r) % g] for s in range(g)) for r in range(g)],
        axis=3,
    )
    actual = gj.group_conv(y.astype(np.float32), coeffs.astype(np.float32), None)
    assert relative_error(actual, expected) < 1e-5
    assert gj.filter_bank(coeffs, None).shape == (1, 1, g * c_in, g * c_out)


def test_delta_image_shows_the_flipped_filters():
    # Correlation with a delta gives back each filter, mirrored in both directions.
    basis = gj.make_basis("weiler")
    delta = np.zeros((1, 5, 5, 1), np.float32)
    delta[0, 2, 2] = 1
    coeffs = np.zeros((9, 1, 1), np.float32)
    coeffs[3] = 1
    y = gj.lift_conv(delta, coeffs, basis)[0, 1:4, 1:4, :, 0]
    np.testing.assert_allclose(np.flip(np.moveaxis(y, -1, 0), (1, 2)), basis[:, 3], atol=1e-7)


def test_all_ones_counts_pixels():
    y = gj.lift_conv(np.ones((1, 4, 4, 2)), np.ones((1, 2, 1)), np.ones((4, 1, 3, 3)))
    corner, edge, inside = 2 * 4, 2 * 6, 2 * 9
    expected = [corner, edge, edge, corner]
    np.testing.assert_array_equal(y[0, 0, :, 0, 0], expected)
    np.testing.assert_array_equal(y[0, 1, :, 3, 0], [edge, inside, inside, edge])


@both
def test_filter_bank_is_the_whole_convolution(rng, conv, oracle, make):
    x, coeffs, basis = make(rng, g=8, k=3, n=9, c_in=3, c_out=5, batch=2)
    flat = x.reshape(*x.shape[:3], -1)
    bank = gj.filter_bank(coeffs, basis)
    assert bank.shape == (3, 3, flat.shape[-1], 8 * 5)
    plain = jax.lax.conv_general_dilated(
        flat, bank, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    out = conv(x, coeffs, basis, plain=True)
    np.testing.assert_array_equal(plain.reshape(out.shape), out)
    assert relative_error(out, oracle(x, coeffs, basis)) < 1e-5


def test_explicit_padding(rng):
    x, coeffs, basis = lifting(rng, k=3, h=5, w=7)
    same = gj.lift_conv(x, coeffs, basis)
    np.testing.assert_array_equal(gj.lift_conv(x, coeffs, basis, padding=((1, 1), (1, 1))), same)
    np.testing.assert_array_equal(gj.lift_conv(x, coeffs, basis, padding=[[1, 1], [1, 1]]), same)
    wide = gj.lift_conv(np.pad(x, ((0, 0), (2, 0), (0, 3), (0, 0))), coeffs, basis, padding="VALID")
    np.testing.assert_array_equal(gj.lift_conv(x, coeffs, basis, padding=((2, 0), (0, 3))), wide)


@both
def test_jit_and_vmap(rng, conv, oracle, make):
    del oracle
    x, coeffs, basis = make(rng, batch=3)
    eager = conv(x, coeffs, basis)
    np.testing.assert_allclose(jax.jit(conv)(x, coeffs, basis), eager, atol=1e-5)
    mapped = jax.vmap(lambda x: conv(x[None], coeffs, basis)[0])(x)
    np.testing.assert_allclose(mapped, eager, atol=1e-5)
    many = np.stack([coeffs, 2 * coeffs])
    mapped = jax.vmap(conv, in_axes=(None, 0, None))(x, many, basis)
    np.testing.assert_allclose(mapped[1], 2 * eager, atol=1e-4)


@pytest.mark.usefixtures("x64")
@both
@pytest.mark.parametrize("strides", [1, 2])
def test_gradients(rng, conv, oracle, make, strides):
    del oracle
    arrays = make(rng, h=4, w=5, dtype=np.float64)
    check_grads(lambda *a: conv(*a, strides=strides), arrays, order=1, eps=1e-5, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_gradients_of_one_by_one(rng):
    y, coeffs = rng.normal(size=(1, 3, 3, 4, 2)), rng.normal(size=(4, 2, 3))
    check_grads(lambda *a: gj.group_conv(*a, None), (y, coeffs), order=1, eps=1e-5, rtol=1e-6)


@both
def test_bfloat16_sums_in_float32(rng, conv, oracle, make):
    del oracle
    arrays = [jnp.asarray(a, jnp.bfloat16) for a in make(rng)]
    # What the program asks for; a CPU would sum in float32 whatever it is asked.
    program = str(jax.make_jaxpr(conv)(*arrays))
    assert program.count("preferred_element_type=float32") >= 2  # synthesis and convolution
    assert "preferred_element_type=bfloat16" not in program
    y = conv(*arrays)
    assert y.dtype == jnp.bfloat16
    exact = conv(*(a.astype(jnp.float32) for a in arrays))
    assert relative_error(y.astype(jnp.float32), exact) < 0.02
    grads = jax.grad(lambda *a: conv(*a).astype(jnp.float32).sum(), argnums=(0, 1, 2))(*arrays)
    assert [grad.dtype for grad in grads] == [jnp.bfloat16] * 3


def test_filters_are_synthesised_in_float32(rng):
    coeffs, basis = (rng.normal(size=s) for s in ((9, 3, 5), (8, 9, 3, 3)))
    coeffs, basis = (jnp.asarray(a, jnp.bfloat16) for a in (coeffs, basis))
    bank = gj.filter_bank(coeffs, basis)
    assert bank.dtype == jnp.float32
    exact = gj.filter_bank(coeffs.astype(jnp.float32), basis.astype(jnp.float32))
    np.testing.assert_array_equal(bank, exact)
    assert "HIGHEST" in str(jax.make_jaxpr(gj.filter_bank)(coeffs, basis))  # on a TPU too


@both
def test_the_input_sets_the_dtype(rng, conv, oracle, make):
    x, coeffs, basis = make(rng)
    y = conv(x.astype(jnp.bfloat16), coeffs, basis)
    assert y.dtype == jnp.bfloat16
    assert relative_error(y.astype(np.float32), oracle(x, coeffs, basis)) < 0.03


@both
def test_an_empty_batch_stays_empty(rng, conv, oracle, make):
    del oracle
    x, coeffs, basis = make(rng)
    assert conv(x[:0], coeffs, basis).shape == (0, 6, 6, 4, 2)


X, C, E = np.ones((1, 6, 6, 2)), np.ones((9, 2, 3)), np.ones((8, 9, 3, 3))
Y, CG = np.ones((1, 6, 6, 8, 2)), np.ones((8, 9, 2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gj.lift_conv(X[0], C, E), r"x must have shape \[B, H, W, C_in\].*\(6, 6, 2\)"),
        (lambda: gj.lift_conv(X.astype(np.uint8), C, E), "x must be floating-point.*uint8.*astype"),
        (
            lambda: gj.lift_conv(X, CG, E),
            r"coeffs must have shape \[N, C_in, C_out\].*\(8, 9, 2,",
        ),
        (lambda: gj.lift_conv(X, C, E[0]), r"basis must have shape \[G, N, k, k\].*\(9, 3, 3\)"),
        (lambda: gj.lift_conv(X, C[:8], E), "coeffs and basis must agree on N.* has 8 .* has 9 "),
        (lambda: gj.lift_conv(X[..., :1], C, E), "x and coeffs must agree on C_in.*has 1 .*has 2 "),
        (lambda: gj.lift_conv(X, C, E[:6]), "multiple of 4 .* but got 6; the nearest that works"),
        (lambda: gj.lift_conv(X, C, E[:2]), "multiple of 4 .* but got 2; .* is 4"),
        (
            lambda: gj.lift_conv(X, C, E[..., :2, :2]),
            "kernel size k, must be odd .* got 2; use 1",
        ),
        (lambda: gj.lift_conv(X, C, E[..., :1, :]), r"square filters .* shape \(8, 9, 1, 3\)"),
        (lambda: gj.lift_conv(X, C, E, strides=0), "strides must be a positive integer, .* got 0"),
        (lambda: gj.lift_conv(X, C, E, strides=(2, 2)), r"strides must be .*, but got \(2, 2\)"),
        (lambda: gj.lift_conv(X, C, E, padding="FULL"), "padding must be \"SAME\", .* got 'FULL'"),
        (lambda: gj.lift_conv(X, C, E, padding=1), "padding must be .* but got '1'"),
        (lambda: gj.lift_conv(X, C, E, padding=((1, 1), (0, -1))), "padding must be "),
        (
            lambda: gj.lift_conv(X[:, :2], C, E, padding="VALID"),
            "x must be at least .*3x3.*H = 2",
        ),
        (lambda: gj.group_conv(X, CG, E), r"y must have shape \[B, H, W, G, C_in\]"),
        (lambda: gj.group_conv(Y, C, E), r"coeffs must have shape \[G, N, C_in, C_out\]"),
        (
            lambda: gj.group_conv(Y[..., :4, :], CG, E),
            "y and coeffs must agree on G.*has 4.*has 8",
        ),
        (lambda: gj.group_conv(Y, CG[:4], E), "coeffs and basis must agree on G.* has 4 .* has 8"),
        (lambda: gj.group_conv(Y, CG[:, :8], E), "coeffs and basis must agree on N.*has 8 .*has 9"),
        (
            lambda: gj.group_conv(Y[..., :1], CG, E),
            "y and coeffs must agree on C_in.*has 1.*has 2",
        ),
        (lambda: gj.group_conv(Y, CG, None), r"coeffs must have shape \[G, C_in, C_out\]"),
        (lambda: gj.group_conv(Y, C[:6], None), "multiple of 4 .* but got 6"),
        (lambda: gj.filter_bank(C[0], E), r"coeffs must have shape \[\.\.\., N, .* \(2, 3\)"),
        (lambda: gj.filter_bank(C[:4], E), "coeffs and basis must agree on N"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
