"""What the runs of the evidence say: one JSON a run -> runs, and means with their spread."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
AUGMENTS = {
    "none": "none",
    "90": "multiples of 90°",
    "45": "multiples of 45°",
    "full": "full (any angle)",
}
LAYERS = tuple(f"conv{i}" for i in range(1, 10))
NOT_RUN = "not run"


class ResultsError(ValueError):
    """Result files that cannot be reported; the message says which, and what to do."""


class Method(NamedTuple):
    """A row of the paper's comparison, with what the paper says of it."""

    label: str
    kind: str
    """plain: no rotation is built in; handmade: by formula; learned: from images"""
    accuracy: tuple[float, float] | None = None
    """the paper's on CIFAR-10, in percent: without rotation augmentation, and with full"""
    increase: Mapping[str, str] = {}
    """the paper's worst increase of the error over angles, in points, for each data set"""


_HANDMADE = {"mnist": "7 to 10", "cifar10": "30 to 40"}

METHODS = {
    "conv": Method("all-CNN", "plain", (92.23, 84.14)),
    "random": Method("random", "plain", (90.79, 80.86)),
    "weiler": Method("weiler", "handmade", (90.2, 89.48), _HANDMADE),
    "bilinear": Method("bilinear", "handmade", (90.63, 89.41), _HANDMADE),
    "gaussian": Method("gaussian", "handmade", (90.72, 89.45), _HANDMADE),
    "full": Method("full", "learned", (92.75, 89.84)),
    "partial": Method("partial", "learned", (90.93, 89.60), {"mnist": "2", "cifar10": "20"}),
    "overcomplete": Method("overcomplete", "learned", (91.16, 89.93)),
    "closed_form": Method("closed form", "learned"),
}
EXACT = ("weiler", "bilinear", "gaussian", "partial", "closed_form")  # at quarter turns


@dataclasses.dataclass(frozen=True)
class Run:
    """One trained network, and what was measured of it. Errors and accuracies are fractions."""

    name: str
    dataset: str
    basis: str
    orientations: int
    kernel_size: int
    whole: bool
    """whether on all training images, where the comparison of methods has fewer"""
    augment: str
    seed: int
    record: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def command(self) -> str:
        """What makes this run again."""
        return str(self.record["command"])

    @property
    def parameters(self) -> int:
        """Of the network."""
        return int(self.record["scale"]["parameters"])

    @property
    def accuracy(self) -> float:
        """On all test images, as they are."""
        return float(self.record["final"]["test"]["accuracy"])

    @property
    def degrees(self) -> tuple[float, ...]:
        """By how much the test images were turned."""
        return tuple(self.record["angles"]["degrees"])

    @property
    def errors(self) -> np.ndarray:
        """The test error at each of `degrees`."""
        return np.asarray(self.record["angles"]["errors"], np.float64)

    @property
    def plain_error(self) -> float:
        """The error on the same images, not interpolated."""
        return float(self.record["angles"]["plain_error"])

    @property
    def best_error(self) -> float:
        """The error at the best angle."""
        return float(self.errors.min())

    @property
    def increase(self) -> float:
        """How much more the worst angle has than the best."""
        return float(self.errors.max() - self.errors.min())

    @property
    def quarter_spread(self) -> float | None:
        """The largest difference between quarter turns, if two of them were measured."""
        quarters = self.errors[np.mod(self.degrees, 90) == 0]
        return float(np.ptp(quarters)) if len(quarters) > 1 else None

    def layer(self, name: str) -> float | None:
        """The equivariance error of a layer, the mean over all turns but 0."""
        layers = self.record["layers"]
        return None if layers is None else float(np.mean(layers["errors"][name][1:]))

    def onset(self, after: int) -> float | None:
        """What an eighth of a turn costs, if it happens after a layer (0: to the input)."""
        found = self.record["onset"]
        if found is None or after not in found["after"]:
            return None
        i = found["after"].index(after)
        return float(found["turned"][i] - found["upright"][i])

    def quality(self, name: str) -> float | None:
        """The error, the condition number or the residual of the basis."""
        found = self.record["basis_quality"]
        return None if found is None else float(found[name])


_NUMBER, _TEXT, _ANY = (int, float), str, object
_METRICS = {"accuracy": _NUMBER, "loss": _NUMBER}
_SHAPE: dict[str, Any] = {
    "command": _TEXT,
    "cell": {
        "dataset": _TEXT,
        "basis": _TEXT,
        "orientations": int,
        "kernel_size": int,
        "whole": bool,
        "augment": _TEXT,
        "seed": int,
    },
    "preset": _TEXT,
    "scale": {
        "network": _TEXT,
        "widths": [int],
        "parameters": int,
        "train_images": int,
        "epochs": _NUMBER,
        "batch": int,
    },
    "settings": {
        "learning_rate": _NUMBER,
        "schedule": _TEXT,
        "weight_decay": _NUMBER,
        "translate": int,
    },
    "final": {"validation": _METRICS, "test": _METRICS, "params_sha256": _TEXT},
    "angles": {
        "degrees": [_NUMBER],
        "errors": [_NUMBER],
        "images": int,
        "plain_error": _NUMBER,
        "interpolator": _TEXT,
    },
    "onset?": {
        "degrees": _NUMBER,
        "images": int,
        "after": [int],
        "upright": [_NUMBER],
        "turned": [_NUMBER],
    },
    "layers?": {"images": int, "errors": {name: [_NUMBER] for name in LAYERS}},
    "basis_quality?": {"error": _NUMBER, "condition_number": _NUMBER, "residual": _NUMBER},
    "pictures?": {"filters": list, "activations": list, "turned_back": list},
    "seconds": _NUMBER,
    "commit": _ANY,
    "versions": dict,
    "devices": dict,
}


