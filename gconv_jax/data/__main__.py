"""Prepares the sets: `python -m gconv_jax.data [NAME ...]`, all of them by default.

    python -m gconv_jax.data cifar10 mnist     only these
    python -m gconv_jax.data --files FOLDER    from official files that are in a folder

A line a set says which source served and that the checksums match. What is prepared already is only
verified, which takes about a second a set.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from gconv_jax.data.errors import DataError, megabytes
from gconv_jax.data.loading import NoSourceError, has_embedded, prepare
from gconv_jax.data.sets import SETS


class _Bar:
    """A progress bar for one file after another; nothing at all without tqdm."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.file: str | None = None

    def __call__(self, file: str, received: int, size: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            return
        if file != self.file:
            self.close()
            self.file = file
            self.bar = tqdm(
                total=size, desc=file, unit="B", unit_scale=True, leave=False, disable=None
            )
        if received > self.bar.n:
            self.bar.update(received - self.bar.n)
        else:
            self.bar.refresh()  # the clock goes on, also while nothing is known to arrive

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        self.bar = self.file = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepares sets and says what became of each; returns 0 when all of them are there."""
    parser = argparse.ArgumentParser(
        prog="python -m gconv_jax.data", description="Prepare the image sets, verified."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETS)}")
    parser.add_argument("--data-dir", help="where to keep them (GCONV_DATA_DIR)")
    parser.add_argument("--files", help="a folder of official files (GCONV_FILES_DIR)")
    options = parser.parse_args(arguments)
    failed = 0
    for name in options.names or SETS:
        bar = _Bar()
        start = time.monotonic()

        def say(line: str, bar: _Bar = bar) -> None:
            bar.close()
            print(line, file=sys.stderr, flush=True)

        try:
            directory, source = prepare(
                name, data_dir=options.data_dir, files=options.files, progress=bar, say=say
            )
        except (DataError, ValueError) as error:
            bar.close()
            print(f"{name}: {error}", file=sys.stderr)
            if isinstance(error, NoSourceError) and has_embedded(name):
                print(f"{name}: UNTIL THEN THE EMBEDDED SUBSET IS ALL THERE IS", file=sys.stderr)
            failed += 1
            continue
        bar.close()
        described = SETS[name]
        counts = " + ".join(f"{n:,} {split}" for split, n in described.sizes.items())
        print(
            f"{name}: {counts} images, {megabytes(described.bytes)}, from {source}; "
            f"checksums match; {directory} ({time.monotonic() - start:.1f} s)",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
