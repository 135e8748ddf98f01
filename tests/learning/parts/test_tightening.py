"""Optimality tightening: its bounds and penalties against the paper's sums, written out."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning import learner
from softbellman.learning.networks import mlp
from softbellman.learning.parts.scales import PopArt, Raw
from softbellman.learning.parts.table import part
from softbellman.learning.parts.tightening import Tightening
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import UpdateSettings
from softbellman.learning.windows import Window

GAMMA, ACTIONS = 0.9, 3


def lived(length, *, ends, seed=0):
    """One episode: rewards, actions, and the target network's values of its states."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=length), rng.integers(ACTIONS, size=length), rng.normal(size=(length + 1, ACTIONS)), ends


def window_at(episode, place, size):
    """The window around one transition; an observation is the number of its state."""
    rewards, actions, _, ends = episode
    length = len(rewards)
    after = [min(place + k, length - 1) for k in range(size)]
    there = [place + k < length for k in range(size)]
    before = [max(place - k - 1, 0) for k in range(size)]
    past_there = [place - k - 1 >= 0 for k in range(size)]

    def row(values, kind=np.float32):
        return jnp.asarray(np.array([values], kind))

    discounts = [0.0 if ends and at == length - 1 else GAMMA for at in after]
    return Window(
        row([rewards[at] if is_there else 0.0 for at, is_there in zip(after, there, strict=True)]),
        row([discount if is_there else 1.0 for discount, is_there in zip(discounts, there, strict=True)]),
        row([[at + 1] for at in after]),
        row(there, bool),
        row([rewards[at] if is_there else 0.0 for at, is_there in zip(before, past_there, strict=True)]),
        row([GAMMA if is_there else 1.0 for is_there in past_there]),
        row([[at] for at in before]),
        row([actions[at] for at in before], np.int32),
        row(past_there, bool),
    )


def values_of(episode):
    return lambda obs: jnp.asarray(episode[2], jnp.float32)[obs[..., 0].astype(jnp.int32)]


def published_bounds(episode, place, steps, legal=True):
    """Equations of section 4, term by term; `legal` are the actions of each state."""
    rewards, actions, values, ends = episode
    best = np.where(legal, values, -np.inf).max(axis=-1)
    length, lower, upper = len(rewards), [-np.inf], [np.inf]
    for k in range(1, steps + 1):
        if place + k < length:
            bound = sum(GAMMA**i * rewards[place + i] for i in range(k + 1))
            is_end = ends and place + k == length - 1
            lower.append(bound if is_end else bound + GAMMA ** (k + 1) * best[place + k + 1])
        if place - k - 1 >= 0:
            first = place - k - 1
            bound = GAMMA ** (-k - 1) * values[first, actions[first]]
            upper.append(bound - sum(GAMMA ** (i - k - 1) * rewards[first + i] for i in range(k + 1)))
    return max(lower), min(upper)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 12])
def test_bounds_are_the_published_ones(steps, ends, length):
    episode, tightening = lived(length, ends=ends, seed=length), Tightening(steps)
    for place in range(length):
        bounds = tightening.bounds(window_at(episode, place, tightening.around), values_of(episode))
        np.testing.assert_allclose([float(bound[0]) for bound in bounds], published_bounds(episode, place, steps), 1e-4)


def test_an_illegal_action_sets_no_bound():
    """Each state has one of its own."""
    episode, tightening = lived(30, ends=False), Tightening(3)
    legal = np.arange(ACTIONS) != np.random.default_rng(0).integers(ACTIONS, size=(31, 1))
    windows = [window_at(episode, place, tightening.around) for place in range(30)]
    window = jax.tree.map(lambda *rows: np.concatenate(rows), *windows)
    window = window._replace(legal=legal[window.obs[..., 0].astype(int)])
    bounds = np.transpose(tightening.bounds(window, values_of(episode)))
    expected = [published_bounds(episode, place, 3, legal) for place in range(30)]
    np.testing.assert_allclose(bounds, expected, rtol=1e-4)


def test_penalties_are_squared_and_gradients_rescaled():
    episode, tightening = lived(9, ends=False, seed=3), Tightening(2, 4.0)
    window, values = window_at(episode, 4, tightening.around), values_of(episode)
    lower, upper = published_bounds(episode, 4, 2)

    def loss(taken):
        return tightening.tightened(jnp.square(taken - 1.0), taken, window, values)[0]

    for taken in (min(lower, upper) - 1.5, max(lower, upper) + 2.0, (lower + upper) / 2):
        below, above = max(lower - taken, 0.0), max(taken - upper, 0.0)
        weights = 1 + 4.0 * (below > 0) + 4.0 * (above > 0)
        expected = ((taken - 1.0) ** 2 + 2.0 * below**2 + 2.0 * above**2) / weights
        slope = (2 * (taken - 1.0) - 4.0 * below + 4.0 * above) / weights
        ours, gradient = jax.value_and_grad(loss)(jnp.full(1, taken, jnp.float32))
        np.testing.assert_allclose([float(ours), float(gradient[0])], [expected, slope], rtol=2e-4)


