"""What a program may set for its whole process, and a library may not: `tune()` comes first."""

import os
from pathlib import Path

import jax

from experiments.memory import keep_memory

# Programs are many short loops around library calls: compiled at this level they take as long as at
# the highest, and a quarter less to compile.
_QUICKLY = "--xla_backend_optimization_level=1"


def tune(*, threads: int | None = None) -> None:
    """Keeps freed memory and compiled programs; to be called before any device is woken.

    Programs are kept in `~/.cache/gconv_jax/compiled`, or where `JAX_COMPILATION_CACHE_DIR` says,
    so that a second run starts in seconds. What `XLA_FLAGS` says goes first. XLA on CPU takes as
    many threads as there are cores, or as it is told to.
    """
    keep_memory()
    compile_quickly()
    if threads is not None:
        os.environ["NPROC"] = str(threads)  # XLA's own name for it
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "gconv_jax" / "compiled"))


def compile_quickly() -> None:
    """Asks XLA for less work on each program, unless the user asks for something else."""
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{_QUICKLY} {flags}".strip()
