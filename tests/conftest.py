import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import settings

# The suite compiles thousands of small programs and runs each of them once or twice: compile them
# quickly rather than well. For programs as a user gets them, in half as much time again:
# XLA_FLAGS=--xla_backend_optimization_level=3 make test
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes the first example slow, and a failure must be seen again by the next person.
settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="module")
def drop_programs():
    """Every compiled program maps memory of its own, and Linux allows a process 65,530 mappings."""
    yield
    jax.clear_caches()


@pytest.fixture
def say(monkeypatch, capfd):
    """Runs a command of experiments/ in this process; returns its exit code and what it said."""

    def run(module, *options):
        monkeypatch.setattr(module, "tune", lambda: None)  # it is for a process of its own
        monkeypatch.setattr(sys, "argv", ["command", *map(str, options)])
        code = module.run()
        said = capfd.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def run_python():
    """Runs a script in a fresh interpreter where warnings are errors; returns what it printed."""

    def run(script, *arguments, python=sys.executable, cwd=None, **environment):
        done = subprocess.run(
            [python, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)],
            env=os.environ | environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
