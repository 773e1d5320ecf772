"""How the pictures are drawn: numbers -> figures -> PNG and SVG, the same bytes each time."""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from experiments.report.findings import LAYERS

mpl.use("Agg")

_DPI = 150
_WIDTH = 4.9  # inches: so narrow that a phone can show the letters
_GREY = "#555555"


class Style(NamedTuple):
    """How a line is told from the others, also without colour."""

    colour: str
    marker: str
    dashes: str


# Colours of Okabe and Ito, which colour-blind readers can tell apart, and a wine red for the ninth.
STYLES = {
    "conv": Style("#000000", "x", "--"),
    "random": Style("#8a8a8a", "+", "--"),
    "weiler": Style("#e69f00", "^", "-."),
    "bilinear": Style("#56b4e9", "v", "-."),
    "gaussian": Style("#d55e00", "s", "-."),
    "full": Style("#cc79a7", "D", "-"),
    "partial": Style("#0072b2", "o", "-"),
    "overcomplete": Style("#009e73", "p", "-"),
    "closed_form": Style("#882255", "*", "-"),
    # and those of the augmentations
    "none": Style("#0072b2", "o", "-"),
    "90": Style("#e69f00", "^", "--"),
    "45": Style("#009e73", "s", "-."),
    "augmented": Style("#882255", "*", ":"),
}


class Line(NamedTuple):
    """A mean over seeds, and its standard deviation, if there are several seeds."""

    label: str
    style: Style
    x: Sequence[float]
    mean: np.ndarray
    std: np.ndarray | None


class Panel(NamedTuple):
    """One part of a figure: what to draw, and the names of what has not been run."""

    title: str
    lines: Sequence[Line]
    missing: Sequence[str]


class Point(NamedTuple):
    """A basis in the plane of its own quality and its network's robustness."""

    label: str
    style: Style
    x: float
    y: float
    spread: float | None


def png(figure: Figure) -> bytes:
    """Returns a figure's PNG."""
    return _saved(figure, "png", {"Software": None})


def svg(figure: Figure) -> bytes:
    """Returns a figure's SVG, without a date, and with names that do not change."""
    with mpl.rc_context({"svg.hashsalt": "gconv_jax"}):
        return _saved(figure, "svg", {"Date": None, "Creator": None})


def _saved(figure: Figure, kind: str, metadata: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    figure.savefig(
        file, format=kind, dpi=_DPI, bbox_inches="tight", facecolor="white", metadata=metadata
    )
    return file.getvalue()


def curves(panels: Sequence[Panel]) -> Figure:
    """Draws test error, in percent, against the angle of the input."""
    figure, every = _stacked(panels)
    for axes, panel in zip(every, panels, strict=True):
        _draw_lines(axes, panel)
        axes.set_xlabel("angle of the test images in degrees")
        _far_apart(axes, panel, "test error in percent")
        if panel.lines:
            axes.set_xticks(range(0, 361, 45))
            axes.set_xlim(-6, 351)
    _legend(figure, every)
    return figure


def layers(panels: Sequence[Panel]) -> Figure:
    """Draws the equivariance error of each layer."""
    figure, every = _stacked(panels)
    for axes, panel in zip(every, panels, strict=True):
        _draw_lines(axes, panel)
        axes.set_xlabel("layer")
        _far_apart(axes, panel, "equivariance error")
        if panel.lines:
            axes.set_xticks(range(1, len(LAYERS) + 1))
    _legend(figure, every)
    return figure


def _stacked(panels: Sequence[Panel]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(_WIDTH, 3.1 * len(panels) + 0.6), layout="constrained")
    return figure, list(figure.subplots(len(panels), 1, squeeze=False)[:, 0])


def _draw_lines(axes: Axes, panel: Panel) -> None:
    _dress(axes, panel.title)
    for i, line in enumerate(panel.lines):
        colour, marker, dashes = line.style
        every = min(4, len(line.x))  # in turns, so that a line below another one still shows
        axes.plot(
            line.x,
            line.mean,
            dashes,
            color=colour,
            marker=marker,
            markevery=(i % every, every),
            markersize=5 if marker not in "*+x" else 8,
            linewidth=1.5,
            label=line.label,
        )
        if line.std is not None:
            low = np.maximum(line.mean - line.std, line.mean / 100)  # zero is not on a log axis
            axes.fill_between(line.x, low, line.mean + line.std, color=colour, alpha=0.15, lw=0)
    _say_missing(axes, panel)


def _far_apart(axes: Axes, panel: Panel, label: str) -> None:
    """Names the y axis, and makes it a log axis, which the name says, where values need it."""
    values = np.concatenate([line.mean for line in panel.lines] or [np.zeros(0)])
    log = values.size > 0 and 0 < 8 * values.min() < values.max()
    if log:
        _log(axes, "y")
    axes.set_ylabel(f"{label} (log axis)" if log else label)


def _log(axes: Axes, which: str) -> None:
    """A log axis with plain numbers."""
    getattr(axes, f"set_{which}scale")("log")
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    steps: tuple[float, ...] = (1, 2, 5) if high < 300 * low else (1,)
    if high < 8 * low:
        steps = (1, 1.5, 2, 3, 4, 5, 6, 8)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    shown = [tick for tick in ticks if low <= tick <= high]
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(shown) if len(shown) > 1 else MaxNLocator(3))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _dress(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(labelsize=9)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _say_missing(axes: Axes, panel: Panel) -> None:
    """Says in the picture what has not been run: below the title, or instead of everything."""
    if not panel.missing:
        return
    options: dict[str, Any] = {"transform": axes.transAxes, "color": _GREY, "fontsize": 8}
    if axes.lines or axes.collections:
        lines = textwrap.wrap(f"not run: {', '.join(panel.missing)}", 62)
        axes.set_title(panel.title, loc="left", fontsize=10, pad=5 + 10 * len(lines))
        axes.text(0, 1.02, "\n".join(lines), va="bottom", **options)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "not run", ha="center", va="center", **options)


