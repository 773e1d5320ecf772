"""What a training run says while it runs, and leaves when it is done."""

import contextlib
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tensorboardX import SummaryWriter
from tqdm import tqdm

import gconv_jax as gj
from gconv_jax.training.runs import JsonLines

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
LOG, BOARD = "log.jsonl", "tensorboard"


class Report:
    """A progress bar, a log with a line for each step, and TensorBoard files; a context manager."""

    def __init__(self, folder: Path, *, step: int, steps: int, epoch: int, batch: int) -> None:
        """Opens all of them in a run's folder, to go on after `step`; an epoch has `epoch`."""
        self._epoch, self._batch = epoch, batch
        with contextlib.ExitStack() as stack:
            self.log = stack.enter_context(JsonLines(folder / LOG, after=step))
            self.board = stack.enter_context(
                SummaryWriter(str(folder / BOARD), purge_step=step + 1)
            )
            self._stack = stack.pop_all()
        self._bar: Any = None
        self._range = {"initial": step, "total": steps}

    @property
    def bar(self) -> Any:
        """The progress bar, drawn when there is something to show."""
        if self._bar is None:
            options = {"unit": "step", "mininterval": 1, "file": sys.stdout}
            self._bar = self._stack.enter_context(tqdm(**self._range, **options))
        return self._bar

    def write(
        self, last: int, records: list[dict[str, float]], validation: dict[str, float] | None
    ) -> None:
        """Reports the steps up to `last`; with `validation` if an epoch ends there."""
        first = last - len(records) + 1
        for step, values in enumerate(records, start=first):
            epoch = (step - 1) // self._epoch + 1
            if validation is not None and step == last:
                values = values | {f"validation_{name}": v for name, v in validation.items()}
            self.log.write(step, epoch=epoch, **values)
            for name, value in values.items():
                self.board.add_scalar(name.replace("validation_", "validation/"), value, step)
        rate = (self.bar.format_dict["rate"] or 0.0) * self._batch
        self.board.add_scalar("images_per_second", rate, last)
        loss, accuracy = (np.mean([r[name] for r in records]) for name in ("loss", "accuracy"))
        shown = f"{rate:.0f} images/s, loss {loss:.3f}, accuracy {accuracy:.3f}"
        if validation is not None:
            shown += f", validation {validation['accuracy']:.3f}"
        epochs = self._range["total"] // self._epoch
        self.bar.set_description(f"epoch {epoch}/{epochs}", refresh=False)
        self.bar.set_postfix_str(shown, refresh=False)
        self.bar.update(len(records))

    def __enter__(self) -> "Report":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def epochs(folder: Path) -> list[dict[str, float]]:
    """Returns the metrics of each epoch that has ended: means over its steps, and validation."""
    found, steps = [], []
    for record in map(json.loads, (folder / LOG).read_text().splitlines()):
        steps.append(record)
        if "validation_loss" in record:
            means = {f"train_{n}": _mean(r[n] for r in steps) for n in ("loss", "accuracy")}
            validation = {n: v for n, v in record.items() if n.startswith("validation_")}
            found.append({"epoch": record["epoch"], "step": record["step"], **means, **validation})
            steps = []
    return found


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def surroundings() -> dict[str, Any]:
    """Returns what a result depends on besides its configuration: versions, devices, commit."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    device = jax.devices()[0]
    return {
        "versions": {"gconv_jax": gj.__version__, "python": platform.python_version()} | versions,
        "devices": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "processes": jax.process_count(),
        },
        "commit": _commit(),
    }


def _commit() -> str | None:
    """Returns the commit of the code, with a `+` if it was changed since; none outside git."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        commit, changes = (
            subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "-uno"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.strip() + ("+" if changes.strip() else "")


def in_words(seconds: float) -> str:
    """Says a time as a person would."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def in_a_sentence(name: str, program: Callable[[], int]) -> int:
    """Runs a program; what is wrong with its input is one sentence, not a traceback."""
    try:
        return program()
    except (ValueError, FloatingPointError, gj.data.DataError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
