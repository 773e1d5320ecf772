"""Every way to correlate against a sum in float64: values, gradients, transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

import gconv_jax as gj
from gconv_jax import winograd
from gconv_jax.correlate import correlate, way


def direct(x, kernel, strides=1, margins=((1, 1), (1, 1))):
    """The sum itself, tap by tap in float64."""
    x = np.pad(np.asarray(x, np.float64), ((0, 0), *margins, (0, 0)))
    k = len(kernel)
    h, w = (size - k + 1 for size in x.shape[1:3])
    return sum(
        x[:, i : i + h : strides, j : j + w : strides] @ np.asarray(kernel[i, j], np.float64)
        for i in range(k)
        for j in range(k)
    )


def arrays(rng, *, b=2, h=8, w=8, k=3, i=16, o=5, dtype=np.float32):
    x = rng.normal(size=(b, h, w, i)).astype(dtype)
    return jnp.asarray(x), jnp.asarray(rng.normal(size=(k, k, i, o)).astype(dtype))


def off(actual, expected):
    """The largest difference, relative to the largest value."""
    return np.max(np.abs(np.asarray(actual, np.float64) - expected)) / np.max(np.abs(expected))


@pytest.mark.parametrize("k", [3, 5])
def test_schemes_are_exact_in_rational_arithmetic(rng, k):
    """One dimension of the equation at the top of the module, in float64."""
    a, g, b = winograd.SCHEMES[k]
    d, f = rng.normal(size=len(b)), rng.normal(size=k)
    np.testing.assert_allclose(a @ ((g @ f) * (b @ d)), np.correlate(d, f, "valid"), atol=1e-13)


def test_which_way():
    assert way((3, 3, 64, 64), 1) == way((5, 5, 64, 64), 1) == "winograd"
    assert way((3, 3, 3, 64), 1) == "patches"  # lifting: few inputs
    assert way((3, 3, 64, 64), 2) == way((7, 7, 64, 64), 1) == way((1, 1, 64, 64), 1) == "patches"


@settings(max_examples=12)
@given(
    sizes=st.tuples(*[st.integers(1, 13)] * 2),
    k=st.sampled_from([1, 3, 5, 7]),
    strides=st.integers(1, 3),
    margins=st.tuples(*[st.tuples(*[st.integers(0, 4)] * 2)] * 2),
    channels=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
def test_any_windows(sizes, k, strides, margins, channels, seed):
    h, w = sizes
    if h + sum(margins[0]) < k or w + sum(margins[1]) < k:
        return
    x, kernel = arrays(np.random.default_rng(seed), h=h, w=w, k=k, i=channels)
    out = correlate(x, kernel, strides, margins)
    expected = direct(x, kernel, strides, margins)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out, expected, atol=2e-5 * np.sqrt(k * k * channels))


@pytest.mark.parametrize(("k", "size"), [(3, 32), (3, 14), (3, 7), (5, 16)])
def test_accuracy_of_values_and_gradients(rng, k, size):
    """With as many channels as the paper's network: at most 2e-5 of the largest."""
    x, kernel = arrays(rng, h=size, w=size, k=k, i=264, o=32)
    dy = rng.normal(size=(2, size, size, 32))
    margins = 2 * ((k // 2, k // 2),)
    out, pull_back = jax.vjp(lambda x, kernel: correlate(x, kernel, 1, "SAME"), x, kernel)
    dx, dkernel = pull_back(jnp.asarray(dy, jnp.float32))
    assert off(out, direct(x, kernel, 1, margins)) < 5e-6
    turned = np.flip(np.asarray(kernel), (0, 1)).swapaxes(2, 3)
    assert off(dx, direct(dy, turned, 1, margins)) < 5e-6
    padded = np.pad(np.asarray(x, np.float64), ((0, 0), *margins, (0, 0)))
    axes = ((0, 1, 2), (0, 1, 2))
    taps = [
        np.tensordot(padded[:, i : i + size, j : j + size], dy, axes)
        for i in range(k)
        for j in range(k)
    ]
    assert off(dkernel, np.reshape(taps, kernel.shape)) < 5e-6


def forward(f, direction):
    """The derivative of `f` along a direction, by a Jacobian-vector product."""
    return lambda *a: jax.jvp(f, a, direction)[1]


def backward(f, direction):
    """The same by its gradient."""

    def along(*a):
        return sum(map(jnp.vdot, jax.grad(f, (0, 1))(*a), direction))

    return along


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("second", [forward, backward])
@pytest.mark.parametrize("first", [forward, backward])
@pytest.mark.parametrize(("k", "strides", "i"), [(3, 1, 16), (5, 1, 16), (3, 2, 16), (1, 1, 4)])
def test_derivatives_of_both_kinds_and_orders(rng, k, strides, i, first, second):
    """In float64, against those of XLA's own convolution."""
    a, *directions = (arrays(rng, b=1, h=5, w=6, k=k, i=i, o=2, dtype=np.float64) for _ in range(3))

    def derivatives(plain):
        def function(x, kernel):
            return jnp.sin(correlate(x, kernel, strides, "SAME", plain=plain)).sum()

        once = first(function, directions[0])
        return jax.jit(lambda *a: (once(*a), second(once, directions[1])(*a)))(*a)

    np.testing.assert_allclose(derivatives(plain=False), derivatives(plain=True), rtol=1e-9)


@pytest.mark.parametrize("k", [3, 5])
def test_gradients_are_those_of_finite_differences(rng, k):
    x, kernel = arrays(rng, b=1, h=5, w=6, k=k, i=16, o=2)
    function = jax.jit(lambda *a: correlate(*a, 1, "SAME"))
    check_grads(function, (x, kernel), order=1, eps=1.0)  # bilinear: any step will do


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("i", [2, 16])
def test_vmap_is_a_loop(rng, axes, i):
    x, kernel = arrays(rng, i=i)
    x, kernel = (
        jnp.stack([array, 2 * array]) if axis == 0 else array
        for array, axis in zip((x, kernel), axes, strict=True)
    )

    def energy(x, kernel):
        return (correlate(x, kernel, 1, "SAME") ** 2).sum()

    gradient = jax.grad(energy, (0, 1))
    mapped = jax.jit(jax.vmap(gradient, axes))(x, kernel)
    for n in range(2):
        arguments = [a if axis is None else a[n] for a, axis in zip((x, kernel), axes, strict=True)]
        alone = jax.jit(gradient)(*arguments)
        for m, a in zip(mapped, alone, strict=True):
            assert off(m[n], np.asarray(a)) < 1e-5


def test_bfloat16_sums_in_float32(rng):
    x, kernel = (a.astype(jnp.bfloat16) for a in arrays(rng, i=256))
    out = correlate(x, kernel, 1, "SAME")
    assert out.dtype == jnp.bfloat16
    assert off(out, direct(x, kernel)) < 2**-8  # its own rounding, and no more


def test_other_platforms_get_the_plain_convolution(rng):
    x, kernel = arrays(rng)
    traced = jax.jit(lambda x, kernel: correlate(x, kernel, 1, "SAME")).trace(x, kernel)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.convolution" in text
    assert "dot_general" not in text
    text = traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "stablehlo.convolution" not in text
    plain = jax.jit(lambda x, kernel: correlate(x, kernel, 1, "SAME", plain=True))
    assert "stablehlo.convolution" in plain.lower(x, kernel).as_text()


def test_transforms_are_stored_and_not_fused(rng):
    """That the calls survive is what the speed rests on."""
    x, kernel = arrays(rng)
    text = jax.jit(lambda x, kernel: correlate(x, kernel, 1, "SAME")).lower(x, kernel).compile()
    calls = [line for line in text.as_text().splitlines() if " call(" in line]
    for step in ("_pad", "_tile_rows", "_tile_columns", "transform", "_out_rows", "_out_columns"):
        assert any(step in line for line in calls), step


def test_quarter_turns_commute(rng):
    """The fast way keeps the symmetry to float32: 16 channels at 8 orientations."""
    basis = gj.load_basis("partial")
    y = jnp.asarray(rng.normal(size=(1, 16, 16, 8, 16)), jnp.float32)
    coeffs = jnp.asarray(rng.normal(size=(8, 9, 16, 4)), jnp.float32)
    turned = gj.group_conv(gj.act(y, 2), coeffs, basis)
    assert off(turned, np.asarray(gj.act(gj.group_conv(y, coeffs, basis), 2))) < 1e-5
