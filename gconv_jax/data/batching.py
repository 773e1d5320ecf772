"""Which images make which batch, and how they reach the device.

A `Plan` is arithmetic alone: the images of batch `(epoch, step)` follow from the seed. So a run
goes on where it stopped, and each process computes its own part of the same batch. `feed` brings
the batches of a plan to the device.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache, partial
from itertools import count
from typing import NamedTuple

import jax
import numpy as np

from gconv_jax import _checks
from gconv_jax.data.formats import Images
from gconv_jax.data.splits import permutation

_SHUFFLE = 4  # keeps the permutations apart from the splits, which have keys of their own
_AHEAD = 2  # batches that are on their way while the device works
_MAX_SHARE = 0.25  # of the memory of a device that a set may take for good


class Position(NamedTuple):
    """A place in a plan: the batch that comes next."""

    epoch: int
    step: int


class Batch(NamedTuple):
    """A batch on the device."""

    images: jax.Array  # uint8 [B, H, W, C]
    labels: jax.Array  # int32 [B]
    indices: jax.Array  # int32 [B], which image of the set: it keys the augmentation
    mask: jax.Array  # bool [B], False where the batch is filled up


@dataclass(frozen=True)
class Plan:
    """Which images make the batches of each epoch, for one process or a part of several.

    Batch `step` of an epoch is `order[step * batch_size : (step + 1) * batch_size]`, where `order`
    is a permutation that depends on the seed and the epoch, or `0..n-1` without a seed. Process `p`
    of `P` has the `p`-th of `P` equal parts of every batch: put together in order, they are the
    batch of a single process.

    Args:
      n: how many images the set has.
      batch_size: images in a batch, over all processes.
      seed: of the permutations, not negative; `None` keeps the order of the set.
      last: `"drop"` leaves out the images that do not fill a batch (others in each epoch), which is
        for training; `"pad"` fills the last batch up and masks what was added, so that every image
        counts once, which is for evaluation.
      process: which of the processes this one is, `jax.process_index()`.
      processes: how many there are, `jax.process_count()`.

    Example:
      >>> import gconv_jax as gj
      >>> plan = gj.data.Plan(5, batch_size=2, last="pad")
      >>> for step in range(plan.steps):
      ...     indices, mask = plan.batch(epoch=0, step=step)
      ...     print(indices, mask)
      [0 1] [ True  True]
      [2 3] [ True  True]
      [4 0] [ True False]

    """

    n: int
    batch_size: int
    _: KW_ONLY
    seed: int | None = None
    last: str = "drop"
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        _checks.as_int("n", self.n)
        _checks.as_int("batch_size", self.batch_size)
        _checks.as_int("processes", self.processes)
        _checks.check_choice("last", self.last, ("drop", "pad"))
        if not 0 <= self.process < self.processes:
            raise ValueError(
                f"process must be at least 0 and less than processes = {self.processes}, "
                f"but got {self.process}."
            )
        if self.batch_size % self.processes:
            raise ValueError(
                f"batch_size must be a multiple of processes = {self.processes} so that each has "
                f"an equal part, but got {self.batch_size}."
            )
        if self.seed is not None and not (isinstance(self.seed, int) and self.seed >= 0):
            raise ValueError(f"seed must be None or an integer from 0, but got {self.seed!r}.")
        if self.last == "drop" and self.batch_size > self.n:
            raise ValueError(
                f"batch_size must be at most n = {self.n} when the last batch is dropped, "
                f"but got {self.batch_size}; use last='pad' or a smaller batch."
            )

    @property
    def steps(self) -> int:
        """How many batches an epoch has."""
        whole, rest = divmod(self.n, self.batch_size)
        return whole + (self.last == "pad" and rest > 0)

    def batch(self, *, epoch: int, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the images of this process's part of a batch.

        Args:
          epoch: from 0.
          step: batch within the epoch, from 0 to `steps - 1`.

        Returns:
          `indices`, int32 `[batch_size / processes]`, and `mask`, bool of the same shape.

        """
        if epoch < 0 or not 0 <= step < self.steps:
            raise ValueError(
                f"epoch must be at least 0 and step in 0..{self.steps - 1}, "
                f"but got epoch {epoch} and step {step}."
            )
        share = self.batch_size // self.processes
        start = step * self.batch_size + self.process * share
        slots = np.arange(start, start + share)
        mask = slots < self.n
        order = _order(self.n, self.seed, epoch)
        # What fills up is image 0: any would do, and all processes agree on it.
        return np.where(mask, order[np.where(mask, slots, 0)], 0).astype(np.int32), mask

    def positions(self, start: Position, epochs: int | None) -> Iterator[Position]:
        """Yields positions from `start` on, to the end of epoch `epochs - 1` or forever."""
        epoch, step = start
        for e in count(epoch) if epochs is None else range(epoch, epochs):
            for s in range(step if e == epoch else 0, self.steps):
                yield Position(e, s)

    def after(self, position: Position) -> Position:
        """Returns the position that follows: what to keep, to go on after this batch."""
        epoch, step = position
        return Position(epoch, step + 1) if step + 1 < self.steps else Position(epoch + 1, 0)