def _legend(figure: Figure, every: Sequence[Axes]) -> None:
    """One legend for all panels, below them."""
    found: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=3 if len(found) > 4 else 2,
            handlelength=3,
            columnspacing=1.2,
            frameon=False,
            fontsize=9,
        )


def scatter(panels: Sequence[tuple[str, str, Sequence[Point], Sequence[str]]]) -> Figure:
    """Draws bases as points: panels of a title, a name for x, points, and what has not been run."""
    figure = Figure(figsize=(_WIDTH, 3.2 * len(panels)), layout="constrained")
    every = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (title, name, points, missing) in zip(every, panels, strict=True):
        _dress(axes, title)
        axes.set_xlabel(name)
        axes.set_ylabel("worst increase, points")
        if points:
            _draw_points(axes, points)
        _say_missing(axes, Panel(title, [], missing))
    figure.draw_without_rendering()  # only now is it known where points are
    for axes in every:
        _place_labels(figure, axes)
    return figure


def _draw_points(axes: Axes, points: Sequence[Point]) -> None:
    for point in points:
        colour, marker, _ = point.style
        below, above = (point.spread or 0.0,) * 2
        bars = [[min(below, 0.99 * point.y)], [above]]  # zero is not on a log axis
        axes.errorbar(point.x, point.y, bars, fmt=marker, color=colour, ms=7, elinewidth=1)
        axes.annotate(
            point.label,
            (point.x, point.y),
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=7.5,
            va="center",
            arrowprops={"arrowstyle": "-", "color": "#999999", "lw": 0.6, "shrinkA": 1},
        )
    for which, values in (("x", [p.x for p in points]), ("y", [p.y for p in points])):
        low, high = min(values), max(values)
        if low > 0:
            room = (0.55, 0.1) if which == "x" else (0.12, 0.12)
            ratio = max(high / low, 10.0 if which == "x" else 2.0)
            limits = (low / ratio ** room[0], high * ratio ** room[1])
            getattr(axes, f"set_{which}lim")(*limits)
            _log(axes, which)


