"""Test phases on the host: the policy of fixed parameters plays games of its own.

A test phase ends by its step budget or after a number of games, whichever comes first: never endless. It has its own
environment and its own random stream, so that training is the same with and without it.
"""

import math
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning import learner
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import UpdateSettings
from softbellman.training import streams
from softbellman.training.streams import Role

Policy = Callable[[np.ndarray, int, np.ndarray, np.ndarray | None], tuple[np.ndarray, np.ndarray]]
"""`policy(obs, moment, age, legal) -> (actions [E], max_a Q [E])`: `moment` is the phase's step, `age` `[E]` that of
each game, `legal` `[E, A]` bool or None: all."""

RAW = UpdateSettings(reward_clip=None)
NEGLIGIBLE = 0.01  # a return is known once the discount of what was not seen has fallen below this


class TestPhase(NamedTuple):
    """Outcome of a test phase. Deviation D33.

    Attributes:
        scores: `[n]` raw undiscounted scores of the games counted.
        lengths: `[n]` their agent steps.
        unfinished: True if no game ended within the budget: the one score is then of the unfinished game.
        steps: agent steps played.
        realised_return: mean over the visited states of the discounted return that followed, of rewards as the learner
            sees them, or None if no state was far enough from the end of the budget.
        overestimation: mean over the same states of `max_a Q_online` minus that return, or None.
        identical: True if all of several games were the same, observation by observation.
    """

    __test__ = False  # the name is not a test's

    scores: np.ndarray
    lengths: np.ndarray
    unfinished: bool
    steps: int
    realised_return: float | None
    overestimation: float | None
    identical: bool

    @property
    def mean(self) -> float:
        """Mean score."""
        return float(self.scores.mean())


def play(
    policy: Policy,
    env: HostEnv,
    *,
    max_steps: int,
    max_episodes: int | None = None,
    update: UpdateSettings = RAW,
    on_step: Callable[[], None] | None = None,
) -> TestPhase:
    """Plays a test phase. The environment is reset first and left as it is afterwards.

    Args:
        policy: chooses actions, and says the value it sees.
        env: the test environment, `E` copies; the budget counts the steps of all.
        max_steps: budget of agent steps.
        max_episodes: ends the phase after so many finished games; None: only the budget does.
        update: what the realised return is of: the learner's discount factor, and rewards as it sees them.
        on_step: called after the reset and after each step, to record a video.

    Returns:
        The phase. Finished games count; an unfinished one only if there is no other.

    Raises:
        ValueError: if the budget has room for no step, or `max_episodes` for no game.
    """
    if max_episodes is not None and max_episodes < 1:
        raise ValueError(f"max_episodes ({max_episodes}) must be at least 1, or None for no limit")
    if max_steps < env.num_envs:
        raise ValueError(f"a test phase of {max_steps} agent steps has no step for {env.num_envs} environments")
    obs = env.reset()
    _notify(on_step)
    values, rewards, known_ends, cuts = [], [], [], []
    score, length = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
    checksum = [zlib.crc32(_newest(env, obs, copy)) for copy in range(env.num_envs)]
    scores, lengths, checksums, steps = [], [], [], 0
    while steps + env.num_envs <= max_steps and (max_episodes is None or len(scores) < max_episodes):
        actions, value = policy(obs, steps, length, env.legal)
        step = env.step(actions)
        steps += env.num_envs
        values.append(value)
        rewards.append(step.reward)
        known_ends.append(step.training_end)
        cuts.append(step.truncated & ~step.training_end)
        score += step.reward
        length += 1
        for copy in range(env.num_envs):
            checksum[copy] = zlib.crc32(_newest(env, step.next_obs, copy), checksum[copy])
        for copy in np.flatnonzero(step.game_ended).tolist():
            scores.append(float(score[copy]))
            lengths.append(int(length[copy]))
            checksums.append(checksum[copy])
            score[copy], length[copy] = 0.0, 0
            checksum[copy] = zlib.crc32(_newest(env, step.obs, copy))
        obs = step.obs
        _notify(on_step)
    unfinished = not scores
    if unfinished:
        scores, lengths = [float(score[0])], [int(length[0])]
    realised, overestimation = realised_return(
        np.array(values), update.seen(np.array(rewards), np), np.array(known_ends), np.array(cuts), update.gamma
    )
    identical = len(checksums) > 1 and len(set(checksums)) == 1
    return TestPhase(np.array(scores), np.array(lengths), unfinished, steps, realised, overestimation, identical)


