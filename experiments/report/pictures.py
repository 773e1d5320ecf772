"""What the pictures show: runs -> figures, with their names and their descriptions."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

import gconv_jax as gj
from experiments import figures
from experiments.report import charts, tables
from experiments.report.charts import STYLES, Line, Panel, Point
from experiments.report.findings import (
    AUGMENTS,
    DATASETS,
    LAYERS,
    METHODS,
    Run,
    curve,
    depth,
    select,
    spread,
)


class Picture(NamedTuple):
    """A figure, the name of its files, and what a reader who cannot see it should know."""

    name: str
    figure: Figure
    alt: str
    raster: bool = False
    """whether it is made of pixels: the page then has its PNG, and else its SVG"""


def _angles(runs: Sequence[Run], dataset: str) -> Panel:
    """All methods, trained upright, on one data set."""
    lines, missing = [], []
    for basis, method in METHODS.items():
        own = select(runs, dataset, basis)
        if own:
            lines.append(_curve(method.label, STYLES[basis], own))
        else:
            missing.append(method.label)
    return Panel(f"{DATASETS[dataset]}, trained upright", lines, missing)


def _augmentations(runs: Sequence[Run], dataset: str) -> Panel:
    """The partial basis, trained with more and more rotation."""
    lines, missing = [], []
    for augment, label in AUGMENTS.items():
        own = select(runs, dataset, "partial", augment)
        if own:
            style = STYLES["augmented" if augment == "full" else augment]
            lines.append(_curve(label, style, own))
        else:
            missing.append(label)
    return Panel(f"{DATASETS[dataset]}, partial", lines, missing)


def _curve(label: str, style: charts.Style, runs: Sequence[Run]) -> Line:
    degrees, mean, std = curve(runs)
    return Line(label, style, degrees, 100 * mean, None if std is None else 100 * std)


def _depths(runs: Sequence[Run], dataset: str) -> Panel:
    """The equivariance error of each layer, of all methods."""
    lines, missing = [], []
    for basis, method in METHODS.items():
        found = depth(select(runs, dataset, basis))
        if found is None:
            missing.append(method.label)
        else:
            lines.append(Line(method.label, STYLES[basis], range(1, len(LAYERS) + 1), *found))
    return Panel(f"{DATASETS[dataset]}, trained upright", lines, missing)


_EDGE = 1e5  # of the axis of condition numbers


def _points(runs: Sequence[Run], dataset: str, quality: str) -> list[Point]:
    """A point for each basis; one that is singular is at the edge, and its label says so."""
    found = []
    for basis, x, y in tables.points(runs, dataset, quality):
        own = spread(run.increase for run in basis._replace(dataset=dataset).of(runs))
        std = None if own is None or own.std is None else 100 * own.std
        label = basis.label if x <= _EDGE else f"{basis.label}: {x:.0e} \N{RIGHTWARDS ARROW}"
        found.append(Point(label, STYLES[basis.basis], min(x, _EDGE), y, std))
    return found


def _unseen(runs: Sequence[Run], dataset: str, quality: str) -> list[str]:
    """Names the bases that have no point; those of other sizes are for MNIST alone."""
    wanted = [basis for basis in tables.bases(runs) if dataset == "mnist" or basis.usual]
    seen = {basis.label for basis, _, _ in tables.points(runs, dataset, quality)}
    return [basis.label for basis in wanted if basis.label not in seen]


def _scatter(runs: Sequence[Run]) -> Figure:
    axes = {"error": "error of the basis", "condition_number": "condition number of the basis"}
    return charts.scatter(
        [
            (title, name, _points(runs, dataset, quality), _unseen(runs, dataset, quality))
            for dataset, title in DATASETS.items()
            for quality, name in axes.items()
        ]
    )


def pictures(runs: Sequence[Run]) -> Iterator[Picture]:
    """Draws everything, in the order of the page."""
    labels = ", ".join(method.label for method in METHODS.values())
    yield Picture(
        "figure3",
        charts.curves([_angles(runs, dataset) for dataset in DATASETS]),
        f"Test error against the angle of the input, on MNIST and CIFAR-10, for {labels}; the "
        "numbers are in the table below.",
    )
    yield Picture(
        "figure4",
        charts.curves([_augmentations(runs, dataset) for dataset in DATASETS]),
        "Test error of the partial basis against the angle of the input, trained without rotation "
        "and with rotation by multiples of 90, of 45, and by any angle; the numbers are below.",
    )
    yield Picture(
        "figure5",
        charts.layers([_depths(runs, dataset) for dataset in DATASETS]),
        f"Equivariance error of layers 1 to 9 for {labels}; the numbers are in the table below.",
    )
    yield Picture(
        "bases",
        _scatter(runs),
        "Worst increase of the test error over angles against the error and the condition number "
        "of the basis, a point for each basis; the numbers are in the table below.",
    )
    yield from _appendix(runs)


def _appendix(runs: Sequence[Run]) -> Iterator[Picture]:
    """The paper's appendix: the basis, filters, activations, reconstructions."""
    basis = gj.load_basis("partial")
    yield Picture(
        "basis",
        figures.elements(basis, ""),
        "The nine elements of the partial basis, each turned to eight orientations.",
        raster=True,
    )
    shown = [run.record["pictures"] for run in runs if run.record["pictures"] is not None][:1]
    what = "this is a picture of cifar10-partial-none-seed0"
    yield Picture(
        "filters",
        charts.filters(shown[0]["filters"]) if shown else charts.missing(what),
        "Filters of the first layer of a trained network, in colour, at all orientations.",
        raster=True,
    )
    yield Picture(
        "activations",
        charts.activations(shown[0]["activations"], shown[0]["turned_back"])
        if shown
        else charts.missing(what),
        "One channel of layer 6 as its input turns, and the same maps turned back.",
        raster=True,
    )
    train, test = (
        gj.data.load("cifar10", split=split, source="embedded").images
        for split in ("train", "test")
    )
    mean, std = gj.data.colour_statistics(train)
    images = np.asarray(gj.data.normalise(test[:4], mean=mean, std=std))
    yield Picture(
        "reconstructions",
        figures.reconstructions(basis, images),
        "Four images: input, turned target, reconstruction by the basis, and their difference.",
        raster=True,
    )
    others = {name: gj.make_basis(name, e0=basis[0]) for name in ("gaussian", "bilinear")}
    yield Picture(
        "rotations",
        figures.rotations(
            {
                "closed form": gj.load_basis("closed_form"),
                "partial": basis,
                "weiler": gj.make_basis("weiler"),
                **others,
            }
        ),
        "One random filter turned around the circle by five bases.",
        raster=True,
    )