@lru_cache(maxsize=4)
def _order(n: int, seed: int | None, epoch: int) -> np.ndarray:
    order = np.arange(n) if seed is None else permutation(n, _SHUFFLE, seed, epoch)
    order.setflags(write=False)
    return order


def fits(data: Images, *, device: jax.Device | None = None) -> bool:
    """Tells whether a set can live on a device for good, in a quarter of its memory.

    Args:
      data: the set.
      device: the first local one by default. One that does not say how much memory it has, as the
        CPU does not, is taken to have enough: there the set is in memory anyway.

    Returns:
      True if it fits.

    Example:
      >>> import gconv_jax as gj
      >>> gj.data.fits(gj.data.load("mnist", source="embedded"))
      True

    """
    device = device or jax.local_devices()[0]
    memory = (device.memory_stats() or {}).get("bytes_limit")
    return memory is None or data.images.nbytes + data.labels.nbytes <= _MAX_SHARE * memory


def feed(
    data: Images,
    plan: Plan,
    *,
    start: tuple[int, int] = (0, 0),
    epochs: int | None = 1,
    resident: bool | None = None,
    device: jax.Device | jax.sharding.Sharding | None = None,
) -> Iterator[tuple[Position, Batch]]:
    """Yields the batches of a plan, on the device.

    A resident set is copied to the device once, and what is sent for a batch is its indices; one
    that does not fit is gathered on the host, in a thread, while the device works on the batches
    before. Both give the same batches.

    A step that gathers for itself, inside its own `jit`, needs only `plan.batch` and the set.

    Args:
      data: the set, in which the plan counts.
      plan: which images make which batch.
      start: the first batch; a run that stopped after a batch goes on at `plan.after(position)`.
      epochs: where to stop, counted from epoch 0; `None` never stops.
      resident: whether the set lives on the device; `None` asks `fits`.
      device: where batches go, a device or a sharding of the axis `B`; the default device if
        `None`. With a sharding the set is resident on each of its devices.

    Yields:
      The position of each batch and the batch.

    Example:
      >>> import gconv_jax as gj
      >>> data = gj.data.load("mnist", source="embedded", split="test")
      >>> plan = gj.data.Plan(len(data.labels), batch_size=100, seed=0)
      >>> for position, batch in gj.data.feed(data, plan, start=(0, 3)):
      ...     print(tuple(position), batch.images.shape)
      (0, 3) (100, 28, 28, 1)
      (0, 4) (100, 28, 28, 1)

    """
    if plan.n != len(data.labels):
        raise ValueError(
            f"plan must be for the {len(data.labels)} images of data, but it is for {plan.n}."
        )
    first = Position(*start)
    plan.batch(epoch=first.epoch, step=first.step)  # refuses a start that is out of range
    resident = fits(data) if resident is None else resident
    make = _from_device if resident else _from_host
    return make(data, plan, plan.positions(first, epochs), device)


def _from_device(
    data: Images,
    plan: Plan,
    positions: Iterator[Position],
    device: jax.Device | jax.sharding.Sharding | None,
) -> Iterator[tuple[Position, Batch]]:
    everywhere, where = device, None
    if isinstance(device, jax.sharding.NamedSharding):
        # A mesh of explicit axes wants to be told where a result goes, others will not have it.
        where = device if jax.sharding.AxisType.Explicit in device.mesh.axis_types else None
        everywhere = jax.sharding.NamedSharding(device.mesh, jax.sharding.PartitionSpec())
    images, labels = jax.device_put(tuple(data), everywhere)
    for position in positions:
        indices, mask = jax.device_put(plan.batch(**position._asdict()), device)
        pixels, classes = _gather(images, labels, indices, where=where)
        yield position, Batch(pixels, classes, indices, mask)


@partial(jax.jit, static_argnames="where")
def _gather(
    images: jax.Array,
    labels: jax.Array,
    indices: jax.Array,
    *,
    where: jax.sharding.NamedSharding | None,
) -> tuple[jax.Array, jax.Array]:
    return images.at[indices].get(out_sharding=where), labels.at[indices].get(out_sharding=where)


def _from_host(
    data: Images,
    plan: Plan,
    positions: Iterator[Position],
    device: jax.Device | jax.sharding.Sharding | None,
) -> Iterator[tuple[Position, Batch]]:
    def make(position: Position) -> tuple[Position, Batch]:
        indices, mask = plan.batch(**position._asdict())
        batch = Batch(data.images[indices], data.labels[indices], indices, mask)  # type: ignore[arg-type]
        return position, jax.device_put(batch, device)

    waiting: deque[Future[tuple[Position, Batch]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="gconv_jax_feed") as worker:
        try:
            for position in positions:
                waiting.append(worker.submit(make, position))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # also when whoever asked for batches has had enough
            for future in waiting:
                future.cancel()
