"""The proof: layers and networks commute with quarter turns; and the measure of it can fail."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import gconv_jax as gj

KEY = jax.random.key(0)
EXACT = ["weiler", "bilinear", "gaussian"]
LEARNED = ["partial", "closed_form"]  # exact too, and shipped for 8 orientations


def images(size, channels=3, batch=2):
    return jax.random.normal(jax.random.key(7), (batch, size, size, channels))


class Stack(nn.Module):
    """Lift, then three group convolutions, with batch norm, ReLU and maybe pooling."""

    pool: bool = False
    strides: int = 1

    @nn.compact
    def __call__(self, x, basis):
        y = gj.LiftConv(4)(x, basis)
        for _ in range(3):
            y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
            if self.pool:
                y = nn.max_pool(y, (2, 2, 1), (2, 2, 1))
            y = gj.GroupConv(4, strides=self.strides)(y, basis)
        return y


@cache
def programs(module):
    """Its init and apply, compiled once for all bases of a shape."""

    def apply(variables, x, basis):
        return module.apply(variables, x, basis, mutable=["batch_stats"])[0]

    return jax.jit(module.init), jax.jit(apply)


def bind(module, x, basis):
    """The module as a function of images alone, with batch norm in training mode."""
    init, apply = programs(module)
    variables = init(KEY, x, basis)
    return lambda x: apply(variables, x, basis)


def largest_relative_error(fn, x, steps, g=8):
    """Largest difference over all quarter turns, relative to the largest output."""
    return max(
        float(jnp.abs(fn(gj.rotate(x, 2 * np.pi * s / g)) - gj.act(fn(x), s)).max()) for s in steps
    ) / float(jnp.abs(fn(x)).max())


@pytest.mark.parametrize("name", EXACT + LEARNED)
@pytest.mark.parametrize(("size", "pool"), [(32, False), (33, False), (32, True)])
def test_stack_commutes_with_quarter_turns(name, size, pool):
    x = images(size)
    for g in (4, 8) if size == 32 and name in EXACT else (8,):
        fn = bind(Stack(pool), x, gj.make_basis(name, orientations=g))
        gj.assert_equivariant(fn, x, tolerance=1e-5)
        assert largest_relative_error(fn, x, (g // 4, g // 2, 3 * g // 4), g) < 1e-5


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("size", [32, 33])
@pytest.mark.parametrize("k", [3, 5])
def test_lifting_commutes_with_quarter_turns(name, size, k):
    x = images(size)
    fn = bind(gj.LiftConv(4, k), x, gj.make_basis(name, kernel_size=k))
    gj.assert_equivariant(fn, x, tolerance=1e-5)
    assert largest_relative_error(fn, x, (2, 4, 6)) < 1e-5


@pytest.mark.parametrize("size", [32, 33])
def test_random_basis_fails_by_far(size):
    x = images(size)
    basis = gj.make_basis("random")
    for module in (gj.LiftConv(4), Stack()):
        fn = bind(module, x, basis)
        with pytest.raises(AssertionError, match="not equivariant"):
            gj.assert_equivariant(fn, x, tolerance=0.5)
        assert largest_relative_error(fn, x, (2, 4, 6)) > 0.1


@pytest.mark.parametrize("name", EXACT + LEARNED)
@pytest.mark.parametrize("size", [32, 28])
def test_network_is_invariant_to_quarter_turns(name, size):
    x, basis = images(size), gj.make_basis(name)
    fn = bind(gj.GroupAllCNN(widths=(4, 8)), x, basis)
    logits = fn(x)
    scale = float(jnp.abs(logits).max())
    assert jnp.std(logits) > 0.1 * scale > 1e-4
    for turns in range(1, 4):
        turned = fn(gj.rotate(x, turns * np.pi / 2))
        np.testing.assert_allclose(turned, logits, rtol=0, atol=1e-4 * scale)
    gj.assert_equivariant(fn, x, tolerance=1e-4)


def test_networks_without_the_symmetry_are_not_invariant():
    x = images(32)
    for net, arrays in (
        (gj.AllCNN(widths=(4, 8)), ()),
        (gj.GroupAllCNN(widths=(4, 8)), (gj.make_basis("random"),)),
    ):
        variables = net.init(KEY, x, *arrays)
        fn = jax.jit(lambda x, net=net, v=variables, a=arrays: net.apply(v, x, *a))
        with pytest.raises(AssertionError, match="not equivariant"):
            gj.assert_equivariant(fn, x, tolerance=0.05)


@pytest.mark.parametrize("size", [12, 13, 14, 15])
@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_which_strides_keep_the_symmetry(size, strides, k):
    x = images(size)
    basis = gj.make_basis("weiler", kernel_size=k)
    coeffs = jax.random.normal(KEY, (k * k, 3, 4))
    same_pads = (-(-size // strides) - 1) * strides + k - size
    for padding, symmetric in (
        ("SAME", same_pads >= 0 and same_pads % 2 == 0),
        ("VALID", (size - k) % strides == 0),
    ):

        def fn(x, padding=padding):
            return gj.lift_conv(x, coeffs, basis, strides=strides, padding=padding)

        if symmetric:
            gj.assert_equivariant(fn, x)
        else:
            with pytest.raises(AssertionError, match="not equivariant"):
                gj.assert_equivariant(fn, x, tolerance=0.1)
        if strides == 2 and padding == "SAME":
            assert symmetric == (size % 2 == 1)


def test_pooling_odd_sizes_breaks_the_symmetry():
    x = images(33)
    fn = bind(Stack(pool=True), x, gj.make_basis("weiler"))
    with pytest.raises(AssertionError, match="not equivariant"):
        gj.assert_equivariant(fn, x, tolerance=0.1)


def test_off_the_grid_a_better_basis_has_a_smaller_error():
    # Smooth images: a blur of noise, as rotation of white noise is mostly interpolation error.
    x = images(32, 1)
    for _ in range(3):
        x = gj.rotate(x, 0.0, method="gaussian", sigma=1.0)
    errors = {}
    for name in (*EXACT, "random"):
        basis = gj.make_basis(name)
        fn = bind(gj.LiftConv(32), x, basis)
        errors[name] = gj.equivariance_error(fn, x, method="gaussian")
        assert errors[name].shape == (8,)
        assert errors[name][0] == 0
    odd = np.array([1, 3, 5, 7])
    assert errors["weiler"][odd].max() < errors["bilinear"][odd].min()
    assert errors["weiler"][odd].max() < 0.03
    assert errors["random"][1:].min() > 1


def test_the_error_is_the_formula_of_the_docstring(rng):
    x = rng.normal(size=(3, 8, 8, 2)).astype(np.float32)
    weights = rng.normal(size=(9, 2, 4)).astype(np.float32)
    basis = gj.make_basis("random")

    def fn(x):
        return gj.lift_conv(x, weights, basis)

    actual = gj.equivariance_error(fn, x)
    for s in range(8):
        a = np.asarray(fn(x))
        b = np.asarray(gj.act(fn(gj.rotate(x, 2 * np.pi * s / 8)), -s))
        a, b = a[:, 2:6, 2:6].astype(np.float64), b[:, 2:6, 2:6].astype(np.float64)
        expected = np.mean(
            [
                ((p - q) ** 2).sum() / np.sqrt((p**2).sum() * (q**2).sum())
                for p, q in zip(a, b, strict=True)
            ]
        )
        np.testing.assert_allclose(actual[s], expected, rtol=1e-4, atol=1e-9)


def test_one_error_for_each_step_asked_for(rng):
    x = rng.normal(size=(2, 8, 8, 1)).astype(np.float32)
    errors = gj.equivariance_error(jnp.sin, x, orientations=12, steps=[3, 1, 1, 15])
    assert errors.shape == (4,)
    assert errors[0] == errors[3] == 0  # 90 degrees, and 90 degrees once around
    assert errors[1] == errors[2] > 0
    tiny = gj.equivariance_error(lambda x: 1e-25 * jnp.sin(x), x, orientations=12, steps=[3, 1, 1])
    np.testing.assert_allclose(tiny, errors[:3], rtol=1e-4)


def test_maps_without_orientations_turn_in_space_only():
    x = images(16)
    fn = bind(gj.LiftConv(4), x, gj.make_basis("weiler"))
    gj.assert_equivariant(lambda x: gj.pool_orientations(fn(x)), x)
    with pytest.raises(AssertionError, match="not equivariant"):
        gj.assert_equivariant(lambda x: fn(x)[:, :, :, 0], x, tolerance=0.1)


def test_the_message_names_the_worst_angle():
    x = images(8)
    upside_down = gj.rotate(x, np.pi)

    def doubles_upside_down(y):  # |1 - 2|^2 / (1 * 2) = 1/2
        return 2 * y if jnp.array_equal(y, upside_down) else y

    message = r"turned by 180 degrees \(step 4 of 8\) its output is off by 0\.71 in relative L2"
    with pytest.raises(AssertionError, match=message):
        gj.assert_equivariant(doubles_upside_down, x)


def test_what_shows_nothing_does_not_pass():
    x = images(8)
    with pytest.raises(AssertionError, match="nan means zero or not finite"):
        gj.assert_equivariant(jnp.zeros_like, x)
    with pytest.raises(AssertionError, match="nan means zero or not finite"):
        gj.assert_equivariant(lambda x: x * jnp.nan, x)
    # Zero at one angle but not at another is infinitely wrong; dead images among live ones are not.
    once = jnp.zeros_like(x).at[:, 0, 1].set(1)
    with pytest.raises(AssertionError, match="off by inf"):
        gj.assert_equivariant(lambda x: x[:, 0, 1], once)
    half_dead = x.at[0].set(0)
    gj.assert_equivariant(lambda x: x, half_dead)


def test_works_under_jit_and_grad():
    x, basis = images(8, 1), gj.make_basis("weiler")
    coeffs = jax.random.normal(KEY, (9, 1, 2))

    def total(coeffs):
        return gj.equivariance_error(lambda x: gj.lift_conv(x, coeffs, basis), x, steps=(1,)).sum()

    np.testing.assert_allclose(jax.jit(total)(coeffs), total(coeffs), rtol=1e-5)
    slope = jax.grad(total)(coeffs)
    h = 1e-2
    along = (total(coeffs + h * slope) - total(coeffs - h * slope)) / (2 * h)
    np.testing.assert_allclose(along, (slope**2).sum(), rtol=1e-2)
    x = x.at[0].set(0)  # an image that shows nothing does not spoil the gradient
    assert np.isfinite(jax.grad(total)(coeffs)).all()


@pytest.mark.parametrize(
    ("fn", "size", "options", "message"),
    [
        (jnp.sin, (8, 5), {}, r"x must be square images, .* but got shape \(2, 8, 5, 1\)"),
        (jnp.sin, (8, 8), {"crop": 0.5}, "crop must be .* less than 0.5, but got 0.5"),
        (jnp.sin, (8, 8), {"orientations": 6}, "orientations must be a multiple of 4"),
        (jnp.sum, (8, 8), {}, r"the output of fn must be .* but got shape \(\)"),
        (
            lambda x: gj.lift_conv(x, jnp.ones((9, 1, 1)), gj.make_basis("weiler")),
            (8, 8),
            {"orientations": 4},
            "orientations must be that of the output of fn, 8 .* but got 4; leave it out",
        ),
    ],
)
def test_bad_input(fn, size, options, message):
    with pytest.raises(ValueError, match=message):
        gj.equivariance_error(fn, jnp.ones((2, *size, 1)), **options)
