"""Pictures of bases, as in the paper's appendix: arrays -> files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import gconv_jax as gj
from gconv_jax.bases.losses import reconstruct
from gconv_jax.bases.turned import turn

mpl.use("Agg")

_SIGNED = "RdBu_r"  # zero is white


def draw_basis(folder: Path, name: str, basis: jax.Array, images: np.ndarray) -> list[Path]:
    """Draws a basis, what it reconstructs, and how it rotates a filter; returns the files."""
    g, _, k, _ = basis.shape
    options: dict[str, Any] = {"orientations": g, "kernel_size": k}
    others = {n: gj.make_basis(n, **options) for n in ("weiler",)} | {
        n: gj.make_basis(n, e0=basis[0], **options) for n in ("gaussian", "bilinear")
    }
    drawn = {
        "basis.png": elements(basis, f"{name} basis: elements across, orientations down"),
        "reconstructions.png": reconstructions(basis, images[:6]),
        "rotations.png": rotations({name: basis} | others),
    }
    for file, figure in drawn.items():
        figure.savefig(folder / file, dpi=150, bbox_inches="tight", facecolor="white")
    return [folder / file for file in drawn]


def elements(basis: jax.Array, title: str, most: int = 27) -> Figure:
    """All orientations, each a row, of the first `most` elements."""
    e = np.asarray(basis)[:, :most]
    g, n, k, _ = e.shape
    gap = max(1, round(0.3 * k))
    canvas = np.full((g * (k + gap) - gap, n * (k + gap) - gap), np.nan)
    for row, column in np.ndindex(g, n):
        top, left = row * (k + gap), column * (k + gap)
        canvas[top : top + k, left : left + k] = e[row, column]
    figure = Figure(figsize=(0.25 + 0.55 * n, 0.35 + 0.55 * g))
    axes = figure.add_axes((0, 0, 1, 1))
    limit = np.abs(e).max()
    axes.imshow(canvas, cmap=_SIGNED, vmin=-limit, vmax=limit)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_yticks([r * (k + gap) + (k - 1) / 2 for r in range(g)])
    axes.set_yticklabels([f"{360 * r / g:g}°" for r in range(g)], fontsize=8)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def reconstructions(basis: jax.Array, images: np.ndarray) -> Figure:
    """Input, turned target, reconstruction from turned responses, and their difference."""
    g = len(basis)
    x = jnp.asarray(images)
    s = 1 + jnp.arange(len(x)) % (g - 1)
    target = turn(x, s, g)
    rebuilt = reconstruct(basis, x, s, jnp.zeros_like(s))
    difference = jnp.abs(target - rebuilt)
    h = x.shape[1]
    inside = slice(h // 4, h - h // 4)  # where the loss looks
    scale = float(difference[:, inside, inside].max())
    figure = Figure(figsize=(4 * 1.35, 1.35 * len(x)))
    axes = figure.subplots(len(x), 4, squeeze=False, gridspec_kw={"wspace": 0.05, "hspace": 0.05})
    columns = ("input", "target", "reconstruction", f"difference × {1 / scale:.0f}")
    for row, (image, t, r, d) in enumerate(zip(x, target, rebuilt, difference, strict=True)):
        low, high = float(image.min()), float(image.max())
        framed = np.full(d.shape, 0.9)
        framed[inside, inside] = d[inside, inside] / scale
        pictures = [*((v - low) / (high - low) for v in (image, t, r)), framed]
        for column, picture in enumerate(pictures):
            cell = axes[row, column]
            cell.imshow(np.clip(np.asarray(picture), 0, 1))
            cell.set_xticks([])
            cell.set_yticks([])
            if row == 0:
                cell.set_title(columns[column], fontsize=9)
        axes[row, 0].set_ylabel(f"{360 * int(s[row]) / g:g}°", fontsize=9)
    return figure


def rotations(bases: Mapping[str, jax.Array], seed: int = 0) -> Figure:
    """One random filter around the circle, as each basis rotates it."""
    [k] = {basis.shape[-1] for basis in bases.values()}
    [g] = {len(basis) for basis in bases.values()}
    wanted = np.random.default_rng(seed).normal(size=k * k)
    figure = Figure(figsize=(0.75 * g + 1, 0.8 * len(bases)))
    axes = figure.subplots(len(bases), g, squeeze=False, gridspec_kw={"wspace": 0.1, "hspace": 0.1})
    limit = np.abs(wanted).max()
    for row, (name, basis) in enumerate(bases.items()):
        e = np.asarray(basis, np.float64).reshape(g, -1, k * k)
        coeffs = wanted @ np.linalg.pinv(e[0])  # the filter at orientation 0, in this basis
        for r in range(g):
            cell = axes[row, r]
            cell.imshow((coeffs @ e[r]).reshape(k, k), cmap=_SIGNED, vmin=-limit, vmax=limit)
            cell.set_xticks([])
            cell.set_yticks([])
            if row == 0:
                cell.set_title(f"{360 * r / g:g}°", fontsize=8)
        axes[row, 0].set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
    return figure
