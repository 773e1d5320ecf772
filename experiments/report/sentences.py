"""What may be said of the numbers, in sentences: spreads and scales -> text."""

from collections import Counter
from collections.abc import Mapping, Sequence

from experiments.report.findings import (
    DATASETS,
    EXACT,
    METHODS,
    Run,
    Spread,
    apart,
    select,
    spread,
)


def percent(value: float, _: float | None = None) -> str:
    """A fraction, in percent or in points."""
    return f"{100 * value:.2f}"


def small(value: float, beside: float | None = None) -> str:
    """A number that may be far below or above 1, written like the one that it is beside."""
    size = value if beside is None else beside
    return f"{value:.4f}" if 0.001 <= size < 1e4 or size == 0 else f"{value:.1e}"


def order(found: Mapping[str, Spread | None], *, lower: bool = False) -> str:
    """Says which methods are ahead of which, only where their spreads do not overlap."""
    behind = {
        name: tuple(other for other, its in found.items() if _beats(own, its, lower))
        for name, own in found.items()
    }
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, losers in behind.items():
        if losers:
            groups.setdefault(losers, []).append(name)
    pairs = len(found) * (len(found) - 1) // 2
    rest = pairs - sum(map(len, behind.values()))
    word = "lower than" if lower else "ahead of"
    said = "; ".join(
        f"{in_words(names)} {'is' if len(names) == 1 else 'are'} {word} {in_words(losers)}"
        for losers, names in sorted(groups.items(), key=lambda group: -len(group[0]))
    )
    if not said:
        return (
            f"No order is claimed: in all {pairs} pairs the spreads overlap, or one side has fewer "
            "than 2 seeds."
        )
    others = (
        f" No order is claimed in the other {rest} of {pairs} pairs: their spreads overlap, or one "
        "side has fewer than 2 seeds."
        if rest
        else ""
    )
    return f"Where spreads do not overlap: {said}.{others}"


def _beats(a: Spread | None, b: Spread | None, lower: bool) -> bool:
    return a is not None and b is not None and apart(a, b) and (a.mean < b.mean) == lower


def in_words(names: Sequence[str]) -> str:
    """Joins names as a sentence does."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def scale(runs: Sequence[Run]) -> str:
    """Says how large the runs of a table or figure are, by data set, and where they differ."""
    sentences, differences = [], []
    for dataset, title in DATASETS.items():
        own = [run for run in runs if run.dataset == dataset]
        if own:
            group = [run for run in own if run.basis != "conv"]
            networks = _networks(group) + _networks([run for run in own if run.basis == "conv"])
            [(recipe, _)] = Counter(map(_recipe, own)).most_common(1)
            sentences.append(f"{title}: {in_words(networks)}, {recipe}.")
            differences += _differences(own)
    if not sentences:
        return "Nothing of it has been run."
    [preset] = {run.record["preset"] for run in runs}
    named = "The paper's scale" if preset == "paper" else "Reduced scale"
    same = "" if differences else ", the same for every method"
    return " ".join([f"{named} (preset {preset}){same}.", *sentences, *differences])


def _networks(runs: Sequence[Run]) -> list[str]:
    found = {(r.record["scale"]["network"], *r.record["scale"]["widths"]): r for r in runs}
    return [f"{name} {'/'.join(map(str, widths))}" for name, *widths in sorted(found)]


def _recipe(run: Run) -> str:
    its = run.record["scale"]
    return (
        f"{its['train_images']:,} training images, {its['epochs']:g} epochs, batches of "
        f"{its['batch']}"
    )


def _differences(runs: Sequence[Run]) -> list[str]:
    """Points out what should be the same for all runs of one data set and is not."""
    found = []
    for key in ("train_images", "epochs", "batch", "network", "widths"):
        by: dict[str, list[str]] = {}
        for run in runs:
            if run.basis != "conv" or key not in ("network", "widths"):
                by.setdefault(str(run.record["scale"][key]), []).append(run.name)
        if len(by) > 1:
            kept = max(by.values(), key=len)
            odd = "; ".join(
                f"{value} in {in_words(names)}" for value, names in by.items() if names is not kept
            )
            most = next(value for value, names in by.items() if names is kept)
            found.append(f"ATTENTION, not the same scale: {key} is {most} in most runs, but {odd}.")
    return found


def _with_spread(of: Spread | None) -> str:
    """A number of points, or that there is none."""
    if of is None:
        return "not run"
    return percent(of.mean) + (
        " (1 seed)" if of.std is None else f" ± {percent(of.std)} ({of.n} seeds)"
    )


def in_short(runs: Sequence[Run]) -> list[str]:
    """The paper's claims that a number can answer, each with the number found here, and why."""
    whole = any(run.whole for run in runs)
    return [
        _robust(runs, "mnist"),
        _larger(runs),
        *([_robust(runs, "mnist", whole=True)] if whole else []),
        _where(runs, "mnist"),
        _robust(runs, "cifar10"),
        _where(runs, "cifar10"),
        _ahead(runs),
        _quarters(runs),
    ]


