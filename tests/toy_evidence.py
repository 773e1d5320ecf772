"""Results of runs that never were, for tests of the report."""

import json

from experiments.report.findings import read

DEGREES = (0, 45, 90, 135, 180, 225, 270, 315)
COMMAND = "python -m experiments.evidence --preset cpu --only"


def record(dataset, basis, augment="none", seed=0, orientations=8, kernel_size=3, **measured):
    """A result file; `measured` gives accuracy, errors, onset, layers, quality, epochs, whole."""
    sizes = "".join(
        f"-{letter}{n}"
        for letter, n in (("g", orientations), ("k", kernel_size))
        if n not in (3, 8)
    )
    whole = measured.get("whole", False)
    name = f"{dataset}-{basis}{sizes}{'-all' if whole else ''}-{augment}-seed{seed}"
    conv = basis == "conv"
    accuracy = measured.get("accuracy", 0.75)
    metrics = {"loss": 1 - accuracy, "accuracy": accuracy}
    layers = measured.get("layers", 0.01)
    error, condition = measured.get("quality", (0.004, 1.0))
    quality = {"error": error, "condition_number": condition, "residual": 0.0}
    return name, {
        "command": f"{COMMAND} {name}",
        "cell": {
            "dataset": dataset,
            "basis": basis,
            "orientations": orientations,
            "kernel_size": kernel_size,
            "whole": whole,
            "augment": augment,
            "seed": seed,
        },
        "preset": "cpu",
        "scale": {
            "network": "AllCNN" if conv else "GroupAllCNN",
            "widths": [24, 48] if conv else [8, 16],
            "parameters": 88_000 if conv else 78_450,
            "train_images": 55_000 if whole else 10_000,
            "epochs": measured.get("epochs", 6),
            "batch": 50,
        },
        "settings": {
            "learning_rate": 0.005,
            "schedule": "one_cycle",
            "weight_decay": 0.01,
            "translate": 2,
        },
        "final": {"validation": metrics, "test": dict(metrics), "params_sha256": "0"},
        "angles": {
            "degrees": list(DEGREES),
            "errors": measured.get("errors", [0.25, 0.3] * 4),
            "images": 2000,
            "plain_error": 0.24,
            "interpolator": "gaussian, sigma 0.5",
        },
        "onset": measured.get("onset"),
        "layers": None
        if layers is None
        else {
            "images": 256,
            "errors": {f"conv{i}": [0.0] + (orientations - 1) * [i * layers] for i in range(1, 10)},
        },
        "basis_quality": None if conv else quality,
        "pictures": measured.get("pictures"),
        "seconds": 1800.0,
        "peak_memory_bytes": 1,
        "commit": "abc",
        "versions": {"jax": "0.10"},
        "devices": {"platform": "cpu", "count": 1},
    }


def save(folder, *records):
    folder.mkdir(exist_ok=True)
    for name, content in records:
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def loaded(folder, *records):
    return read(save(folder, *records), "cpu")


PICTURES = {
    "filters": [[[[[0.5, -0.5, 0.1]] * 3] * 3] * 2] * 8,
    "activations": [[[1.0, 0.0], [0.0, 0.5]]] * 8,
    "turned_back": [[[1.0, 0.0], [0.0, 0.5]]] * 8,
}


def onset(*rises):
    """By how much the error rises when the turn happens at the input, after layer 1, and so on."""
    return {
        "degrees": 45,
        "images": 1000,
        "after": list(range(len(rises))),
        "upright": len(rises) * [0.02],
        "turned": [0.02 + rise for rise in rises],
    }


def some_evidence():
    """Two methods in full, one with a single seed, and most of the rest not at all."""
    for seed, shift in ((0, 0.0), (1, 0.02)):
        for dataset in ("mnist", "cifar10"):
            yield record(
                dataset,
                "partial",
                seed=seed,
                accuracy=0.8 + shift,
                errors=[0.10, 0.12 + shift] * 4,
                pictures=PICTURES if (dataset, seed) == ("cifar10", 0) else None,
            )
            yield record(dataset, "conv", seed=seed, accuracy=0.7, errors=[0.1, 0.3] + 6 * [0.5])
        yield record("cifar10", "partial", "full", seed, accuracy=0.75 + shift)
        yield record("cifar10", "conv", "full", seed, accuracy=0.6 + shift)
    yield record("mnist", "weiler", errors=[0.1, 0.25] * 4, quality=(0.01, 1.0))
    yield record("mnist", "closed_form", kernel_size=5, quality=(0.0098, 1.0))