def test_without_steps_around_a_loss_is_what_it_was():
    """The first step of an episode of one."""
    episode, tightening = lived(1, ends=True), Tightening()
    window = window_at(episode, 0, tightening.around)
    loss, gradient = jax.value_and_grad(
        lambda taken: tightening.tightened(jnp.square(taken), taken, window, values_of(episode))[0]
    )(jnp.full(1, 3.0))
    assert (float(loss), float(gradient[0])) == (9.0, 6.0)


@pytest.mark.parametrize("scale", [None, PopArt(0.1)])
def test_an_update_clips_rewards_of_the_window(scale):
    """A reward of 50 counts as 1."""
    network, settings = mlp((1,), ACTIONS, ()), UpdateSettings(reward_clip=1.0, gamma=GAMMA)
    parts = {"tightening": Tightening(2)} | ({"scale": scale} if scale else {})
    recipe = Recipe(scale.scaled(network) if scale else network, settings, **parts)
    state = learner.init(recipe, jax.random.key(0))
    episode = lived(6, ends=True)
    window = window_at(episode, 2, 3)
    one = jnp.zeros((1, 1))
    batch = Transition(one, jnp.zeros(1, jnp.int32), jnp.ones(1), jnp.full(1, GAMMA), one, window=window)
    large = batch._replace(
        window=window._replace(reward=window.reward.at[0, 1].set(50.0), past_reward=window.past_reward - 50.0)
    )
    same = batch._replace(
        window=window._replace(reward=window.reward.at[0, 1].set(1.0), past_reward=-jnp.ones_like(window.past_reward))
    )
    losses = [
        learner.td_loss(state.params, state.target_params, ops.maximum(), each, recipe)[0]
        for each in (large, same, batch)
    ]
    assert float(losses[0]) == float(losses[1]) != float(losses[2])


@pytest.mark.parametrize("bias", [-9.0, 9.0])
@pytest.mark.parametrize(
    ("scale", "moments", "unit"), [(Raw(), {}, 1.0), (PopArt(0.1), {"scale": {"mean": 3.0, "square": 25.0}}, 4.0)]
)
def test_an_update_bounds_by_the_target_network_and_no_gradient_flows_into_a_bound(scale, moments, unit, bias):
    """Below the lower bound, and above the upper one; all errors are in units of the deviation."""
    network, tightening = scale.scaled(mlp((1,), ACTIONS, ())), Tightening(2)
    settings = UpdateSettings(reward_clip=None, gamma=GAMMA)
    recipe = Recipe(network, settings, scale=scale, tightening=tightening)
    online, target = (network.init(jax.random.key(seed)) | moments for seed in (0, 1))
    online["q"]["b"] += bias
    window, one = window_at(lived(6, ends=False), 2, tightening.around), jnp.ones((1, 1))
    batch = Transition(one, jnp.zeros(1, jnp.int32), jnp.ones(1), jnp.full(1, GAMMA), 2 * one, window=window)

    def q(params, obs):
        return network.apply(params, obs.reshape(-1, 1)).reshape(*obs.shape[:-1], ACTIONS)

    lower, upper = tightening.bounds(window, lambda obs: q(target, obs))

    def by_hand(params):
        taken = q(params, one)[:, 0]
        error = jnp.abs(1 + GAMMA * q(target, 2 * one).max() - taken) / unit  # beyond the bound of Huber's loss
        beyond = jnp.maximum(lower - taken, taken - upper) / unit
        return ((error - 0.5 + 2.0 * beyond**2) / 5.0)[0]

    def loss(params, target):
        return learner.td_loss(params, target, ops.maximum(), batch, recipe)[0]

    expected, gradient = jax.jit(jax.value_and_grad(by_hand))(online)
    ours, (by_online, by_target) = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(online, target)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), by_online, gradient)
    assert all(not leaf.any() for leaf in jax.tree.leaves(by_target))


def test_the_defaults_are_the_papers():
    assert part("tightening", "tightening") == Tightening(4, 4.0)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tightening(0)", r"steps \(0\) must be an integer in 1 .. 100"),
        ("tightening(100000)", r"steps \(100000\)"),
        ("tightening(2.5)", r"steps \(2.5\)"),
        ("tightening(4, 0)", r"penalty \(0\) must be above 0"),
        ("tightening(4, inf)", r"penalty \(inf\)"),
        ("tightening(4, nan)", r"penalty \(nan\)"),
        ("tight", "there is no 'tight'"),
    ],
)
def test_what_cannot_be_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        part("tightening", spec)
