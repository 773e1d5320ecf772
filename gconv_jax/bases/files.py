"""Bases on disk: plain `.npz` without pickles, each with a card that says how it was made."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from gconv_jax import _checks

FORMAT = "gconv_jax basis 1"
PRETRAINED = ("partial", "full", "overcomplete", "closed_form")

_FOLDER = resources.files("gconv_jax.bases") / "pretrained"


def save_basis(path: str | os.PathLike[str], basis: ArrayLike, *, card: Mapping[str, Any]) -> None:
    """Saves a basis with its card, whole or not at all.

    The file is an `.npz` of three arrays, readable without this package: `format` and `card` are
    strings (the card is JSON), `basis` is float32 `[G, N, k, k]`.

    Args:
      path: of the file, which ends in `.npz`; one that is there is replaced.
      basis: `[G, N, k, k]`, finite.
      card: how it was made and what was measured; anything that JSON can hold.

    Example:
      >>> import tempfile, gconv_jax as gj
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = f"{folder}/mine.npz"
      ...     gj.save_basis(path, gj.make_basis("weiler"), card={"made_by": "make_basis"})
      ...     gj.load_basis(path).shape, gj.basis_card(path)["made_by"]
      ((8, 9, 3, 3), 'make_basis')

    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"path must end in .npz, but got {str(path)!r}.")
    if not path.parent.is_dir():
        raise ValueError(f"path must be in a folder that is there, but got {str(path)!r}.")
    array = np.asarray(_checks.as_basis(basis), np.float32)
    if not np.isfinite(array).all():
        raise ValueError("basis must be finite, but it has NaN or infinity in it.")
    try:
        text = json.dumps(dict(card), indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"card must be what JSON can hold, but {error}.") from None
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, format=np.array(FORMAT), card=np.array(text), basis=array)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def load_basis(
    name: str | os.PathLike[str],
    *,
    orientations: int = 8,
    kernel_size: int = 3,
    dtype: DTypeLike = jnp.float32,
) -> jax.Array:
    """Loads a basis that ships with the package, or one that `save_basis` wrote.

    - `"partial"`, `"full"`, `"overcomplete"`: learned by descent on the paper's three losses, for 8
      orientations and 3x3.
    - `"closed_form"`: exactly unitary, solved by `solve_basis`; for 8 and 16 orientations in 3x3,
      5x5 and 7x7, and for 4 and 12 orientations in 3x3.

    Args:
      name: one of the names above, or the path of an `.npz` file.
      orientations: G, of the one that ships; a file has its own.
      kernel_size: k, likewise.
      dtype: of the result.

    Returns:
      Basis `[G, N, k, k]`.

    Example:
      >>> import gconv_jax as gj
      >>> gj.load_basis("partial").shape
      (8, 9, 3, 3)
      >>> gj.load_basis("closed_form", orientations=16, kernel_size=5).shape
      (16, 25, 5, 5)

    """
    return jnp.asarray(_read(name, orientations, kernel_size)[0], dtype)


def basis_card(
    name: str | os.PathLike[str], *, orientations: int = 8, kernel_size: int = 3
) -> dict[str, Any]:
    """Returns the card of a basis: how it was made, and what was measured.

    Args:
      name: of a basis that ships, or the path of a file, as for `load_basis`.
      orientations: G, of the one that ships.
      kernel_size: k, likewise.

    Returns:
      What was given to `save_basis` as its card.

    Example:
      >>> import gconv_jax as gj
      >>> gj.basis_card("closed_form")["quality"]["condition_number"] < 1.0001
      True

    """
    return _read(name, orientations, kernel_size)[1]


def shipped_file(name: str, orientations: int, kernel_size: int) -> str:
    """Returns the file name of a basis that ships."""
    return f"{name}_g{orientations}_k{kernel_size}.npz"


def _read(
    name: str | os.PathLike[str], orientations: int, kernel_size: int
) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    if name in PRETRAINED:
        source: Any = _FOLDER / shipped_file(str(name), orientations, kernel_size)
        if not source.is_file():
            there = sorted(
                p.name.removesuffix(".npz") for p in _FOLDER.iterdir() if f"{name}_g" in p.name
            )
            raise ValueError(
                f"{name!r} does not ship for orientations = {orientations} and kernel_size = "
                f"{kernel_size}, only as {', '.join(there)}; make it with `make pretrain` or "
                "solve_basis."
            )
    else:
        source = Path(name)
        if not source.is_file():
            listed = ", ".join(map(repr, PRETRAINED))
            raise ValueError(
                f"name must be one of {listed} or the path of an .npz file, but got {str(name)!r}, "
                "and no such file is there."
            )
    return _parse(source)


def _parse(source: Any) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    advice = "get it anew, or make one with save_basis."
    try:
        with source.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            contents = {key: arrays[key] for key in arrays.files}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{source} is not a whole .npz file ({error}); {advice}") from None
    if set(contents) != {"format", "card", "basis"} or str(contents["format"]) != FORMAT:
        raise ValueError(
            f"{source} is not a basis of this library ({FORMAT!r}): it holds "
            f"{', '.join(sorted(contents)) or 'nothing'}; {advice}"
        )
    _checks.as_basis(contents["basis"], f"the basis in {source}")
    if not np.isfinite(contents["basis"]).all():
        raise ValueError(f"the basis in {source} has NaN or infinity in it; {advice}")
    return contents["basis"], json.loads(str(contents["card"]))
