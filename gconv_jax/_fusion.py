"""Where XLA on CPU must not fuse."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

_P = ParamSpec("_P")
_T = TypeVar("_T")


def apart(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a function a call that XLA does not inline: its results are stored, once.

    Otherwise XLA on CPU fuses what is cheap into each of its readers, which compute it anew: the
    first step of a Winograd transform has six readers, each of those six more. Fused, a training
    step takes three times as long. (`lax.optimization_barrier` is no help: it is dropped before
    fusion. The branch of a `lax.cond` is not fused across either, but runs on one thread.)

    For code that is lowered for CPU only. Keyword-only arguments are static.
    """
    parameters = inspect.signature(function).parameters.values()
    compiled = jax.jit(
        function, static_argnames=[p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    )

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with set_xla_metadata(inlineable="false"):
            return compiled(*args, **kwargs)

    return call


def stored(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """The same for code that is lowered for any platform: apart on CPU, as it is elsewhere."""
    on_cpu = apart(function)

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        ways = {"cpu": partial(on_cpu, **kwargs), "default": partial(function, **kwargs)}
        out: _T = lax.platform_dependent(*args, **ways)
        return out

    return call
