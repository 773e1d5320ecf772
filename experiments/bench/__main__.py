"""Measures training, evaluation and single layers beside escnn and XLA's own convolutions.

    make bench                      # makes an environment for torch and escnn, and runs all of it

Run it on a machine that does nothing else. Prints tables, and leaves bench.json and bench.png.
"""

import dataclasses
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import tyro

from experiments import readme
from experiments.bench import report
from experiments.bench.measure import ROOT, Side, compiled_again, race, races, ratios, sides, slope
from experiments.reporting import surroundings
from gconv_jax.training.runs import write_whole

NETWORKS = ({"widths": [33, 67], "batch": 32}, {"widths": [8, 16], "batch": 64})
LAYERS = ((32, 32, 264), (32, 16, 536), (64, 32, 64), (64, 16, 128), (64, 8, 128))

# How time grows: what is changed from the smaller network, and its size.
_BASE = {"kind": "training", "widths": [8, 16], "batch": 64}
GROWTH: dict[str, dict[float, dict[str, Any]]] = {
    "batch": {n: {"batch": n} for n in (32, 64, 128, 256)},
    "pixels": {n * n: {"size": n} for n in (16, 32, 64)},
    "width": {n: {"widths": [n, 2 * n]} for n in (8, 16, 32)},
    "orientations": {n: {"orientations": n} for n in (4, 8, 16)},
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Measures gconv_jax beside escnn and beside XLA's own convolutions, in turns."""

    peer: str | None = None
    """a Python interpreter that has torch and escnn; without one, they are left out"""
    rounds: int = 5
    """how often each program runs, at least, after once to warm up"""
    folder: Path = ROOT / "experiments" / "results"
    """for bench.json and bench.png"""


def same_gradients(result: dict[str, Any]) -> None:
    """Checks that the fast and the plain way begin with the same loss and gradient."""
    ours, plain = (result["facts"][name] for name in ("gconv_jax", "lax.conv"))
    for name in ("loss", "gradient_norm"):
        if abs(ours[name] / plain[name] - 1) > 1e-3:
            raise RuntimeError(f"the {name} is {ours[name]}, but {plain[name]} by lax.conv.")


def measure_networks(everyone: dict[str, Side], rounds: int) -> list[dict[str, Any]]:
    results = []
    for network in NETWORKS:
        for kind in ("training", "evaluation"):
            title = f"{kind}, {report.named(network)}"
            results.append(race(title, everyone, {"kind": kind, **network}, rounds))
            if kind == "training":
                same_gradients(results[-1])
                ours = everyone["gconv_jax"]
                results[-1]["compiled_again"] = compiled_again(ours, {"kind": kind, **network})
            if "escnn" in everyone:
                median, least, most = ratios(results[-1], "escnn", "gconv_jax")
                print(f"{title}: {median:.2f} times escnn ({least:.2f} to {most:.2f})")
    return results


def measure_layers(everyone: dict[str, Side], rounds: int) -> list[dict[str, Any]]:
    layers = [
        {"kind": "layer", "batch": b, "size": s, "channels": c, "backward": backward}
        for b, s, c in LAYERS
        for backward in (False, True)
    ]
    contenders = {name: everyone[name] for name in ("gconv_jax", "lax.conv")}
    if "escnn" in everyone:
        for layout in ("contiguous_format", "channels_last"):
            side = dataclasses.replace(everyone["escnn"], options={"layout": layout})
            contenders[f"torch, {layout}"] = side
    return races("layers", contenders, layers, rounds)


def measure_growth(ours: Side, rounds: int) -> dict[str, Any]:
    found = {}
    for what, changes in GROWTH.items():
        programs = [_BASE | change for change in changes.values()]
        results = races(f"growth with {what}", {"gconv_jax": ours}, programs, rounds)
        seconds = [min(result["seconds"]["gconv_jax"]) for result in results]
        sizes = list(changes)
        found[what] = {"sizes": sizes, "seconds": seconds, "slope": slope(sizes, seconds)}
    return found


def machine() -> dict[str, Any]:
    """Says what it was measured on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {"cpu": cpu, "cores": os.cpu_count(), "system": platform.system()}


def main(config: Config) -> int:
    if config.rounds < 1:
        print(f"bench: rounds must be at least 1, but got {config.rounds}.", file=sys.stderr)
        return 2
    everyone = sides(config.peer)
    if config.peer is None:
        print("without --peer, torch and escnn are left out")
    about = {"command": "make bench", "machine": machine(), **surroundings()}
    results = about | {
        "rounds": config.rounds,
        "networks": measure_networks(everyone, config.rounds),
        "layers": measure_layers(everyone, config.rounds),
        "growth": measure_growth(everyone["gconv_jax"], config.rounds),
    }
    path = config.folder / "bench.json"
    write_whole(path, json.dumps(results, indent=1) + "\n")
    print(f"\n{report.tables(results)}\n\nwrote {path}", end="")
    if config.peer is not None:
        print(f" and {report.draw(results, config.folder / 'bench.png')}", end="")
    print()
    if config == Config(peer=config.peer) and config.peer is not None:
        for part in (report.speed, report.costs, report.growth):
            readme.fill(part.__name__, "\n".join(part(results)))
        print("and the tables in the README")
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Config, prog="python -m experiments.bench", description=__doc__)))
