"""LiftConv and GroupConv: thin shells around the functions, with the right parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj
from gconv_jax.layers import variance_preserving

KEY = jax.random.key(0)
BASIS = gj.make_basis("weiler")
IMAGES = jax.random.normal(jax.random.key(1), (2, 9, 9, 3))
MAPS = jax.random.normal(jax.random.key(2), (2, 9, 9, 8, 3))


@pytest.mark.parametrize("options", [{}, {"strides": 2}, {"padding": "VALID"}])
@pytest.mark.parametrize(
    ("layer", "conv", "x", "shape"),
    [
        (gj.LiftConv, gj.lift_conv, IMAGES, (9, 3, 5)),
        (gj.GroupConv, gj.group_conv, MAPS, (8, 9, 3, 5)),
    ],
)
def test_is_the_function_with_parameters(layer, conv, x, shape, options):
    layer = layer(5, **options)
    out, variables = layer.init_with_output(KEY, x, BASIS)
    coeffs = variables["params"]["coeffs"]
    assert jax.tree.map(jnp.shape, variables) == {"params": {"coeffs": shape}}
    # Made by the plain way, which compiles sooner, and applied by the fast one.
    np.testing.assert_array_equal(out, conv(x, coeffs, BASIS, **options, plain=True))
    np.testing.assert_array_equal(
        layer.apply(variables, x, BASIS), conv(x, coeffs, BASIS, **options)
    )


def test_one_by_one_needs_no_basis():
    layer = gj.GroupConv(5, kernel_size=1)
    out, variables = layer.init_with_output(KEY, MAPS)
    coeffs = variables["params"]["coeffs"]
    assert coeffs.shape == (8, 3, 5)
    np.testing.assert_array_equal(out, gj.group_conv(MAPS, coeffs, None))


@pytest.mark.parametrize(("layer", "x"), [(gj.LiftConv, IMAGES), (gj.GroupConv, MAPS)])
def test_bias_is_one_number_a_channel(layer, x):
    layer = layer(5, use_bias=True)
    variables = layer.init(KEY, x, BASIS)
    assert variables["params"]["bias"].shape == (5,)
    bias = jnp.arange(5.0)
    shifted = {"params": variables["params"] | {"bias": bias}}
    difference = layer.apply(shifted, x, BASIS) - layer.apply(variables, x, BASIS)
    np.testing.assert_allclose(difference, jnp.broadcast_to(bias, difference.shape), atol=1e-5)


@pytest.mark.parametrize(("layer", "x"), [(gj.LiftConv, IMAGES), (gj.GroupConv, MAPS)])
def test_dtypes(layer, x):
    half = layer(5, dtype=jnp.bfloat16, use_bias=True)
    out, variables = half.init_with_output(KEY, x, BASIS)
    assert out.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    full = layer(5, use_bias=True).apply(variables, x, BASIS)
    assert full.dtype == jnp.float32
    np.testing.assert_allclose(out.astype(jnp.float32), full, atol=0.1)
    params = layer(5, param_dtype=jnp.bfloat16).init(KEY, x, BASIS)["params"]
    assert params["coeffs"].dtype == jnp.bfloat16


def test_start_preserves_variance_through_layers():
    # ReLU halves the power of a symmetric signal and He's factor of 2 gives it back. The numbers
    # are one draw; a fan-in that forgets N or G would be off by a factor of 8 or 9 at each layer.
    basis = gj.make_basis("weiler")
    x = jax.random.normal(KEY, (4, 16, 16, 24))
    y, _ = gj.LiftConv(24).init_with_output(KEY, x, basis)
    lifted = (y[:, 2:-2, 2:-2] ** 2).mean()
    z, _ = gj.GroupConv(24).init_with_output(KEY, jax.nn.relu(y), basis)
    convolved = (z[:, 2:-2, 2:-2] ** 2).mean()
    assert 1.4 < lifted < 2.8
    assert 0.5 < convolved / lifted < 2


def test_initialiser_counts_every_axis_but_the_last():
    coeffs = variance_preserving(KEY, (8, 9, 20, 40), jnp.float32)
    assert coeffs.var() == pytest.approx(2 / (8 * 9 * 20), rel=0.02)


def test_coeffs_init_can_be_chosen():
    layer = gj.LiftConv(5, coeffs_init=jax.nn.initializers.ones)
    assert (layer.init(KEY, IMAGES, BASIS)["params"]["coeffs"] == 1).all()


def test_basis_is_data_and_gets_no_parameters():
    layer = gj.LiftConv(5)
    variables = layer.init(KEY, IMAGES, BASIS)
    swapped = layer.apply(variables, IMAGES, gj.make_basis("gaussian"))
    assert swapped.shape == (2, 9, 9, 8, 5)
    assert not np.allclose(swapped, layer.apply(variables, IMAGES, BASIS))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: gj.LiftConv(5, 5).init(KEY, IMAGES, BASIS),
            "kernel_size = 5, but got 3x3",
        ),
        (lambda: gj.GroupConv(5).init(KEY, MAPS), "kernel_size = 3, but got no basis"),
        (lambda: gj.GroupConv(5, 1).init(KEY, MAPS, BASIS), "kernel_size = 1, but got 3x3 filters"),
        (lambda: gj.LiftConv(5).init(KEY, MAPS, BASIS), r"x must have shape \[B, H, W, C_in\]"),
        (lambda: gj.GroupConv(5).init(KEY, IMAGES, BASIS), r"y must have shape \[B, H, W, G, C_in"),
        (lambda: gj.GroupConv(5).init(KEY, MAPS[..., :4, :], BASIS), "must agree on G"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
