"""Oracles: slow, obvious NumPy in float64, written from the equations and not from the code."""

import itertools
import math

import numpy as np


def relative_error(actual, expected):
    """The largest difference, relative to the largest expected value."""
    expected = np.asarray(expected, np.float64)
    return np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max()


def rotation_matrix(height, width, angle, method, sigma=0.5):
    """The dense [H*W, H*W] matrix of `rotate`, one output pixel at a time.

    The angle is an exact number of quarter turns plus a remainder in [-45, 45) degrees, and the
    remainder alone is interpolated.
    """
    quarters = math.floor(angle / (math.pi / 2) + 0.5 + 1e-9)
    remainder = angle - quarters * math.pi / 2
    cos, sin = math.cos(remainder), math.sin(remainder)
    if abs(remainder) < 1e-9:
        cos, sin = 1.0, 0.0
    matrix = np.zeros((height * width, height * width))
    for row, column in itertools.product(range(height), range(width)):
        # Coordinates with x to the right and y upwards, from the centre.
        x, y = column - (width - 1) / 2, (height - 1) / 2 - row
        for _ in range(quarters % 4):  # a quarter turn clockwise: (x, y) -> (y, -x)
            x, y = y, -x
        x, y = cos * x + sin * y, cos * y - sin * x  # the remainder, clockwise
        source_row, source_column = (height - 1) / 2 - y, x + (width - 1) / 2
        for (r, a), (c, b) in itertools.product(
            taps(source_row, method, sigma), taps(source_column, method, sigma)
        ):
            if 0 <= r < height and 0 <= c < width:
                matrix[row * width + column, r * width + c] += a * b
    return matrix


def taps(coordinate, method, sigma):
    """The pixels along one axis that a coordinate is interpolated from: (index, weight)."""
    if method == "bilinear":
        first = math.floor(coordinate)
        return [(first, 1 - (coordinate - first)), (first + 1, coordinate - first)]
    nearest = math.floor(coordinate + 0.5 + 1e-9)  # half-way goes up, whatever the last bits say
    indices = (nearest - 1, nearest, nearest + 1)
    weights = [math.exp(-((coordinate - i) ** 2) / (2 * sigma**2)) for i in indices]
    return [(i, w / sum(weights)) for i, w in zip(indices, weights, strict=True)]


def rotate(x, angle, method="bilinear", sigma=0.5):
    """Rotates [..., H, W, C] by the dense matrix."""
    *_, h, w, c = x.shape
    matrix = rotation_matrix(h, w, angle, method, sigma)
    return (matrix @ x.astype(np.float64).reshape(*x.shape[:-3], h * w, c)).reshape(x.shape)


def rotated_filters(coeffs, basis):
    """sum_i coeffs[i] e[R, i] for every R: [N], [G, N, k, k] -> [G, k, k]."""
    return sum(coeffs[i] * basis[:, i] for i in range(len(coeffs)))


def correlate(image, kernel, strides, padding):
    """Cross-correlation of one channel [H, W] with one filter [k, k]."""
    k = len(kernel)
    out_sizes, margins = [], []
    for size in image.shape:
        if padding == "SAME":
            out = math.ceil(size / strides)
            total = max((out - 1) * strides + k - size, 0)
            margins.append((total // 2, total - total // 2))
        else:
            out = (size - k) // strides + 1
            margins.append((0, 0))
        out_sizes.append(out)
    padded = np.pad(image, margins)
    out = np.zeros(out_sizes)
    for row, column in itertools.product(*map(range, out_sizes)):
        top, left = row * strides, column * strides
        out[row, column] = (padded[top : top + k, left : left + k] * kernel).sum()
    return out


def lift_conv(x, coeffs, basis, strides=1, padding="SAME"):
    """Equation "lift", one output channel and orientation at a time."""
    batch, _, _, c_in = x.shape
    g, c_out = len(basis), coeffs.shape[-1]
    out = {}
    for b, r, o in itertools.product(range(batch), range(g), range(c_out)):
        out[b, r, o] = sum(
            correlate(x[b, :, :, c], rotated_filters(coeffs[:, c, o], basis)[r], strides, padding)
            for c in range(c_in)
        )
    return _stack(out, batch, g, c_out)


def group_conv(y, coeffs, basis, strides=1, padding="SAME"):
    """Equation "group", one output channel and orientation at a time."""
    batch, _, _, g, c_in = y.shape
    c_out = coeffs.shape[-1]
    out = {}
    for b, r, o in itertools.product(range(batch), range(g), range(c_out)):
        out[b, r, o] = sum(
            correlate(
                y[b, :, :, s, c],
                rotated_filters(coeffs[(s - r) % g, :, c, o], basis)[r],
                strides,
                padding,
            )
            for s, c in itertools.product(range(g), range(c_in))
        )
    return _stack(out, batch, g, c_out)


def _stack(maps, batch, g, c_out):
    h, w = maps[0, 0, 0].shape
    out = np.zeros((batch, h, w, g, c_out))
    for (b, r, o), image in maps.items():
        out[b, :, :, r, o] = image
    return out
