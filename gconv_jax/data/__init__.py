"""Images in, batches out: real sets, verified, read without TensorFlow, augmented on the device."""

from gconv_jax.data.errors import DataError
from gconv_jax.data.formats import Images
from gconv_jax.data.loading import load, prepare

__all__ = ["DataError", "Images", "load", "prepare"]
