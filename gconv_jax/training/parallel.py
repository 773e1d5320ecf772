"""Data parallelism: the one place that says pmap.

A step is written for one device's share of a batch, and averages over the devices with `mean`.
`data_parallel` runs it on all of them: arguments that are common (the state, the data) are the same
everywhere, batches come cut into `shares`, and results are common again.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

_AXIS = "devices"


def data_parallel(
    step: Callable[..., Any], *, common: int, batches: int = 1, donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Returns `step` compiled for all local devices.

    Args:
      step: a pure function of `common` arguments and then `batches` more. What it returns must be
        the same on all devices, by way of `mean`.
      common: how many arguments are the same on all devices.
      batches: how many, after those, come in `shares`.
      donate: which arguments' memory the results may take over.

    """
    in_axes = (None,) * common + (0,) * batches
    return jax.pmap(step, axis_name=_AXIS, in_axes=in_axes, out_axes=None, donate_argnums=donate)


def mean(tree: Any) -> Any:
    """Averages over the devices, within a step."""
    return jax.lax.pmean(tree, _AXIS)


def shares(batch: Any, *, axis: int = 0) -> Any:
    """Cuts arrays `[..., B, ...]` along `axis` into one share a device, stacked in front."""
    devices = jax.local_device_count()

    def cut(x: Any) -> np.ndarray[Any, Any]:
        b = x.shape[axis]
        if b % devices:
            low, high = b - b % devices, b + devices - b % devices
            near = f"{low} or {high}" if low else str(high)
            raise ValueError(
                f"the batch size must be a multiple of the {devices} devices, but got {b}; "
                f"use {near}."
            )
        return np.stack(np.split(np.asarray(x), devices, axis=axis))

    return jax.tree.map(cut, batch)
