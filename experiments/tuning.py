"""What a program may set for its whole process, and a library may not: `tune()` comes first."""

import os
from pathlib import Path

import jax

from experiments.memory import keep_memory

_FLAGS = {
    # Programs are many short loops around library calls: compiled at this level they take as long
    # as at the highest, and a quarter less to compile.
    "xla_backend_optimization_level": 1,
    # As wide as the widest CPUs go; by default it is half of that.
    "xla_cpu_prefer_vector_width": 512,
    # Sums by the library that is quick at them. By default it does products too, which on two
    # threads the other way does faster.
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE",
}


def tune(*, threads: int | None = None) -> None:
    """Keeps freed memory and compiled programs; to be called before any device is woken.

    Programs are kept in `~/.cache/gconv_jax/compiled`, or where `JAX_COMPILATION_CACHE_DIR` says,
    so that a second run starts in seconds. XLA on CPU takes as many threads as there are cores, or
    as it is told to.
    """
    keep_memory()
    tune_cpu()
    if threads is not None:
        os.environ["NPROC"] = str(threads)  # XLA's own name for it
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(home / "gconv_jax" / "compiled"))


def tune_cpu() -> None:
    """Sets how XLA compiles and starts programs on CPU; what `XLA_FLAGS` says goes first."""
    said = os.environ.get("XLA_FLAGS", "")
    ours = [f"--{name}={value}" for name, value in _FLAGS.items() if name not in said]
    os.environ["XLA_FLAGS"] = " ".join([*ours, said]).strip()
    # A program's memory is then asked for by the main thread, whose freed memory is kept.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
