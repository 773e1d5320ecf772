"""The tables of the report: runs -> cells, each with the commands that make it again."""

import itertools
import operator
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from experiments.report.findings import (
    AUGMENTS,
    DATASETS,
    LAYERS,
    METHODS,
    NOT_RUN,
    Run,
    rank_correlation,
    select,
    spread,
)
from experiments.report.sentences import percent, scale, small

README = ("table1", "figure3", "whole", "sizes")
"""which tables are in the README"""
NO_NUMBER = "–"  # the paper gives none
SPREAD = "Mean ± standard deviation over seeds (in brackets: how many)."


class Cell(NamedTuple):
    """What a table says in one place, and for a number each seed's, with its command."""

    text: str
    seeds: tuple[tuple[str, str], ...] = ()


class Table(NamedTuple):
    """A table with its caption; the runs are those that it is about."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    grouped: bool = False
    """whether rows with the same first cell belong together"""


class Variant(NamedTuple):
    """A basis of a certain size, and the data set of its network."""

    dataset: str
    basis: str
    orientations: int = 8
    kernel_size: int = 3

    @property
    def usual(self) -> bool:
        """Whether it has the size of the paper's."""
        return (self.orientations, self.kernel_size) == (8, 3)

    @property
    def label(self) -> str:
        """The name of its method, and its size if that is not the usual one."""
        size = f" {self.kernel_size}x{self.kernel_size}" if self.kernel_size != 3 else ""
        turns = f" G = {self.orientations}" if self.orientations != 8 else ""
        return METHODS[self.basis].label + size + turns

    def of(self, runs: Iterable[Run]) -> list[Run]:
        """Its runs, trained upright."""
        return select(runs, self.dataset, self.basis, "none", self.orientations, self.kernel_size)


Value = Callable[[Run], float | None]
Form = Callable[[float, float], str]


def number(runs: Sequence[Run], value: Value, form: Form) -> Cell:
    """The mean of a number over seeds, with its spread."""
    if not runs:
        return Cell(NOT_RUN)
    found = [(run, value(run)) for run in runs]
    of = spread(each for _, each in found)
    if of is None:
        return Cell("not measured")
    seeds = tuple((form(each, each), run.command) for run, each in found if each is not None)
    text = form(of.mean, of.mean) + ("" if of.std is None else f" ± {form(of.std, of.mean)}")
    return Cell(f"{text} ({of.n})", seeds)


def _parameters(runs: Sequence[Run]) -> Cell:
    """How many parameters the network has; seeds do not change that."""
    found = sorted({run.parameters for run in runs})
    return Cell(" or ".join(f"{n:,}" for n in found) or NOT_RUN)


def accuracy(runs: Sequence[Run]) -> Table:
    """Table 1: CIFAR-10, without and with full rotation augmentation, beside the paper's."""
    rows, used = [], []
    for basis, method in METHODS.items():
        upright, turned = (select(runs, "cifar10", basis, augment) for augment in ("none", "full"))
        used += [*upright, *turned]
        paper = [f"{value:.2f}" for value in method.accuracy or ()] or [NO_NUMBER, NO_NUMBER]
        cells = [Cell(method.label)]
        for own, theirs in zip((upright, turned), paper, strict=True):
            cells += [number(own, lambda run: run.accuracy, percent), Cell(theirs)]
        rows.append((*cells, _parameters([*upright, *turned])))
    return Table(
        "Table 1",
        "CIFAR-10 test accuracy in percent, on all test images, of networks trained upright and "
        f"with full rotation augmentation. {SPREAD} {scale(used)}",
        ("method", "upright", "the paper", "full rotation", "the paper", "parameters"),
        tuple(rows),
    )


_ANGLES: tuple[tuple[str, Value], ...] = (
    ("worst increase", lambda run: run.increase),
    ("best angle", lambda run: run.best_error),
    ("quarter turns", lambda run: run.quarter_spread),
    ("plain", lambda run: run.plain_error),
)


def _angle_cells(runs: Sequence[Run]) -> list[Cell]:
    return [number(runs, value, percent) for _, value in _ANGLES]


def _angle_caption(runs: Sequence[Run]) -> str:
    found = sorted(
        {(run.record["angles"]["images"], run.record["angles"]["interpolator"]) for run in runs}
    )
    how = " or ".join(f"{images:,} test images each ({by})" for images, by in found)
    return (
        "Test error: how many points more it is at the worst angle than at the best, in percent at "
        "the best angle, by how many points quarter turns differ at most, and in percent on the "
        f"same images as they are (plain). {SPREAD} {f'Turned: {how}. ' if how else ''}"
        + scale(runs)
    )


def rotated(runs: Sequence[Run]) -> Table:
    """Figure 3 in numbers: all methods, trained upright."""
    rows, used = [], []
    for dataset, title in DATASETS.items():
        for basis, method in METHODS.items():
            own = select(runs, dataset, basis)
            used += own
            paper = Cell(method.increase.get(dataset, NO_NUMBER))
            rows.append((Cell(title), Cell(method.label), *_angle_cells(own), paper))
    columns = ("data", "method", *(name for name, _ in _ANGLES), "worst increase, the paper")
    return Table("Figure 3", _angle_caption(used), columns, tuple(rows), grouped=True)


