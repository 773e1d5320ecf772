"""Batch norm, ReLU and pooling in one, against Flax's layers one after the other."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.test_util import check_grads

from gconv_jax.layers import NormReLU
from gconv_jax.norm import max_pool, norm_relu


class Stock(nn.Module):
    """The same by stock layers."""

    pool: bool

    @nn.compact
    def __call__(self, x, *, train):
        x = nn.relu(nn.BatchNorm(not train, momentum=0.9, name="norm")(x))
        window = (2, 2) + (1,) * (x.ndim - 4)
        return nn.max_pool(x, window, window) if self.pool else x


def moved(variables, rng):
    """Scales of both signs, and statistics that are not those of the start."""
    return jax.tree.map(
        lambda leaf: (
            jnp.asarray(leaf + rng.uniform(-1.8, 0.8, leaf.shape), jnp.float32)
            if leaf.max() == 0
            else jnp.asarray(
                rng.uniform(0.5, 2, leaf.shape) * rng.choice([-1, 1], leaf.shape)
            ).astype(jnp.float32)
        ),
        variables,
    )


@pytest.mark.parametrize("shape", [(3, 6, 8, 4, 5), (3, 7, 5, 6)])
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_it_is_what_stock_layers_do(rng, shape, pool, train):
    x = jnp.asarray(rng.normal(size=shape) * 3 + 1, jnp.float32)
    ours, stock = NormReLU(pool=pool), Stock(pool)
    variables = ours.init(jax.random.key(0), x, train=False)
    params = moved(variables["params"], rng)
    stats = {"mean": jnp.asarray(rng.normal(size=shape[-1:]), jnp.float32)}
    stats["var"] = jnp.asarray(rng.uniform(0.5, 2, shape[-1:]), jnp.float32)

    def run(net, params, x, wrap):
        tree = {"params": wrap(params), "batch_stats": wrap(stats)}
        out, updated = net.apply(tree, x, train=train, mutable=["batch_stats"])
        return (out**2).sum(), (out, updated["batch_stats"])

    results = []
    for net, wrap in ((ours, dict), (stock, lambda leaves: {"norm": dict(leaves)})):
        run_ = jax.value_and_grad(partial(run, net, wrap=wrap), (0, 1), has_aux=True)
        (_, (out, updated)), gradients = run_(params, x)
        results.append((out, updated.get("norm", updated), *gradients))
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_equals_share_the_gradient():
    flat = jnp.ones((1, 4, 4, 1))
    np.testing.assert_allclose(
        jax.grad(lambda x: max_pool(x).sum())(flat), np.full_like(flat, 1 / 4)
    )
    two = flat.at[0, 0, 0].set(2.0).at[0, 1, 1].set(2.0)
    gradient = jax.grad(lambda x: max_pool(x).sum())(two)[0, :2, :2, 0]
    np.testing.assert_allclose(gradient, [[0.5, 0], [0, 0.5]])


@pytest.mark.usefixtures("x64")
def test_derivatives_forward_and_backward(rng):
    x = jnp.asarray(rng.normal(size=(2, 5, 4, 3)))
    mean, var, scale, bias = jnp.asarray(rng.uniform(0.5, 2, (4, 3)))
    check_grads(partial(norm_relu, pool=True), (x, mean, var, -scale, bias), order=2, eps=1e-5)
