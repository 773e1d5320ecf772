"""Rotation-equivariant convolutions in JAX: filters are coefficients times a basis that rotates."""

from gconv_jax import data
from gconv_jax.bases import make_basis
from gconv_jax.conv import filter_bank, group_conv, lift_conv
from gconv_jax.equivariance import assert_equivariant, equivariance_error
from gconv_jax.layers import GroupConv, LiftConv
from gconv_jax.models import AllCNN, GroupAllCNN
from gconv_jax.orientations import act, pool_orientations, roll
from gconv_jax.rotation import rotate

__version__ = "0.1.0"

__all__ = [
    "AllCNN",
    "GroupAllCNN",
    "GroupConv",
    "LiftConv",
    "act",
    "assert_equivariant",
    "data",
    "equivariance_error",
    "filter_bank",
    "group_conv",
    "lift_conv",
    "make_basis",
    "pool_orientations",
    "roll",
    "rotate",
]
