"""Correlation with few multiplications: Winograd's short algorithms, as XLA on CPU runs them best.

Correlating n = m + k - 1 inputs with k taps gives m outputs and needs only n products, because
polynomials can be multiplied by their values at n points (Cook and Toom). In two dimensions,

    Y = A [ (G f G^T) . (B d B^T) ] A^T        d: [n, n] inputs,  f: [k, k] filter,  Y: [m, m]

where `.` is elementwise. With channels, each of the n x n points is one matrix product over the
input channels: 16 outputs of a 3x3 filter take 36 of them instead of 144.

Gradients are JAX's own, the transposes of these steps. Each step is written so that its transpose
runs well too: axes are dealt out and dealt together (`lax.split` and `lax.concatenate` are each
other's transposes, a strided slice would become a scatter), and what is multiplied are matrices,
`[tiles, I]` and `[I, O]` (with more axes, the products for the filters' gradient would first
transpose the larger operand).

The arrays of the n x n points stay apart: as one array the products took a fifth longer.
"""

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from gconv_jax._fusion import apart

Margins = tuple[tuple[int, int], tuple[int, int]]  # zeros around a map: rows, columns
Points = list[list[jax.Array]]  # n x n arrays


class Scheme(NamedTuple):
    """The matrices for m outputs of k taps: `A [m, n]`, `G [n, k]` and `B [n, n]`."""

    a: np.ndarray
    g: np.ndarray
    b: np.ndarray


def cook_toom(m: int, k: int, points: Sequence[float]) -> Scheme:
    """Makes the scheme that multiplies at m + k - 2 given points, and at infinity."""
    n = m + k - 1
    a, g, b = np.zeros((m, n)), np.zeros((n, k)), np.zeros((n, n))
    for p, point in enumerate(points):
        others = np.delete(points, p)
        a[:, p] = point ** np.arange(m)
        g[p] = point ** np.arange(k) / np.prod(point - others)
        b[p, :-1] = np.poly(others)[::-1]
    a[-1, -1] = g[-1, -1] = 1.0
    b[-1] = np.poly(points)[::-1]
    return Scheme(a, g, b)


# With these points the largest error is a quarter of that with the usual 0, 1, -1, 2, -2, and
# their powers are exact in float32. Six points serve 4x4 outputs of 3x3 filters, and 2x2 outputs
# of 5x5 filters (4x4 would take eight points, with an error six times as large).
_POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
SCHEMES = {3: cook_toom(4, 3, _POINTS), 5: cook_toom(2, 5, _POINTS)}


def correlate(x: jax.Array, filters: Points, k: int, margins: Margins) -> jax.Array:
    """Correlates `x` `[B, H, W, I]`, with margins of zeros, and transformed k x k filters."""
    b, h, w, _ = x.shape
    height, width = (n + sum(margin) - k + 1 for n, margin in zip((h, w), margins, strict=True))
    tiles = _tile_rows(_pad(x, k=k, margins=margins), k=k)
    rows = []
    for row, at_points in zip(tiles, filters, strict=True):  # one at a time: its memory is at hand
        points = map(lax.dot, _tile_columns(row, k=k), at_points)
        rows.append(_out_columns(list(points), k=k, batch=b, size=width))
    return _out_rows(rows, k=k, size=height)


@apart
def transform(kernel: jax.Array) -> Points:
    """Transforms filters `[k, k, I, O]` to `G f G^T`, `[I, O]` at each point.

    In one go, each point from all taps: a filter has few of them.
    """
    k, _, *channels = kernel.shape
    g = SCHEMES[k].g
    points = _mix(np.kron(g, g), jnp.unstack(kernel.reshape(k * k, *channels)))
    return [points[p : p + len(g)] for p in range(0, len(points), len(g))]


def _pad(x: jax.Array, *, k: int, margins: Margins) -> jax.Array:
    """Surrounds `x` with its margins, and extends it to whole tiles of m and what they overlap.

    Not apart: what computes `x` writes it here at once.
    """
    m = len(SCHEMES[k].a)
    pads = [(0, 0)]
    for size, (low, high) in zip(x.shape[1:3], margins, strict=True):
        tiles = -(-(low + size + high - k + 1) // m)
        pads.append((low, (tiles + _overlap(k)) * m - low - size))
    return jnp.pad(x, (*pads, (0, 0)))


@apart
def _tile_rows(x: jax.Array, *, k: int) -> list[jax.Array]:
    return _cut(x, k, axis=1)


@apart
def _tile_columns(row: jax.Array, *, k: int) -> list[jax.Array]:
    """One row of `B d B^T`, `[tiles, I]` at each point."""
    channels = row.shape[-1]
    return [point.reshape(-1, channels) for point in _cut(row, k, axis=2)]


@apart
def _out_columns(points: list[jax.Array], *, k: int, batch: int, size: int) -> jax.Array:
    tiles = -(-size // len(SCHEMES[k].a))
    return _join([p.reshape(batch, -1, tiles, p.shape[-1]) for p in points], k, axis=2, size=size)


@apart
def _out_rows(rows: list[jax.Array], *, k: int, size: int) -> jax.Array:
    return _join(rows, k, axis=1, size=size)


def _cut(x: jax.Array, k: int, *, axis: int) -> list[jax.Array]:
    """Cuts an axis into overlapping tiles and applies B: n arrays with one entry a tile."""
    m, n = len(SCHEMES[k].a), len(SCHEMES[k].b)
    blocks = x.shape[axis] // m
    x = x.reshape(*x.shape[:axis], blocks, m, *x.shape[axis + 1 :])
    parts = [part.squeeze(axis + 1) for part in lax.split(x, m * (1,), axis + 1)]
    # Entry i of a tile is part i of its own block, or part i - m of the next, and so on.
    tiles = blocks - _overlap(k)
    entries = [lax.slice_in_dim(parts[i % m], i // m, i // m + tiles, axis=axis) for i in range(n)]
    return _mix(SCHEMES[k].b, entries)


def _join(points: Sequence[jax.Array], k: int, *, axis: int, size: int) -> jax.Array:
    """Applies A to n arrays with one entry a tile, and lays its m outputs along the axis."""
    parts = [lax.expand_dims(part, (axis + 1,)) for part in _mix(SCHEMES[k].a, points)]
    y = lax.concatenate(parts, axis + 1)
    y = y.reshape(*y.shape[:axis], -1, *y.shape[axis + 2 :])
    return lax.slice_in_dim(y, 0, size, axis=axis)


def _mix(matrix: np.ndarray, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Multiplies a matrix with a column of arrays."""

    def times(c: float, x: jax.Array) -> jax.Array:
        return x if c == 1 else lax.mul(x, float(c))

    rows = [[times(c, x) for c, x in zip(row, arrays, strict=True) if c != 0] for row in matrix]
    return [reduce(lax.add, row) for row in rows]


def _overlap(k: int) -> int:
    """How many blocks of m a tile reaches into beyond its own."""
    return -(-(k - 1) // len(SCHEMES[k].a))
