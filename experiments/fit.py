"""The loop that trains a classifier: rounds of steps, validation, checkpoints, and going on."""

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gconv_jax as gj
from experiments import reporting
from experiments.memory import give_back
from experiments.presets import Recipe
from gconv_jax.training import parallel
from gconv_jax.training.checkpoints import Checkpoints
from gconv_jax.training.classification import (
    Augmentation,
    ClassifierState,
    Examples,
    Fetch,
    as_examples,
    create_train_state,
    eval_step,
    make_advance,
)
from gconv_jax.training.runs import check_same, stop_on_interrupt

JUDGED = ("validation", "test")
ROUND = 50  # steps between two looks at the metrics, at most

Judge = Callable[[Any, str], dict[str, float]]  # of variables and the name of a split

_copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))


@dataclasses.dataclass(frozen=True)
class Task:
    """What a run works on, and where."""

    folder: Path
    data: dict[str, gj.data.Images]
    network: Any
    basis: jax.Array | None
    recipe: Recipe
    settings: dict[str, Any]

    def plan(self, split: str, **options: Any) -> gj.data.Plan:
        """Returns this process's part of the plan for a split."""
        return gj.data.Plan(
            len(self.data[split].labels),
            self.recipe.batch,
            process=jax.process_index(),
            processes=jax.process_count(),
            **options,
        )

    def examples(self, split: str) -> Examples:
        """Returns a split, on the devices.

        Those to judge by are filled up with zeros to the same size: one program serves both.
        """
        data = self.data[split]
        if split != "train":
            more = max(len(self.data[name].labels) for name in JUDGED) - len(data.labels)
            data = gj.data.Images(*(np.pad(a, [(0, more)] + [(0, 0)] * (a.ndim - 1)) for a in data))
        return parallel.everywhere(as_examples(data, self.data["train"]))

    @property
    def total(self) -> int:
        """How many steps there are."""
        return self.plan("train").steps * self.recipe.epochs

    @property
    def card(self) -> dict[str, Any]:
        """What is needed to make the network again, and to know whose checkpoint it is."""
        network = self.network
        return {
            "network": {
                "name": type(network).__name__,
                "num_classes": network.num_classes,
                "widths": list(network.widths),
                "dtype": network.dtype and jnp.dtype(network.dtype).name,
            },
            "image_shape": list(self.data["train"].images.shape[1:]),
            "settings": json.loads(json.dumps(self.settings)),
        }


@dataclasses.dataclass(frozen=True)
class Choice:
    """Which model is the best on validation so far: the highest accuracy, then the lowest loss."""

    step: int | None = None
    validation: dict[str, float] | None = None

    def is_beaten_by(self, validation: dict[str, float]) -> bool:
        """Tells whether a model with these numbers is better."""
        if self.validation is None:
            return True
        old, new = ((v["accuracy"], -v["loss"]) for v in (self.validation, validation))
        return new > old


class Outcome(NamedTuple):
    """What has become of a run."""

    done: bool
    state: ClassifierState
    model: Any  # the variables of the choice
    choice: Choice
    seconds: float
    estimate: float | None  # in seconds, as it was said at the start


class Pace:
    """How many steps make a round of about a second, and how long all of them will take."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Begins with one step, which compiles; the next five are measured."""
        self.count, self.known = 1, False
        self.estimate: float | None = None
        self._say = say

    def measure(self, seconds: float, steps: int, left: float) -> None:
        """Takes the time of a round, and how many steps are left; says how long they will take."""
        if self.count == 1 and left:
            self.count = 5
            return
        step = float(parallel.from_first(np.float64(seconds / steps)))
        self.count = max(1, min(ROUND, round(1 / step)))
        self.estimate = step * left
        self.settle(f"about {reporting.in_words(self.estimate)} to go")

    def settle(self, sentence: str) -> None:
        """Says how long it takes, once."""
        if not self.known:
            self._say(sentence)
        self.known = True


def begin(task: Task, seed: int) -> ClassifierState:
    """Returns the state at step 0."""
    recipe = task.recipe
    rate: Any = recipe.learning_rate
    if recipe.schedule == "one_cycle":
        rate = optax.cosine_onecycle_schedule(task.total, recipe.learning_rate)
    return create_train_state(
        task.network,
        task.data["train"].images[:1],
        task.basis,
        steps_per_epoch=task.plan("train").steps,
        seed=seed,
        learning_rate=rate,
        weight_decay=recipe.weight_decay,
    )


def make_judge(task: Task) -> Judge:
    """Returns the function that gives loss and accuracy on all images of a split."""
    basis = parallel.everywhere(task.basis)
    step = parallel.data_parallel(partial(eval_step, task.network), common=3, batches=2)
    examples = cache(task.examples)

    def judge(variables: Any, split: str) -> dict[str, float]:
        plan = task.plan(split, last="pad")
        parts = [
            step(variables, basis, examples(split), *parallel.shares(plan.batch(epoch=0, step=i)))
            for i in range(plan.steps)
        ]
        fetched = jax.device_get(parts)
        sums = {name: sum(float(part[name]) for part in fetched) for name in fetched[0]}
        assert sums["seen"] == plan.n
        return {"loss": sums["loss"] / plan.n, "accuracy": sums["correct"] / plan.n}

    return judge


