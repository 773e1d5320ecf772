"""The two networks: their size, what can be captured, and that they fold into convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import gconv_jax as gj
from tests.reference import relative_error

KEY = jax.random.key(0)
BASIS = gj.make_basis("weiler")
IMAGES = jax.random.normal(jax.random.key(1), (2, 16, 16, 3))


def count(variables):
    return sum(leaf.size for leaf in jax.tree.leaves(variables["params"]))


def trained(net, *arrays, seed=3):
    """Variables whose running statistics and biases are not those of the start."""
    variables = jax.jit(net.init)(KEY, *arrays)
    leaves, tree = jax.tree.flatten(variables)
    rng = np.random.default_rng(seed)
    moved = [
        leaf * rng.uniform(0.5, 1.5, leaf.shape) + rng.uniform(0, 0.1, leaf.shape)
        for leaf in leaves
    ]
    return jax.tree.unflatten(tree, [jnp.asarray(leaf, jnp.float32) for leaf in moved])


def test_the_papers_parameter_counts():
    shapes = jax.ShapeDtypeStruct((1, 32, 32, 3), jnp.float32)
    group = jax.eval_shape(gj.GroupAllCNN().init, KEY, shapes, BASIS)
    plain = jax.eval_shape(gj.AllCNN().init, KEY, shapes)
    assert count(group) == 1_360_029
    assert count(plain) == 1_408_234


@pytest.mark.parametrize(
    ("net", "arrays"),
    [(gj.AllCNN(7, (4, 6)), (IMAGES,)), (gj.GroupAllCNN(7, (4, 6)), (IMAGES, BASIS))],
)
def test_trains(net, arrays):
    """A few steps on a few images with labels: the loss falls, the statistics move."""
    variables = jax.jit(net.init)(KEY, *arrays)
    labels = jnp.asarray([1, 5])
    optimiser = optax.adam(1e-2)

    @jax.jit
    def step(params, stats, state):
        def loss_of(params):
            variables = {"params": params, "batch_stats": stats}
            logits, updated = net.apply(variables, *arrays, train=True, mutable=["batch_stats"])
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
            return loss, updated["batch_stats"]

        (loss, stats_), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = optimiser.update(grads, state)
        return optax.apply_updates(params, updates), stats_, state, loss

    params, stats = variables["params"], variables["batch_stats"]
    state = optimiser.init(params)
    losses = []
    for _ in range(8):
        params, stats, state, loss = step(params, stats, state)
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0]
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), variables["batch_stats"], stats)
    assert all(jax.tree.leaves(moved))


def test_running_statistics_move_by_a_tenth():
    net = gj.AllCNN(widths=(2, 3))
    variables = jax.jit(net.init)(KEY, IMAGES)
    _, state = net.apply(variables, IMAGES, train=True, mutable=["batch_stats"])
    mean = (
        nn.Conv(2, (3, 3), use_bias=False)
        .apply({"params": variables["params"]["conv1"]}, IMAGES)
        .mean(axis=(0, 1, 2))
    )
    np.testing.assert_allclose(state["batch_stats"]["norm1"]["mean"], 0.1 * mean, atol=1e-6)


def test_without_train_nothing_moves():
    net = gj.GroupAllCNN(widths=(2, 4))
    variables = trained(net, IMAGES, BASIS)
    whole = jax.jit(net.apply)(variables, IMAGES, BASIS)
    one = jax.jit(net.apply)(
        variables, IMAGES[:1], BASIS
    )  # would differ if it used the batch's statistics
    assert relative_error(whole[:1], one) < 1e-5
    with pytest.raises(ValueError, match="basis must have shape"):
        net.apply(variables, IMAGES, BASIS[0])


def test_every_convolution_can_be_captured_by_name():
    def convs(module, _):
        return (module.name or "").startswith("conv")

    capture = {"capture_intermediates": convs, "mutable": ["intermediates"]}
    net = gj.GroupAllCNN(widths=(2, 3))
    variables = jax.jit(net.init)(KEY, IMAGES, BASIS)
    _, state = net.apply(variables, IMAGES, BASIS, **capture)
    shapes = {name: out["__call__"][0].shape for name, out in state["intermediates"].items()}
    sizes = [16] * 3 + [8] * 3 + [4] * 3
    widths = [2] * 3 + [3] * 6
    assert shapes == {f"conv{i + 1}": (2, sizes[i], sizes[i], 8, widths[i]) for i in range(9)}
    first = gj.lift_conv(IMAGES, variables["params"]["conv1"]["coeffs"], BASIS)
    np.testing.assert_array_equal(state["intermediates"]["conv1"]["__call__"][0], first)

    net = gj.AllCNN(widths=(2, 3))
    _, state = net.apply(net.init(KEY, IMAGES), IMAGES, **capture)
    assert set(state["intermediates"]) == {f"conv{i}" for i in range(1, 10)}


def test_folds_into_ordinary_convolutions():
    """With plain convolutions, channels-only batch norm and no word of groups: the same logits."""
    net = gj.GroupAllCNN(widths=(3, 5))
    variables = trained(net, IMAGES, BASIS)
    params, stats = variables["params"], variables["batch_stats"]
    g = len(BASIS)
    x = IMAGES
    for i in range(1, 10):
        kernel = gj.filter_bank(params[f"conv{i}"]["coeffs"], BASIS if i < 8 else None)
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        norm = params[f"norm{i}"] | stats[f"norm{i}"]
        scale = norm["scale"] / jnp.sqrt(norm["var"] + 1e-5)
        shift = norm["bias"] - norm["mean"] * scale
        scale, shift = (jnp.tile(v, g).reshape(1, 1, 1, -1) for v in (scale, shift))
        x = nn.relu(x * scale + shift)
        if i in (3, 6):
            x = nn.max_pool(x, (2, 2), (2, 2))
    x = x.reshape(len(x), -1, g, 5).max(axis=(1, 2))
    logits = x @ params["head"]["kernel"] + params["head"]["bias"].reshape(1, -1)
    assert jnp.std(logits) > 1e-2
    assert relative_error(logits, jax.jit(net.apply)(variables, IMAGES, BASIS)) < 1e-5


@pytest.mark.parametrize("k", [5, 7])
@pytest.mark.parametrize("g", [4, 12])
def test_takes_any_basis(g, k):
    basis = gj.make_basis("gaussian", orientations=g, kernel_size=k)
    net = gj.GroupAllCNN(widths=(1, 2))
    logits, _ = jax.jit(net.init_with_output)(KEY, IMAGES[:, :8, :8], basis)
    assert logits.shape == (2, 10)


@pytest.mark.parametrize("half", [gj.AllCNN, gj.GroupAllCNN])
def test_bfloat16(half):
    arrays = (IMAGES, BASIS) if half is gj.GroupAllCNN else (IMAGES,)
    net = half(widths=(4, 6), dtype=jnp.bfloat16)
    logits, variables = jax.jit(net.init_with_output)(KEY, *arrays)
    assert logits.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
    full = jax.jit(half(widths=(4, 6)).apply)(variables, *arrays)
    assert relative_error(logits, full) < 0.1


@pytest.mark.parametrize("net", [gj.AllCNN(), gj.GroupAllCNN()])
def test_bad_input(net):
    basis = (BASIS,) if isinstance(net, gj.GroupAllCNN) else ()
    with pytest.raises(ValueError, match=r"x must have shape \[B, H, W, C_in\]"):
        net.init(KEY, IMAGES[0], *basis)
    with pytest.raises(ValueError, match="x must be floating-point, but got uint8"):
        net.init(KEY, IMAGES.astype(jnp.uint8), *basis)
    with pytest.raises(ValueError, match="x must be at least 4 x 4 pixels"):
        net.init(KEY, IMAGES[:, :3], *basis)
