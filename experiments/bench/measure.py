"""Starts the sides of the benchmark and lets them take turns: workloads -> seconds."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

ROOT = Path(__file__).parents[2]
PAUSE = 0.3  # seconds before each run, so that no side pays for what the one before did
SPAN = 60.0  # seconds that each race goes on for, or longer if its rounds are not done
_ANEW = {"JAX_ENABLE_COMPILATION_CACHE": "false"}


@dataclasses.dataclass(frozen=True)
class Side:
    """Who computes, with which interpreter, and whether it keeps the memory that it has freed."""

    module: str
    python: str
    keep: bool = True
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def sides(peer: str | None) -> dict[str, Side]:
    """Returns who takes part; escnn does if there is an interpreter that has it."""
    ours, plain = "experiments.bench.ours", {"plain": True}
    found = {
        "gconv_jax": Side(ours, sys.executable),
        "gconv_jax, nothing set": Side(ours, sys.executable, keep=False),
        "lax.conv": Side(ours, sys.executable, options=plain),
    }
    if peer is not None:
        found["escnn"] = Side("experiments.bench.peer", peer)
        found["escnn, nothing set"] = Side("experiments.bench.peer", peer, keep=False)
    return found


class Contender:
    """A process with programs; a context manager."""

    def __init__(
        self, side: Side, programs: Sequence[Mapping[str, Any]], cache: Path | None = None
    ) -> None:
        """Starts it, and returns when all programs have run once.

        They are compiled anew, since that is timed, or taken from a folder of compiled programs.
        """
        options = json.dumps([dict(program) | dict(side.options) for program in programs])
        memory = "keep" if side.keep else "default"
        self._process = subprocess.Popen(
            [side.python, "-m", side.module, memory, options],
            cwd=ROOT,
            env=os.environ | ({"JAX_COMPILATION_CACHE_DIR": str(cache)} if cache else _ANEW),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.facts: list[dict[str, Any]] = self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self.__exit__()
            raise RuntimeError(f"a contender ended with exit code {code}; what it said is above.")
        return json.loads(line)

    def seconds(self, program: int) -> float:
        """Runs a program once."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{program}\n")
        self._process.stdin.flush()
        return float(self._read())

    def end(self) -> int:
        """Ends it; returns the most bytes that it has had in memory at once."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak = int(self._read())
        self._process.wait()
        return peak

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            if not stream.closed:
                stream.close()


def race(
    title: str, sides: Mapping[str, Side], program: Mapping[str, Any], rounds: int
) -> dict[str, Any]:
    """Times one program on every side, in turns; returns seconds, facts and memory of each."""
    return races(title, sides, [program], rounds, span=SPAN)[0]


def races(
    title: str,
    sides: Mapping[str, Side],
    programs: Sequence[Mapping[str, Any]],
    rounds: int,
    *,
    span: float = 0.0,
) -> list[dict[str, Any]]:
    """Times programs on every side, in turns; memory is that of all of them together.

    Each takes so many rounds, and more until `span` seconds have gone by.
    """
    contenders: dict[str, Contender] = {}
    bar = tqdm(desc=title, unit="run", leave=False)
    try:
        for name, side in sides.items():
            contenders[name] = Contender(side, programs)
            bar.update()
        results = []
        for i, program in enumerate(programs):
            taken: dict[str, list[float]] = {name: [] for name in sides}
            begun, taking = time.perf_counter(), 0
            while taking < rounds or time.perf_counter() - begun < span:
                taking += 1
                for name, contender in contenders.items():
                    time.sleep(PAUSE)
                    taken[name].append(contender.seconds(i))
                    bar.update()
            facts = {name: contender.facts[i] for name, contender in contenders.items()}
            results.append({**program, "seconds": taken, "facts": facts})
        memory = {name: contender.end() for name, contender in contenders.items()}
        return [result | {"peak_memory_bytes": memory} for result in results]
    finally:
        bar.close()
        for contender in contenders.values():
            contender.__exit__()


def compiled_again(side: Side, program: Mapping[str, Any]) -> float:
    """Returns how long a program takes to compile, in seconds, when it has been compiled before."""
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            with Contender(side, [program], Path(cache)) as contender:
                contender.end()
    return float(contender.facts[0]["compile"])


def ratios(result: Mapping[str, Any], slow: str, fast: str) -> tuple[float, float, float]:
    """Returns how many times as long one side takes as another: median, least and most."""
    taken = result["seconds"]
    each = np.divide(taken[slow], taken[fast])
    return float(np.median(each)), float(each.min()), float(each.max())


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Returns the power of the size that the time grows with: the slope of a line, log on log."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