def fit(
    task: Task, augmentation: Augmentation, seed: int, judge: Judge, say: Callable[..., None]
) -> Outcome:
    """Trains from the last checkpoint, or from the start, to the end or until it is stopped."""
    recipe, total, plan = task.recipe, task.total, task.plan("train", seed=seed)
    start = time.perf_counter()
    advance = make_advance(augmentation=augmentation, most=ROUND)
    examples = task.examples("train")
    pace = Pace(say)
    with contextlib.ExitStack() as stack:
        checkpoints = report = None
        state, model = begin(task, seed), None
        card: dict[str, Any] = {}
        if parallel.first():
            checkpoints = stack.enter_context(Checkpoints(task.folder / "checkpoints"))
            state, model, card = _resume(checkpoints, task, state)
        state = parallel.everywhere(parallel.from_first(state))
        choice = Choice(**card.get("choice", {}))
        start -= card.get("seconds", 0.0)
        step = int(state.step)
        if parallel.first():
            report = stack.enter_context(
                reporting.Report(
                    task.folder, step=step, steps=total, epoch=plan.steps, batch=recipe.batch
                )
            )
        if step:
            say(f"going on from step {step} of {total}, ", end="")
        stopped = stack.enter_context(stop_on_interrupt())
        waiting: tuple[int, Fetch] | None = None  # whose metrics have not been looked at
        stop = False
        while step < total and not stop:
            epoch, within = divmod(step, plan.steps)
            every = recipe.checkpoint_every
            end = min(step + pace.count, (epoch + 1) * plan.steps, (step // every + 1) * every)
            batches = [plan.batch(epoch=epoch, step=within + i)[0] for i in range(end - step)]
            begun = time.perf_counter()
            state, fetch = advance(state, examples, np.stack(batches))
            if not pace.known:
                fetch()
                give_back()  # what compiling took
                left = total - end + _evaluation(task, total - end) if end < total else 0.0
                pace.measure(time.perf_counter() - begun, end - step, left)
            if waiting:  # while the device is at work on the steps after
                _look(*waiting, None, report, checkpoints)
            waiting, step = (end, fetch), end
            stop = parallel.any_process(stopped())
            ends = step % plan.steps == 0
            if not (ends or stop or step % every == 0):
                continue
            pace.settle("a moment to go")
            validation = judge(state.variables, "validation") if ends else None
            _look(*waiting, validation, report, checkpoints)
            waiting = None
            if validation is not None and choice.is_beaten_by(validation):
                choice, model = Choice(step, validation), jax.device_get(_copy(state.variables))
            if checkpoints is not None and report is not None:
                report.log.sync()
                whole = jax.device_get(_copy(state))
                checkpoints.save(
                    step,
                    {"state": whole, "model": whole.variables if model is None else model},
                    card=task.card
                    | {
                        "choice": dataclasses.asdict(choice),
                        "seconds": time.perf_counter() - start,
                    },
                )
        pace.settle("nothing left to train")
        seconds = time.perf_counter() - start
    model = state.variables if model is None else model
    return Outcome(step == total, state, model, choice, seconds, pace.estimate)


def _resume(
    checkpoints: Checkpoints, task: Task, state: ClassifierState
) -> tuple[ClassifierState, Any, dict[str, Any]]:
    """Returns the state, the model of the choice if there is one, and the card."""
    state = jax.device_get(state)
    like = {"state": state, "model": state.variables}
    found = checkpoints.restore(like, say=lambda line: print(line, file=sys.stderr))
    if found is None:
        return state, None, {}
    tree: Any = found[0]
    card = found[1]
    check_same(task.folder, card["settings"], task.card["settings"])
    chosen = card["choice"]["step"] is not None
    return tree["state"], tree["model"] if chosen else None, card


def _evaluation(task: Task, steps: int) -> float:
    """Returns how many training steps the validation and test that are left take, roughly."""
    sizes = [len(task.data[split].labels) for split in JUDGED]
    epochs = steps / task.plan("train").steps
    return (epochs * sizes[0] + sizes[1]) / task.recipe.batch / 3  # the forward pass is a third


def _look(
    last: int,
    fetch: Fetch,
    validation: dict[str, float] | None,
    report: reporting.Report | None,
    checkpoints: Checkpoints | None,
) -> None:
    """Reports the metrics of a round; stops the run if one of them is not finite."""
    records = fetch()
    for step, values in enumerate(records, start=last - len(records) + 1):
        if not np.isfinite(list(values.values())).all():
            good = checkpoints.newest() if checkpoints else None
            shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
            raise FloatingPointError(
                f"training has left the finite numbers at step {step} ({shown}); the last good "
                f"checkpoint is {good or 'none yet'}; try a smaller learning_rate, or dtype "
                "float32 if it is not, in another workdir."
            )
    if report is not None:
        report.write(last, records, validation)
