"""Checkpoints by orbax: written in the background, atomic; the newest whole one is used."""

import os
import shutil
from collections.abc import Callable
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
        self._options = ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True)
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(self._folder, options=self._options)

    def save(self, step: int, state: Any) -> None:
        """Begins to save `state`; returns as soon as it has been copied."""
        self._manager.save(step, args=ocp.args.StandardSave(state))

    def restore(self, state: State, *, say: Callable[[str], None] = print) -> State | None:
        """Returns the newest state that is whole, in the shape of `state`; `None` if there is none.

        A checkpoint that cannot be read is told to `say`, put aside and passed over.
        """
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                restored: State = self._manager.restore(step, args=ocp.args.StandardRestore(state))
            except Exception as error:  # orbax raises many kinds for a damaged checkpoint
                reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
                say(f"checkpoint {step} cannot be read and is passed over ({reason[:200]})")
                self._put_aside(step)
                continue
            return restored
        return None

    def _put_aside(self, step: int) -> None:
        self._manager.close()
        damaged = self._folder.parent / f"{self._folder.name}-damaged"
        damaged.mkdir(exist_ok=True)
        shutil.rmtree(damaged / str(step), ignore_errors=True)
        (self._folder / str(step)).rename(damaged / str(step))
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
