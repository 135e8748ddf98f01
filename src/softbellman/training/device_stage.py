"""Device stage: environment, replay and learner in one compiled program.

The program is two nested loops, updates over environment steps, and knows no condition, of which both sides would be
computed. From outside it is driven in chunks that end where a target network is copied, a test is due, or a while has
passed; the state is given away to each chunk and comes back.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.device import copy_keys
from softbellman.envs.step import DeviceEnv, HostEnv
from softbellman.learning.device_replay import DeviceReplay
from softbellman.learning.learner import LearnerState, Schedule
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training import counts, device_evaluation, device_program, streams
from softbellman.training.checkpoint import Checkpoint, State
from softbellman.training.counts import Clock, Counts
from softbellman.training.device_program import Keys, Moment, Setting, World
from softbellman.training.evaluation import TestPhase
from softbellman.training.lanes import Run, blocks_of, filled_up, lane_of, stack
from softbellman.training.loop import Loop
from softbellman.training.settings import LoopSettings, check_side_by_side
from softbellman.training.snapshot import restored_tree, saved_tree
from softbellman.training.streams import Role

LONGEST_CHUNK = 2_000  # agent steps of a run between two looks at the clock, or one of each environment if that is more


def device_loop(
    runs: Sequence[Run],
    env: DeviceEnv,
    make_env: Callable[[int, bool], HostEnv],
    make_recipe: Callable[[tuple[int, ...], int], Recipe],
    settings: LearnerSettings,
    loop: LoopSettings,
) -> Loop:
    """Allocates the replays of a group, makes its learners and starts the first games.

    As `host_loop`, for an environment `env` on the device, which `make_env` makes on the host; in a test,
    `loop.test_episodes` games are played side by side.

    Raises:
        ValueError: if the operators differ in structure, tests can't be played side by side, or the environment has
            illegal actions.
    """
    check_side_by_side(loop)
    if env.is_masked:
        name = env.describe()["environment"]
        raise ValueError(f"{name} has illegal actions, and the device stage has no masks; take host_loop for it")
    blocks, recipe = blocks_of(runs, loop.block_width), make_recipe(env.obs_shape, env.num_actions)
    stages = [DeviceStage(block, env, recipe, settings, loop) for block in blocks]
    return Loop(stages, recipe, make_env, settings, loop)


class DeviceStage:
    """Environments, replays and counts of a block on the device; see `Stage`.

    Attributes:
        world: the state of the block's runs.
    """

    runs: Sequence[Run]

    def __init__(
        self, runs: Sequence[Run], env: DeviceEnv, recipe: Recipe, settings: LearnerSettings, loop: LoopSettings
    ) -> None:
        """Allocates the replays and starts the first games; see `device_loop`."""
        self.runs, self.frames_per_step = list(runs), env.frames_per_step
        self._env, self._recipe, self._settings, self._loop = env, recipe, settings, loop
        self._width, self._schedule = loop.block_width, Schedule.of(settings)
        self.longest = max(1, LONGEST_CHUNK // loop.num_envs) * loop.num_envs
        sizes = (settings.replay_capacity, settings.batch_size, loop.num_envs, loop.block_width)
        self._setting = Setting(env, recipe, *sizes)
        own = [
            Keys(
                streams.key(run.seed, Role.ACT),
                streams.key(run.seed, Role.REPLAY),
                copy_keys(run.seed, training=True, num_envs=loop.num_envs),
            )
            for run in runs
        ]
        self._keys: Keys = stack(own, self._width)
        self.world: World = device_program.begin(self._setting, self._keys)

    @property
    def replay_bytes(self) -> int:
        """Bytes of the replays."""
        return sum(array.nbytes for array in jax.tree.leaves((self.world.replay, self.world.memory)))

    def play(self, state: LearnerState, clock: Clock, steps: int) -> None:
        """Takes agent steps without an update."""
        self.world = device_program.play(
            self._setting, self.world, state.params, self._keys, self._moment(clock), self._of_each(steps)
        )

    def learn(self, state: LearnerState, operator: Any, clock: Clock, updates: int, steps: int) -> LearnerState:
        """Makes updates, each after so many agent steps."""
        state, self.world = device_program.learn(
            self._setting,
            state,
            self.world,
            operator,
            self._keys,
            self._moment(clock),
            np.int32(clock.updates),
            updates,
            self._of_each(steps),
        )
        return state

    def settle(self) -> None:
        """Losses are counted by the program: there is nothing to do."""

    def lost_at(self) -> list[int]:
        """Returns the agent step at which each run's loss ceased to be finite, or 0."""
        return np.asarray(self.world.counts.diverged_at).reshape(-1).tolist()[: len(self.runs)]

    def counts(self, lane: int) -> Counts:
        """Returns the counts of a run."""
        return lane_of(self.world.counts, lane, self._width)

    def next_epoch(self) -> None:
        """Sets the counts of an epoch to zero."""
        self.world = self.world._replace(counts=counts.next_epoch(self.world.counts, jnp))

    def stored(self, lane: int, clock: Clock) -> int:
        """Returns how many transitions a run's replay holds."""
        return min(_written(clock), self._settings.replay_capacity)

    def minibatch(self, lane: int, clock: Clock, words: Any) -> Transition:
        """Draws a minibatch of a run outside training."""
        of = () if self._width == 1 else (lane,)
        return device_program.minibatch(self._setting, self.world.replay, of, words, np.int32(_written(clock)))

    def test(
        self, state: LearnerState, seeds: Sequence[int], lanes: Sequence[int], on_step: Callable[[], None] | None
    ) -> dict[int, TestPhase]:
        """Plays test phases of all lanes side by side."""
        params = state.params if self._width > 1 else jax.tree.map(lambda leaf: leaf[None], state.params)
        seeds = filled_up(seeds, self._width)
        phases = device_evaluation.play(self._env, self._recipe, params, seeds, self._loop, on_step)
        return {lane: phases[lane] for lane in lanes}

    def snapshot(self, prefix: str, clock: Clock, *, with_replay: bool) -> State:
        """Returns its state."""
        arrays = saved_tree(prefix, self.world._replace(replay=None, memory=None))
        if with_replay:
            arrays |= self._filled_views(f"{prefix}/replay", self.world.replay, clock)
            arrays |= saved_tree(f"{prefix}/memory", self.world.memory)
        return State({}, arrays)

    def restore(
        self, saved: Checkpoint, prefix: str, facts: Any, clock: Clock, *, with_replay: bool, inexact: bool
    ) -> list[str]:
        """Takes over a saved state; the environments' is saved as it is, so that nothing is inexact but the replay."""
        replay, memory = self.world.replay, self.world.memory
        if with_replay:
            made = jax.tree.map(lambda array: np.zeros(array.shape, array.dtype), replay)
            for name, views in self._filled_views(f"{prefix}/replay", made, clock).items():
                saved.read_into(name, views)
            replay = jax.tree.map(jnp.array, made)
            memory = restored_tree(saved, f"{prefix}/memory", memory)
        rest = restored_tree(saved, prefix, self.world._replace(replay=None, memory=None))
        self.world = rest._replace(replay=replay, memory=memory)
        return []

    def close(self) -> None:
        """Releases the state."""
        del self.world

    def _of_each(self, steps: int) -> int:
        """Returns how many steps each environment takes, of agent steps that are a multiple of their number."""
        each, rest = divmod(steps, self._loop.num_envs)
        if rest:
            raise ValueError(f"{steps} agent steps can't be shared among {self._loop.num_envs} environments")
        return each

    def _moment(self, clock: Clock) -> Moment:
        return Moment(np.int32(clock.agent_steps), np.int32(clock.replay_from), self._schedule)

    def _filled_views(self, prefix: str, replay: DeviceReplay, clock: Clock) -> dict[str, list[np.ndarray]]:
        """Returns the filled slots of the replays, as views on the host, by the name of each array when saved."""
        filled = self.stored(0, clock)
        arrays = {name: array for name, (array,) in saved_tree(prefix, replay).items()}
        if self._width == 1:
            return {name: [array[:filled]] for name, array in arrays.items()}
        return {name: [own[:filled] for own in array] for name, array in arrays.items()}


def _written(clock: Clock) -> int:
    """Returns how many transitions each replay was given."""
    return clock.agent_steps - clock.replay_from
