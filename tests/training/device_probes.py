"""A device environment small enough to know everything about, and the loops that train on it."""

import dataclasses
import functools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from softbellman.envs.device import DeviceGame
from softbellman.envs.hosted import HostedEnv
from softbellman.learning.networks import mlp
from softbellman.learning.recipe import Recipe
from softbellman.training.device_stage import device_loop as loop_of
from softbellman.training.lanes import Run
from softbellman.training.settings import LoopSettings

from . import probes

LEARNER = replace(probes.LEARNER, replay_capacity=500, replay_start_steps=42)  # no multiple of the period, on purpose
LOOP = LoopSettings(
    steps=2_000, epoch_steps=200, test_steps=800, test_episodes=8, held_out_states=20, gradient_batches=2
)
FIVE = (10.0, 2.0, 3.0, 4.0, 5.0)


@dataclasses.dataclass(frozen=True)
class CorridorRules:
    """States in a row: action 1 goes on, action 0 stays; each step pays its state's reward; the last step ends it.

    Unless it `ends`, the first state comes after the last.
    """

    rewards: tuple[float, ...]
    ends: bool

    num_actions = 2
    obs_dtype = np.dtype(np.bool_)
    start_words = 0
    step_words = 0

    @property
    def obs_shape(self):
        return (len(self.rewards),)

    def start(self, words):
        return jnp.int32(0)

    def advance(self, play, action, words):
        after = play + action
        return after % len(self.rewards), jnp.asarray(self.rewards)[play], (after == len(self.rewards)) & self.ends

    def observe(self, play):
        return jnp.arange(len(self.rewards)) == play


@dataclasses.dataclass(frozen=True)
class Corridor(DeviceGame):
    rewards: tuple[float, ...] = FIVE
    max_steps: int | None = None
    ends: bool = True
    sticky_probability: float = 0.0

    @property
    def rules(self):
        return CorridorRules(self.rewards, self.ends)

    num_actions = 2
    obs_dtype = np.dtype(np.bool_)

    @property
    def obs_shape(self):
        return (len(self.rewards),)

    def describe(self):
        return {"environment": "corridor"}


def hosted(env, loop, seed, training):
    """A device environment as the loop on the host makes it."""
    return HostedEnv(env, seed=seed, num_envs=loop.num_envs if training else 1, training=training)


def device_loop(runs, settings=LEARNER, loop=LOOP, env=None, parts=None):
    env = env or Corridor()

    def make_recipe(obs_shape, num_actions):
        return Recipe(network(obs_shape, num_actions), settings.update, **(parts or {}))

    make_env = functools.partial(hosted, env, loop)
    return loop_of([Run(*run) for run in runs], env, make_env, make_recipe, settings, loop)


@functools.cache  # one object for each, so that what was compiled for it serves again
def network(obs_shape, num_actions, hidden=(8,)):
    return mlp(obs_shape, num_actions, hidden)


def linear_network(states):
    return network((states,), 2, ())
