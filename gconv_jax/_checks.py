"""The sentences that bad input gets: which argument, what was expected, what came, what to do."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a `value` that is none of the `choices`, and list them."""
    choices = tuple(choices)
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, but got {value!r}.")


def check_positive_int(name: str, value: object) -> None:
    """Refuse anything but a Python integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, but got {value!r}.")


def check_orientations(name: str, g: int) -> None:
    """Refuse a number of orientations that does not contain the quarter turns."""
    if g < 4 or g % 4:
        raise ValueError(
            f"{name} must be a multiple of 4 so that quarter turns stay exact, but got {g}; "
            f"the nearest that works is {max(4, 4 * round(g / 4))}."
        )


def as_floating(name: str, x: ArrayLike, axes: str) -> jax.Array:
    """Returns `x` as a real floating-point array whose rank is that of `axes`, as in `"[B, H, W]"`.

    A leading `...` in `axes` stands for any number of axes.
    """
    array = jnp.asarray(x)
    wanted = axes.strip("[]").split(", ")
    least = len(wanted) - ("..." in wanted)
    if array.ndim < least or (array.ndim > least and "..." not in wanted):
        raise ValueError(f"{name} must have shape {axes}, but got shape {array.shape}.")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(
            f"{name} must be floating-point, but got {array.dtype}; "
            f"convert it first, as in {name}.astype(jnp.float32)."
        )
    return array


def check_agree(what: str, **sides: tuple[jax.Array, int]) -> None:
    """Refuse two arrays, given as `name=(array, axis)`, whose axes differ in length."""
    (first, (a, i)), (second, (b, j)) = sides.items()
    if a.shape[i] != b.shape[j]:
        raise ValueError(
            f"{first} and {second} must agree on {what}, but {first} has {a.shape[i]} "
            f"(shape {a.shape}) and {second} has {b.shape[j]} (shape {b.shape})."
        )


def check_kernel_size(name: str, k: object) -> None:
    """Refuse a kernel without a centre pixel."""
    check_positive_int(name, k)
    assert isinstance(k, int)
    if k % 2 == 0:
        raise ValueError(
            f"{name} must be odd so that the kernel has a centre pixel, but got {k}; "
            f"use {k - 1} or {k + 1}."
        )


def check_basis(basis: ArrayLike, name: str = "basis") -> jax.Array:
    """Returns `basis` as an array `[G, N, k, k]` with G a multiple of 4 and k odd."""
    array = as_floating(name, basis, "[G, N, k, k]")
    g, _, height, width = array.shape
    check_orientations(f"{name}.shape[0], the number of orientations G,", g)
    if height != width:
        raise ValueError(
            f"{name} must have square filters [G, N, k, k], but got shape {array.shape}."
        )
    check_kernel_size(f"{name}.shape[-1], the kernel size k,", width)
    return array
