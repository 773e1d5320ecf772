"""What a program may set for its whole process, and a library may not: `tune()` comes first."""

import os
from pathlib import Path

import jax

from experiments.memory import keep_memory


def tune() -> None:
    """Keeps freed memory and compiled programs; to be called before any device is woken.

    Programs are kept in `~/.cache/gconv_jax/compiled`, or where `JAX_COMPILATION_CACHE_DIR` says,
    so that a second run starts in seconds.
    """
    keep_memory()
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "gconv_jax" / "compiled"))
