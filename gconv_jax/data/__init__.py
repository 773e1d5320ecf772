"""Images in, batches out: real sets, verified, read without TensorFlow, augmented on the device."""

from gconv_jax.data.augmentation import ROTATIONS, augment, colour_statistics, image_keys, normalise
from gconv_jax.data.batching import Batch, Plan, Position, feed, fits
from gconv_jax.data.errors import DataError
from gconv_jax.data.formats import Images
from gconv_jax.data.loading import load, prepare

__all__ = [
    "ROTATIONS",
    "Batch",
    "DataError",
    "Images",
    "Plan",
    "Position",
    "augment",
    "colour_statistics",
    "feed",
    "fits",
    "image_keys",
    "load",
    "normalise",
    "prepare",
]