def greedy_policy(recipe: Recipe, params: Any, seed: int, epsilon: float, random_first_actions: int = 0) -> Policy:
    """Returns the epsilon-greedy policy of fixed parameters, to be played; its draws depend on `seed` alone."""
    key = streams.key(seed, Role.TEST)

    def policy(obs: np.ndarray, moment: int, age: np.ndarray, legal: Any = None) -> tuple[np.ndarray, np.ndarray]:
        rate = exploration_rate(age, random_first_actions, epsilon)
        actions, values = act(recipe, params, obs, key, np.uint32(moment), rate, legal)
        return np.asarray(actions), np.asarray(values)

    return policy


def random_actions(rng: np.random.Generator, env: HostEnv, copies: int | None = None) -> np.ndarray:
    """Draws a legal action for each of the first copies of an environment, `[E]`, all alike; None: for all copies."""
    copies = env.num_envs if copies is None else copies
    if env.legal is None:
        return rng.integers(env.num_actions, size=copies)
    return learner.random_legal(rng.random(copies), env.legal[:copies])


def exploration_rate(age: np.ndarray, random_first_actions: int, epsilon: float) -> np.ndarray:
    """Returns the exploration rate of games of an age, float32: 1 for the first actions that are random by rule."""
    return np.where(age < random_first_actions, 1.0, epsilon).astype(np.float32)


@partial(jax.jit, static_argnames=("recipe",))
def act(recipe: Recipe, params: Any, obs: Any, key: jax.Array, moment: Any, epsilon: Any, legal: Any) -> Any:
    """Chooses the actions `[E]` of a moment and gives the best values `[E]`; see `learner.act_greedily`.

    A moment's draws are its own: the key is not consumed.
    """
    return learner.act_greedily(recipe, params, obs, jax.random.fold_in(key, moment), epsilon, legal)


def realised_return(
    values: np.ndarray,
    rewards: np.ndarray,
    known_ends: np.ndarray,
    cuts: np.ndarray,
    gamma: float,
    counted: np.ndarray | bool = True,
) -> tuple[float | None, float | None]:
    """Computes the mean discounted return from the visited states, and how far the values lie above it.

    Args:
        values: `[T, E]`, `max_a Q_online` at the states visited.
        rewards: `[T, E]`, rewards of the steps from them, as the learner sees them.
        known_ends: `[T, E]` bool, training sees an end after the step: the return stops there.
        cuts: `[T, E]` bool, the game was cut after the step: what would have followed is not known.
        gamma: discount factor.
        counted: `[T, E]` bool, which states are looked at; all by default.

    Returns:
        Mean return and mean of value minus return over the counted states whose return is known to within 1% of the
        weight of the future, or `(None, None)` if there is none.
    """
    horizon = math.ceil(math.log(NEGLIGIBLE) / math.log(gamma)) if gamma > 0 else 1
    following = np.zeros(values.shape[1])
    seen = np.zeros(values.shape[1])  # steps seen after a state, infinite before a known end
    returns, known = np.empty(values.shape), np.empty(values.shape, bool)
    for t in range(len(values) - 1, -1, -1):
        ended = known_ends[t] | cuts[t]
        following = rewards[t] + gamma * np.where(ended, 0.0, following)
        seen = np.where(known_ends[t], np.inf, np.where(cuts[t], 1, seen + 1))
        returns[t], known[t] = following, seen >= horizon
    known &= counted
    if not known.any():
        return None, None
    return float(returns[known].mean()), float((values[known] - returns[known]).mean())


def _newest(env: HostEnv, obs: np.ndarray, copy: int) -> np.ndarray:
    """Returns the part of an observation that is new, ready for a checksum."""
    return np.ascontiguousarray(obs[copy] if env.stack is None else obs[copy, -1])


def _notify(on_step: Callable[[], None] | None) -> None:
    if on_step is not None:
        on_step()
