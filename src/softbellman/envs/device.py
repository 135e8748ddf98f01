"""Base of device environments: sequence of games, sticky actions, time limits, random draws.

Nothing here keeps a generator. The draws of a game are a function of the copy's key, the game's index and the step, by
Threefry-2x32 (Salmon et al. 2011), the counter-based generator that JAX's own keys are made for. It is written out here
because the CPU backend runs JAX's as a loop of kernels: one fold_in takes 1.4 microseconds, four lanes of this 0.06.
Deviation D17.
"""

import abc
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import Scale, Step

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORDS_PER_STEP = 64  # counters set aside for each step of a game: 67 million steps fit


class Rules(Protocol):
    """A game without what surrounds it: how it begins, goes on, ends and looks. Hashable; its state is a pytree."""

    @property
    def start_words(self) -> int:
        """Random words that `start` takes."""
        ...

    @property
    def step_words(self) -> int:
        """Random words that `advance` takes."""
        ...

    def start(self, words: jax.Array) -> Any:
        """Returns the state that a game begins with; `words` `[start_words]` uint32 are its chance."""
        ...

    def advance(self, play: Any, action: jax.Array, words: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """Returns the next state, the reward `[]` float32, and whether the game is over, `[]` bool."""
        ...

    def observe(self, play: Any) -> jax.Array:
        """Returns the observation of a state."""
        ...

    def legal(self, play: Any) -> jax.Array:
        """Returns the legal actions `[A]` bool of a state, all behind an end; asked for only where some are illegal."""
        ...


class GameState(NamedTuple):
    """The state of one copy.

    Attributes:
        play: the game's own state, a pytree.
        game: `[]` int32, index of the game within its copy, from 0.
        time: `[]` int32, steps since it began.
        last_action: `[]` int32, the action that was carried out last, kept from one game to the next; 0 at first.
    """

    play: Any
    game: jax.Array
    time: jax.Array
    last_action: jax.Array


class DeviceGame(abc.ABC):
    """Games of one kind, one after another: all of a `DeviceEnv` but its shapes, its pictures and its name.

    A subclass is a frozen dataclass, so that it is hashable.
    """

    @property
    @abc.abstractmethod
    def rules(self) -> Rules:
        """The game itself."""

    @property
    def sticky_probability(self) -> float:
        """Chance at each step that the action carried out last is repeated in place of the one chosen."""
        return 0.0

    @property
    def max_steps(self) -> int | None:
        """A game that gets there is truncated; None: no limit."""
        return None

    @property
    def obs_scale(self) -> Scale:
        """Planes and one-hot codes enter a network as they are."""
        return 1.0

    @property
    def frames_per_step(self) -> int:
        """One frame is one agent step."""
        return 1

    @property
    def is_masked(self) -> bool:
        """Every action is legal in every state."""
        return False

    def begin(self, key: jax.Array, game: Any, last_action: Any) -> tuple[GameState, jax.Array]:
        """Begins game number `game`: see `DeviceEnv.begin`."""
        game, last_action = jnp.asarray(game, jnp.int32), jnp.asarray(last_action, jnp.int32)
        play = self.rules.start(draw(key, game, jnp.int32(0), self.rules.start_words))
        return GameState(play, game, jnp.int32(0), last_action), self.rules.observe(play)

    def reset(self, key: jax.Array) -> tuple[GameState, jax.Array]:
        """Begins the first game."""
        return self.begin(key, 0, 0)

    def step(self, state: GameState, action: jax.Array, key: jax.Array) -> tuple[GameState, Step]:
        """Takes an action; where the game ended, begins the next one: see `DeviceEnv.step`.

        The next game is chosen by `where`, never by `cond`, which under `vmap` pays for both branches and more.
        """
        rules, time = self.rules, state.time + 1
        words = draw(key, state.game, time, 1 + rules.step_words)
        sticks = uniform(words[0]) < self.sticky_probability
        action = jnp.where(sticks, state.last_action, jnp.asarray(action, jnp.int32))
        play, reward, terminated = rules.advance(state.play, action, words[1:])
        at_limit = jnp.bool_(False) if self.max_steps is None else time >= self.max_steps
        truncated = at_limit & ~terminated
        ended = terminated | truncated
        next_obs = rules.observe(play)
        following, first_obs = self.begin(key, state.game + 1, action)
        after = _choose(ended, following, GameState(play, state.game, time, action))
        obs = _choose(ended, first_obs, next_obs)
        step = Step(obs, next_obs, reward, terminated, truncated, ended, terminated)
        if self.is_masked:
            step = step._replace(legal=self.legal(after), next_legal=rules.legal(play))
        return after, step

    def legal(self, state: GameState) -> jax.Array | None:
        """Returns the legal actions: see `DeviceEnv.legal`."""
        return self.rules.legal(state.play) if self.is_masked else None

    def last_action(self, state: GameState) -> jax.Array:
        """Returns the action that was carried out last."""
        return state.last_action


def _choose(which: jax.Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda one, other: jnp.where(which, one, other), first, second)


def copy_keys(seed: int, *, training: bool, num_envs: int) -> jax.Array:
    """Returns the keys `[E]` of a run's copies: hashes of its seed, the stream (training or test) and the copy.

    Every loop takes them from here, so that a game is the same whichever loop plays it.
    """
    stream = 0 if training else 1
    data = [np.random.SeedSequence(seed, spawn_key=(stream, copy)).generate_state(2) for copy in range(num_envs)]
    return jax.random.wrap_key_data(jnp.asarray(np.array(data, np.uint32)), impl="threefry2x32")


def draw(key: jax.Array, game: jax.Array, time: jax.Array, count: int) -> jax.Array:
    """Draws `count` words `[count]` uint32 for step `time` of game `game`; step 0 is its beginning."""
    first, second = jax.random.key_data(key)
    index = jnp.arange((count + 1) // 2, dtype=jnp.uint32)
    counter = time.astype(jnp.uint32) * _WORDS_PER_STEP + index
    words = jnp.concatenate(threefry((first, second), game.astype(jnp.uint32), counter))[:count]
    return jax.lax.optimization_barrier(words)  # else each use of a word would compute it again


def threefry(key: tuple[jax.Array, jax.Array], high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Encrypts the counters `(high, low)` under a key, all uint32: two words of Threefry-2x32-20 each."""
    schedule = (*key, key[0] ^ key[1] ^ jnp.uint32(_PARITY))
    left, right = high + schedule[0], low + schedule[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            left = left + right
            right = ((right << bits) | (right >> (32 - bits))) ^ left
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return left, right


def uniform(word: jax.Array) -> jax.Array:
    """Makes a float32 uniform over the multiples of 2^-24 in `[0, 1)` of a word."""
    return (word >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def below(word: jax.Array, limit: int | jax.Array) -> jax.Array:
    """Makes an int32 uniform over `0 .. limit - 1`, to within `limit / 2^24`, of a word."""
    return jnp.floor(uniform(word) * limit).astype(jnp.int32)
