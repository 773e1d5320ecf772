import jax
import numpy as np
import pytest
from hypothesis import settings

jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes the first example slow, and a failure must be seen again by the next person.
settings.register_profile("suite", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("suite")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield
