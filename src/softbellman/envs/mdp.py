"""The family `mdp/<example>`: finite MDPs to be trained on, with the exact answer at hand to hold values against."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.device import DeviceGame, uniform
from softbellman.envs.picture import painted
from softbellman.tabular import FiniteMDP
from softbellman.tabular.examples import EXAMPLES

_COLOURS = {"here": (240, 228, 66), "no state": (96, 96, 104)}
_LONGEST_ROW = 10  # cells of a picture


class _Tables(NamedTuple):
    """An MDP as numbers to draw from.

    Attributes:
        reward: `[S, A]` float32, expected.
        cumulative: `[S, A, S]` float32, the probability of going on to this state or one before it.
        starts: `[n]` int32, the states that are no end.
        legal: `[S + 1, A]` bool; all behind the end.
    """

    reward: np.ndarray
    cumulative: np.ndarray
    starts: np.ndarray
    legal: np.ndarray


@dataclasses.dataclass(frozen=True)
class MDPRules:
    """A game starts in any state that is no end, all alike. A reward is the expected one of its state and action."""

    example: str
    start_words = 1
    step_words = 1

    def start(self, words: jax.Array) -> jax.Array:
        """Returns the state, `[]` int32."""
        starts = jnp.asarray(_tables(self.example).starts)
        return starts[jnp.floor(uniform(words[0]) * len(starts)).astype(jnp.int32)]

    def advance(self, play: jax.Array, action: jax.Array, words: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Draws the next state; the one after the last, `S`, stands for the end."""
        tables = _tables(self.example)
        onward = (uniform(words[0]) >= jnp.asarray(tables.cumulative)[play, action]).sum(dtype=jnp.int32)
        return onward, jnp.asarray(tables.reward)[play, action], onward == len(tables.reward)

    def observe(self, play: jax.Array) -> jax.Array:
        """Returns `[S]` float32, one-hot; all 0 behind an end."""
        return (jnp.arange(len(_tables(self.example).reward)) == play).astype(jnp.float32)

    def legal(self, play: jax.Array) -> jax.Array:
        """Returns the legal actions, `[A]` bool."""
        return jnp.asarray(_tables(self.example).legal)[play]


@dataclasses.dataclass(frozen=True)
class MDPEnv(DeviceGame):
    """One copy of an example MDP; see `DeviceEnv`. Deviation D18.

    Attributes:
        example: a name of `tabular.examples.EXAMPLES`.
        limit: steps after which a game is cut (truncated): many an MDP never ends by itself.
    """

    example: str
    limit: int | None = 100

    def __post_init__(self) -> None:
        """Refuses an MDP that cannot be played."""
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"limit must be at least 1, or None for no limit, got {self.limit}")

    @property
    def rules(self) -> MDPRules:
        """The MDP as a game."""
        return MDPRules(self.example)

    @property
    def max_steps(self) -> int | None:
        """The limit."""
        return self.limit

    @property
    def is_masked(self) -> bool:
        """Some action of the MDP is illegal in some state."""
        return not _tables(self.example).legal.all()

    @property
    def num_actions(self) -> int:
        """Actions of the MDP."""
        return _tables(self.example).reward.shape[1]

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """`(S,)`."""
        return (len(_tables(self.example).reward),)

    @property
    def obs_dtype(self) -> np.dtype[Any]:
        """Observations are one-hot."""
        return np.dtype(np.float32)

    def as_mdp(self, gamma: float) -> tuple[FiniteMDP, np.ndarray]:
        """Returns the MDP with a learner's discount factor in place of its own, and the observations `[S, S]`."""
        return EXAMPLES[self.example](gamma=gamma), np.eye(*self.obs_shape, dtype=self.obs_dtype)

    def screen(self, obs: np.ndarray) -> np.ndarray:
        """Draws a cell for each state, row by row, the current one marked; what is left of the last row is grey."""
        states, width = len(obs), min(len(obs), _LONGEST_ROW)
        cells = np.zeros((-(-states // width) * width, 2), np.float32)
        cells[:states, 0], cells[states:, 1] = obs, 1.0
        return painted(cells.reshape(-1, width, 2), ("here", "no state"), _COLOURS)

    def describe(self) -> dict[str, Any]:
        """Returns everything that makes scores of two runs comparable or not."""
        return {
            "environment": f"mdp/{self.example}",
            "start": "any state that is no end",
            "max_steps": self.limit,
            "frame_skip": 1,
            "stack": 1,
            "frames_per_step": self.frames_per_step,
            "num_actions": self.num_actions,
            "reward_clip": "none in the environment",
        }


def names() -> list[str]:
    """Lists the examples."""
    return list(EXAMPLES)


def make_device(name: str, protocol: None) -> MDPEnv:
    """Makes an example; it has no protocol."""
    return MDPEnv(name)


def rules(facts: Mapping[str, Any]) -> str:
    """Says in one sentence what makes scores of two runs comparable or not."""
    limit = facts["max_steps"]
    ends = f"cut after {limit:,} steps" if limit else "no time limit"
    return f"{facts['num_actions']} actions, games start in {facts['start']}, {ends}"


@functools.cache
def _tables(example: str) -> _Tables:
    mdp = EXAMPLES[example]()
    kernel = mdp.kernel if isinstance(mdp.kernel, np.ndarray) else mdp.kernel.toarray()
    cumulative = np.cumsum(kernel.reshape(mdp.num_states, mdp.num_actions, mdp.num_states), axis=-1)
    cumulative[np.isclose(cumulative, 1.0)] = 1.0  # no rounding is to end a game that goes on
    starts = np.flatnonzero(~mdp.terminal).astype(np.int32)
    legal = np.concatenate([mdp.legal, np.ones((1, mdp.num_actions), bool)])
    return _Tables(mdp.reward.astype(np.float32), cumulative.astype(np.float32), starts, legal)
