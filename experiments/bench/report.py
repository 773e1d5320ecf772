"""What the benchmark found, as tables and as a picture: bench.json -> Markdown, PNG."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from experiments.bench.measure import ratios

mpl.use("Agg")


def named(network: Mapping[str, Any]) -> str:
    """Names a network by its widths and batch."""
    return f"{'/'.join(map(str, network['widths']))}, batch {network['batch']}"


def tables(results: Mapping[str, Any]) -> str:
    """Returns all tables, in Markdown, with an empty line between them."""
    made = (speed(results), costs(results), layers(results), growth(results))
    return "\n\n".join("\n".join(lines) for lines in made)


def _table(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|" + len(columns) * "---|"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _median(result: Mapping[str, Any], side: str) -> float:
    return float(np.median(result["seconds"][side]))


def _rate(result: Mapping[str, Any], side: str) -> str:
    rate = result["batch"] / _median(result, side)
    return f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"


def _ratio(result: Mapping[str, Any], slow: str, fast: str) -> str:
    median, least, most = ratios(result, slow, fast)
    return f"**{median:.1f}** ({least:.1f} to {most:.1f})"


def speed(results: Mapping[str, Any]) -> list[str]:
    """Images a second, and ratios, with memory kept and with nothing set."""
    lines = _table("images/s", "gconv_jax", "escnn", "ratio", "`lax.conv`", "ratio")
    for result, suffix in itertools.product(results["networks"], ("", ", nothing set")):
        ours, peer, plain = f"gconv_jax{suffix}", f"escnn{suffix}", f"lax.conv{suffix}"
        cells = [f"{result['kind']}, {named(result)}{suffix}", _rate(result, ours)]
        for other in (peer, plain):
            there = other in result["seconds"]
            cells += [_rate(result, other), _ratio(result, other, ours)] if there else ["", ""]
        lines.append(_row(*cells))
    return lines


def costs(results: Mapping[str, Any]) -> list[str]:
    """What is paid once, and memory, for a training step."""
    trained = [result for result in results["networks"] if result["kind"] == "training"]
    lines = _table("once, in seconds; and memory", *map(named, trained))
    for side in ("gconv_jax", "escnn"):
        for cost in ("import", "build", "compile"):
            cells = [result["facts"].get(side, {}).get(cost) for result in trained]
            if all(cell is not None for cell in cells):
                lines.append(_row(f"{side}: {cost}", *(f"{cell:.1f}" for cell in cells)))
        if side == "gconv_jax":
            again = (f"{result['compiled_again']:.1f}" for result in trained)
            lines.append(_row(f"{side}: compile, the second time", *again))
        if all(side in result["peak_memory_bytes"] for result in trained):
            peaks = (result["peak_memory_bytes"][side] / 1e9 for result in trained)
            lines.append(_row(f"{side}: peak memory", *(f"{peak:.2f} GB" for peak in peaks)))
    return lines


def layers(results: Mapping[str, Any]) -> list[str]:
    """Single 3x3 convolutions, in milliseconds; torch in the better of its two layouts."""
    lines = _table(
        "one 3x3 convolution, ms forward / and backward", "gconv_jax", "`lax.conv`", "torch"
    )
    for pair in zip(results["layers"][::2], results["layers"][1::2], strict=True):
        b, size, c = (pair[0][name] for name in ("batch", "size", "channels"))
        cells = [f"batch {b}, {size}x{size}, {c} channels"]
        for side in ("gconv_jax", "lax.conv", "torch"):
            names = [name for name in pair[0]["seconds"] if name.partition(",")[0] == side]
            best = [1e3 * min((_median(r, n) for n in names), default=np.nan) for r in pair]
            cells.append(" / ".join(f"{ms:,.{ms < 100:d}f}" for ms in best) if names else "")
        lines.append(_row(*cells))
    return lines


def growth(results: Mapping[str, Any]) -> list[str]:
    """The powers that the time of a training step grows with."""
    lines = _table("a training step grows with", "from", "to", "as its power")
    for what, found in results["growth"].items():
        first, *_, last = found["sizes"]
        lines.append(_row(what, f"{first}", f"{last}", f"{found['slope']:.2f}"))
    return lines


def draw(results: Mapping[str, Any], path: Path) -> Path:
    """Draws the images a second of all sides as bars, escnn being 1."""
    shown = {"gconv_jax": "#2a6fbb", "escnn": "#d9822b", "lax.conv": "#9aa5b1"}
    networks = results["networks"]
    figure = Figure(figsize=(7.5, 3.2))
    axes = figure.add_subplot()
    width = 0.8 / len(shown)
    for i, (side, colour) in enumerate(shown.items()):
        found = [ratios(result, "escnn", side) for result in networks]
        middle, least, most = map(np.asarray, zip(*found, strict=True))
        places = np.arange(len(networks)) + (i - 1) * width
        name = "XLA's lax.conv" if side == "lax.conv" else side
        errors = np.stack([middle - least, most - middle])
        axes.bar(places, middle, 0.94 * width, color=colour, label=name)
        if side != "escnn":
            axes.errorbar(places, middle, errors, fmt="none", ecolor="#333333", elinewidth=0.8)
        for place, result, top in zip(places, networks, most, strict=True):
            axes.text(place, top + 0.05, _rate(result, side), ha="center", fontsize=7)
    axes.set_xticks(range(len(networks)))
    labels = [f"{result['kind']}\n{named(result)}" for result in networks]
    axes.set_xticklabels(labels, fontsize=8)
    axes.set_ylabel("speed, escnn = 1", fontsize=8)
    machine = results["machine"]
    axes.set_title(
        f"Images a second (figures on the bars), {machine['cores']} cores of {machine['cpu']}",
        loc="left",
        fontsize=9,
    )
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=len(shown)
    )
    figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
    return path
