"""A run: the folder that is its own, a log that has each step once, and how it is stopped."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes a file so that it is there in full or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    with beside.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def claim(folder: Path, config: Mapping[str, Any]) -> None:
    """Makes the folder this run's own, or checks that it is: the configurations must be equal.

    Raises:
      ValueError: when the folder holds a run with another configuration; it names what differs.

    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    ours = json.loads(json.dumps(dict(config)))
    if not path.exists():
        write_whole(path, json.dumps(ours, indent=2, sort_keys=True) + "\n")
        return
    check_same(folder, json.loads(path.read_text()), ours)


def check_same(folder: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuses to go on in a folder with another configuration than its own; says what differs."""
    differing = [
        f"{key} is {theirs.get(key)!r} there and {ours.get(key)!r} here"
        for key in sorted(theirs.keys() | ours.keys())
        if theirs.get(key) != ours.get(key)
    ]
    if differing:
        raise ValueError(
            f"workdir {folder} holds another run ({'; '.join(differing)}); name another workdir, "
            "or remove that one to begin anew."
        )


class JsonLines:
    """A log of one JSON object a line, each with a `step`; a context manager."""

    def __init__(self, path: Path, *, after: int) -> None:
        """Opens a log to go on after a step: what was logged for later ones is dropped."""
        if path.exists():
            kept = []
            for line in path.read_text().splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:
                    continue  # cut off by a kill
                if record["step"] <= after:
                    kept.append(line + "\n")
            write_whole(path, "".join(kept))
        self._file = path.open("a")

    def write(self, step: int, **values: Any) -> None:
        """Appends a line, which is on its way to disk when this returns."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Returns when all lines are on the disk itself: a checkpoint must not be ahead of them."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> "JsonLines":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextlib.contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Lets Ctrl-C (or SIGTERM) end the round that is under way, so that it can be saved."""
    asked: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: asked.append(number)) for number in signals]
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
