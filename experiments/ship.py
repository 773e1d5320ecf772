"""Make the bases that ship with the package, and the numbers about them: data -> package, results.

    make bases        # about 12 minutes on 2 cores, less what earlier runs have left in runs/

Learns each descent basis with three seeds and ships the first; solves the closed forms; ablates the
three losses. Writes gconv_jax/bases/pretrained/*.npz and experiments/results/bases.json, from which
`python -m experiments.ship --table` prints the tables of the README, and the pictures beside it.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import gconv_jax as gj
from experiments import figures
from experiments.pretrain import Config, Data, card_of, learn, load_data, settle
from gconv_jax.bases.files import shipped_file
from gconv_jax.bases.quality import BasisQuality, Moments, judge, patch_moments
from gconv_jax.training.pretraining import LossWeights
from gconv_jax.training.runs import write_whole

SEEDS = (0, 1, 2)
DESCENT: tuple[Literal["partial", "full", "overcomplete"], ...] = (
    "partial",
    "full",
    "overcomplete",
)
CLOSED_FORMS = ((8, 3), (8, 5), (8, 7), (16, 3), (16, 5), (16, 7), (4, 3), (12, 3))
ABLATIONS = {
    "all three": LossWeights(),
    "without equivariance": LossWeights(equivariance=0),
    "without orthogonality": LossWeights(orthogonality=0),
    "without reconstruction": LossWeights(reconstruction=0),
    "equivariance alone": LossWeights(orthogonality=0, reconstruction=0),
}

RESULTS = Path("experiments/results/bases.json")
SHIPPED = Path("gconv_jax/bases/pretrained")


def make(config: Config, data: Data, moments: Moments) -> tuple[jax.Array, BasisQuality]:
    """Learns a basis, or takes it from the run that did; returns it and its quality."""
    path = config.folder / "basis.npz"
    settle(config)
    if path.exists():
        basis = gj.load_basis(path)
    else:
        learned = learn(config, data)
        if learned is None:
            raise KeyboardInterrupt
        basis, _ = learned
        gj.save_basis(path, basis, card={"command": config.command})
    quality = judge(np.asarray(basis), moments)
    print(f"{config.command}: {quality}", flush=True)
    return basis, quality


def ship() -> None:
    """Makes everything."""
    data = load_data(Config().images)
    moments = {(g, k): patch_moments(data.test, g, k) for g, k in sorted({(8, 3), *CLOSED_FORMS})}
    SHIPPED.mkdir(exist_ok=True)
    RESULTS.parent.mkdir(exist_ok=True)
    rows, ablation = [], []
    for g, k in CLOSED_FORMS:
        config = Config(solver="closed_form", orientations=g, kernel=k)
        basis, quality = make(config, data, moments[g, k])
        rows.append(_row(config, quality))
        path = SHIPPED / shipped_file("closed_form", g, k)
        gj.save_basis(path, basis, card=card_of(config, data, quality))
        if (g, k) == (8, 3):
            figures.draw_basis(RESULTS.parent, "closed_form", basis, data.test)
    for kind in DESCENT:
        made = []
        for seed in SEEDS:
            config = Config(basis=kind, seed=seed)
            made.append((config, *make(config, data, moments[8, 3])))
        qualities = [quality for _, _, quality in made]
        spread = {
            name: {"values": values, "mean": float(np.mean(values)), "std": float(np.std(values))}
            for name, values in zip(BasisQuality._fields, zip(*qualities, strict=True), strict=True)
        }
        config, basis, quality = made[0]
        rows.append(_row(config, quality) | {"seeds": spread})
        card = card_of(config, data, quality, seeds={"seeds": SEEDS} | spread)
        gj.save_basis(SHIPPED / shipped_file(kind, 8, 3), basis, card=card)
    for name in ("weiler", "gaussian", "bilinear", "random"):
        quality = judge(np.asarray(gj.make_basis(name)), moments[8, 3])
        rows.append({"name": name, "orientations": 8, "kernel_size": 3} | quality._asdict())
    for name, weights in ABLATIONS.items():
        config = Config(weights=weights)
        _, quality = make(config, data, moments[8, 3])
        ablation.append({"losses": name, "command": config.command} | quality._asdict())
    results = {
        "command": "make bases",
        "machine": f"{platform.machine()}, {jax.device_count()} {jax.default_backend()} device(s)",
        "versions": {"gconv_jax": gj.__version__, "jax": jax.__version__},
        "data": data.source,
        "judged_on": f"{len(data.test)} CIFAR-10 test images",
        "bases": rows,
        "ablation": ablation,
    }
    write_whole(RESULTS, json.dumps(results, indent=1) + "\n")
    print(f"wrote {RESULTS} and {SHIPPED}/")


def _row(config: Config, quality: BasisQuality) -> dict[str, Any]:
    return {
        "name": config.name,
        "orientations": config.orientations,
        "kernel_size": config.kernel,
        **quality._asdict(),
        "command": config.command,
    }


def tables(results: dict[str, Any]) -> str:
    """Returns the README's tables, in Markdown."""

    def number(value: float) -> str:
        return f"{value:.5f}" if value < 0.1 else f"{value:.4f}"

    lines = [
        "| basis | G | k | error | condition number | residual | made with |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["bases"]:
        error = number(row["error"])
        if "seeds" in row:
            of = row["seeds"]["error"]
            error += f" ({of['mean']:.5f} ± {of['std']:.5f})"
        made = f"`{row['command']}`" if "command" in row else f"`gj.make_basis({row['name']!r})`"
        lines.append(
            f"| {row['name']} | {row['orientations']} | {row['kernel_size']} | {error} | "
            f"{number(row['condition_number'])} | {number(row['residual'])} | {made} |"
        )
    lines += ["", "| losses | error | condition number | residual |", "|---|---|---|---|"]
    lines += [
        f"| {row['losses']} | {number(row['error'])} | {number(row['condition_number'])} | "
        f"{number(row['residual'])} |"
        for row in results["ablation"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(tables(json.loads(RESULTS.read_text())))
    else:
        ship()