def read(folder: Path, preset: str) -> list[Run]:
    """Reads every run of a folder.

    Raises:
      ResultsError: when there is none, or when files are not what they should be; it names each.

    """
    again = f"make evidence PRESET={preset}"
    runs, wrong = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            runs.append(_read_one(path, preset))
        except ValueError as error:
            wrong.append(f"{path} {error}; remove it, and `{again}` makes it anew.")
    seen: dict[tuple[Any, ...], str] = {}
    for run in runs:
        cell = tuple(getattr(run, key) for key in _SHAPE["cell"])
        if cell in seen:
            twice = f"{seen[cell]}.json and {run.name}.json in {folder} are of the same run"
            wrong.append(f"{twice}; remove one of them.")
        seen[cell] = run.name
    if wrong:
        raise ResultsError("\n".join(wrong))
    if not runs:
        raise ResultsError(f"{folder} has no results to report; `{again}` makes them.")
    return sorted(runs, key=lambda run: (run.name.rpartition("-seed")[0], run.seed))


def _read_one(path: Path, preset: str) -> Run:
    try:
        record = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"is not valid JSON ({error})") from None
    if isinstance(record, dict):
        record.setdefault("onset", None)  # results of earlier runs do not have these
        if isinstance(record.get("cell"), dict):
            record["cell"].setdefault("whole", False)
    _check(record, _SHAPE, "")
    cell = record["cell"]
    for key, known in (("dataset", DATASETS), ("basis", METHODS), ("augment", AUGMENTS)):
        if cell[key] not in known:
            raise ValueError(f"has {cell[key]!r} for cell.{key}, which is none of {[*known]}")
    if record["preset"] != preset:
        raise ValueError(f"is a run of preset {record['preset']!r}, not of {preset!r}")
    angles = record["angles"]
    if len(angles["degrees"]) != len(angles["errors"]) or not angles["degrees"]:
        raise ValueError("must have one of angles.errors for each of angles.degrees")
    return Run(name=path.stem, record=record, **{key: cell[key] for key in _SHAPE["cell"]})


def _check(value: Any, shape: Any, where: str) -> None:
    """Compares a value with a shape: a dictionary, a list of one kind, or a type."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"must have an object for {where or 'the whole'}")
        for key, inner in shape.items():
            name, optional = key.removesuffix("?"), key.endswith("?")
            inside = f"{where}.{name}".lstrip(".")
            if name not in value:
                raise ValueError(f"lacks {inside}")
            if not (optional and value[name] is None):
                _check(value[name], inner, inside)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"must have a list for {where}")
        for item in value:
            _check(item, shape[0], where)
    elif not isinstance(value, shape) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"has {value!r} for {where}, which is not what belongs there")


def select(
    runs: Iterable[Run],
    dataset: str,
    basis: str,
    augment: str = "none",
    orientations: int = 8,
    kernel_size: int = 3,
    *,
    whole: bool = False,
) -> list[Run]:
    """Returns the seeds of one cell of a table."""

    def cell(run: Run) -> tuple[Any, ...]:
        size = run.orientations, run.kernel_size
        return run.dataset, run.basis, run.augment, *size, run.whole

    wanted = (dataset, basis, augment, orientations, kernel_size, whole)
    return [run for run in runs if cell(run) == wanted]


class Spread(NamedTuple):
    """A mean over seeds, and the standard deviation with n - 1, which one seed does not have."""

    mean: float
    std: float | None
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Returns the mean and spread of what was measured; none if nothing was."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    std = float(np.std(found, ddof=1)) if len(found) > 1 else None
    return Spread(float(np.mean(found)), std, len(found))


def apart(a: Spread | None, b: Spread | None) -> bool:
    """Whether two means differ by more than their spreads; with a single seed, nothing does."""
    if a is None or b is None or a.std is None or b.std is None:
        return False
    return abs(a.mean - b.mean) > a.std + b.std


def curve(runs: Sequence[Run]) -> tuple[tuple[float, ...], np.ndarray, np.ndarray | None]:
    """Returns the angles, and the mean and standard deviation of the error at each."""
    if len({run.degrees for run in runs}) != 1:
        raise ResultsError(
            f"{', '.join(run.name for run in runs)} were measured at different angles; remove the "
            "older ones and make them anew."
        )
    return runs[0].degrees, *_over_seeds([run.errors for run in runs])


def depth(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Returns the mean and standard deviation of the equivariance error of each layer."""
    found = [[run.layer(name) for name in LAYERS] for run in runs if run.record["layers"]]
    return _over_seeds([np.asarray(errors, np.float64) for errors in found]) if found else None


def _over_seeds(values: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
    return np.mean(values, axis=0), np.std(values, axis=0, ddof=1) if len(values) > 1 else None


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Returns Spearman's; none for fewer than three, or where all are equal."""
    a, b = _ranks(x), _ranks(y)
    if len(x) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Positions in ascending order; equal values share the mean of theirs."""
    v = np.asarray(values)
    return (v[:, None] > v).sum(1) + (v[:, None] == v).sum(1) / 2


def spreads(
    runs: Sequence[Run],
    dataset: str,
    augment: str,
    value: Callable[[Run], float | None],
    *,
    whole: bool = False,
) -> dict[str, Spread | None]:
    """Returns a number's spread for every method of the comparison."""
    return {
        method.label: spread(map(value, select(runs, dataset, basis, augment, whole=whole)))
        for basis, method in METHODS.items()
    }
