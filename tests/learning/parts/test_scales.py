"""Pop-Art: outputs stay where the moments move, and rewards of any unit are learned alike."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning import learner
from softbellman.learning.networks import minatar_cnn, mlp, nature_cnn
from softbellman.learning.parts.heads import Duelling, Linear, Noisy, NoNoise, Output
from softbellman.learning.parts.scales import PopArt, Raw
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings

SETTINGS = LearnerSettings(
    gamma=0.8, learning_rate=0.01, optimizer="adam", optimizer_epsilon=1e-8, reward_clip=None, loss_reduction="mean"
)


@pytest.mark.parametrize("targets", [[5.0, 7.0], [-1e4, 3e4], [0.25, 0.25], [0.0, 0.0]])
def test_outputs_are_preserved(targets):
    scale = PopArt(0.3)
    network = scale.scaled(mlp((3,), 4, (8,)))
    params, obs = (
        network.init(jax.random.key(0)),
        jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32),
    )
    before = network.apply(params, obs)
    for _ in range(60):
        params = scale.adapted(params, network, lambda: jnp.asarray(targets))
        size = float(jnp.abs(jnp.asarray(targets)).max())
        np.testing.assert_allclose(network.apply(params, obs), before, rtol=1e-3, atol=3e-6 * max(1.0, size))
    assert float(params["scale"]["mean"]) == pytest.approx(np.mean(targets), rel=0.01)
    assert float(scale.unit(params)) == pytest.approx(max(np.std(targets), 1e-4), rel=0.05, abs=5e-5)


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("noise", [NoNoise(), Noisy(0.5)], ids=str)
@pytest.mark.parametrize("head", [Linear(), Duelling()], ids=str)
def test_outputs_are_preserved_with_every_head_and_under_noise(head, noise, outputs):
    scale = PopArt(0.5)
    network = scale.scaled(noise.added(mlp((3,), 4, (8,), head=head, outputs=outputs)))
    params, key = network.init(jax.random.key(0)), jax.random.key(1)
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), jnp.float32)
    moved = params
    for targets in ([10.0, 20.0], [-300.0, 40.0], [0.25, 0.25]):
        moved = scale.adapted(moved, network, lambda targets=targets: jnp.asarray(targets))
        np.testing.assert_allclose(network.apply(moved, obs), network.apply(params, obs), atol=2e-3)
        if network.perturb is not None:
            before, after = (network.apply(network.perturb(each, key), obs) for each in (params, moved))
            np.testing.assert_allclose(after, before, atol=2e-3)
            assert np.abs(before - network.apply(params, obs)).max() > 0.01


def test_every_network_names_its_output_layers():
    for network in (
        mlp((3,), 4, head=Duelling()),
        minatar_cnn((5, 5, 2), 3, head=Duelling()),
        nature_cnn(4, head=Duelling()),
    ):
        assert network.outputs == (Output("q", is_centred=True), Output("value_q"))
        assert network.outputs == Noisy(0.5).added(network).outputs == PopArt(0.5).scaled(network).outputs


def test_moments_are_running_means():
    scale = PopArt(0.1)
    network = scale.scaled(mlp((1,), 1, ()))
    params = scale.adapted(network.init(jax.random.key(0)), network, lambda: jnp.asarray([2.0, 4.0]))
    assert float(params["scale"]["mean"]) == pytest.approx(0.3)
    assert float(params["scale"]["square"]) == pytest.approx(0.9 + 0.1 * 10)


def test_the_unit_divides_errors_and_only_those():
    assert Raw().unit({}) is None
    scale, q = PopArt(0.1), {"w": jnp.zeros((1, 1)), "b": jnp.zeros(1)}
    params = {"q": q, "scale": {"mean": jnp.asarray(3.0), "square": jnp.asarray(13.0)}}  # a deviation of 2
    recipe = Recipe(scale.scaled(mlp((1,), 1, ())), SETTINGS, scale=scale)
    assert float(recipe.q(params, jnp.ones((1, 1)))[0, 0]) == 3.0
    one = np.ones((1, 1), np.float32)
    batch = Transition(one, np.zeros(1, np.int32), np.float32([4]), np.zeros(1, np.float32), one)
    both = jax.value_and_grad(learner.td_loss, has_aux=True)
    (loss, _), gradient = both(params, params, ops.maximum(), batch, recipe)
    assert float(loss) == pytest.approx(0.5 * 0.5**2) and float(gradient["q"]["b"][0]) == pytest.approx(-0.5)
    assert float(gradient["scale"]["mean"]) == float(gradient["scale"]["square"]) == 0


@pytest.mark.parametrize("unit", [1e-2, 1.0, 1e4])
def test_rewards_of_every_unit_are_learned(unit):
    """Two states after each other: the values are the unit and 0.8 of it."""
    scale = PopArt(0.05)
    recipe = Recipe(scale.scaled(mlp((2,), 2, (16,))), SETTINGS, scale=scale)
    eye = np.eye(2, dtype=np.float32)
    batch = Transition(
        eye[[0, 0, 1, 1]],
        np.int32([0, 1, 0, 1]),
        np.float32([0, 0, unit, 0]),
        np.float32([0.8, 0.8, 0, 0]),
        eye[[1, 1, 0, 0]],
    )

    @jax.jit
    def period(state):
        state = learner.copy_target(state, recipe)
        return jax.lax.fori_loop(0, 20, lambda _, s: learner.learn_step(s, ops.maximum(), batch, recipe)[0], state)

    state = learner.init(recipe, jax.random.key(0))
    for _ in range(60):
        state = period(state)
    expected = unit * np.array([[0.8, 0.8], [1, 0]])
    np.testing.assert_allclose(recipe.q(state.params, eye), expected, atol=0.02 * unit)
    np.testing.assert_allclose(recipe.target_q(state.target_params, eye), expected, atol=0.05 * unit)


@pytest.mark.parametrize("rate", [0.0, 1.5, float("nan")])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match=r"above 0 and at most 1"):
        PopArt(rate)


def test_moments_are_of_targets_by_the_target_network():
    scale = PopArt(0.25)
    recipe = Recipe(scale.scaled(mlp((1,), 1, ())), replace(SETTINGS, reward_clip=None), scale=scale)
    moments = {"mean": jnp.zeros(()), "square": jnp.ones(())}
    online, target = (
        {"q": {"w": jnp.zeros((1, 1)), "b": jnp.full(1, value)}, "scale": moments} for value in (1.0, 5.0)
    )
    state = learner.init(recipe, jax.random.key(0))._replace(params=online, target_params=target)
    one = np.ones((1, 1), np.float32)
    batch = Transition(one, np.zeros(1, np.int32), np.float32([2]), np.float32([0.5]), one)
    moved, _ = learner.learn_step(state, ops.maximum(), batch, recipe)
    goal = 2 + 0.5 * 5
    found = [float(moved.params["scale"][name]) for name in ("mean", "square")]
    assert found == pytest.approx([0.25 * goal, 1 + 0.25 * (goal**2 - 1)])
