"""In which precision sums are taken."""

from typing import Any

import numpy as np
from jax.typing import DTypeLike


def sum_dtype(*dtypes: DTypeLike) -> np.dtype[Any]:
    """Returns float64 if any of `dtypes` is, float32 otherwise: bfloat16 is summed in float32."""
    double = np.dtype("float64")
    return double if any(np.dtype(dtype) == double for dtype in dtypes) else np.dtype("float32")
