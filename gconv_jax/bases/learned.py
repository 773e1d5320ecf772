"""What descent learns, and how it unfolds to a basis.

| kind | parameters | basis |
|---|---|---|
| `"full"` | all orientations `[G, k^2, k, k]` | the parameters |
| `"partial"` | those in [0, 90) degrees `[G/4, k^2, k, k]` | unfolded by exact quarter turns |
| `"overcomplete"` | all orientations `[G, 3 k^2, k, k]` | the parameters, a tight frame |

Descent finds the nearest valley, so the start decides. Random numbers that know nothing of each
other stay in a wrong component, with an error near 1, and tiny ones collapse to a blur. So `e_0`
starts as a random orthonormal set (three of them for `"overcomplete"`) and the other orientations
as its bilinear rotations: roughly right, and far from singular.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gconv_jax.bases import analytic

KINDS = ("full", "partial", "overcomplete")


def initial_parameters(kind: str, orientations: int, kernel_size: int, seed: int) -> jax.Array:
    """Returns the parameters that descent starts from; see above for the shapes."""
    sets = 3 if kind == "overcomplete" else 1
    # Seeds of different runs must not share a set.
    seeds = np.random.SeedSequence(seed).generate_state(sets)
    e0 = np.concatenate([analytic.random_orthonormal(kernel_size, int(s)) for s in seeds])
    basis = analytic.interpolated(e0, orientations, "bilinear", sigma=0.5)
    kept = basis[: orientations // 4] if kind == "partial" else basis
    return jnp.asarray(kept, jnp.float32)


def unfold_parameters(kind: str, parameters: jax.Array) -> Any:
    """Returns the basis `[G, N, k, k]` that the parameters stand for; differentiable."""
    return analytic.unfold(parameters) if kind == "partial" else parameters
