"""Networks: what they see, how they start, and the convolutions against a slow explicit one."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from softbellman.learning import device_replay
from softbellman.learning.networks import LASAGNE, TORCH, Init, minatar_cnn, mlp, nature_cnn

NATURE_FAN_IN = {"conv_1": 256, "conv_2": 512, "conv_3": 576, "dense": 3136, "q": 512}


@pytest.fixture(scope="module")
def nature():
    """The network of four actions, with its parameters."""
    network = nature_cnn(4)
    return network, jax.jit(network.init)(key(0))


def key(seed):
    """A key whose draws compile in a third of the time of the default's."""
    return jax.random.key(seed, impl="rbg")


def drawn(network):
    """Parameters of a network, drawn by NumPy."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(network.init, key(0))
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)


def pass_through(size, **options):
    """A linear network whose values are its input, and its parameters."""
    return mlp((size,), size, hidden=(), **options), {"q": {"w": jnp.eye(size), "b": jnp.zeros(size)}}


def convolve(x, layer, stride):
    """Convolves `x` `[B, H, W, C]` window by window in float64, and rectifies."""
    weights, biases = np.asarray(layer["w"], np.float64), np.asarray(layer["b"], np.float64)
    size = weights.shape[0]
    rows, columns = ((side - size) // stride + 1 for side in x.shape[1:3])
    out = np.empty((len(x), rows, columns, weights.shape[-1]))
    for row in range(rows):
        for column in range(columns):
            window = x[:, row * stride : row * stride + size, column * stride : column * stride + size]
            out[:, row, column] = np.einsum("bhwc,hwco->bo", window, weights) + biases
    return np.maximum(out, 0)


# ------------------------------------------------------------------------------------------ what the network sees


def test_l39_pixels_are_divided_by_255_once():
    network, params = pass_through(256, scale=255.0)
    pixels = np.arange(256, dtype=np.uint8)[None]
    expected = (pixels.astype(np.float32) / np.float32(255.0)).astype(np.float32)
    np.testing.assert_array_equal(network.apply(params, pixels), expected)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int16, np.float32])
def test_l39_what_has_the_scale_1_enters_as_it_is_whatever_its_dtype(dtype):
    network, params = pass_through(256)
    bits = (np.arange(256) % 2)[None].astype(dtype)
    np.testing.assert_array_equal(network.apply(params, bits), bits.astype(np.float32))


def test_each_entry_of_an_observation_may_have_a_scale_of_its_own():
    network, params = mlp((2, 2), 4, hidden=(), scale=(1.0, 2.0, 4.0, 8.0)), pass_through(4)[1]
    obs = np.array([[[1, 2], [4, 8]], [[3, -4], [0, 16]]], np.int16)
    np.testing.assert_array_equal(network.apply(params, obs), [[1.0, 1.0, 1.0, 1.0], [3.0, -2.0, 0.0, 2.0]])


def test_pixels_and_planes_compile_to_what_they_did():
    """A network of scale 255 is that of scale 1 on `pixels / 255`, and one of scale 1 divides nothing."""

    def program(network, shape, dtype, enter):
        obs, params = jax.ShapeDtypeStruct((2, *shape), dtype), jax.eval_shape(network.init, key(0))
        return jax.jit(lambda params, obs: network.apply(params, enter(obs))).lower(params, obs).as_text()

    whole = program(nature_cnn(4), (4, 84, 84), np.uint8, lambda obs: obs)
    by_hand = program(nature_cnn(4, scale=1.0), (4, 84, 84), np.uint8, lambda obs: obs.astype(jnp.float32) / 255.0)
    assert whole == by_hand
    planes = program(minatar_cnn((10, 10, 4), 6), (10, 10, 4), bool, lambda obs: obs)
    assert planes == program(minatar_cnn((10, 10, 4), 6), (10, 10, 4), bool, lambda obs: obs.astype(jnp.float32))
    assert "divide" not in planes


def test_l39_frames_with_the_channels_last_are_refused():
    network = nature_cnn(4)
    params, obs = jax.eval_shape(network.init, key(0)), jax.ShapeDtypeStruct((2, 84, 84, 4), jnp.uint8)
    with pytest.raises(ValueError, match=r"shape \[batch, 4, 84, 84\], got \[2, 84, 84, 4\]; frames come first"):
        jax.eval_shape(network.apply, params, obs)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 4)])
def test_a_network_refuses_observations_of_another_shape(shape):
    network = mlp((3, 1), 2)
    with pytest.raises(ValueError, match=r"shape \[batch, 3, 1\]"):
        network.apply(drawn(network), np.zeros(shape))


# ------------------------------------------------------------------------------------------------- the sizes of it


@pytest.mark.parametrize(("num_actions", "parameters"), [(4, 1_686_180), (18, 1_693_362)])
def test_nature_cnn_has_the_parameters_of_the_published_network(num_actions, parameters):
    shapes = jax.eval_shape(nature_cnn(num_actions).init, key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == parameters


def test_mlp_has_the_layers_asked_for():
    def shapes(network):
        params = jax.eval_shape(network.init, key(0))
        return {name: (layer["w"].shape, layer["b"].shape) for name, layer in params.items()}

    assert shapes(mlp((2, 3), 4, hidden=(5, 7))) == {
        "dense_1": ((6, 5), (5,)),
        "dense_2": ((5, 7), (7,)),
        "q": ((7, 4), (4,)),
    }
    assert shapes(mlp((), 2, hidden=())) == {"q": ((1, 2), (2,))}


# ------------------------------------------------------------------------------------------------- the first values


def test_nature_cnn_starts_in_the_ranges_of_the_authors_code(nature):
    _, params = nature
    bounds = {"conv_1": 0.10825, "conv_2": 0.07655, "conv_3": 0.07217, "dense": 0.03093, "q": 0.07655}
    for name, layer in params.items():
        weights = np.asarray(layer["w"])
        bound = (3 / NATURE_FAN_IN[name]) ** 0.5
        assert bound == pytest.approx(bounds[name], abs=5e-6)
        assert 0.99 * bound < np.abs(weights).max() <= bound
        assert weights.std() == pytest.approx(bound / 3**0.5, rel=0.03)  # uniform
        assert abs(weights.mean()) < 4 * weights.std() / weights.size**0.5
        np.testing.assert_array_equal(layer["b"], np.float32(0.1))


@pytest.mark.parametrize(("init", "gain"), [(TORCH, 1.0), (LASAGNE, 3.0), (Init(gain=2.0, bias=-0.5), 2.0)])
def test_mlp_starts_in_the_range_of_its_fan_in(init, gain):
    params = jax.jit(mlp((100,), 50, hidden=(400,), init=init).init)(key(1))
    for name, fan_in in (("dense_1", 100), ("q", 400)):
        bound, biases = (gain / fan_in) ** 0.5, np.asarray(params[name]["b"])
        assert 0.99 * bound < np.abs(params[name]["w"]).max() <= bound
        if init.bias is None:
            assert 0.8 * bound < np.abs(biases).max() <= bound
        else:
            np.testing.assert_array_equal(biases, np.float32(init.bias))


def test_the_first_values_depend_on_the_key_and_on_nothing_else():
    init = jax.jit(mlp((3,), 3, hidden=(3, 3)).init)
    first, again, other = (init(jax.random.key(seed)) for seed in (0, 0, 1))
    for one, same, different in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, different)
    # Layers of one shape do not share their draws, and neither do weights and biases.
    assert len({layer[name][..., 0].tobytes() for layer in first.values() for name in layer}) == 6


# --------------------------------------------------------------------------------------------- the arithmetic of it


def slowly(params, x, strides):
    """The values of a convolutional network of `x` `[B, H, W, C]`, its layers one after another."""
    for name, stride in strides.items():
        x = convolve(x, params[name], stride)
    flat = np.moveaxis(x, -1, 1).reshape(len(x), -1)  # filter by filter
    hidden = np.maximum(flat @ np.asarray(params["dense"]["w"]) + np.asarray(params["dense"]["b"]), 0)
    return hidden @ np.asarray(params["q"]["w"]) + np.asarray(params["q"]["b"])


@pytest.mark.parametrize("batch", [1, 4])  # one observation goes another way than several
def test_nature_cnn_equals_a_slow_convolution(nature, batch):
    network, params = nature
    obs = np.random.default_rng(0).integers(0, 256, (batch, 4, 84, 84), dtype=np.uint8)
    expected = slowly(params, np.moveaxis(obs, 1, -1) / 255.0, {"conv_1": 4, "conv_2": 2, "conv_3": 1})
    q = network.apply(params, obs)
    assert q.shape == (batch, 4) and q.dtype == jnp.float32
    np.testing.assert_allclose(q, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
def test_runs_side_by_side_have_the_values_of_each_alone(nature, batch):
    network, params = nature
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[..., ::-1]]), params)
    obs = np.random.default_rng(0).integers(0, 256, (2, batch, 4, 84, 84), dtype=np.uint8)
    q = jax.jit(jax.vmap(network.apply))(both, obs)
    for run in range(2):
        alone = network.apply(jax.tree.map(lambda leaf, run=run: leaf[run], both), obs[run])
        np.testing.assert_allclose(q[run], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(10, 10, 4), (10, 10, 10), (3, 5, 1)])
def test_minatar_cnn_equals_a_slow_convolution(shape):
    network = minatar_cnn(shape, 6)
    params, obs = drawn(network), np.random.default_rng(0).random((4, *shape)) < 0.3
    q, expected = network.apply(params, obs), slowly(params, obs, {"conv": 1})
    assert q.shape == (4, 6) and q.dtype == jnp.float32
    np.testing.assert_allclose(q, expected, rtol=1e-4, atol=1e-4)


def by_xla(params, obs, strides):
    """The values of a convolutional network by XLA's own convolutions, which it differentiates in its own way too."""
    x, layout = obs.astype(jnp.float32), ("NHWC", "HWIO", "NHWC")
    for name, stride in strides.items():
        x = lax.conv_general_dilated(x, params[name]["w"], (stride, stride), "VALID", dimension_numbers=layout)
        x = jax.nn.relu(x + params[name]["b"][None, None, None, :])
    flat = jnp.moveaxis(x, -1, 1).reshape(len(x), -1)
    hidden = jax.nn.relu(flat @ params["dense"]["w"] + params["dense"]["b"][None, :])
    return hidden @ params["q"]["w"] + params["q"]["b"][None, :]


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("kind", ["nature", "minatar"])
def test_a_convolution_has_the_values_and_gradients_of_xlas(kind, batch):
    """Compiled, with biases that differ, for the minibatches of acting and of learning."""
    rng = np.random.default_rng(1)
    if kind == "nature":
        network, strides, obs = (
            nature_cnn(4, scale=1.0),
            {"conv_1": 4, "conv_2": 2, "conv_3": 1},
            rng.random((batch, 84, 84, 4)),
        )
        seen = np.moveaxis(obs, -1, 1)
    else:
        network, strides, obs = minatar_cnn((10, 10, 4), 6), {"conv": 1}, rng.random((batch, 10, 10, 4)) < 0.3
        seen = obs
    params = jax.tree.map(lambda array: array / array[..., 0].size ** 0.5, drawn(network))
    weights = rng.normal(size=jax.eval_shape(network.apply, params, seen).shape).astype(np.float32)

    def differentiate(apply, given):
        given = jnp.asarray(given, jnp.float32)
        return jax.jit(jax.value_and_grad(lambda params, x: (apply(params, x) * weights).sum(), (0, 1)))(params, given)

    value, (gradient, to_seen) = differentiate(network.apply, seen)
    expected, (expected_gradient, to_obs) = differentiate(lambda params, obs: by_xla(params, obs, strides), obs)
    assert value == pytest.approx(float(expected), rel=1e-4)
    gradient["obs"], expected_gradient["obs"] = to_seen, np.moveaxis(to_obs, -1, 1) if kind == "nature" else to_obs
    for ours, theirs in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())