def _place_labels(figure: Figure, axes: Axes) -> None:
    """Puts labels beside their points, one below the other where points are close together."""
    renderer: Any = FigureCanvasAgg(figure).get_renderer()
    dot = figure.dpi / 72
    labels = [text for text in axes.texts if isinstance(text, Annotation)]
    marks = {text: axes.transData.transform(text.xy) for text in labels}
    frame = axes.get_window_extent(renderer)
    groups: list[list[Annotation]] = []
    for text in sorted(labels, key=lambda text: float(marks[text][0])):
        near = (0.05 if len(groups) < 2 else 0.12) * frame.width  # labels of the first go left
        if groups and marks[text][0] - marks[groups[-1][-1]][0] < near:
            groups[-1].append(text)
        else:
            groups.append([text])
    for i, group in enumerate(groups):
        left = i in (0, len(groups) - 1)
        group.sort(key=lambda text: float(marks[text][1]))
        edge = (min if left else max)(float(marks[text][0]) for text in group)
        places = _spaced([float(marks[t][1]) for t in group], 10.5 * dot, frame.y0 + 6 * dot)
        for text, place in zip(group, places, strict=True):
            x, y = marks[text]
            text.set_horizontalalignment("right" if left else "left")
            text.set_position(((edge - x) / dot + (-13 if left else 13), (place - y) / dot))


def _spaced(values: Sequence[float], gap: float, low: float) -> list[float]:
    """Moves ascending values as little as leaves a gap between any two, and none below `low`."""
    found = list(values)
    for _ in range(200):
        found[0] = max(found[0], low)
        for i in range(len(found) - 1):
            more = max(0.0, gap - (found[i + 1] - found[i])) / 2
            found[i] -= more
            found[i + 1] += more
    return found


def missing(what: str) -> Figure:
    """A picture that says that there is nothing to show yet."""
    figure = Figure(figsize=(5, 1))
    figure.text(0.5, 0.5, f"not run: {what}", ha="center", va="center", color=_GREY, fontsize=9)
    return figure


def filters(found: Sequence[Any]) -> Figure:
    """Draws colour filters `[G, n, k, k, 3]`: channels across, orientations down; zero is grey."""
    f = np.asarray(found, np.float64)
    g, n, k, _, _ = f.shape
    canvas = np.ones((g * (k + 1) - 1, n * (k + 1) - 1, 3))
    for row, column in np.ndindex(g, n):
        top, left = row * (k + 1), column * (k + 1)
        filter_ = f[row, column]
        canvas[top : top + k, left : left + k] = 0.5 + 0.5 * filter_ / np.abs(f[:, column]).max()
    figure = Figure(figsize=(0.3 + 0.6 * n, 0.6 * g))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(canvas)
    axes.set_yticks([r * (k + 1) + (k - 1) / 2 for r in range(g)])
    axes.set_yticklabels([f"{360 * r / g:g}°" for r in range(g)], fontsize=9)
    axes.set_xticks([c * (k + 1) + (k - 1) / 2 for c in range(n)])
    axes.set_xticklabels([f"channel {c + 1}" for c in range(n)], fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def activations(shown: Sequence[Any], turned_back: Sequence[Any]) -> Figure:
    """Draws one channel as its input turns, above the same maps turned back."""
    maps, back = np.asarray(shown, np.float64), np.asarray(turned_back, np.float64)  # [S, H, W]
    s, h, _ = maps.shape
    half = -(-s // 2)  # two rows of turns, so that a phone can show them
    figure = Figure(figsize=(1.35 * half, 6.0))
    cells = figure.subplots(4, half, gridspec_kw={"wspace": 0.06, "hspace": 0.28}, squeeze=False)
    low, high = min(maps.min(), back.min()), max(maps.max(), back.max())
    inside = slice(h // 4, h - h // 4)  # where the errors of layers look
    first = back[0][inside, inside]
    for cell in cells.flat:
        cell.set_axis_off()
    for i in range(s):
        for j, pictures in enumerate((maps, back)):
            cell = cells[2 * (i // half) + j, i % half]
            cell.set_axis_on()
            cell.set_xticks([])
            cell.set_yticks([])
            cell.imshow(pictures[i], cmap="viridis", vmin=low, vmax=high)
            if i % half == 0:
                cell.set_ylabel(("activations", "turned back")[j], fontsize=8)
        cells[2 * (i // half), i % half].set_title(f"{360 * i / s:g}°", fontsize=9)
        change = ((back[i][inside, inside] - first) ** 2).sum() / (first**2).sum()
        cells[2 * (i // half) + 1, i % half].set_title(f"change {change:.3f}", fontsize=8)
    return figure