def whole(runs: Sequence[Run]) -> Table:
    """The methods of the central claim, trained upright on all training images."""
    rows, used = [], []
    for dataset in DATASETS:
        for basis, method in METHODS.items():
            own = select(runs, dataset, basis, whole=True)
            used += own
            if own:
                paper = Cell(method.increase.get(dataset, NO_NUMBER))
                accuracy = number(own, lambda run: run.accuracy, percent)
                rows.append((Cell(method.label), *_angle_cells(own), accuracy, paper))
    columns = ("method", *(name for name, _ in _ANGLES), "test accuracy")
    return Table(
        "All training images",
        f"Test accuracy on all test images. {_angle_caption(used)}",
        (*columns, "worst increase, the paper"),
        tuple(rows),
    )


def augmented(runs: Sequence[Run]) -> Table:
    """Figure 4 in numbers: the partial basis, trained with more and more rotation."""
    rows, used = [], []
    for dataset, title in DATASETS.items():
        for augment, label in AUGMENTS.items():
            own = select(runs, dataset, "partial", augment)
            used += own
            rows.append((Cell(title), Cell(label), *_angle_cells(own)))
    columns = ("data", "augmentation", *(name for name, _ in _ANGLES))
    return Table("Figure 4", _angle_caption(used), columns, tuple(rows), grouped=True)


def layers(runs: Sequence[Run]) -> Table:
    """Figure 5 in numbers: the equivariance error of every layer."""
    rows, used = [], []
    for dataset, title in DATASETS.items():
        for basis, method in METHODS.items():
            own = select(runs, dataset, basis)
            used += own
            cells = [number(own, operator.methodcaller("layer", name), small) for name in LAYERS]
            rows.append((Cell(title), Cell(method.label), *cells))
    images = sorted({run.record["layers"]["images"] for run in used if run.record["layers"]})
    how = " or ".join(f"{n:,}" for n in images)
    return Table(
        "Figure 5",
        "Equivariance error of each layer, squared and normalised, the mean over all turns but 0"
        f"{f' and over {how} test images' if how else ''}. {SPREAD} {scale(used)}",
        ("data", "method", *(f"layer {i}" for i in range(1, len(LAYERS) + 1))),
        tuple(rows),
        grouped=True,
    )


def onsets(runs: Sequence[Run]) -> Table:
    """What an eighth of a turn costs, by the layer after which it happens."""
    measured = [run for run in runs if run.record["onset"]]
    places = sorted({layer for run in measured for layer in run.record["onset"]["after"]})
    rows, used = [], []
    for dataset, title in DATASETS.items():
        for basis, method in METHODS.items():
            own = select(measured, dataset, basis)
            if not own:
                continue
            used += own
            cells = [
                number(own, operator.methodcaller("onset", layer), percent) for layer in places
            ]
            rows.append((Cell(title), Cell(method.label), *cells))
    images = sorted({run.record["onset"]["images"] for run in used})
    how = f" Over {' or '.join(f'{n:,}' for n in images)} test images." if images else ""
    return Table(
        "Where it is lost",
        "How many points the error rises by when not the input is turned by 45 degrees, but the "
        "feature map of the upright input, after a layer (and pooling, where there is one): what "
        "is left is due to the layers behind. Maps that are not turned go through the "
        f"interpolator too.{how} {SPREAD} {scale(used)}",
        ("data", "method", *(f"after layer {i}" if i else "the input" for i in places)),
        tuple(rows),
        grouped=True,
    )


def larger(runs: Sequence[Run]) -> list[Variant]:
    """Bases of other sizes, each after the one of the usual size that it is compared with."""
    wanted = {
        Variant("mnist", basis, g, k)
        for basis in ("closed_form", "weiler", "gaussian")
        for g, k in ((8, 5), (16, 3))
    }
    found = {
        Variant(run.dataset, run.basis, run.orientations, run.kernel_size)
        for run in runs
        if run.augment == "none" and (run.orientations, run.kernel_size) != (8, 3)
    }
    usual = {Variant(variant.dataset, variant.basis) for variant in wanted | found}
    names = list(METHODS)
    return sorted(
        wanted | found | usual,
        key=lambda v: (v.dataset != "mnist", -names.index(v.basis), v.orientations, v.kernel_size),
    )


