"""A folded network gives the same logits, from plain arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gconv_jax as gj
from tests.reference import relative_error
from tests.test_models import BASIS, IMAGES, trained


@pytest.mark.parametrize(
    ("net", "arrays"),
    [
        (gj.GroupAllCNN(widths=(4, 6)), (BASIS,)),
        (gj.GroupAllCNN(widths=(2, 3), plain=True), (gj.load_basis("overcomplete"),)),
        (gj.AllCNN(widths=(6, 8)), ()),
    ],
)
def test_the_same_logits(net, arrays):
    variables = trained(net, IMAGES, *arrays)
    folded = gj.fold(net, variables, *(arrays or [None]))
    logits = net.apply(variables, IMAGES, *arrays)
    assert jnp.std(logits) > 1e-2
    assert relative_error(folded(IMAGES), logits) < 1e-5
    assert relative_error(jax.jit(lambda x: folded(x))(IMAGES), logits) < 1e-5
    [plain] = folded.args
    assert set(plain) == {*(f"conv{i}" for i in range(1, 10)), "head"}
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(plain))


def test_nothing_is_synthesised_any_more():
    net = gj.GroupAllCNN(widths=(2, 3))
    variables = net.init(jax.random.key(0), IMAGES, BASIS)
    folded = gj.fold(net, variables, BASIS)
    text = str(jax.make_jaxpr(folded)(IMAGES))
    assert "_group_bank" not in text
    assert "_group_bank" in str(jax.make_jaxpr(net.apply)(variables, IMAGES, BASIS))


def test_bfloat16():
    net = gj.GroupAllCNN(widths=(4, 6), dtype=jnp.bfloat16)
    variables = trained(net, IMAGES, BASIS)
    logits = gj.fold(net, variables, BASIS)(IMAGES)
    assert logits.dtype == jnp.float32
    assert (
        relative_error(logits, gj.GroupAllCNN(widths=(4, 6)).apply(variables, IMAGES, BASIS)) < 0.1
    )


def test_bad_input():
    net = gj.GroupAllCNN(widths=(2, 3))
    variables = net.init(jax.random.key(0), IMAGES, BASIS)
    with pytest.raises(ValueError, match="basis must be given to fold a GroupAllCNN"):
        gj.fold(net, variables, None)
    with pytest.raises(ValueError, match="variables must hold params and batch_stats"):
        gj.fold(net, {"params": variables["params"]}, BASIS)
    with pytest.raises(ValueError, match="basis must be None to fold an AllCNN"):
        gj.fold(gj.AllCNN(), variables, BASIS)
    with pytest.raises(ValueError, match="network must be an AllCNN or a GroupAllCNN"):
        gj.fold(np, variables, BASIS)
