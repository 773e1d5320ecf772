"""The paper's two networks (appendix, table "Architecture"), alike but for the symmetry.

Nine convolutions, each followed by batch norm and ReLU, with 2x2 max pooling after the third and
the sixth; then the maximum over all positions (and orientations), and a linear layer.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.typing import ArrayLike, DTypeLike

from gconv_jax import _checks
from gconv_jax._dtypes import sum_dtype
from gconv_jax.correlate import correlate
from gconv_jax.layers import GroupConv, LiftConv, NormReLU

# Makes and applies one convolution: (x, features, whether it is 1x1, name) -> feature map.
_MakeConv = Callable[[jax.Array, int, bool, str], jax.Array]


class _NineConvs(nn.Module):
    num_classes: int = 10
    widths: tuple[int, int] = (96, 192)
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    axis_name: str | None = None
    plain: bool = False

    def _classify(self, images: ArrayLike, conv: _MakeConv, *, train: bool) -> jax.Array:
        x = _checks.as_floating("x", images, "[B, H, W, C_in]")
        if min(x.shape[1:3]) < 4:
            raise ValueError(
                f"x must be at least 4 x 4 pixels to be pooled twice, but got shape {x.shape}."
            )
        num_classes = _checks.as_int("num_classes", self.num_classes)
        if not isinstance(self.widths, tuple | list) or len(self.widths) != 2:
            raise ValueError(f"widths must be two numbers of channels, but got {self.widths!r}.")
        narrow, wide = (_checks.as_int("widths", width) for width in self.widths)
        features = 3 * [narrow] + 6 * [wide]
        for i in range(1, 10):
            x = conv(x, features[i - 1], i > 7, f"conv{i}")
            norm = NormReLU(
                pool=i in (3, 6),
                param_dtype=self.param_dtype,
                axis_name=self.axis_name,
                name=f"norm{i}",
            )
            x = norm(x, train=train)
        # By index: the gradient of `max` looks for the maximum by equality, and loses it where XLA
        # computes `x` anew with other rounding.
        x = x.reshape(len(x), -1, x.shape[-1])
        x = jnp.take_along_axis(x, x.argmax(axis=1, keepdims=True), axis=1)[:, 0]  # [B, C]
        # Maxima are large, and logits begin small: else the first gradients are by far the largest,
        # and AMSGrad divides by them for good.
        head = nn.Dense(
            num_classes,
            kernel_init=nn.initializers.variance_scaling(0.01, "fan_in", "normal"),
            dtype=sum_dtype(x.dtype),
            param_dtype=self.param_dtype,
            name="head",
        )
        return head(x)


class _Conv(nn.Module):
    """`nn.Conv` with its defaults, without bias, through `correlate`: fast on CPU too."""

    features: int
    kernel_size: int
    dtype: DTypeLike | None
    param_dtype: DTypeLike
    plain: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        shape = (self.kernel_size, self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, self.param_dtype)
        x = x.astype(self.dtype or jnp.promote_types(x.dtype, self.param_dtype))
        plain = self.plain or self.is_initializing()  # what runs once had better compile quickly
        return correlate(x, kernel, strides=1, padding="SAME", plain=plain)


class AllCNN(_NineConvs):
    """The translational network: ordinary 3x3 convolutions, 1,408,234 parameters on 3 channels.

    Attributes:
      num_classes: number of logits.
      widths: channels of the first three convolutions, and of the other six.
      dtype: to compute in; by default that of the input and the parameters together.
      param_dtype: of the parameters.
      axis_name: of the mapped axis of devices over which batch norm takes its statistics, when it
        trains on several; none by default.
      plain: whether to use XLA's convolution on CPU too, which trains slower there.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> net, images = gj.AllCNN(widths=(4, 8)), jnp.ones((2, 8, 8, 3))
      >>> variables = net.init(jax.random.key(0), images)
      >>> net.apply(variables, images).shape
      (2, 10)

    """

    @nn.compact
    def __call__(self, x: ArrayLike, *, train: bool = False) -> jax.Array:
        """Maps images `[B, H, W, C]` to logits `[B, num_classes]`, in float32 or better.

        With `train=True` batch norm uses the batch's statistics and updates its running ones: pass
        `mutable=["batch_stats"]` to `apply`.
        """

        def conv(x: jax.Array, features: int, pointwise: bool, name: str) -> jax.Array:
            k = 1 if pointwise else 3
            return _Conv(features, k, self.dtype, self.param_dtype, self.plain, name=name)(x)

        return self._classify(x, conv, train=train)


class GroupAllCNN(_NineConvs):
    """The roto-translational network: 1,360,029 parameters on 3 channels, whatever the G = 8 basis.

    With a basis that is exact at quarter turns its logits do not change when a square image of
    a size divisible by 4 is turned by a quarter. (Pooling an odd size drops its last row and
    column, which turns would move elsewhere.)

    The output of every convolution can be captured by name, `conv1` to `conv9`:

        def convs(module, method):
            return (module.name or "").startswith("conv")

        logits, state = net.apply(
            variables, images, basis, capture_intermediates=convs, mutable=["intermediates"]
        )
        y = state["intermediates"]["conv6"]["__call__"][0]  # [B, H, W, G, C]

    Attributes:
      num_classes: number of logits.
      widths: channels, each at every orientation, of the first three convolutions and of the
        other six.
      dtype: to compute in; by default that of the input and the parameters together.
      param_dtype: of the parameters.
      axis_name: of the mapped axis of devices over which batch norm takes its statistics, when it
        trains on several; none by default.
      plain: whether to use XLA's convolution on CPU too, which trains slower there.

    Example:
      >>> import jax, jax.numpy as jnp, gconv_jax as gj
      >>> images, basis = jnp.ones((2, 8, 8, 3)), gj.make_basis("weiler")
      >>> net = gj.GroupAllCNN(widths=(2, 4))
      >>> variables = net.init(jax.random.key(0), images, basis)
      >>> net.apply(variables, images, basis).shape
      (2, 10)

    """

    widths: tuple[int, int] = (33, 67)

    @nn.compact
    def __call__(self, x: ArrayLike, basis: ArrayLike, *, train: bool = False) -> jax.Array:
        """Maps images `[B, H, W, C]` and a basis `[G, N, k, k]` to logits `[B, num_classes]`.

        Logits are float32 or better, whatever `dtype` is.

        With `train=True` batch norm uses the batch's statistics and updates its running ones: pass
        `mutable=["batch_stats"]` to `apply`.
        """
        basis = _checks.as_basis(basis)

        def conv(x: jax.Array, features: int, pointwise: bool, name: str) -> jax.Array:
            layer: Callable[..., nn.Module] = LiftConv if x.ndim == 4 else GroupConv
            return layer(
                features,
                1 if pointwise else basis.shape[-1],
                dtype=self.dtype,
                param_dtype=self.param_dtype,
                plain=self.plain,
                name=name,
            )(x, None if pointwise else basis)

        return self._classify(x, conv, train=train)
