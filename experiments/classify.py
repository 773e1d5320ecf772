"""Train a network on a basis and judge it: data + basis -> trained network.

    make cifar                                  # GroupAllCNN on the partial basis, CIFAR-10
    make mnist BASIS=weiler AUGMENT=full SEED=1
    make cifar PRESET=smoke                     # a minute, on the images in the package

Stop it when you like; the same command goes on from the last checkpoint, to the same result.
"""

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import tyro

import gconv_jax as gj
from experiments import fit, reporting
from experiments.memory import peak_memory
from experiments.presets import PRESETS, PresetName, Recipe
from experiments.tuning import tune
from gconv_jax.bases import NAMES
from gconv_jax.data.__main__ import main as prepare_data
from gconv_jax.training import parallel
from gconv_jax.training.classification import Augmentation, fingerprint
from gconv_jax.training.runs import claim, write_whole
from gconv_jax.training.trained import NETWORKS, read_trained

SPLITS = ("train", *fit.JUDGED)


@dataclasses.dataclass(frozen=True)
class Config:
    """Trains a classifier with a frozen basis, and judges the one that is best on validation."""

    dataset: Literal["cifar10", "mnist", "fashion_mnist", "rotated_mnist"] = "cifar10"
    """what to learn"""
    basis: str = "partial"
    """partial, full, overcomplete, closed_form, weiler, bilinear, gaussian, random, a file of
    gj.save_basis, or conv for the network without a group"""
    orientations: int = 8
    """of the basis, a multiple of 4"""
    kernel: int = 3
    """size of the basis's filters in pixels"""
    augment: Literal["none", "90", "45", "full"] = "none"
    """how training images are turned: not, by multiples of 90 or 45 degrees, or by any angle"""
    preset: PresetName | None = None
    """paper: the paper's recipe; cpu: half an hour or less on 2 cores; smoke: a minute, on embedded
    images; by default paper on an accelerator and cpu without one"""
    seed: int = 0
    """of the start, of the order of images, of augmentation, and of a random basis"""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """to compute in; parameters and statistics are float32"""
    widths: tuple[int, int] | None = None
    """channels of the first three convolutions and of the others; by default the preset's"""
    batch: int | None = None
    """images a step, a multiple of the number of devices; by default the preset's"""
    epochs: int | None = None
    """by default the preset's"""
    learning_rate: float | None = None
    """by default the preset's"""
    weight_decay: float | None = None
    """by default the preset's"""
    images: int | None = None
    """training images, a fixed part of them; by default the preset's"""
    checkpoint_every: int | None = None
    """steps between two checkpoints, besides the ends of epochs; by default the preset's"""
    workdir: Path | None = None
    """folder for all that the run writes; by default one below runs/classify, named after the
    options"""
    evaluate: Path | None = None
    """only judge again what this checkpoint, or the newest of this run, has as its best"""
    coordinator: str | None = None
    """of several processes: address:port of process 0, or auto where a cluster sets it"""
    num_processes: int | None = None
    """of several processes: how many"""
    process_id: int | None = None
    """of several processes: which one this is"""

    def check(self) -> None:
        """Refuses what would fail later, in one sentence."""
        if self.basis not in (*NAMES, "conv") and not Path(self.basis).is_file():
            raise ValueError(
                f"basis must be conv, one of {', '.join(NAMES)}, or an .npz file, but got "
                f"{self.basis!r}, and no such file is there."
            )
        if self.basis not in NAMES and (self.orientations, self.kernel) != (8, 3):
            raise ValueError(
                f"orientations and kernel are for a basis by name, but basis is {self.basis!r}, "
                f"and got {self.orientations} and {self.kernel}; leave them out."
            )
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, but got {self.seed}.")
        for name in ("batch", "epochs", "images", "checkpoint_every", "learning_rate"):
            value = getattr(self.recipe, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, but got {value}.")
        if min(self.recipe.widths) < 1:
            raise ValueError(f"widths must be at least 1, but got {self.recipe.widths}.")
        if self.recipe.weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, but got {self.weight_decay}.")
        parallel.check_batch(self.recipe.batch, jax.device_count())

    @property
    def chosen_preset(self) -> PresetName:
        """The preset that is named, or the one for these devices."""
        return self.preset or ("cpu" if jax.default_backend() == "cpu" else "paper")

    @property
    def recipe(self) -> Recipe:
        """The preset's, with the options that were given in their place."""
        recipe = PRESETS[self.dataset][self.chosen_preset]
        if self.basis == "conv":
            recipe = dataclasses.replace(recipe, widths=recipe.conv_widths)
        return dataclasses.replace(recipe, **self.changed)

    @property
    def changed(self) -> dict[str, Any]:
        """The parts of the recipe that were given as options."""
        names = [field.name for field in dataclasses.fields(Recipe) if hasattr(self, field.name)]
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """All that the result depends on, preset and options together."""
        names = ("dataset", "basis", "orientations", "kernel", "augment", "seed")
        return (
            {name: getattr(self, name) for name in names}
            | {"dtype": self.dtype, "preset": self.chosen_preset}
            | _as_json(self.recipe)
        )

    @property
    def folder(self) -> Path:
        """Where the run lives: `workdir`, or a folder named after the options."""
        basis = Path(self.basis).stem
        basis += f"-g{self.orientations}" if self.orientations != 8 else ""
        basis += f"-k{self.kernel}" if self.kernel != 3 else ""
        others = [f"-{name}{value}".replace(" ", "") for name, value in self.changed.items()]
        dtype = "" if self.dtype == "float32" else f"-{self.dtype}"
        name = f"{self.dataset}-{basis}-{self.augment}-{self.chosen_preset}-seed{self.seed}{dtype}"
        return self.workdir or Path("runs/classify") / (name + "".join(others))


def _as_json(recipe: Recipe) -> dict[str, Any]:
    return dataclasses.asdict(recipe) | {"widths": list(recipe.widths)}


def make_basis(config: Config) -> jax.Array | None:
    """Makes or loads the basis; there is none for the network without a group."""
    if config.basis == "conv":
        return None
    if config.basis not in NAMES:
        return gj.load_basis(config.basis)
    sizes: Any = {"orientations": config.orientations, "kernel_size": config.kernel}
    # What is interpolated are the elements of a learned basis, as in the paper.
    interpolated = config.basis in ("bilinear", "gaussian")
    e0 = gj.load_basis("closed_form", kernel_size=config.kernel)[0] if interpolated else None
    return gj.make_basis(config.basis, e0=e0, seed=config.seed, **sizes)


def load_data(settings: dict[str, Any]) -> dict[str, gj.data.Images]:
    """Prepares and loads the three splits."""
    name, embedded = settings["dataset"], settings["embedded"]
    if not embedded:
        with contextlib.redirect_stdout(sys.stderr):
            if prepare_data([name]) != 0:
                raise gj.data.DataError(
                    f"{name} could not be prepared, see above; preset smoke needs nothing but the "
                    "images in the package."
                )
    return {
        split: gj.data.load(
            name,
            split=split,
            source="embedded" if embedded else "prepared",
            size=settings["images"] if split == "train" else None,
        )
        for split in SPLITS
    }


def first_line(config: Config, task: fit.Task) -> str:
    """Says what is about to run; how long it takes is added once it is known."""
    network, backend = task.network, jax.default_backend()
    found = "no accelerator was found" if backend == "cpu" else "an accelerator was found"
    why = "" if config.preset else f" ({found})"
    of = "no basis" if task.basis is None else f"{config.basis} basis"
    return (
        f"preset {config.chosen_preset}{why}: {config.dataset}, {len(task.data['train'].labels):,} "
        f"images, {type(network).__name__} {'/'.join(map(str, network.widths))}, {of}, "
        f"augment {config.augment}, seed {config.seed}, {config.recipe.epochs} epochs of "
        f"{task.total // config.recipe.epochs} steps, on {jax.device_count()} {backend} device(s), "
    )


def train(config: Config) -> int:
    """Trains to the end or until stopped; returns the exit code."""
    config.check()
    folder, path = config.folder, config.folder / "result.json"
    basis = make_basis(config)
    settings = config.settings | {
        "basis_sha256": None if basis is None else fingerprint(basis),
    }
    data = load_data(settings)
    if config.recipe.batch > len(data["train"].labels):
        raise ValueError(
            f"batch must be at most the {len(data['train'].labels)} training images, "
            f"but got {config.recipe.batch}."
        )
    if parallel.first():
        claim(folder, settings)
    if path.exists():
        print(f"this run is done already; remove {folder} to do it anew")
        print(in_lines(json.loads(path.read_text())))
        return 0
    name = "AllCNN" if basis is None else "GroupAllCNN"
    dtype = None if config.dtype == "float32" else jnp.dtype(config.dtype)
    network = NETWORKS[name](widths=config.recipe.widths, dtype=dtype)
    task = fit.Task(folder, data, network, basis, config.recipe, settings)
    say = print if parallel.first() else _nothing
    say(first_line(config, task), end="", flush=True)
    recipe = config.recipe
    augmentation = Augmentation(recipe.flip, recipe.translate, config.augment)
    judge = fit.make_judge(task)
    outcome = fit.fit(task, augmentation, config.seed, judge, say)
    if not outcome.done:
        say(f"stopped and saved; the same command goes on from here: {folder}")
        return 130
    model = parallel.everywhere(parallel.from_first(outcome.model))
    final = {
        "validation": outcome.choice.validation,
        "test": judge(model, "test"),
        "params_sha256": fingerprint(outcome.state.variables),
    }
    if parallel.first():
        result = result_of(config, task, outcome) | {"final": final}
        write_whole(path, json.dumps(result, indent=2) + "\n")
        print(in_lines(result))
    return 0


def result_of(config: Config, task: fit.Task, outcome: fit.Outcome) -> dict[str, Any]:
    """Returns what `result.json` says besides the final numbers."""
    mean, std = gj.data.colour_statistics(task.data["train"].images)
    return {
        "config": task.settings,
        **reporting.surroundings(),
        "seed": config.seed,
        "data": {
            "name": config.dataset,
            "source": "embedded" if config.recipe.embedded else "prepared",
            **{split: len(images.labels) for split, images in task.data.items()},
            "mean": mean.tolist(),
            "std": std.tolist(),
        },
        "epochs": reporting.epochs(task.folder),
        "seconds": outcome.seconds,
        "estimated_seconds": outcome.estimate,
        "peak_memory_bytes": peak_memory(),
        "checkpoint": str(task.folder / "checkpoints" / str(task.total)),
        "chosen_step": outcome.choice.step,
    }


def in_lines(result: dict[str, Any]) -> str:
    """Says a result in a few lines."""
    final, checkpoint = result["final"], result["checkpoint"]
    log = Path(checkpoint).parents[1] / reporting.LOG
    return (
        f"test accuracy {final['test']['accuracy']:.4f}, loss {final['test']['loss']:.4f} "
        f"(validation {final['validation']['accuracy']:.4f}, chosen at step "
        f"{result['chosen_step']}), after {reporting.in_words(result['seconds'])}\n"
        f"checkpoint: {checkpoint}    (gj.restore({checkpoint!r}))\n"
        f"log:        {log}"
    )


def evaluate(path: Path) -> int:
    """Judges the best model of a checkpoint on validation and test, as its run did at the end."""
    trained, card = read_trained(path)
    settings = card["settings"]
    parallel.check_batch(settings["batch"], jax.device_count())
    names = [field.name for field in dataclasses.fields(Recipe)]
    recipe = Recipe(**{name: settings[name] for name in names})
    task = fit.Task(path, load_data(settings), trained.network, trained.basis, recipe, settings)
    variables = parallel.everywhere(trained.variables)
    judge = fit.make_judge(task)
    for split in fit.JUDGED:
        numbers = judge(variables, split)
        if parallel.first():
            print(f"{split} accuracy {numbers['accuracy']:.4f}, loss {numbers['loss']:.4f}")
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    """What processes other than the first say."""


def main(config: Config) -> int:
    parallel.connect(config.coordinator, config.num_processes, config.process_id)
    return train(config) if config.evaluate is None else evaluate(config.evaluate)


def run() -> int:
    """Reads the command line; a bad option is one sentence, not a traceback."""
    tune()
    prog = "python -m experiments.classify"
    try:
        return reporting.in_a_sentence(
            "classify", lambda: main(tyro.cli(Config, prog=prog, description=__doc__))
        )
    except KeyboardInterrupt:
        print("classify: stopped before the first step", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
