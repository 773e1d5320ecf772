"""Learn a basis and all its rotated versions from images: data -> basis.

    make pretrain                               # partial, 8 orientations, 3x3, by descent
    make pretrain BASIS=full SEED=1
    make pretrain SOLVER=closed_form KERNEL=5 ORIENTATIONS=16

Stop it when you like; the same command goes on from the last checkpoint, to the same result.
"""

import contextlib
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from tensorboardX import SummaryWriter
from tqdm import tqdm

import gconv_jax as gj
from experiments import figures
from experiments.reporting import in_a_sentence
from experiments.tuning import tune
from gconv_jax.bases.quality import BasisQuality, judge, patch_moments
from gconv_jax.data.__main__ import main as prepare_data
from gconv_jax.training import parallel
from gconv_jax.training.checkpoints import Checkpoints
from gconv_jax.training.pretraining import (
    LossWeights,
    create_pretrain_state,
    draw,
    pretrain_steps,
)
from gconv_jax.training.runs import JsonLines, claim, stop_on_interrupt

ROUND = 50  # steps in one dispatch, and between two lines of the log
COMPARED = ("weiler", "gaussian", "bilinear", "random")


@dataclasses.dataclass(frozen=True)
class Config:
    """Learns a filter basis with all its rotations from CIFAR-10 images, and judges it."""

    basis: Literal["partial", "full", "overcomplete"] = "partial"
    """what is learned: the orientations in [0, 90) degrees, all of them, or all of three times as
    many elements"""
    solver: Literal["descent", "closed_form"] = "descent"
    """descent on the paper's three losses, or the exact unitary one (partial)"""
    orientations: int = 8
    """G, a multiple of 4"""
    kernel: int = 3
    """size of the filters, odd"""
    steps: int = 1500
    """of descent"""
    batch: int = 32
    """images a step, a multiple of the number of devices"""
    learning_rate: float = 1e-2
    """at the start; it falls to zero along a cosine"""
    weights: LossWeights = LossWeights()  # noqa: RUF009 (a NamedTuple does not change)
    """what each loss counts"""
    seed: int = 0
    """of the start and of all draws"""
    images: int = 5000
    """training images to learn from (the closed form takes 500 of them)"""
    checkpoint_every: int = 250
    """steps between two checkpoints, a multiple of 50"""
    workdir: Path | None = None
    """folder for all that the run writes; by default one below runs/pretrain, named after the
    options"""

    def check(self) -> None:
        """Refuses what would fail later, in one sentence."""
        gj.make_basis("weiler", orientations=self.orientations, kernel_size=self.kernel)
        if self.solver == "closed_form" and self.basis != "partial":
            raise ValueError(
                f"solver closed_form gives a partial basis, but basis is {self.basis!r}; "
                "leave basis out."
            )
        for name in ("steps", "batch", "images", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but got {getattr(self, name)}.")
        if self.checkpoint_every % ROUND:
            raise ValueError(
                f"checkpoint_every must be a multiple of {ROUND}, but got {self.checkpoint_every}."
            )

    @property
    def name(self) -> str:
        """What the basis is called in tables."""
        return self.basis if self.solver == "descent" else "closed_form"

    @property
    def changed(self) -> dict[str, Any]:
        """The options, by name, that are not as by default."""
        options = dataclasses.asdict(self) | {"weights": None, "workdir": None}
        defaults = dataclasses.asdict(Config()) | {"weights": None, "workdir": None}
        for values, weights in ((options, self.weights), (defaults, Config().weights)):
            values |= {f"weights.{name}": value for name, value in weights._asdict().items()}
        return {name: value for name, value in options.items() if value != defaults[name]}

    @property
    def folder(self) -> Path:
        """Where the run lives: `workdir`, or a folder named after the options."""
        named = ("basis", "solver", "orientations", "kernel", "seed")
        others = [f"-{name}{value}" for name, value in self.changed.items() if name not in named]
        name = f"{self.name}-g{self.orientations}-k{self.kernel}-seed{self.seed}{''.join(others)}"
        return self.workdir or Path("runs/pretrain") / name

    @property
    def command(self) -> str:
        """The command line that makes this basis."""
        flags = [f"--{name.replace('_', '-')} {value}" for name, value in self.changed.items()]
        return " ".join(["python -m experiments.pretrain", *flags])


@dataclasses.dataclass(frozen=True)
class Data:
    """Normalised CIFAR-10: what to learn from, what to watch, what to judge by."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    source: str


def load_data(images: int) -> Data:
    """Prepares and loads CIFAR-10 in standard units; says so if only the embedded part is there."""
    prepared = prepare_data(["cifar10"]) == 0
    source: Any = "prepared" if prepared else "embedded"
    if not prepared:
        print("learning from the small subset of CIFAR-10 that is embedded in the package instead")
    splits = ("train", "validation", "test")
    train, validation, test = (
        gj.data.load("cifar10", split=split, source=source).images for split in splits
    )
    mean, std = gj.data.colour_statistics(train)
    train, validation, test = (
        np.asarray(gj.data.normalise(x, mean=mean, std=std))
        for x in (train[:images], validation[:200], test[:500])
    )
    kind = "" if prepared else "embedded subset, "
    return Data(train, validation, test, f"CIFAR-10, {kind}{len(train)} training images")


def descend(config: Config, data: Data) -> tuple[jax.Array, bool]:
    """Learns by descent, from the last checkpoint if there is one; returns whether it is done."""
    state = create_pretrain_state(
        config.basis,
        orientations=config.orientations,
        kernel_size=config.kernel,
        seed=config.seed,
        learning_rate=config.learning_rate,
        steps=config.steps,
    )
    advance = parallel.data_parallel(pretrain_steps, common=4)
    train = jnp.asarray(data.train)
    watched = patch_moments(data.validation, config.orientations, config.kernel)
    n, _, _, channels = data.train.shape

    def held_out(state: Any) -> BasisQuality:
        return judge(np.asarray(state.apply_fn(state.params)), watched)

    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(Checkpoints(config.folder / "checkpoints"))
        state, _ = checkpoints.restore(state) or (state, {})
        step = int(state.step)
        if step > 0:
            print(f"going on from step {step} of {config.steps}")
        log = stack.enter_context(JsonLines(config.folder / "log.jsonl", after=step))
        board = stack.enter_context(
            SummaryWriter(str(config.folder / "tensorboard"), purge_step=step + 1)
        )
        bar = stack.enter_context(
            tqdm(total=config.steps, initial=step, unit="step", mininterval=1, file=sys.stdout)
        )
        stopped = stack.enter_context(stop_on_interrupt())
        while step < config.steps and not stopped():
            count = min(ROUND, config.steps - step)
            draws = draw(
                config.seed,
                step,
                ROUND,
                images=n,
                channels=channels,
                orientations=config.orientations,
                batch=config.batch,
            )
            state, losses = advance(
                state, config.weights, train, count, parallel.shares(draws, axis=1)
            )
            step += count
            quality = held_out(state)
            values = {name: float(loss) for name, loss in losses.items()}
            if not np.isfinite(list(values.values())).all():
                raise FloatingPointError(
                    f"a loss is not finite at step {step} ({values}); the last good state is in "
                    f"{config.folder / 'checkpoints'}; try a smaller learning_rate."
                )
            log.write(step, **values, **{f"held_out_{k}": v for k, v in quality._asdict().items()})
            for name, value in values.items():
                board.add_scalar(f"loss/{name}", value, step)
            for name, value in quality._asdict().items():
                board.add_scalar(f"held_out/{name}", value, step)
            bar.set_postfix_str(
                " ".join(f"{name[:5]} {value:.3f}" for name, value in values.items())
                + f" error {quality.error:.4f}"
            )
            bar.update(count)
            if step % config.checkpoint_every == 0 or step == config.steps or stopped():
                checkpoints.save(step, state)
    return state.apply_fn(state.params), step == config.steps


def learn(config: Config, data: Data) -> tuple[jax.Array, float] | None:
    """Learns or solves; returns the basis and the seconds it took, or nothing if stopped."""
    start = time.perf_counter()
    if config.solver == "closed_form":
        basis = gj.solve_basis(
            data.train[:500], orientations=config.orientations, kernel_size=config.kernel
        )
    else:
        basis, done = descend(config, data)
        if not done:
            return None
    return jax.block_until_ready(basis), time.perf_counter() - start


def compare(basis: jax.Array, name: str, images: np.ndarray) -> dict[str, BasisQuality]:
    """Judges a basis beside those by formula; the interpolated ones rotate its own elements."""
    g, _, k, _ = basis.shape
    moments = patch_moments(images, g, k)
    bases = {name: basis} | {
        other: gj.make_basis(
            other,
            orientations=g,
            kernel_size=k,
            e0=basis[0] if other in ("gaussian", "bilinear") else None,
        )
        for other in COMPARED
    }
    return {other: judge(np.asarray(array), moments) for other, array in bases.items()}


def as_table(rows: dict[str, BasisQuality]) -> str:
    """Lays out qualities for a terminal."""
    lines = [f"{'basis':<14} {'error':>9} {'condition':>12} {'residual':>10}"]
    for name, (error, condition, residual) in rows.items():
        shown = f"{condition:12.4f}" if condition < 1e4 else f"{'incomplete':>12}"
        lines.append(f"{name:<14} {error:9.4f} {shown} {residual:10.4f}")
    return "\n".join(lines)


def card_of(config: Config, data: Data, quality: BasisQuality, **more: Any) -> dict[str, Any]:
    """Says how a basis was made and what was measured."""
    return {
        "name": config.name,
        "solver": config.solver,
        "orientations": config.orientations,
        "kernel_size": config.kernel,
        "command": config.command,
        "seed": config.seed,
        "steps": config.steps if config.solver == "descent" else None,
        "data": data.source,
        "quality": quality._asdict() | {"images": f"{len(data.test)} CIFAR-10 test images"},
        "version": gj.__version__,
        **more,
    }


def settle(config: Config) -> None:
    """Makes the run's folder its own; refuses bad options, and a folder of another run."""
    config.check()
    settings = dataclasses.asdict(config) | {"weights": config.weights._asdict()}
    del settings["workdir"]
    claim(config.folder, settings)


def main(config: Config) -> int:
    folder = config.folder
    settle(config)
    print(
        f"{config.name} basis: {config.orientations} orientations, {config.kernel}x{config.kernel} "
        f"filters, by {config.solver}, seed {config.seed}, on {jax.device_count()} "
        f"{jax.default_backend()} device(s)"
    )
    data = load_data(config.images)
    learned = learn(config, data)
    if learned is None:
        print(f"stopped and saved; the same command goes on from here: {folder}")
        return 130
    basis, seconds = learned
    rows = compare(basis, config.name, data.test)
    path = folder / "basis.npz"
    gj.save_basis(path, basis, card=card_of(config, data, rows[config.name]))
    pictures = figures.draw_basis(folder, config.name, basis, data.test)
    print(f"\nafter {seconds:.1f} s, on {len(data.test)} CIFAR-10 test images (lower is better):")
    print(as_table(rows))
    print(f"\nbasis:    {path}    (gj.load_basis({str(path)!r}))")
    for picture in pictures:
        print(f"picture:  {picture}")
    return 0


def run() -> int:
    """Reads the command line; a bad option is one sentence, not a traceback."""
    tune()
    prog = "python -m experiments.pretrain"
    return in_a_sentence("pretrain", lambda: main(tyro.cli(Config, prog=prog, description=__doc__)))


if __name__ == "__main__":
    sys.exit(run())