@pytest.mark.parametrize("shape", [(10, 10, 4), (7, 9, 2)])
def test_bits_are_unpacked_for_the_patches_side_by_side_not_for_all(shape):
    """A value is in nine patches. To unpack its bit for each took a seventh of training."""
    network, batch = minatar_cnn(shape, 6), 32
    packed = jax.ShapeDtypeStruct((batch, -(-math.prod(shape) // 8)), np.uint8)

    def values(params, packed):
        return network.apply(params, device_replay.unpack(packed, shape, bool))

    program = jax.jit(values).lower(drawn(network), packed).compile().as_text()
    unpacking = [part for part in program.split("\n\n") if re.search(r"u8\S* and\(", part)]
    roots = [re.search(r"ROOT \S+ = \w+\[([\d,]*)\]", part).group(1) for part in unpacking]
    height, width, planes = shape
    assert max(math.prod(map(int, root.split(","))) for root in roots) <= 3 * height * (width - 2) * planes * batch


def test_mlp_equals_the_matrices_written_out():
    network = mlp((2, 2), 3, hidden=(8, 6))
    params = drawn(network)
    obs = np.random.default_rng(0).normal(size=(5, 2, 2)).astype(np.float32)
    x = obs.reshape(5, 4)
    for name in ("dense_1", "dense_2"):
        x = np.maximum(x @ np.asarray(params[name]["w"]) + np.asarray(params[name]["b"]), 0)
    expected = x @ np.asarray(params["q"]["w"]) + np.asarray(params["q"]["b"])
    np.testing.assert_allclose(network.apply(params, obs), expected, rtol=1e-5, atol=1e-6)
