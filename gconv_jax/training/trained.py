"""Trained networks, back from a checkpoint."""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from gconv_jax.models import AllCNN, GroupAllCNN

NETWORKS: dict[str, type[AllCNN] | type[GroupAllCNN]] = {
    network.__name__: network for network in (GroupAllCNN, AllCNN)
}


class Trained(NamedTuple):
    """A network, what it is applied with, and its basis, if it has one."""

    network: AllCNN | GroupAllCNN
    variables: dict[str, Any]
    basis: jax.Array | None


def restore(path: str | os.PathLike[str]) -> Trained:
    """Restores a trained network: of those that a run had by then, the best on validation.

    It takes images as they were in training: `gj.data.normalise` with the `mean` and `std` of
    `gj.data.colour_statistics`, both also in the run's `result.json`.

    Args:
      path: of a checkpoint, or of the folder of a run (its newest checkpoint).

    Returns:
      `network`, `variables` (`params` and `batch_stats`) and `basis`, `[G, N, k, k]` or `None`, so
      that `network.apply(variables, images, basis)` gives logits; without the basis for `AllCNN`.

    Example:
      >>> import gconv_jax as gj
      >>> try:
      ...     network, variables, basis = gj.restore("runs/classify/none")
      ... except ValueError as error:
      ...     print(str(error)[:59])
      path must be a checkpoint or the folder of a run that has o

    """
    return read_trained(path)[0]


def read_trained(path: str | os.PathLike[str]) -> tuple[Trained, dict[str, Any]]:
    """Returns the trained network of a checkpoint, and the checkpoint's card."""
    # Here, because orbax and optax take longer to import than all the rest.
    from gconv_jax.training import checkpoints
    from gconv_jax.training.classification import fingerprint

    folder = checkpoints.newest(path)
    try:
        tree, card = checkpoints.read(folder)
        options = dict(card["network"])
        network = NETWORKS[options.pop("name")](
            num_classes=options["num_classes"],
            widths=tuple(options["widths"]),
            dtype=jnp.dtype(options["dtype"]) if options["dtype"] else None,
        )
        variables, basis = tree["model"], tree["state"]["basis"]
        if basis is not None and fingerprint(basis) != card["settings"]["basis_sha256"]:
            raise ValueError("its basis is not the one that its card names")
    except Exception as error:  # orbax raises many kinds for a damaged checkpoint
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ValueError(
            f"{folder} is not a whole checkpoint of a network ({reason}); name another one."
        ) from None
    _check_shapes(network, variables, basis, tuple(card["image_shape"]), str(folder))
    variables, basis = jax.tree.map(jnp.asarray, (variables, basis))
    return Trained(network, variables, basis), card


def _check_shapes(
    network: nn.Module, variables: Any, basis: Any, image: tuple[int, ...], where: str
) -> None:
    """Refuses arrays that are not those of the network, and says which."""
    inputs = [jax.ShapeDtypeStruct((1, *image), jnp.float32)]
    if basis is not None:
        inputs.append(jax.ShapeDtypeStruct(basis.shape, jnp.float32))
    wanted = jax.eval_shape(network.init, jax.random.key(0), *inputs)
    shapes = [
        {jax.tree_util.keystr(path): leaf.shape for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (wanted, variables))
    ]
    differing = [
        f"{name} is {shapes[1].get(name, 'missing')} there and {shapes[0].get(name, 'not')} in it"
        for name in sorted(shapes[0].keys() | shapes[1].keys())
        if shapes[0].get(name) != shapes[1].get(name)
    ]
    if differing:
        raise ValueError(
            f"the arrays in {where} do not belong to its {type(network).__name__} "
            f"({'; '.join(differing[:3])}); it was made by another version or changed since."
        )