def _robust(runs: Sequence[Run], dataset: str, *, whole: bool = False) -> str:
    found = {
        basis: spread(run.increase for run in select(runs, dataset, basis, whole=whole))
        for basis in METHODS
    }
    paper = METHODS["partial"].increase[dataset], METHODS["weiler"].increase[dataset]
    learned = "; ".join(
        f"{METHODS[basis].label} {_with_spread(found[basis])}"
        for basis in ("partial", "closed_form")
    )
    handmade = "; ".join(
        f"{method.label} {_with_spread(found[basis])}"
        for basis, method in METHODS.items()
        if method.kind == "handmade"
    )
    on = " on all training images" if whole else ""
    return (
        f"{DATASETS[dataset]}, trained upright{on}, points of error that the worst angle has more "
        f"than the best: {learned}. Rotated by hand: {handmade}. The paper: about {paper[0]} for "
        f"partial, {paper[1]} for the others."
    )


def _larger(runs: Sequence[Run]) -> str:
    """How robust networks on MNIST are with more orientations, and with larger filters."""
    said = []
    for title, g, k in (("16 orientations", 16, 3), ("5x5 filters", 8, 5)):
        found = [
            f"{method.label} {_with_spread(spread(run.increase for run in own))}"
            for basis, method in METHODS.items()
            if (own := select(runs, "mnist", basis, orientations=g, kernel_size=k))
        ]
        said.append(f"with {title}: {'; '.join(found) or 'not run'}.")
    return f"MNIST, the same {' And '.join(said)}"


def _where(runs: Sequence[Run], dataset: str) -> str:
    """What an eighth of a turn costs the closed form, the later it happens."""
    start = (
        f"{DATASETS[dataset]}, points of error that a turn by 45 degrees costs the closed form: "
    )
    own = [run for run in select(runs, dataset, "closed_form") if run.record["onset"]]
    if not own:
        return f"{start}not run."
    first, *later = [
        (layer, _with_spread(spread(run.onset(layer) for run in own)))
        for layer in own[0].record["onset"]["after"]
    ]
    rest = ", ".join(f"{layer}: {cost}" for layer, cost in later)
    return (
        f"{start}{first[1]} when the input is turned, and when it is the map after layer {rest}. "
        "What is turned late has lost nothing in the layers before."
    )


def _ahead(runs: Sequence[Run]) -> str:
    """The best of the learned bases beside the network without a group, turned data for both."""
    found = {
        basis: spread(run.accuracy for run in select(runs, "cifar10", basis, "full"))
        for basis in METHODS
    }
    learned = [basis for basis, method in METHODS.items() if method.kind == "learned"]
    printed = [METHODS[basis].accuracy for basis in learned]
    base = METHODS["conv"].accuracy
    assert base is not None
    paper = max(each[1] for each in printed if each is not None) - base[1]
    start = "CIFAR-10 with full rotation augmentation, the best learned basis beside all-CNN: "
    end = f" The paper: {paper:.1f} points ahead."
    plain = found["conv"]
    there = [(of, basis) for basis in learned if (of := found[basis]) is not None]
    if plain is None or not there:
        return f"{start}not run.{end}"
    best, basis = max(there)
    points = 100 * (best.mean - plain.mean)
    said = (
        f"{METHODS[basis].label} {_with_spread(best)} percent and all-CNN {_with_spread(plain)}, "
    )
    said += f"a difference of {points:+.1f} points"
    if not apart(best, plain):
        said += ", within the spread or from a single seed, so no order is claimed"
    return f"{start}{said}.{end}"


def _quarters(runs: Sequence[Run]) -> str:
    """Whether quarter turns change anything, for bases that are exact there."""
    found = [
        (run.quarter_spread, run)
        for run in runs
        if run.basis in EXACT and run.quarter_spread is not None
    ]
    names = in_words([METHODS[basis].label for basis in EXACT])
    start = f"At quarter turns {names} should repeat exactly: "
    if not found:
        return f"{start}not run."
    worst, run = max(found, key=lambda pair: pair[0])
    return (
        f"{start}over {len(found)} runs the error changes there by {percent(worst)} points at most "
        f"({run.name})."
    )
