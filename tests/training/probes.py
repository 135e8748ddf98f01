"""Environments small enough to know everything about, and the loops that train on them."""

from functools import cache, partial

import numpy as np

from softbellman.envs.step import Step
from softbellman.learning.networks import mlp
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import LearnerSettings
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.settings import LoopSettings

GAMMA = 0.8
LEARNER = LearnerSettings(
    gamma=GAMMA,
    learning_rate=0.01,
    optimizer="adam",
    optimizer_epsilon=1e-8,
    batch_size=16,
    loss_reduction="mean",
    update_period_steps=4,
    target_period_updates=10,
    replay_capacity=2_000,
    replay_start_steps=40,
    epsilon_decay_steps=200,
)
LOOP = LoopSettings(steps=2_000, epoch_steps=200, test_steps=40, held_out_states=20, gradient_batches=2)


class Probe:
    """The loop never asks this of an environment, but the protocol does."""

    tape, legal = (), None

    def restore(self, tape):
        raise NotImplementedError("a probe has no tape")

    def screen(self, env=0):
        raise NotImplementedError("a probe has no screen")

    def describe(self):
        return {"environment": type(self).__name__}


class TableEnv(Probe):
    """`E` copies of a deterministic decision process given by its tables; nothing in it is random.

    The observation is the state's row of `features`, one-hot by default. Each game starts in the next of `starts`,
    the copies one apart. `time_limit` cuts games. The course is kept: `actions`, one array `[E]` a step.
    """

    def __init__(
        self,
        reward,
        successor=None,
        terminal=None,
        *,
        num_envs=1,
        features=None,
        starts=(0,),
        time_limit=None,
        frames_per_step=1,
    ):
        self.reward = np.array(reward, np.float32)
        self.successor = np.zeros(self.reward.shape, int) if successor is None else np.array(successor)
        self.terminal = np.full(self.reward.shape, successor is None) if terminal is None else np.array(terminal)
        self.features = np.array(np.eye(len(self.reward)) if features is None else features, np.float32)
        self.num_envs, self.num_actions, self.stack = num_envs, self.reward.shape[1], None
        self.obs_shape, self.obs_dtype = self.features.shape[1:], np.dtype(np.float32)
        self.frames_per_step, self.starts, self.time_limit = frames_per_step, starts, time_limit
        self.games, self.actions, self.closed = np.arange(num_envs), [], False

    def reset(self):
        self.state, self.age = self._starts(), np.zeros(self.num_envs, int)
        return self.features[self.state]

    def step(self, actions):
        self.actions.append(np.array(actions))
        here, actions = self.state, np.asarray(actions)
        following, reward = self.successor[here, actions], self.reward[here, actions]
        terminated, self.age = self.terminal[here, actions], self.age + 1
        truncated = ~terminated & (self.age == self.time_limit)
        ended = terminated | truncated
        self.games = self.games + ended
        self.state = np.where(ended, self._starts(), following)
        self.age = np.where(ended, 0, self.age)
        return Step(
            self.features[self.state], self.features[following], reward, terminated, truncated, ended, terminated
        )

    def close(self):
        self.closed = True

    def _starts(self):
        return np.array(self.starts)[self.games % len(self.starts)]


class ScriptedEnv(Probe):
    """One game that goes by its script, whatever is done: pairs of a reward and what happened with it.

    What may happen: "" (the game goes on), "life" (one is lost), "over" and "cut". After the last line the script
    starts anew. Observed is the number of the step within the game.
    """

    num_envs, num_actions, stack = 1, 2, None
    obs_shape, obs_dtype = (1,), np.dtype(np.float32)

    def __init__(self, script, *, training=True, frames_per_step=1):
        self.script, self.training, self.frames_per_step = script, training, frames_per_step
        self.played, self.actions = 0, []

    def reset(self):
        self.age = 0
        return self._obs()

    def step(self, actions):
        reward, event = self.script[self.played % len(self.script)]
        self.played += 1
        self.age += 1
        self.actions.append(np.array(actions))
        next_obs = self._obs()
        over, cut, life_lost = event == "over", event == "cut", event == "life"
        if over or cut:
            self.age = 0
        end = np.array([over or life_lost])
        return Step(
            obs=self._obs(),
            next_obs=next_obs,
            reward=np.array([reward], np.float32),
            terminated=end if self.training else np.array([over]),
            truncated=np.array([cut]),
            game_ended=np.array([over or cut]),
            training_end=end,
        )

    def close(self):
        pass

    def _obs(self):
        return np.array([[self.age]], np.float32)


def corridor(*, num_envs=1, frames_per_step=1):
    """Four states in a row; action 1 goes right, to a reward of 1 and the end, action 0 left, at a cost."""
    states = np.arange(4)
    return TableEnv(
        reward=np.stack([np.full(4, -0.1), np.where(states == 3, 1.0, 0.0)], axis=1),
        successor=np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, 3)], axis=1),
        terminal=np.stack([np.zeros(4, bool), states == 3], axis=1),
        starts=(0, 2, 1),
        time_limit=9,
        num_envs=num_envs,
        frames_per_step=frames_per_step,
    )


@cache
def network(obs_shape, num_actions, hidden=(16,)):
    """One network for each shape: a new one would be compiled anew."""
    return mlp(obs_shape, num_actions, hidden)


def make_recipe(learner, obs_shape, num_actions, hidden=(16,), **parts):
    return Recipe(network(obs_shape, num_actions, hidden), learner.update, **parts)


def make_loop(operators, env=corridor, *, seeds=(0,), learner=LEARNER, loop=LOOP, hidden=(16,), parts=None, **options):
    """A loop over one operator or several, each with its seed; `env()` makes an environment, `parts` are a recipe's."""
    operators = operators if isinstance(operators, list) else [operators] * len(seeds)
    runs = [Run(operator, seed) for operator, seed in zip(operators, seeds, strict=True)]

    recipe = partial(make_recipe, learner, hidden=hidden, **(parts or {}))
    return host_loop(runs, lambda seed, training: env(), recipe, learner, loop, **options)


def envs(loop):
    """The training environments of all runs."""
    return [env for stage in loop.stages for env in stage.envs]


def replays(loop):
    """The replays of all runs."""
    return [replay for stage in loop.stages for replay in stage.replays]


def counts(loop, index=0):
    """The counts of a run."""
    number, lane = divmod(index, loop.loop.block_width)
    return loop.stages[number].counts(lane)
