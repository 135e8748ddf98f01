"""The learner against hand-made numbers, rlax, and gradients in NumPy."""

import dataclasses
import inspect
from dataclasses import replace
from functools import cache, partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.gaps import NoGap, PersistentAdvantageGap
from softbellman.learning import learner
from softbellman.learning.learner import LearnerState, Schedule, epsilon_at, td_loss
from softbellman.learning.networks import Network, mlp, nature_cnn
from softbellman.learning.parts.controllers import Noise, Signals
from softbellman.learning.parts.estimates import Ensemble, Value
from softbellman.learning.parts.heads import Noisy, NoNoise
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings, UpdateSettings
from softbellman.learning.target import huber, td_target

PLAIN = LearnerSettings(reward_clip=None)
STATIC = "recipe"
OPERATORS = [
    ops.maximum(),
    ops.mean(),
    ops.softmax(5.0),
    ops.mellowmax(5.0),
    ops.double(ops.maximum()),
    ops.double(ops.softmax(5.0)),
    ops.double(ops.mellowmax(5.0)),
]


init = jax.jit(learner.init, static_argnames=STATIC)
learn_step = jax.jit(learner.learn_step, static_argnames=STATIC)
loss_and_gradients = jax.jit(jax.value_and_grad(td_loss, argnums=(0, 1), has_aux=True), static_argnames=STATIC)


@cache
def linear(size: int, num_actions: int) -> Network:
    """One network for each shape: a new one would be compiled anew."""
    return mlp((size,), num_actions, hidden=())


def params_of(weights):
    weights = np.asarray(weights, np.float32)
    return {"q": {"w": weights, "b": np.zeros(weights.shape[1], np.float32)}}


def random_batch(seed, size, features, num_actions, *, gamma=0.9):
    rng = np.random.default_rng(seed)
    return Transition(
        obs=rng.normal(size=(size, features)).astype(np.float32),
        action=rng.integers(num_actions, size=size).astype(np.int32),
        reward=rng.normal(size=size).astype(np.float32),
        discount=(gamma * (rng.random(size) < 0.7)).astype(np.float32),
        next_obs=rng.normal(size=(size, features)).astype(np.float32),
    )


@pytest.fixture
def problem():
    """A linear network of two sets of parameters and a batch, errors within and beyond Huber's bound."""
    rng = np.random.default_rng(3)
    online, target = (params_of(rng.normal(size=(3, 4))) for _ in range(2))
    return linear(3, 4), online, target, random_batch(4, 32, 3, 4)


# -------------------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("operator", "target"),
    [
        (ops.maximum(), 10.0),
        (ops.double(ops.maximum()), 2.0),
        (ops.softmax(1.0), 9.997317),
        (ops.double(ops.softmax(1.0)), 2.143890),
        (ops.mellowmax(1.0), 9.307188),
    ],
    ids=str,
)
def test_l9_each_algorithm_has_its_own_target(operator, target):
    online, of_target = jnp.array([[1.0, 5.0]]), jnp.array([[10.0, 2.0]])
    got = td_target(operator, jnp.zeros(1), jnp.ones(1), of_target, online)
    np.testing.assert_allclose(got, [target], rtol=1e-6)


def test_l2_a_terminal_stops_the_bootstrap_and_a_time_limit_does_not():
    gamma = 0.9
    terminated = jnp.array([True, False, True])
    q_next = jnp.full((3, 2), 10.0)
    got = td_target(ops.maximum(), jnp.ones(3), gamma * (1.0 - terminated), q_next, q_next)
    np.testing.assert_allclose(got, [1.0, 10.0, 1.0])


