"""The loop for environments on the device: environment, replay and learner in one compiled program.

It trains a group, as the host's loop does and in the same order at each agent step: act, step, store; then, when an
update is due, copy the target network if that is due too, draw a minibatch, update. Runs are moved on in blocks along a
leading axis; the program is two nested loops, updates over environment steps, and knows no condition, of which both
sides would be computed. From outside it is driven in chunks that end where a target network is copied, a test is due,
or a while has passed; the state is given away to each chunk and comes back.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.device import copy_keys
from softbellman.envs.step import DeviceEnv, HostEnv
from softbellman.learning import learner
from softbellman.learning.device_replay import DeviceReplay
from softbellman.learning.learner import LearnerState, Schedule
from softbellman.learning.networks import Network
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training import device_program, streams
from softbellman.training.checkpoint import Checkpoint, Damaged, State
from softbellman.training.device_evaluation import play
from softbellman.training.device_program import Block, Keys, Moment, Setting, begin, minibatch, next_epoch
from softbellman.training.evaluation import TestPhase
from softbellman.training.measurement import (
    COMMON_SEED,
    Diverged,
    Ruler,
    Run,
    Tally,
    blocks_of,
    common_states,
    require_one_structure,
)
from softbellman.training.metrics import MetricsRow
from softbellman.training.settings import LoopSettings, check_side_by_side
from softbellman.training.snapshot import check_same, empty_replay, restored_tree, saved_tree
from softbellman.training.streams import Role

LONGEST_CHUNK = 2_000  # agent steps of a run between two looks at the clock

_CLOCKS = ("agent_steps", "updates", "epoch", "learning_from", "replay_from", "loss_updates")


class DeviceLoop:
    """A group of runs in training. `advance` trains, `test` measures; nothing is written to disk here.

    Attributes:
        runs: the `R` runs.
        agent_steps: agent steps taken by each run so far; one clock for all.
        updates: updates made by each run so far.
        epoch: test phases so far.
        learning_from: agent steps before the first update.
        replay_from: the agent step at which the replay was empty.
        blocks: the states of the blocks.
        loss_updates: updates in this epoch.
        held_out: each run's held-out states, from the first test phase on.
        diverged: runs that are lost, each with the agent step at which its loss was no longer finite.
        started: when the run began, on the monotonic clock, less what it took before it was resumed.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        env: DeviceEnv,
        make_env: Callable[[int, bool], HostEnv],
        make_network: Callable[[tuple[int, ...], int], Network],
        settings: LearnerSettings,
        loop: LoopSettings,
    ) -> None:
        """Allocates the replays, makes the networks and starts the first games.

        Args:
            runs: the group; operators must have the same structure.
            env: the environment.
            make_env: `make_env(seed, training)`, the same environment on the host.
            make_network: `make_network(obs_shape, num_actions)`.
            settings: the learner's numbers.
            loop: the loop's numbers; `test_episodes` games are played side by side in a test.

        Raises:
            ValueError: if the operators differ in structure, or tests can't be played side by side.
        """
        require_one_structure(runs)
        check_side_by_side(loop)
        self.runs, self.settings, self.loop, self.env = tuple(runs), settings, loop, env
        self._make_env = make_env
        self.network = make_network(env.obs_shape, env.num_actions)
        self.setting = Setting(
            env, self.network, settings.update, settings.replay_capacity, settings.batch_size, loop.num_envs
        )
        self._schedule = Schedule.of(settings)
        self._width = loop.block_width
        self._lanes = blocks_of(len(runs), self._width)
        self._operators = [_stacked([runs[lane].operator for lane in block]) for block in self._lanes]
        seeds = [[runs[lane].seed for lane in block] for block in self._lanes]
        self._keys = [
            Keys(
                streams.keys(block, Role.ACT),
                streams.keys(block, Role.REPLAY),
                jnp.stack([copy_keys(seed, training=True, num_envs=loop.num_envs) for seed in block]),
            )
            for block in seeds
        ]
        self.blocks: list[Block] = [
            begin(self.setting, streams.keys(block, Role.INIT), keys.env)
            for block, keys in zip(seeds, self._keys, strict=True)
        ]
        self.agent_steps = self.updates = self.epoch = self.replay_from = self.loss_updates = 0
        self.learning_from = settings.replay_start_steps
        self.held_out: list[np.ndarray] = []
        self.diverged: dict[int, int] = {}
        self.started = time.monotonic()

    @property
    def replay_bytes(self) -> int:
        """Bytes of all the replays."""
        return sum(array.nbytes for block in self.blocks for array in block.replay)

    def advance(self, steps: int, on_progress: Callable[[int], None] | None = None) -> None:
        """Trains every run for `steps` agent steps.

        Args:
            steps: a multiple of the number of environments of a run.
            on_progress: called with `agent_steps` after each chunk of compiled steps.

        Raises:
            ValueError: if `steps` is no such multiple.
        """
        if steps % self.loop.num_envs:
            raise ValueError(f"steps ({steps}) must be a multiple of loop.num_envs ({self.loop.num_envs})")
        end, period = self.agent_steps + steps, self.settings.update_period_steps
        while self.agent_steps < end:
            due = self.agent_steps - self.agent_steps % period + period  # the next step at which an update may be
            if due <= self.learning_from:
                due = self.learning_from - self.learning_from % period
                self._play(min(due, end, self.agent_steps + LONGEST_CHUNK))
            elif due > end:
                self._play(end)
            elif self.agent_steps % period:
                self._learn(1, due - self.agent_steps)
            else:
                until_copy = -self.updates % self.settings.target_period_updates
                rest, chunk = (end - self.agent_steps) // period, max(LONGEST_CHUNK // period, 1)
                self._learn(min(rest, chunk, until_copy or self.settings.target_period_updates), period)
            if on_progress is not None:
                on_progress(self.agent_steps)

    @property
    def test_is_due(self) -> bool:
        """Whether an epoch is over that has not been tested yet."""
        return self.loop.test_is_due(self.agent_steps, self.epoch)

    def test(self, on_step: Callable[[], None] | None = None) -> dict[int, tuple[MetricsRow, TestPhase]]:
        """Plays a test phase of every run that has not diverged, takes every measurement, and closes the epoch.

        Args:
            on_step: called now and then. If it raises, the loop is as it was before the test.

        Returns:
            The row and the test phase of each of these runs, by index.

        Raises:
            Diverged: no run is left.
        """
        self.check_losses()
        self._hold_out()
        seeds = [streams.derived_seed(run.seed, Role.TEST, self.epoch + 1) for run in self.runs]
        phases: dict[int, TestPhase] = {}
        for number, lanes in enumerate(self._lanes):
            played = play(
                self.env,
                self.network,
                self.blocks[number].learner.params,
                [seeds[lane] for lane in lanes],
                self.loop,
                self.settings,
                on_step,
            )
            phases |= dict(zip(lanes, played, strict=True))
        living = [index for index in range(len(self.runs)) if index not in self.diverged]
        measured = {index: (self._row(index, phases[index], seeds[index]), phases[index]) for index in living}
        self.epoch += 1
        self.loss_updates = 0
        self.blocks = [block._replace(counts=next_epoch(block.counts)) for block in self.blocks]
        return measured

    def check_losses(self) -> None:
        """Looks which runs had a loss that is not finite, and records them.

        Raises:
            Diverged: no run is left.
        """
        for number, lanes in enumerate(self._lanes):
            for lane, moment in zip(lanes, np.asarray(self.blocks[number].counts.diverged_at).tolist(), strict=True):
                if moment:
                    self.diverged.setdefault(lane, moment)
        if len(self.diverged) == len(self.runs):
            raise Diverged("the loss is no longer finite")

    def params(self, index: int) -> Any:
        """Returns the online network's parameters of run `index`."""
        return self.state(index).params

    def state(self, index: int) -> LearnerState:
        """Returns a copy of the learner's state of run `index`, without the runs axis."""
        number, lane = divmod(index, self._width)
        return jax.tree.map(lambda leaf: leaf[lane], self.blocks[number].learner)

    def snapshot(self, *, with_replay: bool = True) -> State:
        """Returns the whole state between two agent steps. Its arrays are views: write it before the next step.

        Args:
            with_replay: False leaves the replay out; the loop can then go on, with an empty one, but not exactly.

        Raises:
            Diverged: the loss of every run is no longer finite.
        """
        self.check_losses()
        if self.test_is_due:
            self._hold_out()  # without the replay it could not be done later
        arrays = {f"runs/{index}/held_out": [states] for index, states in enumerate(self.held_out)}
        for number, block in enumerate(self.blocks):
            arrays |= saved_tree(f"blocks/{number}", block._replace(replay=None))
            if with_replay:
                arrays |= self._filled_views(number, block.replay)
        facts = {name: getattr(self, name) for name in _CLOCKS}
        diverged = [self.diverged.get(index) for index in range(len(self.runs))]
        seconds = time.monotonic() - self.started
        return State(facts | {"seconds": seconds, "diverged": diverged, "replay": with_replay}, arrays)

    def restore(self, saved: Checkpoint, *, inexact: bool = False) -> list[str]:
        """Puts a loop, just made for the same runs and settings, where the saved one was.

        Args:
            saved: the checkpoint.
            inexact: makes no difference here: the environment's state is saved as it is.

        Returns:
            What is not as if there had been no stop: empty if the loop goes on bit for bit.

        Raises:
            Damaged: the checkpoint is of other runs or settings.
        """
        facts = saved.facts
        try:
            for name in _CLOCKS:
                setattr(self, name, int(facts[name]))
            self.started = time.monotonic() - facts["seconds"]
            self.diverged = {index: moment for index, moment in enumerate(facts["diverged"]) if moment}
            has_replay = bool(facts["replay"])
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{saved.path} is not of this study: {error!r}") from error
        bare = [block._replace(replay=None) for block in self.blocks]
        expected = {name for number, block in enumerate(bare) for name in saved_tree(f"blocks/{number}", block)}
        check_same(saved, expected)
        for number, block in enumerate(bare):
            replay = self.blocks[number].replay
            if has_replay:
                replay = self._read_replay(saved, number, replay)
            self.blocks[number] = restored_tree(saved, f"blocks/{number}", block)._replace(replay=replay)
        if "runs/0/held_out" in saved.names:
            self.held_out = [saved.array(f"runs/{index}/held_out") for index in range(len(self.runs))]
        if has_replay:
            return []
        self.replay_from = self.agent_steps
        self.learning_from = self.agent_steps + self.settings.replay_start_steps
        return [empty_replay(self.settings)]

    def close(self) -> None:
        """Releases the state."""
        self.blocks = []

    def _hold_out(self) -> None:
        """Sets states apart, before the first test phase, for the measurements of all."""
        if not self.held_out:
            self.held_out = [
                np.asarray(self._minibatch(index, Role.HELD_OUT, 0, self.loop.held_out_states).obs)
                for index in range(len(self.runs))
            ]

    def _play(self, until: int) -> None:
        """Takes agent steps up to `until` without an update."""
        steps = (until - self.agent_steps) // self.loop.num_envs
        for number, block in enumerate(self.blocks):
            self.blocks[number] = device_program.play(self.setting, block, self._keys[number], self._moment(), steps)
        self.agent_steps = until

    def _learn(self, updates: int, steps: int) -> None:
        """Makes updates, each after so many agent steps; the target network is copied first if that is due."""
        copy_is_due = self.updates % self.settings.target_period_updates == 0
        for number, block in enumerate(self.blocks):
            if copy_is_due:
                block = block._replace(learner=learner.copy_target(block.learner))
            self.blocks[number] = device_program.learn(
                self.setting,
                block,
                self._operators[number],
                self._keys[number],
                self._moment(),
                np.int32(self.updates),
                updates,
                steps // self.loop.num_envs,
            )
        self.agent_steps += updates * steps
        self.updates += updates
        self.loss_updates += updates
        self.check_losses()

    def _moment(self) -> Moment:
        return Moment(np.int32(self.agent_steps), np.int32(self.replay_from), self._schedule)

    @property
    def _filled(self) -> int:
        """The replay's slots that hold a transition, in each run."""
        return min(self.agent_steps - self.replay_from, self.settings.replay_capacity)

    def _filled_views(self, number: int, replay: DeviceReplay) -> dict[str, list[np.ndarray]]:
        """Returns what is filled of a block's replay, as views on the host, by the name of each array when saved."""
        arrays = {f"replays/{number}/{name}": np.asarray(array) for name, array in replay._asdict().items()}
        return {name: [own[: self._filled] for own in array] for name, array in arrays.items()}

    def _read_replay(self, saved: Checkpoint, number: int, empty: DeviceReplay) -> DeviceReplay:
        made = DeviceReplay(*(np.zeros(array.shape, array.dtype) for array in empty))
        for name, views in self._filled_views(number, made).items():
            saved.read_into(name, views)
        return DeviceReplay(*(jnp.array(array) for array in made))

    def _minibatch(self, index: int, role: Role, counter: int, size: int) -> Transition:
        number, lane = divmod(index, self._width)
        key = jax.random.fold_in(streams.key(self.runs[index].seed, role), counter)
        return minibatch(self.env, self.blocks[number].replay, lane, key, self._filled, size)

    @cached_property
    def _ruler(self) -> Ruler:
        return Ruler(self.network, self.settings, self.loop, common_states(self._make_env(COMMON_SEED, True)))

    def _row(self, index: int, phase: TestPhase, test_seed: int) -> MetricsRow:
        epoch = self.epoch + 1
        count = self.loop.gradient_batches if self._filled else 0  # the replay is empty if it was not saved
        size = self.settings.batch_size
        batches = [self._minibatch(index, Role.GRADIENT, epoch * count + i, size) for i in range(count)]
        number, lane = divmod(index, self._width)
        counts = self.blocks[number].counts
        tally = Tally(
            epoch=epoch,
            agent_steps=self.agent_steps,
            env_frames=self.agent_steps * self.env.frames_per_step,
            updates=self.updates,
            episodes=int(counts.episodes[lane]),
            finished=int(counts.finished[lane]),
            return_sum=float(counts.return_sum[lane]),
            clipped_return_sum=float(counts.clipped_return_sum[lane]),
            loss=float(counts.loss_sum[lane]) / self.loss_updates if self.loss_updates else None,
            seconds=time.monotonic() - self.started,
        )
        return self._ruler.row(
            self.runs[index], tally, phase, test_seed, self.state(index), self.held_out[index], batches
        )


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)
