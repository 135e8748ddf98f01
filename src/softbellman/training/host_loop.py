"""The loop for environments on the host: emulators, and anything that Gymnasium can make.

It trains a *group*: runs that share everything but the seed and the operator's parameters. The learner's state has a
leading runs axis, moved on in blocks of one fixed width. At each agent step, in this order and for every run: choose
an action, step the environment, store the transition; then, when an update is due, copy the target network if that is
due too, draw a minibatch, update (Deviation D20). Nothing runs ahead of anything else, so no result depends on timing;
and every random draw is a function of the run's seed and a counter, so there is no generator state.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning import learner
from softbellman.learning.learner import LearnerState
from softbellman.learning.networks import Network
from softbellman.learning.replay import FrameReplay, Transition
from softbellman.learning.settings import LearnerSettings, UpdateSettings
from softbellman.training import streams
from softbellman.training.checkpoint import Checkpoint, State
from softbellman.training.evaluation import Policy, TestPhase, play
from softbellman.training.measurement import (
    COMMON_SEED,
    Counters,
    Diverged,
    Ruler,
    Run,
    Tally,
    blocks_of,
    common_states,
    require_one_structure,
)
from softbellman.training.metrics import MetricsRow
from softbellman.training.settings import LoopSettings
from softbellman.training.snapshot import restore, snapshot
from softbellman.training.streams import Role

_SPAN = 1024  # moments whose exploration is drawn at once


class HostLoop:
    """A group of runs in training. `advance` trains, `test` measures; nothing is written to disk here.

    Attributes:
        runs: the `R` runs.
        agent_steps: agent steps taken by each run so far; one clock for all.
        updates: updates made by each run so far.
        states: the learners' states, one per block, with a leading axis of the block's width.
        replays: one replay per run.
        envs: one training environment per run.
        diverged: runs that are lost, each with the agent step at which its loss was no longer finite. They are
            neither tested nor counted any more; the others go on.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        make_env: Callable[[int, bool], HostEnv],
        make_network: Callable[[tuple[int, ...], int], Network],
        settings: LearnerSettings,
        loop: LoopSettings,
        *,
        random_first_actions: int = 0,
        budget_cut_terminates: bool = False,
    ) -> None:
        """Makes environments, replays and networks, and starts the first games.

        Args:
            runs: the group; operators must have the same structure.
            make_env: `make_env(seed, training)`, an environment of the run, for training or for tests.
            make_network: `make_network(obs_shape, num_actions)`.
            settings: the learner's numbers.
            loop: the loop's numbers.
            random_first_actions: so many first actions of each learning episode are random, in tests too.
            budget_cut_terminates: the last transition of each epoch is stored as terminal.

        Raises:
            ValueError: if the operators differ in structure, or the environments in size from the loop's settings.
        """
        require_one_structure(runs)
        self.runs, self.settings, self.loop = tuple(runs), settings, loop
        self._make_env = make_env
        self._random_first_actions, self._budget_cut_terminates = random_first_actions, budget_cut_terminates
        self.envs = [make_env(run.seed, True) for run in runs]
        first = self.envs[0]
        if first.num_envs != loop.num_envs:
            raise ValueError(f"the environment has {first.num_envs} copies, but loop.num_envs is {loop.num_envs}")
        self.network = make_network(first.obs_shape, first.num_actions)
        self.replays = [
            FrameReplay(
                settings.replay_capacity,
                obs_shape=env.obs_shape,
                obs_dtype=env.obs_dtype,
                stack=env.stack,
                num_envs=env.num_envs,
                gamma=settings.gamma,
            )
            for env in self.envs
        ]
        self._blocks = blocks_of(len(runs), loop.block_width)
        self._update_settings = settings.update
        self._operators = [_stack([runs[lane].operator for lane in block]) for block in self._blocks]
        self._act_keys = streams.keys([run.seed for run in runs], Role.ACT)
        self._explorations: tuple[int, Any] = (-1, None)  # a span of moments, and its draws
        self.states: list[LearnerState] = [
            _stack([_init(self.network, settings.update, streams.key(runs[lane].seed, Role.INIT)) for lane in block])
            for block in self._blocks
        ]
        self.agent_steps = self.updates = self.epoch = 0
        self.learning_from = settings.replay_start_steps  # agent steps before the first update
        self.counters = [Counters() for _ in runs]
        self.scores = [np.zeros((2, loop.num_envs)) for _ in runs]  # raw and clipped score of the games under way
        self.ages = [np.zeros(loop.num_envs, np.int64) for _ in runs]  # agent steps in the learning episode
        self.losses: list[Any] = []  # of this epoch's updates, block by block
        self.held_out: list[np.ndarray] = []  # each run's states, from the first test phase on
        self.diverged: dict[int, int] = {}
        self._unchecked: tuple[int, list[jax.Array]] = (0, [])
        self.started = time.monotonic()
        self.obs = [env.reset() for env in self.envs]
        for replay, obs in zip(self.replays, self.obs, strict=True):
            replay.start(obs)

    def advance(self, steps: int, on_progress: Callable[[int], None] | None = None) -> None:
        """Trains every run for `steps` agent steps.

        Args:
            steps: a multiple of the number of environments of a run.
            on_progress: called with `agent_steps` after each step.

        Raises:
            ValueError: if `steps` is no such multiple.
        """
        if steps % self.loop.num_envs:
            raise ValueError(f"steps ({steps}) must be a multiple of loop.num_envs ({self.loop.num_envs})")
        end = self.agent_steps + steps
        while self.agent_steps < end:
            actions = self._actions()
            self.agent_steps += self.loop.num_envs
            for index in range(len(self.runs)):
                self._step(index, actions[index])
            if self._update_is_due():
                self._update()
            if on_progress is not None:
                on_progress(self.agent_steps)

    @property
    def test_is_due(self) -> bool:
        """Whether an epoch is over that has not been tested yet."""
        return self.loop.test_is_due(self.agent_steps, self.epoch)

    def test(self, on_step: Callable[[], None] | None = None) -> dict[int, tuple[MetricsRow, TestPhase]]:
        """Plays a test phase of every run that has not diverged, takes every measurement, and closes the epoch.

        Each phase has an environment and random numbers of its own: Deviations D13, D14.

        Args:
            on_step: called after each step of play. If it raises, the loop is as it was before the test.

        Returns:
            The row and the test phase of each of these runs, by index.

        Raises:
            Diverged: no run is left.
        """
        self.check_losses()
        self.hold_out()
        ruler = self._ruler
        losses = np.array([np.asarray(loss) for loss in self.losses])
        losses = losses.reshape(-1, len(self._blocks), self.loop.block_width)
        living = [index for index in range(len(self.runs)) if index not in self.diverged]
        measured = {index: self._measure(index, ruler, losses, on_step) for index in living}
        self.epoch += 1
        self.losses.clear()
        for counters in self.counters:
            counters.finished, counters.return_sum, counters.clipped_return_sum = 0, 0.0, 0.0
        return measured

    def hold_out(self) -> None:
        """Sets states apart, before the first test phase, for the measurements of all."""
        if not self.held_out:
            self.held_out = [
                np.ascontiguousarray(
                    replay.sample(streams.generator(run.seed, Role.HELD_OUT, 0), self.loop.held_out_states).obs
                )
                for replay, run in zip(self.replays, self.runs, strict=True)
            ]

    def check_losses(self) -> None:
        """Looks for losses that are not finite among those of the last update, and records whose they are.

        Raises:
            Diverged: no run is left.
        """
        moment, losses = self._unchecked
        self._unchecked = (moment, [])
        for index in range(len(self.runs) if losses else 0):
            block, lane = divmod(index, self.loop.block_width)
            if not np.isfinite(np.asarray(losses[block]).reshape(-1)[lane]):
                self.diverged.setdefault(index, moment)
        if len(self.diverged) == len(self.runs):
            raise Diverged("the loss is no longer finite")

    def params(self, index: int) -> Any:
        """Returns the online network's parameters of run `index`; see `state`."""
        return self.state(index).params

    def state(self, index: int) -> LearnerState:
        """Returns the learner's state of run `index`, without the runs axis; the next update consumes `opt_state`."""
        block, lane = divmod(index, self.loop.block_width)
        state = self.states[block]
        return state if self.loop.block_width == 1 else jax.tree.map(lambda leaf: leaf[lane], state)

    @property
    def replay_bytes(self) -> int:
        """Bytes of the frames in all replays."""
        return sum(replay.frames.nbytes for replay in self.replays)

    def snapshot(self, *, with_replay: bool = True) -> State:
        """Returns the whole state between two agent steps; see `snapshot.snapshot`."""
        return snapshot(self, with_replay=with_replay)

    def restore(self, saved: Checkpoint, *, inexact: bool = False) -> list[str]:
        """Puts a loop just made where the saved one was; see `snapshot.restore`."""
        return restore(self, saved, inexact=inexact)

    def close(self) -> None:
        """Releases the emulators."""
        for env in self.envs:
            env.close()

    @cached_property
    def _ruler(self) -> Ruler:
        common = common_states(self._make_env(COMMON_SEED, True))
        return Ruler(self.network, self.settings, self.loop, common)

    def _actions(self) -> np.ndarray:
        """Chooses the actions of every run, `[R, E]`; a network is asked only where an action is not random anyway.

        The lanes that fill up a block are the last run over again, and choose the same.
        """
        chance, random_actions = self._exploration()
        epsilon = learner.epsilon_at(self.agent_steps, self.settings)
        explore = chance < _rate(np.stack(self.ages), self._random_first_actions, epsilon)
        actions = random_actions.copy()
        for block, state in zip(self._blocks, self.states, strict=True):
            if not explore[block].all():
                obs = _stack_arrays([self.obs[lane] for lane in block])
                greedy = np.asarray(_greedy(self.network, len(block), state.params, obs)).reshape(len(block), -1)
                actions[block] = np.where(explore[block], actions[block], greedy)
        return actions

    def _exploration(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns every run's chance and random action `[R, E]` at this moment; a span of moments is drawn at once."""
        span, place = divmod(self.agent_steps // self.loop.num_envs, _SPAN)
        if span != self._explorations[0]:
            num_envs, num_actions = self.loop.num_envs, self.envs[0].num_actions
            drawn = _draw_explorations(self._act_keys, np.uint32(span * _SPAN), num_envs, num_actions)
            self._explorations = (span, jax.tree.map(np.asarray, drawn))
        chance, action = self._explorations[1]
        return chance[place], action[place]

    def _step(self, index: int, actions: np.ndarray) -> None:
        """Steps one run's environments and stores what came of it."""
        step = self.envs[index].step(actions)
        if self._budget_cut_terminates and self._epoch_is_over():
            step = step._replace(terminated=np.ones_like(step.terminated))
        self.replays[index].add(actions, step)
        self.obs[index] = step.obs
        score = self.scores[index]
        score[0] += step.reward
        clip = self.settings.reward_clip
        score[1] += step.reward if clip is None else np.clip(step.reward, -clip, clip)
        self.ages[index] = np.where(np.logical_or(step.terminated, step.truncated), 0, self.ages[index] + 1)
        if step.game_ended.any():
            counters, ended = self.counters[index], step.game_ended
            counters.episodes += int(ended.sum())
            counters.finished += int(ended.sum())
            counters.return_sum += float(score[0, ended].sum())
            counters.clipped_return_sum += float(score[1, ended].sum())
            score[:, ended] = 0.0

    def _epoch_is_over(self) -> bool:
        """Says so by the clock alone, so that nothing depends on how `advance` is called."""
        return self.agent_steps % self.loop.epoch_steps == 0 or self.agent_steps == self.loop.steps

    def _update_is_due(self) -> bool:
        """Says so by the agent steps of the run alone: Deviation D10."""
        return self.agent_steps > self.learning_from and self.agent_steps % self.settings.update_period_steps == 0

    def _update(self) -> None:
        """Makes one update of every run; the target network is copied before updates 0, P, 2P, ..."""
        self.check_losses()  # of the update before, which is over by now
        copy_is_due = self.updates % self.settings.target_period_updates == 0
        for number, block in enumerate(self._blocks):
            if copy_is_due:
                self.states[number] = learner.copy_target(self.states[number])
            batches = [self._minibatch(lane, Role.REPLAY, self.updates) for lane in block]
            batch = Transition(*(_stack_arrays(part) for part in zip(*batches, strict=True)))
            state = self.states[number]
            opt_state, moved, metrics = _learn(
                self.network,
                self._update_settings,
                len(block),
                state._replace(opt_state=()),
                state.opt_state,
                self._operators[number],
                batch,
            )
            self.states[number] = moved._replace(opt_state=opt_state, target_params=state.target_params)
            self.losses.append(metrics.loss)
        self._unchecked = (self.agent_steps, self.losses[-len(self._blocks) :])
        self.updates += 1

    def _minibatch(self, index: int, role: Role, counter: int) -> Transition:
        rng = streams.generator(self.runs[index].seed, role, counter)
        return self.replays[index].sample(rng, self.settings.batch_size)

    def _measure(
        self, index: int, ruler: Ruler, losses: np.ndarray, on_step: Callable[[], None] | None
    ) -> tuple[MetricsRow, TestPhase]:
        run, env, counters, settings = self.runs[index], self.envs[index], self.counters[index], self.settings
        state, epoch = self.state(index), self.epoch + 1
        test_seed = streams.derived_seed(run.seed, Role.TEST, epoch)
        policy = greedy_policy(
            self.network, state.params, test_seed, self.loop.test_epsilon, self._random_first_actions
        )
        with closing(self._make_env(test_seed, False)) as test_env:
            phase = play(
                policy,
                test_env,
                max_steps=self.loop.test_steps,
                max_episodes=self.loop.test_episodes,
                gamma=settings.gamma,
                reward_clip=settings.reward_clip,
                on_step=on_step,
            )
        first = epoch * self.loop.gradient_batches
        count = self.loop.gradient_batches if len(self.replays[index]) else 0  # it is empty if it was not saved
        batches = [self._minibatch(index, Role.GRADIENT, first + i) for i in range(count)]
        block, lane = divmod(index, self.loop.block_width)
        tally = Tally(
            epoch=epoch,
            agent_steps=self.agent_steps,
            env_frames=self.agent_steps * env.frames_per_step,
            updates=self.updates,
            **asdict(counters),
            loss=float(losses[:, block, lane].mean()) if len(losses) else None,
            seconds=time.monotonic() - self.started,
        )
        return ruler.row(run, tally, phase, test_seed, state, self.held_out[index], batches), phase


def greedy_policy(network: Network, params: Any, seed: int, epsilon: float, random_first_actions: int = 0) -> Policy:
    """Returns the epsilon-greedy policy of fixed parameters, to be played; its draws depend on `seed` alone."""
    key = streams.key(seed, Role.TEST)

    def policy(obs: np.ndarray, moment: int, age: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rate = _rate(age, random_first_actions, epsilon)
        actions, values = _test_act(network, params, obs, key, np.uint32(moment), rate)
        return np.asarray(actions), np.asarray(values)

    return policy


def _rate(age: np.ndarray, random_first_actions: int, epsilon: float) -> np.ndarray:
    """Returns the exploration rate of games of an age, float32: 1 for the first actions that are random by rule."""
    return np.where(age < random_first_actions, 1.0, epsilon).astype(np.float32)


def _stack(trees: Sequence[Any]) -> Any:
    """Stacks trees of one structure along a new leading axis; a single tree stays as it is (see `_over_lanes`)."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *trees)


def _stack_arrays(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.stack(arrays)


def _over_lanes(function: Callable[..., Any], width: int) -> Callable[..., Any]:
    """Maps a function over the lanes of a block. A block of one has no lane axis: on a CPU it would cost a fifth."""
    return function if width == 1 else jax.vmap(function)


@partial(jax.jit, static_argnames=("network", "settings"))
def _init(network: Network, settings: UpdateSettings, key_init: jax.Array) -> LearnerState:
    return learner.init(network, settings, key_init)


@partial(jax.jit, static_argnames=("network", "width"))
def _greedy(network: Network, width: int, params: Any, obs: Any) -> jax.Array:
    return _over_lanes(lambda params, obs: learner.greedy(network.apply(params, obs)), width)(params, obs)


@partial(jax.jit, static_argnames=("num_envs", "num_actions"))
def _draw_explorations(keys: jax.Array, first: Any, num_envs: int, num_actions: int) -> Any:
    """Draws chances and random actions `[_SPAN, R, E]`; each depends on its run's key and its moment alone."""

    def one(moment: jax.Array, key: jax.Array) -> Any:
        return learner.exploration(jax.random.fold_in(key, moment), num_envs, num_actions)

    every_run = jax.vmap(one, in_axes=(None, 0))
    return jax.vmap(every_run, in_axes=(0, None))(first + jnp.arange(_SPAN, dtype=jnp.uint32), keys)


@partial(jax.jit, static_argnames=("network",))
def _test_act(network: Network, params: Any, obs: Any, key: jax.Array, moment: Any, epsilon: Any) -> Any:
    actions = learner.act(network, params, obs, jax.random.fold_in(key, moment), epsilon)
    return actions, network.apply(params, obs).max(axis=-1)


@partial(jax.jit, static_argnames=("network", "settings", "width"), donate_argnames=("opt_state",))
def _learn(
    network: Network,
    settings: UpdateSettings,
    width: int,
    state: LearnerState,
    opt_state: Any,
    operator: Any,
    batch: Transition,
) -> Any:
    """Makes one update of a block; returns the accumulators, what else has changed of the state, and the metrics.

    The accumulators are donated, and returned first: JAX gives donated memory to the first outputs of its shape, and
    to the parameters it would cost copies. The parameters are not donated, which would cost one too. The target network
    is not returned, which would copy it.
    """

    def one(state: LearnerState, operator: Any, batch: Transition) -> Any:
        return learner.learn_step(state, operator, batch, network, settings)

    state, metrics = _over_lanes(one, width)(state._replace(opt_state=opt_state), operator, batch)
    return state.opt_state, state._replace(opt_state=(), target_params=()), metrics
