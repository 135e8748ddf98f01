"""Legal actions from the environment to the target: an illegal one is never taken and counts nowhere."""

from dataclasses import replace
from functools import cache

import gymnasium
import jax
import numpy as np
import pytest

from softbellman import envs, tabular
from softbellman import operators as ops
from softbellman.envs.gym import GymEnv
from softbellman.envs.mdp import MDPEnv
from softbellman.learning.networks import mlp
from softbellman.learning.parts.exploration import Policy
from softbellman.learning.recipe import Recipe
from softbellman.tabular.examples import EXAMPLES
from softbellman.training.checkpoint import Checkpoint, save
from softbellman.training.device_stage import device_loop
from softbellman.training.evaluation import greedy_policy, play, random_actions
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.measurement import common_states

from .probes import LEARNER, LOOP

OPERATORS = [ops.maximum(), ops.softmax(5.0), ops.double(ops.softmax(5.0)), ops.mellowmax(5.0)]


class Doors(gymnasium.Env):
    """Rooms in a row, some of whose doors are shut for a while; to walk into one is an error. The best value is a lie.

    Action 0 stays, action 1 goes left, action 2 right; the end is at the right, and every step costs.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=2)

    def __init__(self):
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.time = int(self.np_random.integers(3)), 0
        return np.eye(4, dtype=np.float32)[self.room], {"action_mask": self._allowed()}

    def _allowed(self):
        left, right = self.room > 0 and self.time % 2 == 1, self.time % 3 > 0 or self.room == 0
        return np.array([not (left or right) or self.time % 4 == 0, left, right], np.int8)

    def step(self, action):
        action = int(action) - 2
        if not self._allowed()[action]:
            raise ValueError(f"illegal action {action}")
        self.taken.append(action)
        self.room, self.time = min(self.room + (0, -1, 1)[action], 3), self.time + 1
        end = self.room == 3
        info = {"action_mask": np.zeros(3, np.int8) if end else self._allowed()}
        return np.eye(4, dtype=np.float32)[self.room], -1.0, end, False, info


def make_doors(seed=0, training=True, num_envs=1):
    return GymEnv(lambda: gymnasium.wrappers.TimeLimit(Doors(), 9), seed=seed, training=training, num_envs=num_envs)


@cache
def network(obs_shape, num_actions):
    return mlp(obs_shape, num_actions, ())


def loop_on(make_env, operators, learner=LEARNER, loop=LOOP, **parts):
    def recipe(obs_shape, num_actions):
        return Recipe(network(obs_shape, num_actions), learner.update, **parts)

    runs = [Run(operator, seed) for seed, operator in enumerate(operators)]
    return host_loop(runs, lambda seed, training: make_env(seed, training), recipe, learner, loop)


@pytest.mark.parametrize("parts", [{}, {"exploration": Policy(ops.softmax(2.0))}], ids=["epsilon", "policy"])
@pytest.mark.parametrize(("num_envs", "width"), [(1, 1), (2, 3)])
def test_training_and_tests_take_no_illegal_action(num_envs, width, parts):
    """The environment raises on one: random first actions, exploration, best ones, tests, common states."""
    made = []

    def make_env(seed, training):
        made.append(make_doors(seed, training, num_envs if training else 1))
        return made[-1]

    sizes = replace(LOOP, num_envs=num_envs, block_width=width, steps=800, epoch_steps=400)
    loop = loop_on(make_env, [ops.softmax(2.0)] * 2, loop=sizes, **parts)
    for _ in range(2):
        loop.advance(400)
        measured = loop.test()
        assert all(np.isfinite(row["held_out_operator_value"]) for row, _ in measured.values())
    taken = [action for env in made for copy in env._envs for action in copy.unwrapped.taken]
    assert set(taken) == {0, 1, 2} and len(taken) > 800
    for stage in loop.stages:
        for replay in stage.replays:
            batch = replay.gather(np.flatnonzero(replay.valid))
            assert batch.legal[np.arange(len(batch.action)), batch.action].all()
            assert batch.next_legal.any(axis=-1).all() and batch.next_legal[batch.discount == 0].all()
            assert not batch.legal.all()
    assert all(not states.legal.all() for states in loop.held_out)


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_the_loop_reaches_the_solution_of_an_mdp_with_illegal_actions(operator):
    """The unlearned value of an illegal action is about 0, above all others: it would be seen if it counted."""
    gamma = 0.8
    learner = replace(LEARNER, epsilon_end=1.0, target_period_updates=25, gamma=gamma, replay_capacity=4_000)
    learner = replace(learner, reward_clip=None, learning_rate=0.03, update_period_steps=8)
    sizes = replace(LOOP, num_envs=8, steps=8_000, epoch_steps=8_000)

    def make_env(seed, training):
        return envs.make("mdp/doors", seed=seed, training=training, num_envs=8 if training else 1)

    loop = loop_on(make_env, [operator], learner, sizes)
    loop.advance(8_000)
    mdp = EXAMPLES["doors"](gamma=gamma)
    q = np.asarray(loop.recipe.q(loop.params(0), np.eye(4, dtype=np.float32)))
    active = mdp.legal & ~mdp.terminal[:, None]
    np.testing.assert_allclose(q[active], tabular.solve(mdp, operator).q[active], atol=0.01)
    without = tabular.solve(tabular.FiniteMDP(_closed(mdp), mdp.reward, gamma, terminal=mdp.terminal), operator)
    assert np.abs(without.q - tabular.solve(mdp, operator).q)[active].max() > 0.05


def _closed(mdp):
    """The transitions, with illegal actions as ones that end and cost nothing: so a learner without masks sees them."""
    kernel = mdp.kernel.reshape(4, 3, 4).copy()
    kernel[..., 3] += 1 - kernel.sum(axis=-1)
    return kernel


def test_a_run_with_masks_goes_on_exactly(tmp_path):
    sizes = replace(LOOP, num_envs=2, steps=1_200, epoch_steps=400)

    def fresh():
        return loop_on(
            lambda seed, training: make_doors(seed, training, 2 if training else 1), [ops.mean()], loop=sizes
        )

    def go(loop, steps):
        rows = []
        for _ in range(steps):
            loop.advance(400)
            rows += [row for row, _ in loop.test().values()]
        return rows

    loop = fresh()
    go(loop, 2)
    save(tmp_path / "saved", loop.snapshot())
    again = fresh()
    assert again.restore(Checkpoint(tmp_path / "saved")) == []
    assert all((a.legal == b.legal).all() for a, b in zip(again.held_out, loop.held_out, strict=True))
    for one, other in zip(go(loop, 1), go(again, 1), strict=True):
        assert {k: v for k, v in one.items() if "seconds" not in k} == {
            k: v for k, v in other.items() if "seconds" not in k
        }
    for a, b in zip(jax.tree.leaves(loop.state(0)), jax.tree.leaves(again.state(0)), strict=True):
        assert (np.asarray(a) == np.asarray(b)).all()


def valued(*values):
    """A recipe, and parameters with these action values in every state."""
    recipe = Recipe(network((4,), 3), LEARNER.update)
    params = jax.tree.map(lambda leaf: leaf * 0, recipe.network.init(jax.random.key(0)))
    return recipe, {"q": {**params["q"], "b": np.array(values, np.float32)}}


def test_a_test_phase_and_the_random_policy_keep_to_what_is_legal():
    env, rng = make_doors(training=False), np.random.default_rng(0)
    recipe, params = valued(9.0, 1.0, 0.0)
    phase = play(greedy_policy(recipe, params, 0, 0.1, 3), env, max_steps=500)
    assert phase.steps == 500
    phase = play(lambda obs, moment, age, legal: (random_actions(rng, env), np.zeros(1)), env, max_steps=500)
    assert phase.steps == 500


def test_the_value_of_a_test_is_that_of_the_best_legal_action():
    recipe, params = valued(9.0, 1.0, 0.0)
    policy = greedy_policy(recipe, params, 0, 0.0)
    legal = np.array([[False, True, True], [True, True, True]])
    actions, values = policy(np.zeros((2, 4), np.float32), 0, np.zeros(2, int), legal)
    assert actions.tolist() == [1, 0] and values.tolist() == [1.0, 9.0]
    actions, values = policy(np.zeros((2, 4), np.float32), 0, np.zeros(2, int))
    assert actions.tolist() == [0, 0] and values.tolist() == [9.0, 9.0]


def test_the_common_states_come_with_their_masks():
    states = common_states(make_doors())
    assert states.legal.shape == (len(states.obs), 3) and states.legal.any(axis=-1).all() and not states.legal.all()
    assert (states.legal[:, 1] <= ~(states.obs[:, 0] == 1)).all()  # there is no way left of the first room


def test_the_device_stage_says_that_it_has_no_masks():
    learner = replace(LEARNER, replay_capacity=2_000)
    sizes = replace(LOOP, test_episodes=2)

    def recipe(obs_shape, num_actions):
        return Recipe(network(obs_shape, num_actions), learner.update)

    with pytest.raises(ValueError, match="mdp/doors has illegal actions, and the device stage has no masks"):
        device_loop([Run(ops.maximum(), 0)], MDPEnv("doors"), lambda seed, training: None, recipe, learner, sizes)
