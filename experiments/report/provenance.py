"""How the numbers of a report came about: runs -> what was run, on what, and by which recipe."""

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from experiments.presets import PRESETS
from experiments.report.findings import DATASETS, METHODS, Run, read, select
from experiments.report.sentences import in_words, percent, scale
from experiments.report.tables import Cell, Table

_RESULTS = Path(__file__).parents[1] / "results"
TRIAL = _RESULTS / "paper_trial.json"
WEIGHT_DECAY = _RESULTS / "weight_decay.json"
TRIED = _RESULTS / "evidence" / "tried"


def what_was_run(runs: Sequence[Run]) -> tuple[str, Table]:
    """Returns a text, and the table of every run."""
    hours = sum(run.record["seconds"] for run in runs) / 3600
    counts = in_words(
        [
            f"{sum(run.dataset == dataset for run in runs)} on {title}"
            for dataset, title in DATASETS.items()
        ]
    )
    [preset] = {run.record["preset"] for run in runs}
    rows = tuple(
        (
            Cell(run.name),
            Cell(percent(run.accuracy)),
            Cell(percent(run.increase)),
            Cell(f"{run.record['seconds'] / 60:.1f}"),
            Cell(run.command),
        )
        for run in runs
    )
    every = Table(
        "Every run",
        "Test accuracy in percent, worst increase of the error in points, minutes.",
        ("run", "test accuracy", "worst increase", "minutes", "command"),
        rows,
    )
    text = (
        f"<p>{len(runs)} networks were trained and judged: {counts}, in {hours:.1f} hours "
        "of runs, several at a time.</p>\n"
        "<ul>"
        f"{_each('Optimiser', runs, _optimiser)}"
        f"{_each('Devices', runs, lambda run: _listed(run.record['devices']))}"
        f"{_each('Versions', runs, lambda run: _listed(run.record['versions']))}"
        f"{_each('Commit (+: with changes)', runs, lambda run: str(run.record['commit']))}"
        f"</ul>\n{_protocol(preset)}"
    )
    return text, every


def _optimiser(run: Run) -> str:
    its = run.record["settings"]
    cycle = {"constant": "", "one_cycle": "up to "}[its["schedule"]]
    return (
        f"AMSGrad, learning rate {cycle}{its['learning_rate']:g}, "
        f"weight decay {its['weight_decay']:g}, images moved by up to {its['translate']} pixels"
    )


def _protocol(preset: str) -> str:
    """What the full protocol is, and whether this is it."""
    full = PRESETS["cifar10"]["paper"]
    widths = "/".join(map(str, full.widths))
    recipe = (
        f"{widths} channels, all training images, {full.epochs} epochs, batches of {full.batch}"
    )
    if preset == "paper":
        return f"<p>This is the full protocol of the paper: {recipe}.</p>\n"
    return (
        f"<p>The full protocol of the paper, {recipe}, is <code>make evidence PRESET=paper</code>, "
        "on accelerators. It has not been run for this report: no number here is from it. "
        f"{_trial()}</p>\n{_weight_decay() if preset == 'cpu' else ''}"
    )


def _weight_decay() -> str:
    """How the weight decay on MNIST was chosen, what else was tried, and whom it favours."""
    found = json.loads(WEIGHT_DECAY.read_text())
    errors = in_words([f"{percent(e)} with {d}" for d, e in found["mean_error"].items()])
    methods = in_words([METHODS[name].label for name in next(iter(found["errors"].values()))])
    tried = read(TRIED, "cpu")
    [decay] = {run.record["settings"]["weight_decay"] for run in tried}
    rises = in_words(
        [
            f"{in_words([percent(run.increase) for run in own])} for {METHODS[basis].label}"
            for basis in METHODS
            if (own := select(tried, "mnist", basis))
        ]
    )
    recipe = found["recipe"]
    _, _, how = scale(tried).partition(". ")
    return (
        "<p>The weight decay on MNIST was first chosen by the curve of partial on turned test "
        "images, and then taken for every method. Compared afterwards on "
        f"{found['validation_images']:,} turned validation images "
        f"(<code>{found['command']}</code>, one seed, {recipe['epochs']} epochs of "
        f"{recipe['images']:,} images), the error in percent, in the mean over all angles and over "
        f"{methods}, was {errors}. {len(tried)} runs with {decay:g} were begun and left "
        f"(results/evidence/tried; {how.rstrip('.')}): there the worst angle had more points of "
        f"error than the best by {rises}, one number a seed. So the choice favours partial, and "
        "how robust a network is depends on it as much as on the basis. Runs on all training "
        f"images have the one with the least error in the mean, {found['best']:g}.</p>\n"
        "<p>On CIFAR-10 epochs and learning rate were settled by a few runs of partial and all-CNN "
        "with full rotation and another seed, whose test accuracies were seen too.</p>\n"
    )


def _trial() -> str:
    """How far the full protocol has been tried where there was no accelerator."""
    trial = json.loads(TRIAL.read_text())
    steps, device = trial["epochs"][-1]["step"], trial["devices"]["platform"].upper()
    options = f"--preset paper --images {trial['config']['images']} --epochs {len(trial['epochs'])}"
    return (
        f"It was tried on a {device} for {steps} steps only "
        f"(<code>python -m experiments.classify {options}</code>)."
    )


def _each(title: str, runs: Sequence[Run], value: Callable[[Run], str]) -> str:
    """All different values, each with the number of its runs if there are several."""
    found: dict[str, int] = {}
    for run in runs:
        found[value(run)] = found.get(value(run), 0) + 1
    said = "; ".join(
        text if len(found) == 1 else f"{text} ({count} runs)" for text, count in found.items()
    )
    return f"<li>{title}: {escape(said)}</li>"


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
