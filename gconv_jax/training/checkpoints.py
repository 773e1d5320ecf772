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
        self._options = ocp.CheckpointManagerOptions(max_to_keep=keep)
        for unfinished in self._folder.glob("*.orbax-checkpoint-tmp*"):
            shutil.rmtree(unfinished)
        self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(self._folder, options=self._options)

    def save(self, step: int, state: Any) -> None:
        """Begins to save `state`; returns as soon as it has been copied."""
        self._manager.save(step, args=ocp.args.StandardSave(state))

    def restore(self, state: State, *, say: Callable[[str], None] = print) -> State | None:
        """Returns the newest state that is whole, in the shape of `state`; `None` if there is none.

        Checkpoints that cannot be read are told to `say`, passed over and put aside.

        Raises:
          ValueError: when there are checkpoints and none of them can be read.

        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for i, step in enumerate(steps):
            try:
                restored: State = self._manager.restore(step, args=ocp.args.StandardRestore(state))
            except Exception as error:  # orbax raises many kinds for a damaged checkpoint
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                say(f"checkpoint {step} cannot be read and is passed over ({reason[:200]})")
                continue
            if i:
                self._put_aside(steps[:i])
            return restored
        if steps:
            raise ValueError(
                f"none of the checkpoints in {self._folder} can be read; remove the folder to "
                "begin anew."
            )
        return None

    def _put_aside(self, steps: list[int]) -> None:
        self._manager.close()
        aside = self._folder.with_name(f"{self._folder.name}-damaged")
        aside.mkdir(exist_ok=True)
        for step in steps:
            shutil.rmtree(aside / str(step), ignore_errors=True)
            (self._folder / str(step)).rename(aside / str(step))
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
