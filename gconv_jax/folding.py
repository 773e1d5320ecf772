"""A trained network as plain convolutions: no basis, no coefficients, no batch norm left."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax.conv import filter_bank
from gconv_jax.correlate import correlate, prepare
from gconv_jax.models import AllCNN, GroupAllCNN
from gconv_jax.norm import EPSILON, max_pool


def fold(
    network: AllCNN | GroupAllCNN,
    variables: Mapping[str, Any],
    basis: ArrayLike | None,
) -> jax.tree_util.Partial:
    """Makes the function from images to logits that a trained network amounts to.

    Filters are synthesised once, and batch norm, which by its running statistics is
    `a y + c`, goes into them: each of the nine convolutions has a kernel `a bank` and a bias `c`.
    Orientations are channels like others, up to the maximum over all of them.

    Args:
      network: an `AllCNN` or `GroupAllCNN`.
      variables: its `params` and `batch_stats`.
      basis: `[G, N, k, k]` for a `GroupAllCNN`, `None` for an `AllCNN`.

    Returns:
      A function from images `[B, H, W, C]` to logits `[B, num_classes]`: those of
      `network.apply(variables, images, basis)`, to rounding. Its only argument bound is a
      dictionary of plain arrays, `folded.args[0]`: `conv1` to `conv9` and `head`, each with
      `kernel` and `bias`, and on a CPU also with `prepared`, the kernel as the fast convolution
      wants it. The function is compiled by itself, and can be called inside `jax.jit`.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> images, basis = jnp.ones((2, 8, 8, 3)), gj.make_basis("weiler")
      >>> net = gj.GroupAllCNN(widths=(2, 4))
      >>> variables = net.init(jax.random.key(0), images, basis)
      >>> predict = gj.fold(net, variables, basis)
      >>> print(jnp.allclose(predict(images), net.apply(variables, images, basis), atol=1e-5))
      True
      >>> predict.args[0]["conv2"]["kernel"].shape  # [k, k, G * C_in, G * C_out]
      (3, 3, 16, 16)

    """
    if isinstance(network, GroupAllCNN):
        if basis is None:
            raise ValueError("basis must be given to fold a GroupAllCNN, but got None.")
        basis = _checks.as_basis(basis)
    elif not isinstance(network, AllCNN):
        raise ValueError(
            f"network must be an AllCNN or a GroupAllCNN, but got {type(network).__name__}; "
            "filter_bank gives the kernels of other networks' layers."
        )
    elif basis is not None:
        raise ValueError("basis must be None to fold an AllCNN, which has none.")
    for kind in ("params", "batch_stats"):
        if kind not in variables:
            raise ValueError(
                f"variables must hold params and batch_stats, but {kind} is missing; "
                "pass all that the network's init or restore gave."
            )
    params, stats = variables["params"], variables["batch_stats"]
    arrays: dict[str, dict[str, Any]] = {"head": dict(params["head"])}
    for i in range(1, 10):
        conv, norm, running = params[f"conv{i}"], params[f"norm{i}"], stats[f"norm{i}"]
        bank = (
            filter_bank(conv["coeffs"], basis if i < 8 else None)
            if isinstance(network, GroupAllCNN)
            else jnp.asarray(conv["kernel"])
        )
        scale = norm["scale"] * jax.lax.rsqrt(running["var"] + EPSILON)
        shift = norm["bias"] - running["mean"] * scale
        repeats = bank.shape[-1] // len(scale)  # G: every orientation has the same
        kernel = bank * jnp.tile(scale, repeats).reshape(1, 1, 1, -1)
        arrays[f"conv{i}"] = {
            "kernel": kernel,
            "bias": jnp.tile(shift, repeats),
            "prepared": None if network.plain else prepare(kernel, strides=1),
        }
    return jax.tree_util.Partial(partial(_predict, network.dtype, network.plain), arrays)


@partial(jax.jit, static_argnums=(0, 1))
def _predict(
    dtype: Any, plain: bool, arrays: dict[str, dict[str, Any]], images: ArrayLike
) -> jax.Array:
    x = _checks.as_floating("x", images, "[B, H, W, C_in]")
    x = x.astype(dtype or jnp.promote_types(x.dtype, arrays["conv1"]["kernel"].dtype))
    for i in range(1, 10):
        conv = arrays[f"conv{i}"]
        bias = conv["bias"]
        x = correlate(x, conv["kernel"], 1, "SAME", prepared=conv["prepared"], plain=plain)
        if i in (3, 6):
            x = max_pool(x)
        x = jax.nn.relu(x + bias.astype(x.dtype).reshape(1, 1, 1, -1))
    channels, _ = arrays["head"]["kernel"].shape
    top = x.reshape(len(x), -1, channels).max(axis=1)  # over places and orientations
    return top.astype(bias.dtype) @ arrays["head"]["kernel"] + arrays["head"]["bias"].reshape(1, -1)
