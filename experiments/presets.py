"""How long and how large: the recipes for training a classifier.

`paper` is the paper's, to the letter. `cpu` is for two cores and a long coffee. `smoke` shows in a
minute, on the images in the package, that everything works.
"""

import dataclasses
from typing import Literal

PresetName = Literal["paper", "cpu", "smoke"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a preset decides, for one data set."""

    widths: tuple[int, int]
    """channels of the first three convolutions and of the other six"""
    conv_widths: tuple[int, int]
    """the same for the network without a group, of about as many parameters"""
    batch: int
    epochs: int
    learning_rate: float
    """constant, or the peak of the cycle"""
    schedule: Literal["constant", "one_cycle"]
    """one_cycle: up to the peak in the first 0.3 of the steps, then down to nothing, by cosines"""
    weight_decay: float
    translate: int
    """pixels that training images are moved by, at most"""
    flip: bool
    """whether training images are mirrored"""
    images: int | None
    """how many training images, if not all"""
    embedded: bool
    """whether to use the small sets in the package instead of the real ones"""
    checkpoint_every: int
    """steps between two checkpoints, besides those at the end of each epoch"""


_PAPER = Recipe(
    widths=(33, 67),
    conv_widths=(96, 192),
    batch=100,
    epochs=100,
    learning_rate=1e-3,
    schedule="constant",
    weight_decay=1e-6,
    translate=4,
    flip=True,
    images=None,
    embedded=False,
    checkpoint_every=1000,
)
_CPU = dataclasses.replace(
    _PAPER,
    widths=(8, 16),
    conv_widths=(24, 48),
    batch=50,
    epochs=4,
    learning_rate=5e-3,
    schedule="one_cycle",
    translate=2,
    checkpoint_every=200,
)
_SMOKE = dataclasses.replace(
    _CPU,
    widths=(4, 8),
    conv_widths=(12, 24),
    batch=25,
    epochs=24,
    learning_rate=1e-2,
    images=50,
    translate=0,
    flip=False,
    embedded=True,
    checkpoint_every=50,
)
_DIGITS = {  # not mirrored: that would make another digit, or none
    "paper": dataclasses.replace(_PAPER, flip=False),
    "cpu": dataclasses.replace(_CPU, flip=False, epochs=2),
    "smoke": dataclasses.replace(_SMOKE, flip=False),
}

PRESETS: dict[str, dict[str, Recipe]] = {
    "cifar10": {"paper": _PAPER, "cpu": _CPU, "smoke": _SMOKE},
    "mnist": _DIGITS,
    "rotated_mnist": _DIGITS,
    "fashion_mnist": _DIGITS,
}
