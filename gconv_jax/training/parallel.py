"""Data parallelism: the one place that says pmap, and that knows of other processes.

A step is written for one device's share of a batch, and averages over the devices with `mean`.
`data_parallel` runs it on all of them: arguments that are common (the state, the data) are the same
everywhere, batches come cut into `shares`, and results are common again. With several processes,
each calls the same step with its own part of the batch, and `mean` is over the devices of all.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

AXIS = "devices"


def data_parallel(
    step: Callable[..., Any], *, common: int, batches: int = 1, donate: tuple[int, ...] = ()
) -> Callable[..., Any]:
    """Returns `step` compiled for all devices.

    Args:
      step: a pure function of `common` arguments and then `batches` more. What it returns must be
        the same on all devices, by way of `mean` or `total`.
      common: how many arguments are the same on all devices; `everywhere` places them.
      batches: how many, after those, come in `shares`.
      donate: which arguments' memory the results may take over.

    """
    in_axes = (None,) * common + (0,) * batches
    mapped = jax.pmap(step, axis_name=AXIS, in_axes=in_axes, out_axes=None, donate_argnums=donate)
    if jax.process_count() == 1 or jax.default_backend() != "cpu":
        return mapped

    def one_at_a_time(*args: Any) -> Any:
        return jax.block_until_ready(mapped(*args))

    # A CPU device begins only so many programs at a time. Begun ahead of each other, programs that
    # span several processes can all wait for a device that waits to begin.
    return one_at_a_time


def mean(tree: Any) -> Any:
    """Averages over the devices, within a step."""
    return jax.lax.pmean(tree, AXIS)


def total(tree: Any) -> Any:
    """Sums over the devices, within a step."""
    return jax.lax.psum(tree, AXIS)


def everywhere(tree: Any) -> Any:
    """Copies arrays to each local device, as steps give them back.

    What is placed so is not sent again with every step, and a step does not compile a second time
    when it first meets its own result.
    """
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), (AXIS,))
    return jax.device_put(tree, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))


def shares(batch: Any, *, axis: int = 0) -> Any:
    """Cuts arrays `[..., B, ...]` along `axis` into one share a local device, stacked in front."""
    devices = jax.local_device_count()

    def cut(x: Any) -> np.ndarray[Any, Any]:
        check_batch(x.shape[axis], devices)
        return np.stack(np.split(np.asarray(x), devices, axis=axis))

    return jax.tree.map(cut, batch)


def check_batch(batch: int, devices: int) -> None:
    """Refuses a batch that the devices cannot share evenly, and names the nearest that they can."""
    if batch % devices:
        low, high = batch - batch % devices, batch + devices - batch % devices
        near = f"{low} or {high}" if low else str(high)
        raise ValueError(
            f"the batch size must be a multiple of the {devices} devices, but got {batch}; "
            f"use {near}."
        )


def connect(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Joins the processes of a run, before any device is woken; alone, it does nothing.

    Args:
      coordinator: address and port of process 0, or `"auto"` for what Slurm, Open MPI or a TPU
        slice set by themselves; `None` to be the only process.
      processes: how many there are.
      process: which of them this is.

    """
    if coordinator is None and (processes, process) == (None, None):
        return
    # On CPU a program that waits for other processes holds a thread. Were the next program begun
    # meanwhile, each process could wait for the other in another program, and none would go on.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if coordinator == "auto":
        jax.distributed.initialize()
        return
    if coordinator is None or processes is None or process is None:
        raise ValueError(
            "coordinator, num_processes and process_id must be given together, but got "
            f"{coordinator}, {processes} and {process}; or give coordinator auto alone."
        )
    if not 0 <= process < processes:
        raise ValueError(
            f"process_id must be at least 0 and less than num_processes = {processes}, "
            f"but got {process}."
        )
    jax.distributed.initialize(coordinator, processes, process)


def first() -> bool:
    """Tells whether this is the process that writes and speaks."""
    return jax.process_index() == 0


def from_first(tree: Any) -> Any:
    """Returns the arrays of process 0, to the bit; each process gives some of the same shapes."""
    if jax.process_count() == 1:
        return tree
    arrays = jax.tree.map(np.asarray, tree)
    # As bytes, because what carries them over is a sum, and 0.0 + -0.0 has lost its sign.
    sent = jax.tree.map(lambda x: np.frombuffer(x.tobytes(), np.uint8), arrays)
    came = multihost_utils.broadcast_one_to_all(sent)
    return jax.tree.map(
        lambda x, raw: np.frombuffer(raw.tobytes(), x.dtype).reshape(x.shape), arrays, came
    )


def any_process(flag: bool) -> bool:
    """Tells whether the flag is set in any of the processes."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))
