"""Augmentation on the device: pure, jit-compiled, one key an image.

A key belongs to an image and an epoch, not to a place in a batch. So an image is augmented the same
way however the batch is cut up among devices and processes.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from gconv_jax import _checks
from gconv_jax.rotation import rotate

# How many angles there are, evenly spread; a random word has 32 bits.
_STEPS = {"none": 1, "90": 4, "45": 8, "full": 2**32}
ROTATIONS = tuple(_STEPS)


def augment(
    images: ArrayLike,
    keys: jax.Array,
    *,
    mean: ArrayLike,
    std: ArrayLike,
    flip: bool = False,
    translate: int = 0,
    rotation: str = "none",
) -> jax.Array:
    """Normalises the colours of each image, then turns, flips and moves it at random.

    With `x = (image / 255 - mean) / std` and draws that are even over their range,

        out = move(flip(rotate(x, angle)), dy, dx)    |dy|, |dx| <= translate

    What comes in from outside is zero, which is the mean colour. Draws do not depend on which of
    the options are on: an image moves alike with and without flips.

    Args:
      images: uint8 `[B, H, W, C]`.
      keys: PRNG keys `[B]`, see `image_keys`.
      mean: of the colours, in [0, 1], `[C]`; see `colour_statistics`.
      std: their standard deviation, `[C]`.
      flip: mirrors every other image, left to right.
      translate: pixels to move by, at most, in each direction.
      rotation: `"none"`; `"90"` or `"45"` for a multiple of so many degrees; `"full"` for any
        angle. Bilinear, through `rotate`.

    Returns:
      float32 `[B, H, W, C]`.

    Example:
      >>> import jax, gconv_jax as gj
      >>> images, _ = gj.data.load("cifar10", source="embedded", size=8)
      >>> mean, std = gj.data.colour_statistics(images)
      >>> keys = gj.data.image_keys(jax.random.key(0), range(8))
      >>> x = gj.data.augment(images, keys, mean=mean, std=std, flip=True, translate=4)
      >>> print(x.shape, x.dtype)
      (8, 32, 32, 3) float32

    """
    images = _check_images(images)
    b, h, w, _ = images.shape
    if not jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) or keys.shape != (b,):
        raise ValueError(
            f"keys must be typed PRNG keys of shape ({b},), one an image, but got {keys.dtype} of "
            f"shape {keys.shape}; make them with image_keys(key, indices)."
        )
    _checks.check_choice("rotation", rotation, ROTATIONS)
    if not isinstance(translate, int) or not 0 <= translate < min(h, w):
        raise ValueError(
            f"translate must be an integer of at least 0 and less than the size {min(h, w)} of an "
            f"image, but got {translate!r}."
        )
    mean, std = _per_channel("mean", mean, images), _per_channel("std", std, images)
    return _augment(
        images, keys, mean, std, flip=bool(flip), translate=translate, rotation=rotation
    )


def normalise(images: ArrayLike, *, mean: ArrayLike, std: ArrayLike) -> jax.Array:
    """Normalises the colours, `(image / 255 - mean) / std`, as `augment` does without its draws.

    Args:
      images: uint8 `[B, H, W, C]`.
      mean: of the colours, in [0, 1], `[C]`.
      std: their standard deviation, `[C]`.

    Returns:
      float32 `[B, H, W, C]`.

    Example:
      >>> import gconv_jax as gj, numpy as np
      >>> black = np.zeros((1, 2, 2, 1), np.uint8)
      >>> print(gj.data.normalise(black, mean=[0.5], std=[0.25])[0, 0, 0])
      [-2.]

    """
    images = _check_images(images)
    mean, std = _per_channel("mean", mean, images), _per_channel("std", std, images)
    return _normalise(images, mean, std)


def image_keys(key: jax.Array, indices: ArrayLike) -> jax.Array:
    """Returns a key for each image, which depends on its place in the set and on `key` alone.

    Args:
      key: a typed PRNG key that is new in each epoch, as in `jax.random.fold_in(key, epoch)`.
      indices: integers `[B]`, which image of the set each one is.

    Returns:
      PRNG keys `[B]`.

    Example:
      >>> import jax, gconv_jax as gj
      >>> one, two = gj.data.image_keys(jax.random.key(0), [7, 9])
      >>> print((one == gj.data.image_keys(jax.random.key(0), [3, 7])[1]).item())
      True

    """
    if not isinstance(indices, jax.Array):
        indices = np.asarray(indices, np.int32)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, indices)


def colour_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the standard deviation of each channel, in units of full brightness.

    Args:
      images: uint8 `[n, H, W, C]`, of the training split.

    Returns:
      Two float32 arrays `[C]`, from whole-number sums: they do not depend on the order of images.

    Example:
      >>> import gconv_jax as gj, numpy as np
      >>> mean, std = gj.data.colour_statistics(np.asarray([0, 255], np.uint8).reshape(2, 1, 1, 1))
      >>> print(mean, std)
      [0.5] [0.5]

    """
    if images.dtype != np.uint8 or images.ndim != 4 or not len(images):
        raise ValueError(
            "images must be at least one image, uint8 [n, H, W, C], "
            f"but got {images.dtype} of shape {images.shape}."
        )
    levels = np.arange(256)
    means, deviations = [], []
    for channel in range(images.shape[-1]):
        counts = np.zeros(256, np.int64)
        for start in range(0, len(images), 1000):
            block = images[start : start + 1000, ..., channel]
            counts += np.bincount(block.ravel(), minlength=256)
        mean = (counts @ levels) / counts.sum()
        means.append(mean / 255)
        deviations.append(np.sqrt(counts @ (levels - mean) ** 2 / counts.sum()) / 255)
    return np.asarray(means, np.float32), np.asarray(deviations, np.float32)


