"""Q-networks as pairs of pure functions.

A `Network` is `init(key) -> params` and `apply(params, obs) -> q`; parameters are nested dictionaries of float32
arrays. Convolution weights keep the standard layout `[height, width, in, out]`, whatever `apply` does with them: here
a convolution is one matrix product with all patches, the minibatch along the last axis, so that a patch's row is copied
as one piece, on the way back too. On a CPU that is faster than XLA's own convolutions, but for one observation alone.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import Scale
from softbellman.learning.parts.heads import Linear, Output

Params = dict[str, dict[str, jax.Array]]


class Network(NamedTuple):
    """A Q-network.

    Attributes:
        init: `init(key) -> params`; the key is consumed.
        apply: `apply(params, obs) -> q`, from `[B, *obs_shape]` to `[B, A]` float32; to `[B, A, outputs]` if an
            estimate needs several outputs for each action.
        last_layer: name of the layer whose weights the gradient statistics look at.
        perturb: `perturb(params, key) -> params` with noise on the weights; the key is consumed. None: there is none.
        outputs: the layers that outputs are a sum of, one of them not centred; empty: the last layer alone.
    """

    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, jax.Array], jax.Array]
    last_layer: str
    perturb: Callable[[Params, jax.Array], Params] | None = None
    outputs: tuple[Output, ...] = ()


class Init(NamedTuple):
    """How a layer starts: weights uniform on `+-sqrt(gain / fan_in)`, biases constant or drawn as the weights are.

    Attributes:
        gain: 3 for He-uniform with unit gain (Lasagne's, the authors'), 1 for PyTorch's and Torch7's default.
        bias: the constant (0.1 in the authors' code), or None to draw them.
    """

    gain: float
    bias: float | None


LASAGNE = Init(gain=3.0, bias=0.1)
TORCH = Init(gain=1.0, bias=None)

_FILTER = 3  # side of MinAtar's filters
_LINEAR = Linear()


def _init_layers(shapes: Mapping[str, Sequence[int]], init: Init) -> Callable[[jax.Array], Params]:
    """Returns what draws all layers; the last axis of a shape is the output, the others together are the fan-in.

    All numbers come from one draw: XLA compiles a generator for each, which takes it a second.
    """
    arrays: dict[tuple[str, str], tuple[tuple[int, ...], float]] = {}
    for layer, shape in shapes.items():
        bound = (init.gain / math.prod(shape[:-1])) ** 0.5
        arrays[layer, "w"] = (tuple(shape), bound)
        if init.bias is None:
            arrays[layer, "b"] = (tuple(shape[-1:]), bound)

    def init_params(key: jax.Array) -> Params:
        ends = list(itertools.accumulate(math.prod(shape) for shape, _ in arrays.values()))
        parts = jnp.split(jax.random.uniform(key, (ends[-1],), minval=-1.0), ends[:-1])
        params: Params = {layer: {} for layer in shapes}
        for ((layer, name), (shape, bound)), part in zip(arrays.items(), parts, strict=True):
            params[layer][name] = bound * part.reshape(shape)
        if init.bias is not None:
            for layer, shape in shapes.items():
                params[layer]["b"] = jnp.full(shape[-1:], init.bias, jnp.float32)
        return params

    return init_params


def _expect_shape(obs: Any, shape: tuple[int, ...]) -> None:
    if tuple(obs.shape[1:]) != shape:
        raise ValueError(
            f"this network takes observations of shape [batch, {', '.join(map(str, shape))}], got {list(obs.shape)}; "
            "frames come first, planes last."
        )


def mlp(
    obs_shape: Sequence[int],
    num_actions: int,
    hidden: Sequence[int] = (128, 128),
    init: Init = TORCH,
    scale: Scale = 1.0,
    head: Linear = _LINEAR,
    outputs: int | None = None,
) -> Network:
    """Builds a multilayer perceptron with ReLU; without hidden layers it is linear.

    Args:
        obs_shape: shape of one observation; it is flattened.
        num_actions: `A`.
        hidden: widths of the hidden layers.
        init: how the layers start.
        scale: what observations are divided by; see `HostEnv.obs_scale`.
        head: what the hidden layers and the last one make up.
        outputs: of each action; None: one, without an axis.

    Returns:
        A network from `[B, *obs_shape]` to `[B, A]`.
    """
    widths = {f"dense_{i + 1}": width for i, width in enumerate(hidden)}
    shapes = head.shapes(math.prod(obs_shape), widths, num_actions * (outputs or 1), outputs or 1)

    def apply(params: Params, obs: jax.Array) -> jax.Array:
        _expect_shape(obs, tuple(obs_shape))
        return head.apply(params, _scaled(obs, scale).reshape(obs.shape[0], -1), widths, outputs)

    return Network(_init_layers(shapes, init), apply, "q", outputs=head.outputs)


def nature_cnn(
    num_actions: int,
    init: Init = LASAGNE,
    scale: Scale = 255.0,
    head: Linear = _LINEAR,
    outputs: int | None = None,
) -> Network:
    """Builds the network of Mnih et al. 2015: three convolutions and 512 units.

    `84 x 84 x 4` pixels; 32 filters 8x8 stride 4, 64 filters 4x4 stride 2, 64 filters 3x3 stride 1,
    512 units, one output an action; ReLU between. 1,686,180 parameters with 4 actions. The 512 units take the output of
    the convolutions filter by filter, as in PyTorch.

    Args:
        num_actions: `A`.
        init: how the layers start; the authors' default.
        scale: what observations are divided by, 255 for pixels; see `HostEnv.obs_scale`.
        head: what the 512 units and the last layer make up.
        outputs: of each action; None: one, without an axis.

    Returns:
        A network from `[B, 4, 84, 84]` to `[B, A]` float32.
    """
    hidden = {"dense": 512}
    shapes = {
        "conv_1": (8, 8, 4, 32),
        "conv_2": (4, 4, 32, 64),
        "conv_3": (3, 3, 64, 64),
        **head.shapes(7 * 7 * 64, hidden, num_actions * (outputs or 1), outputs or 1),
    }
    strides = {"conv_1": 4, "conv_2": 2, "conv_3": 1}

    def apply(params: Params, obs: jax.Array) -> jax.Array:
        _expect_shape(obs, (4, 84, 84))
        x = _scaled(obs, scale)
        if len(obs) == 1:
            x = jnp.moveaxis(x, 1, -1)
            for name, stride in strides.items():
                x = _convolve_one(params[name], x, stride)
            x = jnp.moveaxis(x, -1, 1).reshape(1, -1)
        else:
            x = jnp.moveaxis(x, 0, -1)
            for name, stride in strides.items():
                x = _convolve(params[name], x, stride)
            x = x.reshape(-1, len(obs)).T
        return head.apply(params, x, hidden, outputs)

    return Network(_init_layers(shapes, init), apply, "q", outputs=head.outputs)


def minatar_cnn(
    obs_shape: Sequence[int],
    num_actions: int,
    init: Init = TORCH,
    scale: Scale = 1.0,
    head: Linear = _LINEAR,
    outputs: int | None = None,
) -> Network:
    """Builds the network of MinAtar's example agent (Young and Tian 2019): one convolution and 128 units.

    16 filters 3x3 stride 1 over the planes of the game, 128 units, one output an action; ReLU between. Binary planes
    enter as 0 and 1; the 128 units take the output of the convolution filter by filter.

    Args:
        obs_shape: `[height, width, C]`, at least 3 x 3.
        num_actions: `A`.
        init: how the layers start; the example's.
        scale: what observations are divided by; see `HostEnv.obs_scale`.
        head: what the 128 units and the last layer make up.
        outputs: of each action; None: one, without an axis.

    Returns:
        A network from `[B, height, width, C]` to `[B, A]` float32.

    Raises:
        ValueError: if the observations are no planes, or too small for a filter.
    """
    if len(obs_shape) != 3 or min(obs_shape[:2]) < _FILTER:
        raise ValueError(f"minatar_cnn takes observations [height, width, planes] of 3 x 3 or more, not {obs_shape}")
    hidden, features = {"dense": 128}, 16 * math.prod(side - _FILTER + 1 for side in obs_shape[:2])
    shapes = {
        "conv": (_FILTER, _FILTER, obs_shape[-1], 16),
        **head.shapes(features, hidden, num_actions * (outputs or 1), outputs or 1),
    }

    def apply(params: Params, obs: jax.Array) -> jax.Array:
        _expect_shape(obs, tuple(obs_shape))
        x = _convolve(params["conv"], _scaled(obs, scale).transpose(3, 1, 2, 0), stride=1)
        return head.apply(params, x.reshape(-1, len(obs)).T, hidden, outputs)

    return Network(_init_layers(shapes, init), apply, "q", outputs=head.outputs)


def _convolve_one(layer: dict[str, jax.Array], x: jax.Array, stride: int) -> jax.Array:
    """Does for one observation, `[1, H, W, C]` to `[1, height, width, out]`, what `_convolve` does for many."""
    layout = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, layer["w"], (stride, stride), "VALID", dimension_numbers=layout)
    return jax.nn.relu(x + layer["b"][None, None, None, :])


def _convolve(layer: dict[str, jax.Array], x: jax.Array, stride: int) -> jax.Array:
    """Convolves without padding, adds the bias and rectifies: `[C, H, W, B]` to `[out, height, width, B]`.

    A filter that is several strides high is cut into bands of `stride` rows: its second band sees what the first band
    of the filter below it sees. So patches one band high are enough: each is multiplied by every band, and the products
    that belong to one filter are added up. Less is copied.

    Args:
        layer: weights `[side, side, C, out]` and biases `[out]`.
        x: what is seen; see `_patches`.
        stride: of the filters, 1 or a divisor of their side.
    """
    side, batch = layer["w"].shape[0], x.shape[-1]
    bands = side // stride if stride > 1 else 1  # bands of a single row would be more to add up than they save
    patches = _patches(x, (side // bands, side), stride)
    rows, columns = patches.shape[-3:-1]
    patches = patches.reshape(-1, rows * columns * batch)
    weights = jnp.moveaxis(layer["w"].reshape(bands, len(patches), -1), 0, 1)
    products = jnp.einsum("io,ip->op", weights.reshape(len(patches), -1), patches)
    products = products.reshape(bands, weights.shape[-1], rows, -1)
    height = rows - bands + 1
    total = products[0, :, :height]
    for band in range(1, bands):
        total += products[band, :, band : height + band]
    total = total.reshape(len(total), -1) + layer["b"][:, None]
    return jax.nn.relu(total).reshape(-1, height, columns, batch)


def _patches(x: jax.Array, shape: tuple[int, int], stride: int) -> jax.Array:
    """Cuts `x` `[C, H, W, B]` into patches `[*shape, C, rows, columns, B]`; `H` and `W` are multiples of the stride.

    It is cut along its width first, then its height: the compiler computes what `x` is made of anew for each of the
    first slices, and copies rows for the others. It would do the former for every patch that a value is in.
    """
    height, width = x.shape[1:3]
    rows, columns = (height - shape[0]) // stride + 1, (width - shape[1]) // stride + 1

    @jax.custom_vjp
    def cut(x: jax.Array) -> jax.Array:
        for axis, side, count in (2, shape[1], columns), (-3, shape[0], rows):
            reach = (count - 1) * stride + 1
            x = jnp.stack([jax.lax.slice_in_dim(x, i, i + reach, stride, axis) for i in range(side)])
        return x

    def forward(x: jax.Array) -> tuple[jax.Array, None]:
        return cut(x), None

    def backward(_: None, gradient: jax.Array) -> tuple[jax.Array]:
        """Adds up what each value gets from the patches that it is in.

        Values a stride apart are added up together: zeros between the values of a gradient would take time.
        """
        zero = jnp.zeros((), gradient.dtype)
        totals = [[zero for _ in range(stride)] for _ in range(stride)]
        for row, column in itertools.product(*map(range, shape)):
            above, left = row // stride, column // stride
            below, right = height // stride - above - rows, width // stride - left - columns
            around = [(0, 0, 0), (above, below, 0), (left, right, 0), (0, 0, 0)]
            totals[row % stride][column % stride] += jax.lax.pad(gradient[row, column], zero, around)
        total = jnp.stack([jnp.stack(along, axis=3) for along in totals], axis=2)
        return (total.reshape(x.shape),)

    cut.defvjp(forward, backward)
    return cut(x)


def _scaled(obs: jax.Array, scale: Scale) -> jax.Array:
    """Divides observations `[B, *obs_shape]` by their scale, in float32; what has the scale 1 enters as it is."""
    x = obs.astype(jnp.float32)
    if isinstance(scale, tuple):
        return x / np.reshape(np.array(scale, np.float32), (1, *obs.shape[1:]))
    return x if scale == 1.0 else x / scale
