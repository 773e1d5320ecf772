"""Rotation-equivariant convolutions in JAX: filters are coefficients times a basis that rotates."""

from gconv_jax import data
from gconv_jax.bases import (
    basis_card,
    basis_quality,
    equivariance_loss,
    load_basis,
    make_basis,
    orthogonality_loss,
    reconstruction_loss,
    save_basis,
    solve_basis,
)
from gconv_jax.conv import filter_bank, group_conv, lift_conv
from gconv_jax.equivariance import assert_equivariant, equivariance_error
from gconv_jax.folding import fold
from gconv_jax.layers import GroupConv, LiftConv
from gconv_jax.models import AllCNN, GroupAllCNN
from gconv_jax.orientations import act, pool_orientations, roll
from gconv_jax.rotation import rotate
from gconv_jax.training.trained import restore

__version__ = "0.1.0"

__all__ = [
    "AllCNN",
    "GroupAllCNN",
    "GroupConv",
    "LiftConv",
    "act",
    "assert_equivariant",
    "basis_card",
    "basis_quality",
    "data",
    "equivariance_error",
    "equivariance_loss",
    "filter_bank",
    "fold",
    "group_conv",
    "lift_conv",
    "load_basis",
    "make_basis",
    "orthogonality_loss",
    "pool_orientations",
    "reconstruction_loss",
    "restore",
    "roll",
    "rotate",
    "save_basis",
    "solve_basis",
]
