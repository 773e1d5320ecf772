"""Checkpoints by orbax: written in the background, atomic; the newest whole one is used.

A checkpoint is a folder that stands for itself: the `state`, arrays of any tree, and the `card`,
what JSON can hold. With several processes, process 0 alone reads and writes.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import orbax.checkpoint as ocp

State = TypeVar("State")


class Checkpoints:
    """The checkpoints in a folder, by step. A context manager: leaving it waits for the writing."""

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3) -> None:
        """Opens the folder, which is made if it is not there, to hold the last `keep`."""
        self._folder = Path(folder).absolute()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            create=False,
            multiprocessing_options=ocp.options.MultiprocessingOptions(
                primary_host=0, active_processes={0}, barrier_sync_key_prefix=self._folder.name
            ),
        )
        for unfinished in self._folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished)
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(self._folder, options=self._options)

    def path(self, step: int) -> Path:
        """Returns where the checkpoint of a step is."""
        return self._folder / str(step)

    def save(self, step: int, state: Any, *, card: Mapping[str, Any] | None = None) -> None:
        """Begins to save `state` and its card; returns as soon as the state has been copied."""
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), card=ocp.args.JsonSave(dict(card or {}))
            ),
        )

    def restore(
        self, state: State, *, say: Callable[[str], None] = print
    ) -> tuple[State, dict[str, Any]] | None:
        """Returns the newest state that is whole, in the shape of `state`, and its card.

        Checkpoints that cannot be read are told to `say`, passed over and put aside. Returns `None`
        if there are none.

        Raises:
          ValueError: when there are checkpoints and none of them can be read.

        """
        steps = _steps(self._folder)
        for i, step in enumerate(steps):
            try:
                found = read(self.path(step), like=state)
            except Exception as error:  # orbax raises many kinds for a damaged checkpoint
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                say(f"checkpoint {step} cannot be read and is passed over ({reason[:200]})")
                continue
            if i:
                self._put_aside(steps[:i])
            return found
        if steps:
            raise ValueError(
                f"none of the checkpoints in {self._folder} can be read; remove the folder to "
                "begin anew."
            )
        return None

    def newest(self) -> Path | None:
        """Returns the newest checkpoint, once all that are being written are there."""
        self._manager.wait_until_finished()
        steps = _steps(self._folder)
        return self.path(steps[0]) if steps else None

    def _put_aside(self, steps: list[int]) -> None:
        self._manager.close()
        aside = self._folder.with_name(f"{self._folder.name}-damaged")
        aside.mkdir(exist_ok=True)
        for step in steps:
            shutil.rmtree(aside / str(step), ignore_errors=True)
            self.path(step).rename(aside / str(step))
        self._manager = self._open()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._manager.wait_until_finished()
        self._manager.close()


def _steps(folder: Path) -> list[int]:
    return sorted((int(p.name) for p in folder.glob("*") if p.name.isdigit()), reverse=True)


def read(folder: Path, *, like: Any = None) -> tuple[Any, dict[str, Any]]:
    """Reads one checkpoint: the state, in the shape of `like` or else as plain dicts, and the card.

    Raises:
      Exception: of many kinds, when it is not whole.

    """
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as reader:
        found = reader.restore(
            folder.absolute(),
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(like), card=ocp.args.JsonRestore()
            ),
        )
    return found.state, found.card


def newest(path: str | os.PathLike[str]) -> Path:
    """Returns the checkpoint that a path means: itself, or the newest in the folder of a run.

    Raises:
      ValueError: when there is none.

    """
    folder = Path(path)
    for place in (folder, folder / "checkpoints"):
        if (place / "card").is_dir():
            return place
        if steps := _steps(place):
            return place / str(steps[0])
    raise ValueError(
        f"path must be a checkpoint or the folder of a run that has one, but got {str(path)!r}."
    )
