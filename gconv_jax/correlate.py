"""How a filter bank meets a feature map: the one place that chooses the way to convolve.

On GPU and TPU it is the vendor's convolution. XLA's own on CPU is fair forward, but its gradients
take 2 to 10 times as long as they need to, by the processor. So there `way` chooses from the shapes
alone:

- `"winograd"`: fewer multiplications, for 3x3 and 5x5 filters with stride 1;
- `"patches"`: one matrix product with all that a filter sees, for the rest.

All give the same to float32 accuracy. The choice is made when a program is lowered for a platform.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from gconv_jax import winograd
from gconv_jax._dtypes import sum_dtype

Padding = str | tuple[tuple[int, int], tuple[int, int]]
Way = Literal["winograd", "patches"]


class Windows(NamedTuple):
    """Where the windows lie: their step, and the zeros around the map."""

    strides: int
    margins: winograd.Margins


Prepared = winograd.Points
_Correlation = Callable[[jax.Array, jax.Array, Prepared | None, Windows], jax.Array]


def correlate(
    x: jax.Array,
    kernel: jax.Array,
    strides: int,
    padding: Padding,
    *,
    prepared: Prepared | None = None,
    plain: bool = False,
) -> jax.Array:
    """Cross-correlates `x` `[B, H, W, I]` with `kernel` `[k, k, I, O]` to `[B, H', W', O]`.

    The result has the dtype of `x`; sums are taken in float32 or better. With `plain` it is XLA's
    convolution on every platform. A kernel that stays the same can be `prepared` once.
    """
    k = len(kernel)
    if isinstance(padding, str):
        rows, columns = lax.padtype_to_pads(x.shape[1:3], (k, k), (strides, strides), padding)
        padding = (rows, columns)
    windows = Windows(strides, padding)
    kernel = kernel.astype(x.dtype)
    if plain:
        return _plain(x, kernel, windows)
    on_cpu = {"winograd": _winograd, "patches": _patches}[way(kernel.shape, strides)]

    def choose(x: jax.Array, kernel: jax.Array, prepared: Prepared | None) -> jax.Array:
        out: jax.Array = lax.platform_dependent(
            x,
            kernel,
            prepared,
            cpu=lambda x, kernel, prepared: on_cpu(x, kernel, prepared, windows),
            default=lambda x, kernel, _: _plain(x, kernel, windows),
        )
        return out

    # What is kept for the gradients is `x` and `kernel`, not what either platform would keep.
    # On CPU the transforms are not computed twice for it: XLA sees that they are the same.
    return jax.checkpoint(choose, prevent_cse=False)(x, kernel, prepared)


def prepare(kernel: jax.Array, strides: int) -> Prepared | None:
    """Does beforehand what `correlate` would do to a kernel `[k, k, I, O]` on a CPU at every call.

    Nothing, where nothing is to be done: for other ways, and for kernels that are on another
    platform or not known yet.
    """
    known = not isinstance(kernel, jax.core.Tracer)
    if not known or {device.platform for device in kernel.devices()} != {"cpu"}:
        return None
    if way(kernel.shape, strides) != "winograd":
        return None
    return winograd.transform(kernel.astype(sum_dtype(kernel.dtype)))


def way(kernel: tuple[int, ...], strides: int) -> Way:
    """Chooses how to correlate with a kernel of shape `[k, k, I, O]` on a CPU.

    With few inputs the transforms cost more than they save. Forward and backward, with 64 outputs:

        inputs            3     8    12    16    32
        3x3 winograd    8.8  11.6  13.5  14.0  15.9 ms
            patches     4.2  11.9  13.3  16.9  29.6 ms
        5x5 winograd   28.5  31.1        35.4       ms
            patches    15.0  24.1        46.9       ms

    (`python -m experiments.bench.ways`, in `experiments/results/ways.json`.)
    """
    k, _, i, _ = kernel
    few_inputs = i <= 12
    return "winograd" if strides == 1 and k in winograd.SCHEMES and not few_inputs else "patches"


def _plain(x: jax.Array, kernel: jax.Array, windows: Windows) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        window_strides=2 * (windows.strides,),
        padding=windows.margins,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=sum_dtype(x.dtype),
    ).astype(x.dtype)


def _summing(function: _Correlation) -> _Correlation:
    """Lets a function compute in the dtype that sums are taken in."""

    def call(
        x: jax.Array, kernel: jax.Array, prepared: Prepared | None, windows: Windows
    ) -> jax.Array:
        dtype = sum_dtype(x.dtype)
        return function(x.astype(dtype), kernel.astype(dtype), prepared, windows).astype(x.dtype)

    return call


@_summing
def _winograd(
    x: jax.Array, kernel: jax.Array, prepared: Prepared | None, windows: Windows
) -> jax.Array:
    filters = winograd.transform(kernel) if prepared is None else prepared
    return winograd.correlate(x, filters, len(kernel), windows.margins)


@_summing
def _patches(
    x: jax.Array, kernel: jax.Array, prepared: Prepared | None, windows: Windows
) -> jax.Array:
    assert prepared is None
    k, _, i, o = kernel.shape
    strides = windows.strides
    x = jnp.pad(x, ((0, 0), *windows.margins, (0, 0)))
    h, w = (size - k + 1 for size in x.shape[1:3])
    taps = [x[:, p : p + h : strides, q : q + w : strides] for p in range(k) for q in range(k)]
    seen = jnp.concatenate(taps, axis=-1)  # [B, H', W', k * k * I]
    # As matrices: else the product for the filters' gradient first transposes the larger operand.
    out = seen.reshape(-1, k * k * i) @ kernel.reshape(k * k * i, o)
    return out.reshape(*seen.shape[:3], o)
