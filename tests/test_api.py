"""The table of contents: what is public, how it is called, and that it says what it does."""

import inspect

import jax
import numpy as np
import pytest

import gconv_jax as gj

FUNCTIONS = [name for name in gj.__all__ if inspect.isfunction(getattr(gj, name))]
CLASSES = [name for name in gj.__all__ if inspect.isclass(getattr(gj, name))]


def test_public_names():
    assert set(gj.__all__) == {
        "AllCNN",
        "GroupAllCNN",
        "GroupConv",
        "LiftConv",
        "act",
        "assert_equivariant",
        "basis_card",
        "basis_quality",
        "data",
        "equivariance_error",
        "equivariance_loss",
        "filter_bank",
        "fold",
        "group_conv",
        "lift_conv",
        "load_basis",
        "make_basis",
        "orthogonality_loss",
        "pool_orientations",
        "reconstruction_loss",
        "restore",
        "roll",
        "rotate",
        "save_basis",
        "solve_basis",
    }
    assert sorted(gj.__all__) == gj.__all__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arrays_are_positional_and_options_keyword_only(name):
    for parameter in inspect.signature(getattr(gj, name)).parameters.values():
        if parameter.default is not parameter.empty:
            assert parameter.kind == parameter.KEYWORD_ONLY, parameter
        elif parameter.kind != parameter.POSITIONAL_OR_KEYWORD:
            assert (name, parameter.name) == ("save_basis", "card")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_docstrings_name_every_argument_and_show_an_example(name):
    function = getattr(gj, name)
    doc = inspect.getdoc(function)
    for argument in inspect.signature(function).parameters:
        assert f"\n  {argument}: " in doc, argument
    assert "Returns:" in doc or inspect.signature(function).return_annotation is None
    assert f"gj.{name}(" in doc
    assert len(doc.splitlines()[0]) <= 96


@pytest.mark.parametrize("name", CLASSES)
def test_class_docstrings_name_every_attribute_and_show_an_example(name):
    doc = inspect.getdoc(getattr(gj, name))
    for field in getattr(gj, name).__dataclass_fields__:
        if field not in ("parent", "name"):
            assert f"\n  {field}: " in doc, field
    assert f"gj.{name}(" in doc


@pytest.mark.parametrize("layer", [gj.LiftConv, gj.GroupConv])
def test_layer_options(layer):
    options = list(layer.__dataclass_fields__)
    assert options[:9] == [
        "features",
        "kernel_size",
        "strides",
        "padding",
        "use_bias",
        "dtype",
        "param_dtype",
        "coeffs_init",
        "plain",
    ]


def test_works_on_several_devices(run_python):
    """Sharded over a batch of two virtual devices, with the same result as on one."""
    run_python(
        """
        import jax, jax.numpy as jnp, gconv_jax as gj
        from jax.sharding import NamedSharding, PartitionSpec
        assert jax.device_count() == 2
        x = jax.random.normal(jax.random.key(0), (4, 8, 8, 3))
        basis, coeffs = gj.make_basis("weiler"), jax.random.normal(jax.random.key(1), (9, 3, 5))
        mesh = jax.make_mesh((2,), ("batch",))
        over_batch = NamedSharding(mesh, PartitionSpec("batch"))
        spread = jax.device_put(x, over_batch)
        angles = jnp.arange(4.0)  # one for each image
        f = jax.jit(lambda x, a: gj.act(gj.lift_conv(gj.rotate(x, a), coeffs, basis), 1))
        y = f(spread, jax.device_put(angles, over_batch))
        assert len(y.sharding.device_set) == 2, y.sharding
        assert jnp.allclose(y, f(x, angles), atol=1e-5)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


def test_strict_dtype_promotion(rng):
    x = rng.normal(size=(1, 8, 8, 2)).astype(np.float32)
    with jax.numpy_dtype_promotion("strict"):
        basis = gj.make_basis("gaussian")
        y, variables = gj.LiftConv(3, use_bias=True).init_with_output(jax.random.key(0), x, basis)
        gj.act(y, 1, method="gaussian")
        gj.equivariance_error(
            lambda x: gj.LiftConv(3, use_bias=True).apply(variables, x, basis), x, steps=[1]
        )