def _check_images(images: ArrayLike) -> jax.Array:
    array = jnp.asarray(images)
    if array.ndim != 4 or array.dtype != jnp.uint8:
        raise ValueError(
            f"images must be uint8 [B, H, W, C], but got {array.dtype} of shape {array.shape}."
        )
    return array


def _per_channel(name: str, values: ArrayLike, images: jax.Array) -> jax.Array:
    array = jnp.asarray(values, jnp.float32)
    if array.shape != images.shape[-1:]:
        raise ValueError(
            f"{name} must have one value for each of the {images.shape[-1]} channels of images, "
            f"but got shape {array.shape}."
        )
    return array


@jax.jit
def _normalise(images: jax.Array, mean: jax.Array, std: jax.Array) -> jax.Array:
    per_channel = (None, None, None, slice(None))
    return (images.astype(jnp.float32) / 255 - mean[per_channel]) / std[per_channel]


@partial(jax.jit, static_argnames=("flip", "translate", "rotation"))
def _augment(
    images: jax.Array,
    keys: jax.Array,
    mean: jax.Array,
    std: jax.Array,
    *,
    flip: bool,
    translate: int,
    rotation: str,
) -> jax.Array:
    x = _normalise(images, mean, std)
    words = jax.vmap(lambda key: jax.random.bits(key, (4,)))(keys)  # uint32 [B, 4]
    if rotation != "none":
        steps = _STEPS[rotation]
        turn = (words[:, 0] % steps if steps < 2**32 else words[:, 0]).astype(jnp.float32)
        x = rotate(x, 2 * jnp.pi / steps * turn)
    if flip or translate:
        span = 2 * translate + 1
        down = (words[:, 1] % span).astype(jnp.int32) - translate
        right = (words[:, 2] % span).astype(jnp.int32) - translate
        mirrored = (words[:, 3] >> 31).astype(bool) & flip
        x = jax.vmap(_move)(x, down, right, mirrored)
    return x


def _move(x: jax.Array, down: jax.Array, right: jax.Array, mirrored: jax.Array) -> jax.Array:
    """Mirrors one image `[H, W, C]` if told to, then moves it; what comes in is zero."""
    h, w, _ = x.shape
    rows, columns = jnp.arange(h) - down, jnp.arange(w) - right
    inside = ((rows >= 0) & (rows < h))[:, None] & ((columns >= 0) & (columns < w))[None]
    columns = jnp.where(mirrored, w - 1 - columns, columns)
    taken = x[jnp.clip(rows, 0, h - 1)[:, None], jnp.clip(columns, 0, w - 1)[None]]  # [H, W, C]
    return jnp.where(inside[..., None], taken, 0)