def sizes(runs: Sequence[Run]) -> Table:
    """5x5 filters and 16 orientations, beside 3x3 and 8."""
    rows, used = [], []
    for variant in larger(runs):
        own = variant.of(runs)
        used += own
        k = variant.kernel_size
        rows.append(
            (
                Cell(DATASETS[variant.dataset]),
                Cell(METHODS[variant.basis].label),
                Cell(f"{k}x{k}"),
                Cell(str(variant.orientations)),
                number(own, lambda run: run.quality("error"), small),
                number(own, lambda run: run.accuracy, percent),
                number(own, lambda run: run.increase, percent),
                number(own, lambda run: run.layer(LAYERS[-1]), small),
                _parameters(own),
            )
        )
    columns = ("data", "basis", "filters", "orientations", "basis error")
    return Table(
        "Other sizes",
        "Trained upright. Accuracy in percent on all test images; worst increase of the error over "
        f"angles in points; equivariance error of layer 9. {SPREAD} {scale(used)}",
        (*columns, "test accuracy", "worst increase", "layer 9", "parameters"),
        tuple(rows),
        grouped=True,
    )


def bases(runs: Sequence[Run]) -> list[Variant]:
    """Every basis that the scatter plot has a point for, on either data set."""
    usual = [Variant("mnist", basis) for basis in METHODS if basis != "conv"]
    other = [variant for variant in larger(runs) if not variant.usual]
    return list(dict.fromkeys([*usual, *(variant._replace(dataset="mnist") for variant in other)]))


def qualities(runs: Sequence[Run]) -> Table:
    """A basis's own quality beside how robust its networks are."""
    rows, used = [], []
    for basis in bases(runs):
        own = {name: basis._replace(dataset=name).of(runs) for name in DATASETS}
        every = [run for found in own.values() for run in found]
        used += every
        first = max(own.values(), key=len)  # the basis is the same on both
        rows.append(
            (
                Cell(basis.label),
                number(first, lambda run: run.quality("error"), small),
                number(first, lambda run: run.quality("condition_number"), small),
                *(number(found, lambda run: run.increase, percent) for found in own.values()),
            )
        )
    columns = ("basis", "basis error", "condition number")
    return Table(
        "Bases and networks",
        "How well a basis rotates an arbitrary filter (error) and how evenly it spans the filters "
        "(condition number, 1 is best), beside the worst increase of its networks' error over "
        f"angles, in points, trained upright. {SPREAD} {scale(used)}",
        (*columns, *(f"worst increase, {title}" for title in DATASETS.values())),
        tuple(rows),
    )


def points(runs: Sequence[Run], dataset: str, quality: str) -> list[tuple[Variant, float, float]]:
    """Returns, for each basis, the mean of its quality and of the worst increase, in points."""
    found = []
    for basis in bases(runs):
        own = basis._replace(dataset=dataset).of(runs)
        x, y = spread(run.quality(quality) for run in own), spread(run.increase for run in own)
        if x is not None and y is not None:
            found.append((basis, x.mean, 100 * y.mean))
    return found


def correlation(runs: Sequence[Run], dataset: str, quality: str) -> str:
    """Says how the ranks of bases by their quality and by their networks' robustness agree."""
    found = points(runs, dataset, quality)
    # What differs in the fifth digit is rounding, and not a rank.
    rho = rank_correlation([float(f"{x:.4g}") for _, x, _ in found], [y for _, _, y in found])
    said = "too few to tell" if rho is None else f"{rho:.2f}"
    return f"{said} ({len(found)} bases)"


def tables(runs: Sequence[Run]) -> dict[str, Table]:
    """All tables, by a short name, in the order of the paper."""
    return {
        "table1": accuracy(runs),
        "figure3": rotated(runs),
        "whole": whole(runs),
        "figure4": augmented(runs),
        "figure5": layers(runs),
        "onset": onsets(runs),
        "sizes": sizes(runs),
        "bases": qualities(runs),
    }


def markdown(runs: Sequence[Run], names: Sequence[str] = README) -> str:
    """Returns tables in Markdown, each before its caption, with empty lines between all of them."""
    found = tables(runs)
    return "\n\n".join(
        f"{_in_markdown(found[name])}\n\n{_paragraph(found[name].caption)}"
        for name in names
        if found[name].rows
    )


def _in_markdown(table: Table) -> str:
    """A table, with the runs of each row's first seeds, and how to run them."""
    commands = [[cell.seeds[0][1] for cell in row if cell.seeds] for row in table.rows]
    shared = _shared([command for row in commands for command in row])
    start = len(shared) + 1 if shared else 0
    lines = [
        _row([*table.columns, f"`{shared}` …" if shared else "command"]),
        "|" + (len(table.columns) + 1) * "---|",
    ]
    for row, own in zip(table.rows, commands, strict=True):
        again = ", ".join(f"`{command[start:]}`" for command in dict.fromkeys(own))
        lines.append(_row([*(cell.text for cell in row), again]))
    return "\n".join(lines)


def _shared(commands: Sequence[str]) -> str:
    """The words that all commands begin with, but for the last of them."""
    words = zip(*(command.split(" ")[:-1] for command in commands), strict=False)
    same = itertools.takewhile(lambda each: len(set(each)) == 1, words)
    return " ".join(each[0] for each in same)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _paragraph(text: str) -> str:
    """Text in lines that fit the README."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)
