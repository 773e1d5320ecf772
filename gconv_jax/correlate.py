"""How a filter bank meets a feature map: the one place that names a convolution primitive."""

import jax
from jax import lax

from gconv_jax._dtypes import sum_dtype

Padding = str | tuple[tuple[int, int], tuple[int, int]]


def correlate(x: jax.Array, kernel: jax.Array, strides: int, padding: Padding) -> jax.Array:
    """Cross-correlates `x` `[B, H, W, I]` with `kernel` `[k, k, I, O]` to `[B, H', W', O]`.

    The result has the dtype of `x`; sums are taken in float32 or better.
    """
    return lax.conv_general_dilated(
        x,
        kernel.astype(x.dtype),
        window_strides=(strides, strides),
        padding=padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=sum_dtype(x.dtype),
    ).astype(x.dtype)
