"""Whatever is passed, a mistake gets one sentence that names the argument and what came."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj

KEY = jax.random.key(0)
X = np.ones((2, 6, 6, 2), np.float32)
Y = np.ones((2, 6, 6, 8, 2), np.float32)
C = np.ones((9, 2, 3), np.float32)
CG = np.ones((8, 9, 2, 3), np.float32)
E = np.ones((8, 9, 3, 3), np.float32)


def make(**options):
    return lambda: gj.make_basis("random", **options)


def layer(*arguments, x=X, basis=E, kind=gj.LiftConv, **options):
    return lambda: kind(*arguments, **options).init(KEY, x, basis)


def applied(kind, x, basis, other_x, other_basis):
    def call():
        module = kind(3) if kind in (gj.LiftConv, gj.GroupConv) else kind(widths=(2, 2))
        module.apply(module.init(KEY, x, basis), other_x, other_basis)

    return call


def error(fn, x=X, **options):
    return lambda: gj.equivariance_error(fn, x, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # Not arrays at all.
        (lambda: gj.lift_conv(None, C, E), r"x must be an array \[B, H, W, C_in\], but got None"),
        (lambda: gj.lift_conv(X, C, None), "basis must be an array .*None.* make one"),
        (lambda: gj.group_conv(Y, CG, "weiler"), "basis must be an array .*str 'weiler'; make one"),
        (lambda: gj.lift_conv([[1], [1, 2]], C, E), "x must be an array .* but got list"),
        (lambda: gj.filter_bank(None, E), "coeffs must be an array"),
        (lambda: gj.rotate(jnp.ones((3, 3, 1), jnp.float8_e4m3fn), 0), "x must be .* got float8"),
        (lambda: gj.rotate(X, None), "angle must be real numbers in radians, but got None"),
        (lambda: gj.rotate(X, "a"), "angle must be real numbers in radians, but got 'a'"),
        (lambda: gj.rotate(X, [1, [2]]), r"angle must be real numbers .* but got \[1, \[2\]\]"),
        (lambda: gj.rotate(X, np.nan), "angle must be finite, but got nan"),
        (lambda: gj.rotate(X, np.array([0, np.inf])), "angle must be finite, but got array"),
        (lambda: gj.roll(Y, None), "steps must be one integer number .* but got None"),
        (lambda: gj.pool_orientations(Y[..., :0, :]), "y must have at least one orientation"),
        # Parameters that were made for something else.
        (applied(gj.LiftConv, X, E, X[..., :1], E), r"coeffs \[N, C_in, C_out\] .* \(9, 1, 3\)"),
        (applied(gj.LiftConv, X, E, X, E[:, :4]), r"coeffs .* ask for shape \(4, 2, 3\)"),
        (applied(gj.GroupConv, Y, E, Y[..., :1], E), r"coeffs .* ask for shape \(8, 9, 1, 3\)"),
        (applied(gj.GroupConv, Y, E, Y[..., :4, :], E[:4]), r"ask for shape \(4, 9, 2, 3\)"),
        (applied(gj.GroupConv, Y, E, Y[..., :4, :], E), "y and basis must agree on G"),
        (applied(gj.GroupAllCNN, X, E, X, E[:4]), r"coeffs .* ask for shape \(4, 9, 2, 2\)"),
        (applied(gj.GroupAllCNN, X, E, X[..., :1], E), r"coeffs .* ask for shape \(9, 1, 2\)"),
        # Options of layers and networks.
        (layer(0), "features must be a positive integer, but got 0"),
        (layer(2.0), "features must be a positive integer, but got 2.0"),
        (layer(True), "features must be a positive integer, but got True"),
        (layer(2, "3"), "kernel_size must be a positive integer, but got '3'"),
        (layer(2, (3, 3)), r"kernel_size must be a positive integer, but got \(3, 3\)"),
        (layer(2, 2), "kernel_size must be odd .* use 1 or 3"),
        (layer(2, 1, x=Y, kind=gj.GroupConv), "kernel_size = 1, but .* leave the basis out"),
        (layer(2, dtype=int), "dtype must be a floating-point dtype .* but got <class 'int'>"),
        (layer(2, param_dtype="foo"), "param_dtype must be a floating-point dtype .* got 'foo'"),
        (layer(kind=gj.GroupAllCNN, widths=3), "widths must be two numbers .* but got 3"),
        (layer(kind=gj.GroupAllCNN, widths=(1, 2, 3)), r"widths must be two .* got \(1, 2, 3\)"),
        (layer(kind=gj.GroupAllCNN, widths=(0, 2)), "widths must be a positive .* but got 0"),
        (layer(kind=gj.GroupAllCNN, num_classes=0), "num_classes must be a positive .* got 0"),
        # Options of functions.
        (lambda: gj.lift_conv(X, C, E, padding=np.ones((2, 3), int)), "padding must be"),
        (lambda: gj.rotate(X, 0, method=np.ones(2)), "method must be one of"),
        (lambda: gj.rotate(X, 0, sigma=None), "sigma must be positive, .* but got None"),
        (lambda: gj.rotate(X, 0, sigma="a"), "sigma must be positive, .* but got 'a'"),
        (lambda: gj.rotate(X, 0, sigma=np.ones(2)), "sigma must be positive, .* but got array"),
        (lambda: gj.rotate(X, 0, sigma=jnp.float32(-1)), "sigma must be positive, .* but got"),
        (lambda: gj.rotate(X, 0, sigma=np.inf), "sigma must be positive, a finite number"),
        (lambda: gj.make_basis(None), "name must be one of 'weiler', .* but got None"),
        (make(sigma=-1), "sigma must be positive, .* but got -1"),
        (make(seed=-1), "seed must be an integer of at least 0, but got -1"),
        (make(seed=None), "seed must be an integer of at least 0, but got None"),
        (make(dtype=int), "dtype must be a floating-point dtype"),
        # Functions that cannot be measured.
        (error(jnp.sin, steps=[]), r"steps must be integers, at least one, but got \[\]"),
        (error(jnp.sin, steps=2), "steps must be integers, at least one, but got 2"),
        (error(jnp.sin, steps=[0.5]), r"steps must be integers, .* but got \[0.5\]"),
        (error(jnp.sin, crop=None), "crop must be .* but got None"),
        (error(jnp.sin, X[:0]), "x must be square images, at least one"),
        (lambda: gj.assert_equivariant(jnp.sin, X, tolerance=None), "tolerance must be positive"),
        (error(lambda _: Y[..., :6, :]), "the output of fn, .* multiple of 4"),
        (error(lambda _: Y[:, :5]), "the output of fn must be square in space"),
        (error(lambda x: x.astype(int)), "the output of fn must be floating-point"),
        (error(lambda x: (x, x[0])), "the output of fn must be an array"),
    ],
)
def test_one_sentence(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_integers_of_any_kind_are_integers():
    y = gj.lift_conv(X, C, gj.make_basis("weiler", orientations=np.int64(8)), strides=np.int32(2))
    assert y.shape == (2, 3, 3, 8, 3)
    assert gj.make_basis("weiler", kernel_size=np.uint8(5)).shape == (8, 25, 5, 5)


def test_bases_can_be_made_and_learned_through_under_jit():
    e0 = jax.random.normal(KEY, (9, 3, 3))

    def energy(e0):
        return (gj.lift_conv(X, C, gj.make_basis("gaussian", e0=e0)) ** 2).sum()

    gradient = jax.jit(jax.grad(energy))(e0)
    assert jnp.abs(gradient).max() > 0
    assert jax.jit(lambda x: gj.lift_conv(x, C, gj.make_basis("bilinear")))(X).shape[3] == 8
