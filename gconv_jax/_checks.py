"""The sentences that bad input gets: which argument, what was expected, what came, what to do."""

import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a `value` that is none of the `choices`, and list them."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, but got {value!r}.")


def as_int(name: str, value: Any, *, least: int = 1) -> int:
    """Returns a whole number of any integer type, at least `least`, as a Python integer."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"{name} must be {kind}, but got {value!r}.")
    return number


def as_orientations(name: str, value: Any) -> int:
    """Returns a number of orientations, which must contain the quarter turns."""
    g = as_int(name, value, least=0)
    if g < 4 or g % 4:
        raise ValueError(
            f"{name} must be a multiple of 4 so that quarter turns stay exact, but got {g}; "
            f"the nearest that works is {max(4, 4 * round(g / 4))}."
        )
    return g


def as_kernel_size(name: str, value: Any) -> int:
    """Returns a kernel size, which must be odd."""
    k = as_int(name, value)
    if k % 2 == 0:
        raise ValueError(
            f"{name} must be odd so that the kernel has a centre pixel, but got {k}; "
            f"use {k - 1} or {k + 1}."
        )
    return k


def check_positive(name: str, value: Any) -> None:
    """Refuse anything but a finite number above zero; a traced one passes."""
    if isinstance(value, jax.core.Tracer) and value.shape == ():
        return
    try:
        number = float("nan") if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < float("inf"):
        raise ValueError(f"{name} must be positive, a finite number, but got {value!r}.")


def check_dtype(name: str, dtype: DTypeLike) -> None:
    """Refuse a dtype that is not floating-point of 16 bits or more."""
    try:
        floating = _is_floating(jnp.dtype(dtype))
    except TypeError:
        floating = False
    if not floating:
        raise ValueError(
            f"{name} must be a floating-point dtype such as jnp.float32, but got {dtype!r}."
        )


def _is_floating(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating)) and np.dtype(dtype).itemsize >= 2


def as_floating(name: str, x: ArrayLike, axes: str, *, advice: str = "") -> jax.Array:
    """Returns `x` as a real floating-point array whose rank is that of `axes`, as in `"[B, H, W]"`.

    A leading `...` in `axes` stands for any number of axes.
    """
    try:
        array = jnp.asarray(None if isinstance(x, str) else x)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be an array {axes}, but got {type(x).__name__} {str(x)[:40]!r}{advice}."
        ) from None
    wanted = axes.strip("[]").split(", ")
    least = len(wanted) - ("..." in wanted)
    if array.ndim < least or (array.ndim > least and "..." not in wanted):
        raise ValueError(f"{name} must have shape {axes}, but got shape {array.shape}.")
    if not _is_floating(array.dtype):
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


def as_basis(basis: ArrayLike, name: str = "basis") -> jax.Array:
    """Returns `basis` as an array `[G, N, k, k]` with G a multiple of 4 and k odd."""
    made = "; make one, as in gconv_jax.make_basis('weiler')"
    array = as_floating(name, basis, "[G, N, k, k]", advice=made)
    g, _, height, width = array.shape
    as_orientations(f"{name}.shape[0], the number of orientations G,", g)
    if height != width:
        raise ValueError(
            f"{name} must have square filters [G, N, k, k], but got shape {array.shape}."
        )
    as_kernel_size(f"{name}.shape[-1], the kernel size k,", width)
    return array
