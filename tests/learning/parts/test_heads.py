"""Heads and their noise, against sums written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman.learning.networks import minatar_cnn, mlp, nature_cnn
from softbellman.learning.parts.heads import Duelling, Linear, Noisy

KEY = jax.random.key(0)


def relu(x):
    return np.maximum(x, 0)


def dense(layer, x):
    return x @ layer["w"] + layer["b"]


@pytest.mark.parametrize("outputs", [None, 5])
def test_duelling_adds_a_value_to_advantages_without_their_mean(outputs):
    network = mlp((3,), 4, hidden=(6,), head=Duelling(), outputs=outputs)
    params, x = jax.tree.map(np.asarray, network.init(KEY)), np.float32(np.random.default_rng(0).normal(size=(7, 3)))
    size = outputs or 1
    advantage = dense(params["q"], relu(dense(params["dense_1"], x))).reshape(7, 4, size)
    value = dense(params["value_q"], relu(dense(params["value_dense_1"], x))).reshape(7, 1, size)
    expected = value + advantage - advantage.mean(1, keepdims=True)
    got = network.apply(params, x)
    assert got.shape == ((7, 4) if outputs is None else (7, 4, 5))
    np.testing.assert_allclose(np.reshape(got, expected.shape), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [Linear(), Duelling()], ids=str)
@pytest.mark.parametrize("outputs", [None, 3])
def test_every_network_takes_every_head(head, outputs):
    for network, shape in (
        (nature_cnn(4, head=head, outputs=outputs), (4, 84, 84)),
        (minatar_cnn((10, 10, 4), 4, head=head, outputs=outputs), (10, 10, 4)),
        (mlp((5,), 4, (), head=head, outputs=outputs), (5,)),
    ):
        params = jax.eval_shape(network.init, KEY)
        assert params["q"]["w"].shape[1] == 4 * (outputs or 1) and network.last_layer == "q"
        for size in (1, 2):
            q = jax.eval_shape(network.apply, params, jax.ShapeDtypeStruct((size, *shape), np.float32))
            assert q.shape == ((size, 4) if outputs is None else (size, 4, outputs))


def test_noise_is_factorised_and_of_the_size_that_is_learned():
    network = Noisy(0.5).added(minatar_cnn((10, 10, 4), 3))
    params = network.init(KEY)
    assert set(params["conv"]) == {"w", "b"}
    assert float(params["dense"]["w_noise"][0, 0]) == pytest.approx(0.5 / np.sqrt(1024))
    noisy = network.perturb(params, jax.random.key(1))
    noise = (np.asarray(noisy["dense"]["w"] - params["dense"]["w"])) * np.sqrt(1024) / 0.5
    assert np.linalg.matrix_rank(noise, tol=1e-2) == 1
    leaving = np.asarray(noisy["dense"]["b"] - params["dense"]["b"]) * np.sqrt(1024) / 0.5
    entering = noise @ leaving / (leaving @ leaving)
    np.testing.assert_allclose(noise, np.outer(entering, leaving), rtol=1e-2, atol=1e-3)
    for part in (entering, leaving):  # signed roots of normal numbers: their squares have mean E|x|
        assert np.mean(part**2) == pytest.approx(np.sqrt(2 / np.pi), rel=0.3)
        assert abs(part.mean()) < 4 * part.std() / np.sqrt(len(part))
    np.testing.assert_array_equal(noisy["conv"]["w"], params["conv"]["w"])
    quiet = jax.tree.map(lambda leaf: leaf, params)
    for layer in ("dense", "q"):
        quiet[layer] = {
            **quiet[layer],
            "w_noise": 0 * params[layer]["w_noise"],
            "b_noise": 0 * params[layer]["b_noise"],
        }
    still = network.perturb(quiet, jax.random.key(1))
    np.testing.assert_array_equal(still["q"]["w"], params["q"]["w"])


def test_noise_has_a_gradient_in_its_size():
    network = Noisy(0.5).added(mlp((3,), 2, (4,)))
    params, x = network.init(KEY), jnp.ones((1, 3))
    loss = jax.grad(lambda params: network.apply(network.perturb(params, jax.random.key(2)), x).sum())
    assert np.abs(loss(params)["q"]["w_noise"]).max() > 0


def test_noise_of_no_size_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        Noisy(0.0)