@pytest.mark.parametrize("name", ["q_learning", "double_q_learning", "expected_sarsa"])
def test_targets_agree_with_rlax(name):
    rlax = pytest.importorskip("rlax")
    rng = np.random.default_rng(0)
    q, q_target, q_online = (jnp.asarray(rng.normal(size=(64, 5)), jnp.float32) for _ in range(3))
    batch = random_batch(1, 64, 1, 5)
    first, last = (q, batch.action, batch.reward, batch.discount), (q_target,)
    operator = {
        "q_learning": ops.maximum(),
        "double_q_learning": ops.double(ops.maximum()),
        "expected_sarsa": ops.double(ops.softmax(2.0)),
    }[name]
    if name == "double_q_learning":
        last = (q_target, q_online)
    if name == "expected_sarsa":
        last = (q_target, jax.nn.softmax(2.0 * q_online, axis=-1))
    expected = jax.vmap(getattr(rlax, name))(*first, *last)
    target = td_target(operator, batch.reward, batch.discount, q_target, q_online)
    np.testing.assert_allclose(target - q[jnp.arange(64), batch.action], expected, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------------------------- shapes: no broadcast


def test_l25_targets_of_another_shape_are_refused():
    q_next, vector, column = jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros((3, 1))
    for reward, discount in ((column, vector), (vector, column), (column, column), (jnp.zeros(1), vector)):
        with pytest.raises(ValueError, match=r"must have the shape \(3,\)"):
            td_target(ops.maximum(), reward, discount, q_next, q_next)


@pytest.mark.parametrize(
    "fault",
    [
        {"action": np.zeros((8, 1), np.int32)},
        {"action": np.zeros(1, np.int32)},
        {"reward": np.zeros((8, 1), np.float32)},
        {"reward": np.zeros(1, np.float32)},
        {"discount": np.zeros((8, 1), np.float32)},
        {"discount": np.zeros(1, np.float32)},
        {"obs": np.zeros((1, 3), np.float32)},
        {"next_obs": np.zeros((1, 3), np.float32)},
    ],
    ids=lambda fault: "-".join(f"{name}{list(value.shape)}" for name, value in fault.items()),
)
def test_l25_a_batch_with_an_odd_array_is_refused(fault):
    network, params = linear(3, 4), params_of(np.ones((3, 4)))
    batch = random_batch(0, 8, 3, 4)._replace(**fault)
    with pytest.raises(ValueError, match=r"must have the shape"):
        td_loss(params, params, ops.maximum(), batch, Recipe(network, PLAIN))


def test_l25_an_operator_that_keeps_the_action_axis_is_refused():
    def keeps_axis(q, selector=None):
        return q.max(axis=-1, keepdims=True)

    with pytest.raises(ValueError, match=r"gave \(3, 1\) for values \(3, 2\); it must give \(3,\)"):
        td_target(keeps_axis, jnp.zeros(3), jnp.ones(3), jnp.zeros((3, 2)), jnp.zeros((3, 2)))


# ------------------------------------------------------------------------------------------------ loss and gradient


def test_l11_beyond_the_bound_the_gradient_is_one_and_never_zero():
    errors = jnp.array([0.5, 3.0, -3.0, 1.0, -1.0, 0.0])
    by_q = jax.vmap(jax.value_and_grad(lambda q, error: huber(error - q, 1.0)))
    losses, gradients = jax.jit(by_q)(jnp.zeros(6), errors)
    np.testing.assert_allclose(losses, [0.125, 2.5, 2.5, 0.5, 0.5, 0.0])
    np.testing.assert_allclose(gradients, [-0.5, -1.0, 1.0, -1.0, 1.0, 0.0])
    np.testing.assert_allclose(huber(jnp.float32(5.0), 3.0), 10.5)
    # The same through the loss: targets are 0.5, 3 and -3 above the values of zero parameters.
    one_hot = np.eye(3, dtype=np.float32)
    batch = Transition(one_hot, np.zeros(3, np.int32), np.float32([0.5, 3, -3]), np.zeros(3, np.float32), one_hot)
    zeros = params_of(np.zeros((3, 4)))
    (_, metrics), (gradient, _) = loss_and_gradients(zeros, zeros, ops.maximum(), batch, Recipe(linear(3, 4), PLAIN))
    np.testing.assert_allclose(gradient["q"]["w"], np.outer([-0.5, -1.0, 1.0], [1, 0, 0, 0]))
    np.testing.assert_allclose(metrics.loss, 5.125)


def test_a_large_delta_learns_the_squared_loss(problem):
    network, online, target, batch = problem
    learned = []
    for delta in (100.0, 1e9, 1e30):
        settings = dataclasses.replace(PLAIN, huber_delta=delta)
        learned.append(loss_and_gradients(online, target, ops.maximum(), batch, Recipe(network, settings)))
    for other in learned[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, learned[0])


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_no_gradient_flows_through_the_target(operator, problem):
    network, online, target, batch = problem
    _, (by_online, by_target) = loss_and_gradients(online, target, operator, batch, Recipe(network, PLAIN))
    for leaf in jax.tree.leaves(by_target):
        np.testing.assert_array_equal(leaf, 0.0)
    # By hand, the target held constant: d loss / d W[:, a] = -clip(error) x, summed.
    q, values, selector = (
        np.asarray(obs @ p["q"]["w"], np.float64)
        for obs, p in ((batch.obs, online), (batch.next_obs, target), (batch.next_obs, online))
    )
    error = batch.reward + batch.discount * np.asarray(operator(values, selector))
    error = error - q[np.arange(32), batch.action]
    by_value = np.zeros((32, 4))
    by_value[np.arange(32), batch.action] = -np.clip(error, -1, 1)
    np.testing.assert_allclose(by_online["q"]["w"], batch.obs.T @ by_value, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_online["q"]["b"], by_value.sum(0), rtol=1e-4, atol=1e-4)
    assert np.abs(error).max() > 1 > np.abs(error).min()


def test_the_gradient_would_differ_if_it_flowed_through_the_target(problem):
    network, online, target, batch = problem
    operator, target = ops.double(ops.softmax(1.0)), jax.tree.map(jnp.asarray, target)

    def leaky(params):
        q, q_online = network.apply(params, batch.obs), network.apply(params, batch.next_obs)
        aim = td_target(operator, batch.reward, batch.discount, network.apply(target, batch.next_obs), q_online)
        return huber(aim - q[jnp.arange(32), batch.action], 1.0).sum()

    _, (right, _) = loss_and_gradients(online, target, operator, batch, Recipe(network, PLAIN))
    assert np.abs(jax.jit(jax.grad(leaky))(online)["q"]["w"] - right["q"]["w"]).max() > 0.01


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_nan_behind_a_terminal_does_no_harm(operator, poison, problem):
    network, online, target, batch = problem
    behind = batch.discount == 0
    assert 0 < behind.sum() < len(behind)
    poisoned = batch._replace(next_obs=np.where(behind[:, None], np.float32(poison), batch.next_obs))
    (expected, _), clean = loss_and_gradients(online, target, operator, batch, Recipe(network, PLAIN))
    (loss, metrics), gradients = loss_and_gradients(online, target, operator, poisoned, Recipe(network, PLAIN))
    assert np.isfinite(expected)
    np.testing.assert_array_equal([loss, metrics.loss], expected)
    jax.tree.map(np.testing.assert_array_equal, gradients, clean)


def test_rewards_are_multiplied_and_clipped_in_the_loss_alone(problem):
    network, _, _, batch = problem
    zeros = params_of(np.zeros((3, 4)))
    batch = batch._replace(reward=np.linspace(-200, 200, 32, dtype=np.float32))
    clipped = batch._replace(reward=np.clip(batch.reward, -1, 1))

    def loss(batch, clip, scale=1.0):
        settings = LearnerSettings(reward_scale=scale, reward_clip=clip)
        return float(loss_and_gradients(zeros, zeros, ops.maximum(), batch, Recipe(network, settings))[0][0])

    assert loss(batch, 1.0) == loss(clipped, None) == pytest.approx(16.0)
    assert loss(batch, None) > 1000 and loss(batch, 2.0) == pytest.approx(32 * 1.5)
    halved = batch._replace(reward=batch.reward / 2)
    assert loss(batch, None, 0.5) == loss(halved, None) and loss(batch, 2.0, 0.5) == loss(halved, 2.0)


@pytest.mark.parametrize("gap", [NoGap(), PersistentAdvantageGap(0.5)], ids=str)
def test_several_steps_are_one_of_their_rewards_each_clipped_and_bootstrapped_by_gamma_to_the_n(gap, problem):
    network, online, target, batch = problem
    rng = np.random.default_rng(0)
    reward, discount = np.float32(rng.normal(0, 3, (32, 3))), np.float32(0.9 * (rng.random((32, 3)) < 0.8))
    first, second, third = np.clip(reward, -1, 1).T
    total = first + discount[:, 0] * (second + discount[:, 1] * third)
    several = batch._replace(reward=reward, discount=discount), replace(PLAIN, reward_clip=1.0), 3
    single = batch._replace(reward=total, discount=discount.prod(axis=1)), PLAIN, 1
    ours, expected = (
        loss_and_gradients(online, target, ops.softmax(5.0), batch, Recipe(network, settings, returns, gap))
        for batch, settings, returns in (several, single)
    )
    chex.assert_trees_all_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_l10_sum_and_mean_differ_by_exactly_the_batch_size(problem):
    network, online, target, batch = problem

    def gradient(reduction):
        settings = LearnerSettings(loss_reduction=reduction, reward_clip=None)
        (loss, _), gradients = loss_and_gradients(online, target, ops.softmax(5.0), batch, Recipe(network, settings))
        return jax.tree.leaves((loss, gradients))

    for total, average in zip(gradient("sum"), gradient("mean"), strict=True):
        np.testing.assert_array_equal(total, 32 * average)  # 32 is a power of two: not a bit is lost


# -------------------------------------------------------------------------------------------------------- optimiser


def first_step(optimizer, gradient=(1.0, -2.0), **options):
    transformation = learner.make_optimizer(LearnerSettings(optimizer=optimizer, **options))
    zeros = jnp.zeros(len(gradient))
    return jax.jit(transformation.update)(jnp.array(gradient), transformation.init(zeros), zeros)


def test_l10_the_optimiser_is_deepminds():
    step, _ = first_step("rmsprop")
    np.testing.assert_allclose(step, [-0.00104257, 0.00111803], rtol=1e-5)


def test_l10_pytorchs_optimiser_is_another_one():
    # The root of S - G^2 is [0.0475, 0.19]^0.5; epsilon comes after it.
    step, _ = first_step("rmsprop-torch")
    np.testing.assert_allclose(step, [-0.00025 / (0.0475**0.5 + 0.01), 0.0005 / (0.19**0.5 + 0.01)], rtol=1e-5)
    step, _ = first_step("adam", optimizer_epsilon=1e-8)
    np.testing.assert_allclose(step, [-0.00025, 0.00025], rtol=1e-4)


def test_l10_many_steps_of_the_optimiser_equal_the_equations():
    rng = np.random.default_rng(0)
    settings = LearnerSettings(rmsprop_decay=0.9, learning_rate=0.01)
    transformation, zeros = learner.make_optimizer(settings), jnp.zeros(5)
    update, state, first, second = jax.jit(transformation.update), transformation.init(zeros), np.zeros(5), np.zeros(5)
    for _ in range(20):
        g = rng.normal(size=5)
        first, second = 0.9 * first + 0.1 * g, 0.9 * second + 0.1 * g**2
        step, state = update(np.float32(g), state, zeros)
        np.testing.assert_allclose(step, -0.01 * g / np.sqrt(second - first**2 + 0.01), rtol=1e-4)


def test_an_update_moves_the_online_network_by_the_optimisers_step(problem):
    network, online, target, batch = problem
    state = init(Recipe(network, PLAIN), jax.random.key(0))._replace(params=online, target_params=target)
    after, metrics = learn_step(state, ops.softmax(5.0), batch, Recipe(network, PLAIN))
    (loss, _), (gradient, _) = loss_and_gradients(online, target, ops.softmax(5.0), batch, Recipe(network, PLAIN))
    step, opt_state = jax.jit(learner.make_optimizer(PLAIN).update)(gradient, state.opt_state, online)
    chex.assert_trees_all_close(after.params, jax.tree.map(np.add, online, step), rtol=1e-5)
    chex.assert_trees_all_close(after.opt_state, opt_state, rtol=1e-5)
    chex.assert_trees_all_equal(after.target_params, target)
    assert after.updates == state.updates + 1 == 1 and metrics.loss == pytest.approx(float(loss), rel=1e-6)
    q_taken = np.sum(batch.obs * online["q"]["w"].T[batch.action], axis=1)
    np.testing.assert_allclose(metrics.q_taken, q_taken.mean(), rtol=1e-4)


def test_a_controller_is_shown_the_values_masks_ends_and_the_prediction_of_uniform_sampling(problem):
    """Of windows of two steps, which end in the first or the second one, drawn by priorities."""
    network, online, target, batch = problem
    rng = np.random.default_rng(0)
    legal, next_legal = rng.random((2, 32, 4)) < 0.7
    steps, density = rng.random((32, 2)) < 0.7, np.float32(rng.uniform(0.2, 3.0, 32))
    shown = batch._replace(
        reward=np.zeros((32, 2), np.float32),
        discount=np.float32(0.9 * steps),
        legal=legal,
        next_legal=next_legal,
        density=density,
    )
    recipe = Recipe(network, PLAIN, returns=2, controller=Noise(0.75, 1.0))
    (_, metrics), _ = loss_and_gradients(online, target, ops.softmax(5.0), shown, recipe, updates=7)
    here, online_ahead, ahead = (
        obs @ params["q"]["w"]
        for obs, params in ((batch.obs, online), (batch.next_obs, online), (batch.next_obs, target))
    )
    taken = np.average(here[np.arange(32), batch.action], weights=1 / density)
    expected = Signals(7, here, legal, ahead, next_legal, steps.all(axis=1), online_ahead[:2], np.float32(taken))
    chex.assert_trees_all_close(metrics.signals, expected, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ state


def test_the_state_is_arrays_and_nothing_else():
    state = init(Recipe(linear(3, 4), PLAIN), jax.random.key(0))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    assert state.updates == 0 and state.updates.dtype == jnp.int32
    chex.assert_trees_all_equal(state.target_params, state.params)
    assert isinstance(state, LearnerState) and "b" in state.params[linear(3, 4).last_layer]


def test_the_target_is_a_copy_that_stays_until_it_is_copied_again(problem):
    network, online, target, batch = problem
    state = init(Recipe(network, PLAIN), jax.random.key(0))._replace(params=online, target_params=target)
    moved, _ = learn_step(state, ops.softmax(5.0), batch, Recipe(network, PLAIN))
    copied = learner.copy_target(moved, Recipe(network, PLAIN))
    chex.assert_trees_all_equal(copied.target_params, moved.params)
    chex.assert_trees_all_equal(copied._replace(target_params=moved.target_params), moved)
    for here, there in zip(jax.tree.leaves(copied.params), jax.tree.leaves(copied.target_params), strict=True):
        assert here.unsafe_buffer_pointer() != there.unsafe_buffer_pointer()  # donating one must not lose the other


def test_seeds_differ_and_a_seed_repeats():
    network = linear(3, 4)
    first, again, other = (init(Recipe(network, PLAIN), jax.random.key(seed)).params for seed in (0, 0, 1))
    chex.assert_trees_all_equal(first, again)
    assert not np.array_equal(first["q"]["w"], other["q"]["w"])


# ----------------------------------------------------------------------------------------------------------- acting


def test_acting_knows_no_operator():
    assert list(inspect.signature(learner.act).parameters) == ["recipe", "params", "obs", "key_act", "epsilon", "legal"]


def test_acting_is_greedy_or_uniform_and_ties_go_to_the_lowest_action():
    network, params = linear(3, 4), params_of([[0, 2, 2, 1], [3, 1, 3, 3], [0, 0, 0, 0]])
    obs = np.tile(np.eye(3, dtype=np.float32), (2000, 1))
    compiled = jax.jit(learner.act, static_argnames=STATIC)

    def act(seed, *rates):
        return np.asarray(
            compiled(Recipe(network, PLAIN), params, obs, jax.random.key(seed), np.tile(np.float32(rates), 2000))
        )

    greedy = act(0, 0.0, 0.0, 0.0)
    assert greedy.dtype == np.int32
    np.testing.assert_array_equal(greedy.reshape(-1, 3), np.tile([1, 0, 0], (2000, 1)))
    uniform = act(0, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(np.bincount(uniform, minlength=4) / 6000, 0.25, atol=0.02)
    # A random action may be the greedy one too: 0.5 + 0.5 / 4 of all.
    half = act(1, 0.5, 0.5, 0.5)
    assert np.mean(half == greedy) == pytest.approx(0.625, abs=0.02)
    # Each environment may have its own rate, and each key its own draws.
    mixed = act(0, 0.0, 0.0, 1.0).reshape(-1, 3)
    np.testing.assert_array_equal(mixed[:, :2], np.tile([1, 0], (2000, 1)))
    np.testing.assert_array_equal(mixed[:, 2], uniform.reshape(-1, 3)[:, 2])
    assert not np.array_equal(uniform, act(2, 1.0, 1.0, 1.0))


@pytest.mark.parametrize("estimate", [Value(), Ensemble(3, "mix")], ids=str)
@pytest.mark.parametrize("noise", [NoNoise(), Noisy()], ids=str)
def test_no_key_is_used_twice(noise, estimate):
    network, key = noise.added(mlp((3,), 4, hidden=(5,), outputs=estimate.outputs)), jax.random.key(0)
    recipe, obs, epsilon = Recipe(network, PLAIN, estimate=estimate), jnp.zeros((2, 3)), jnp.float32(0.5)
    state = jax.eval_shape(partial(learner.init, recipe), key)
    with jax.debug_key_reuse(True):  # it looks when a function is traced
        jax.jit(learner.init, static_argnames=STATIC).lower(recipe, key)
        for act in (learner.act, learner.act_greedily):
            jax.jit(act, static_argnames=STATIC).lower(recipe, state.params, obs, key, epsilon)
        batch = random_batch(0, 8, 3, 4)
        jax.jit(learner.learn_step, static_argnames=STATIC).lower(state, ops.maximum(), batch, recipe)
        with pytest.raises(jax.errors.KeyReuseError):
            jax.jit(lambda key: jax.random.uniform(key) + jax.random.normal(key)).lower(key)


# --------------------------------------------------------------------------------------------------------- schedule


@pytest.mark.parametrize("as_array", [False, True])
def test_l33_epsilon_is_exact_at_its_corners(as_array):
    settings = LearnerSettings(replay_start_steps=100, epsilon_decay_steps=1000)

    def at(step):
        return float(Schedule.of(settings).at(jnp.int32(step)) if as_array else epsilon_at(step, settings))

    end = float(np.float32(0.1)) if as_array else 0.1  # not 1 + (0.1 - 1), which is less, and in float32 more
    assert [at(step) for step in (0, 1, 99, 100)] == [1.0] * 4
    assert [at(step) for step in (1100, 1101, 10**9)] == [end] * 3
    assert at(600) == pytest.approx(0.55) and at(101) == pytest.approx(1 - 0.0009) and at(1099) > end
    values = [at(step) for step in range(0, 1200, 50)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("as_array", [False, True])
def test_l33_a_decay_over_no_steps_jumps_to_the_end(as_array):
    settings = LearnerSettings(replay_start_steps=100, epsilon_decay_steps=0)
    for step, expected in ((0, 1.0), (99, 1.0), (100, 0.1), (101, 0.1)):
        rate = Schedule.of(settings).at(jnp.int32(step)) if as_array else epsilon_at(step, settings)
        assert float(rate) == pytest.approx(expected)


def test_l33_epsilon_may_rise_and_takes_arrays():
    settings = LearnerSettings(replay_start_steps=0, epsilon_decay_steps=3, epsilon_start=0.1, epsilon_end=0.7)
    got = jax.jit(Schedule.at)(Schedule.of(settings), jnp.arange(6))
    np.testing.assert_allclose(got, [0.1, 0.3, 0.5, 0.7, 0.7, 0.7], rtol=1e-6)
    assert epsilon_at(5, settings) == 0.7


@pytest.mark.parametrize("change", [{}, {"epsilon_end": 0.3}, {"epsilon_start": 0.0, "epsilon_decay_steps": 7}])
def test_the_schedule_of_a_compiled_program_is_epsilons_and_no_part_of_what_is_compiled(change):
    settings = replace(LearnerSettings(replay_start_steps=50, epsilon_decay_steps=333), **change)
    steps, rate = np.arange(0, 500, 3), jax.jit(jax.vmap(Schedule.at, in_axes=(None, 0)))
    got = rate(Schedule.of(settings), steps)
    np.testing.assert_allclose(got, [epsilon_at(int(step), settings) for step in steps], rtol=1e-6, atol=1e-6)
    rate(Schedule.of(replace(settings, epsilon_end=0.77, epsilon_decay_steps=1, replay_start_steps=9)), steps)
    assert rate._cache_size() == 1


@pytest.mark.parametrize("xp", [np, jnp])
def test_a_random_action_is_one_of_the_legal_ones_all_alike(xp):
    legal = np.array([[False, True, False, True, True], [True] * 5, [False, False, False, False, True]])
    numbers = np.linspace(0, 1, 3000, endpoint=False, dtype=np.float32)
    for mask in legal:
        actions = np.asarray(learner.random_legal(xp.asarray(numbers), xp.asarray(np.tile(mask, (3000, 1)))))
        assert actions.dtype == np.int32 and set(actions.tolist()) == set(np.flatnonzero(mask).tolist())
        counts = np.bincount(actions, minlength=5)[mask]
        assert counts.max() - counts.min() <= 1
    last = np.nextafter(np.float32(1), np.float32(0))  # the largest number there is stays within
    for count in (1, 2, 3, 18, 199):
        assert learner.random_legal(xp.full(1, last), xp.ones((1, count), bool)).tolist() == [count - 1]


def test_masks_of_all_actions_change_no_draw_and_no_choice():
    key, everything = jax.random.key(3), jnp.ones((64, 5), bool)
    for one, other in zip(learner.exploration(key, 64, 5), learner.exploration(key, 64, 5, everything), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_settings_of_an_update_leave_replay_and_exploration_out():
    settings = LearnerSettings(gamma=0.5, optimizer="adam", reward_clip=None)
    assert settings.update == UpdateSettings(gamma=0.5, optimizer="adam", reward_clip=None)
    others = replace(settings, batch_size=7, replay_capacity=99, replay_start_steps=1, epsilon_end=0.5)
    assert others.update == settings.update and hash(others.update) == hash(settings.update)
    assert replace(settings, huber_delta=2.0).update != settings.update


# ------------------------------------------------------------------------------------------------------ compilation


@pytest.mark.parametrize(
    ("network", "obs_shape"),
    [
        pytest.param(mlp((3,), 4, hidden=(5,)), (3,), id="mlp"),
        pytest.param(nature_cnn(4), (4, 84, 84), id="nature_cnn"),
    ],
)
def test_the_compiler_drops_the_online_pass_where_it_is_not_used(network, obs_shape):
    params = jax.eval_shape(network.init, jax.random.key(0))
    vector = jax.ShapeDtypeStruct((8,), jnp.float32)
    obs = jax.ShapeDtypeStruct((8, *obs_shape), jnp.float32)
    batch = Transition(obs, jax.ShapeDtypeStruct((8,), jnp.int32), vector, vector, obs)

    def count(function, *arguments):
        return jax.jit(function).lower(*arguments).as_text().count("dot_general")

    def count_loss(operator, transform=lambda loss, **options: loss):
        def loss(params, target_params, batch):
            return td_loss(params, target_params, operator, batch, Recipe(network, PLAIN))

        return count(transform(loss, has_aux=True), params, params, batch)

    one_pass = count(network.apply, params, obs)
    assert one_pass >= 2
    for single in (ops.maximum(), ops.softmax(5.0), ops.mellowmax(5.0)):
        assert count_loss(single) == 2 * one_pass
        assert count_loss(ops.double(single)) == 3 * one_pass
    single, double = ops.softmax(5.0), ops.double(ops.softmax(5.0))
    assert count_loss(double, jax.value_and_grad) == count_loss(single, jax.value_and_grad) + one_pass


def test_a_new_parameter_compiles_nothing_anew(problem):
    network, online, _, batch = problem
    state = init(Recipe(network, PLAIN), jax.random.key(0))._replace(target_params=online)
    learn = jax.jit(chex.assert_max_traces(learner.learn_step, n=1), static_argnames=STATIC)
    losses = {
        float(learn(state, ops.double(ops.softmax(tau)), batch, recipe=Recipe(network, PLAIN))[1].loss)
        for tau in (1.0, 5, 0.0, 1e30)
    }
    assert len(losses) == 4


def test_settings_are_hashable_so_that_they_can_be_static():
    assert hash(PLAIN) == hash(dataclasses.replace(PLAIN))
