"""Measures both ways to correlate on a CPU where there are few inputs: what `way` decides by.

    python -m experiments.bench.ways            # a few minutes, on a machine that does nothing else

Prints a table, and leaves ways.json.
"""

import dataclasses
import json
import sys
from typing import Any, get_args

from experiments.bench.measure import ROOT, races, sides
from experiments.reporting import surroundings
from gconv_jax.correlate import Way
from gconv_jax.training.runs import write_whole

RESULTS = ROOT / "experiments" / "results" / "ways.json"
INPUTS = {3: (3, 8, 12, 16, 24, 32), 5: (1, 3, 5, 8, 16)}  # channels, for each kernel size
OUTPUTS = 64
WAYS: tuple[str, ...] = get_args(Way)
ROUNDS = 7


def measure() -> list[dict[str, Any]]:
    """Times a layer forward and backward in both ways, in turns; seconds, the least of all."""
    ours = sides(None)["gconv_jax"]
    ways = {way: dataclasses.replace(ours, options={"way": way}) for way in WAYS}
    layer = {"kind": "layer", "batch": 64, "size": 32, "channels": OUTPUTS, "backward": True}
    cells = [{"kernel_size": k, "inputs": i} for k, several in INPUTS.items() for i in several]
    results = races("ways to correlate", ways, [layer | cell for cell in cells], ROUNDS)
    return [
        cell | {way: min(seconds) for way, seconds in result["seconds"].items()}
        for cell, result in zip(cells, results, strict=True)
    ]


def main() -> int:
    found = measure()
    about = {"command": "python -m experiments.bench.ways", **surroundings()}
    write_whole(RESULTS, json.dumps(about | {"ways": found}, indent=1) + "\n")
    print(f"ms forward and backward, batch 64, 32x32, {OUTPUTS} outputs")
    for row in found:
        times = ", ".join(f"{way} {1e3 * row[way]:.1f}" for way in WAYS)
        print(f"{row['kernel_size']}x{row['kernel_size']}, {row['inputs']:2d} inputs: {times}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
