"""Host stage: emulators, and anything that Gymnasium can make, one step after another."""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import jax
import numpy as np

from softbellman.envs.step import HostEnv, Tape
from softbellman.learning import learner
from softbellman.learning.learner import LearnerState, UpdateMetrics
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import FrameReplay, Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training import counts, streams
from softbellman.training.checkpoint import Checkpoint, State
from softbellman.training.counts import Clock, Counts
from softbellman.training.evaluation import TestPhase, exploration_rate, greedy_policy, play
from softbellman.training.lanes import Run, blocks_of, lane_of, over_lanes, stack
from softbellman.training.loop import Loop
from softbellman.training.settings import LoopSettings
from softbellman.training.snapshot import restored_tree, saved_tree
from softbellman.training.streams import Ahead, Role


def host_loop(
    runs: Sequence[Run],
    make_env: Callable[[int, bool], HostEnv],
    make_recipe: Callable[[tuple[int, ...], int], Recipe],
    settings: LearnerSettings,
    loop: LoopSettings,
    *,
    random_first_actions: int = 0,
    budget_cut_terminates: bool = False,
) -> Loop:
    """Makes environments, replays and learners of a group, and starts the first games.

    Args:
        runs: the group; operators must have the same structure.
        make_env: `make_env(seed, training)`, an environment of the run, for training or for tests.
        make_recipe: `make_recipe(obs_shape, num_actions)`.
        settings: the learner's numbers.
        loop: the loop's numbers.
        random_first_actions: so many first actions of each learning episode are random, in tests too.
        budget_cut_terminates: the last transition of each epoch is stored as terminal.

    Raises:
        ValueError: if the operators differ in structure, or the environments in size from the loop's settings.
    """
    blocks = [(block, [make_env(run.seed, True) for run in block]) for block in blocks_of(runs, loop.block_width)]
    first = blocks[0][1][0]
    if first.num_envs != loop.num_envs:
        raise ValueError(f"the environment has {first.num_envs} copies, but loop.num_envs is {loop.num_envs}")
    recipe = make_recipe(first.obs_shape, first.num_actions)
    stages = [
        HostStage(block, envs, make_env, recipe, settings, loop, random_first_actions, budget_cut_terminates)
        for block, envs in blocks
    ]
    return Loop(stages, recipe, make_env, settings, loop)


class HostStage:
    """Environments, replays and counts of a block on the host; see `Stage`.

    Attributes:
        envs: one training environment per run.
        replays: one replay per run.
        memories: what sampling keeps in mind of each.
        obs: `[E, *obs_shape]` of each run, acted on next.
        ages: `[E]` of each run, agent steps in the learning episode.
    """

    runs: Sequence[Run]

    def __init__(
        self,
        runs: Sequence[Run],
        envs: Sequence[HostEnv],
        make_env: Callable[[int, bool], HostEnv],
        recipe: Recipe,
        settings: LearnerSettings,
        loop: LoopSettings,
        random_first_actions: int,
        budget_cut_terminates: bool,
    ) -> None:
        """Makes the replays and starts the first games; see `host_loop`."""
        self.runs, self.envs, self._make_env = list(runs), list(envs), make_env
        self._recipe, self._settings, self._loop = recipe, settings, loop
        self._random_first_actions, self._budget_cut_terminates = random_first_actions, budget_cut_terminates
        self._width, self.longest, self.frames_per_step = loop.block_width, loop.num_envs, envs[0].frames_per_step
        self.obs = [env.reset() for env in envs]
        self._masked = envs[0].legal is not None
        self.replays = [
            FrameReplay(
                settings.replay_capacity,
                obs_shape=env.obs_shape,
                obs_dtype=env.obs_dtype,
                stack=env.stack,
                num_envs=env.num_envs,
                gamma=settings.gamma,
                reach=recipe.reach,
                masked_actions=env.num_actions if self._masked else None,
            )
            for env in envs
        ]
        self.memories = [recipe.sampling.memory(replay.capacity, np) for replay in self.replays]
        for replay in self.replays:
            replay.moves = [] if recipe.sampling.has_memory else None
        sizes = (loop.num_envs, envs[0].num_actions)
        act_keys, replay_keys = (streams.keys([run.seed for run in runs], role) for role in (Role.ACT, Role.REPLAY))
        exploration = (learner.chances, (loop.num_envs,)) if self._masked else (learner.exploration, sizes)
        self._exploration = Ahead(*exploration, act_keys)
        self._act_keys = stack(list(act_keys), self._width)
        self._words = Ahead(streams.words, (settings.batch_size,), replay_keys)
        self.ages = [np.zeros(loop.num_envs, np.int64) for _ in runs]
        self._counts = [self._no_counts() for _ in runs]
        self._last_update: tuple[int, list[Any], UpdateMetrics] | None = (
            None  # its agent step, numbers drawn and metrics
        )
        for replay, obs, env in zip(self.replays, self.obs, envs, strict=True):
            replay.start(obs, env.legal)

    @property
    def replay_bytes(self) -> int:
        """Bytes of the frames in the replays, and of what sampling keeps in mind."""
        memories = sum(array.nbytes for array in jax.tree.leaves(self.memories))
        return sum(replay.frames.nbytes for replay in self.replays) + memories

    @property
    def _legal(self) -> list[np.ndarray | None]:
        """The actions of each run that are legal now, `[E, A]` bool; None where all are."""
        return [env.legal for env in self.envs]

    def play(self, state: LearnerState, clock: Clock, steps: int) -> None:
        """Takes agent steps without an update."""
        for before in range(clock.agent_steps, clock.agent_steps + steps, self._loop.num_envs):
            actions = self._actions(state.params, before)
            for lane in range(len(self.runs)):
                self._step(lane, actions[lane], before + self._loop.num_envs)

    def learn(self, state: LearnerState, operator: Any, clock: Clock, updates: int, steps: int) -> LearnerState:
        """Makes updates, each after so many agent steps. The last one is not waited for."""
        for _ in range(updates):
            self.play(state, clock, steps)
            self.settle()  # the update before, which is over by now
            words = self._words.at(clock.updates)
            drawn = [self._draw(lane, own) for lane, own in enumerate(words)]
            batches = [batch for _, batch in drawn]
            opt_state, moved, metrics = _learn(
                self._recipe,
                self._width,
                state._replace(opt_state=()),
                state.opt_state,
                operator,
                stack(batches, self._width, np),
                stack([counts.summed_returns(own) for own in self._counts], self._width, np),
            )
            state = moved._replace(opt_state=opt_state, target_params=state.target_params)
            clock = clock._replace(agent_steps=clock.agent_steps + steps, updates=clock.updates + 1)
            self._last_update = (clock.agent_steps, [numbers for numbers, _ in drawn], metrics)
        return state

    def settle(self) -> None:
        """Waits for the last update, counts its losses and keeps its priorities in mind."""
        sampling = self._recipe.sampling
        if self._last_update is not None:
            moment, numbers, metrics = self._last_update
            self._last_update, losses = None, np.asarray(metrics.loss).reshape(-1)
            with np.errstate(over="ignore"):
                self._counts = [
                    counts.with_loss(own, loss, moment, np) for own, loss in zip(self._counts, losses, strict=False)
                ]
            priorities = jax.tree.map(np.asarray, metrics.priority)
            for lane, drawn in enumerate(numbers):
                own = lane_of(priorities, lane, self._width)
                self.memories[lane] = sampling.learned(self.memories[lane], drawn, own, np)
        for lane, replay in enumerate(self.replays):
            if replay.moves:
                self.memories[lane] = sampling.moved(self.memories[lane], replay.moves)
                replay.moves.clear()

    def lost_at(self) -> list[int]:
        """Returns the agent step at which each run's loss ceased to be finite; 0 if none is counted that did."""
        return [int(own.diverged_at) for own in self._counts]

    def counts(self, lane: int) -> Counts:
        """Returns the counts of a run."""
        return self._counts[lane]

    def next_epoch(self) -> None:
        """Sets the counts of an epoch to zero."""
        self._counts = [counts.next_epoch(own, np) for own in self._counts]

    def stored(self, lane: int, clock: Clock) -> int:
        """Returns how many transitions a run's replay holds."""
        return len(self.replays[lane])

    def minibatch(self, lane: int, clock: Clock, words: Any) -> Transition:
        """Draws a minibatch of a run outside training."""
        return self.replays[lane].sample(np.asarray(words))

    def test(
        self, state: LearnerState, seeds: Sequence[int], lanes: Sequence[int], on_step: Callable[[], None] | None
    ) -> dict[int, TestPhase]:
        """Plays a test phase of each of these runs, one after another."""
        phases = dict[int, TestPhase]()
        for lane in lanes:
            params = lane_of(state.params, lane, self._width)
            epsilon, first = self._loop.test_epsilon, self._random_first_actions
            with closing(self._make_env(seeds[lane], False)) as env:
                phases[lane] = play(
                    greedy_policy(self._recipe, params, seeds[lane], epsilon, first),
                    env,
                    max_steps=self._loop.test_steps,
                    max_episodes=self._loop.test_episodes,
                    update=self._settings,
                    on_step=on_step,
                )
        return phases

    def snapshot(self, prefix: str, clock: Clock, *, with_replay: bool) -> State:
        """Returns its state. An emulator's own can't be had: a game is saved as its tape, to be played again."""
        arrays: dict[str, list[np.ndarray]] = {}
        facts: list[dict[str, Any]] = []
        for lane, env in enumerate(self.envs):
            name, tapes, replay = f"{prefix}/{lane}", env.tape, self.replays[lane]
            arrays |= saved_tree(f"{name}/counts", self._counts[lane]) | {f"{name}/ages": [self.ages[lane]]}
            arrays |= {f"{name}/tapes/{copy}": [tape.actions] for copy, tape in enumerate(tapes)}
            if with_replay:
                arrays |= {f"{name}/replay/{part}": views for part, views in replay.filled().items()}
                arrays |= saved_tree(f"{name}/memory", self.memories[lane])
            told = [{"game": tape.game, "seed": tape.seed, "checksum": tape.checksum} for tape in tapes]
            facts.append({"written": replay.written, "tapes": told})
        return State({"runs": facts}, arrays)

    def restore(
        self, saved: Checkpoint, prefix: str, facts: Any, clock: Clock, *, with_replay: bool, inexact: bool
    ) -> list[str]:
        """Takes over a saved state, and returns what is not as it was."""
        notes = list[str]()
        for lane, (env, replay, run) in enumerate(zip(self.envs, self.replays, facts["runs"], strict=True)):
            name, goes_on = f"{prefix}/{lane}", True
            self._counts[lane] = restored_tree(saved, f"{name}/counts", self._counts[lane], np)
            saved.read_into(f"{name}/ages", [self.ages[lane]])
            actions = [saved.array(f"{name}/tapes/{copy}") for copy in range(len(run["tapes"]))]
            try:
                played = [Tape(actions=own, **tape) for own, tape in zip(actions, run["tapes"], strict=True)]
                self.obs[lane] = env.restore(played)
            except ValueError as error:
                if not inexact:
                    raise ValueError(f"{error}; to go on with a new game all the same: resume --inexact") from error
                self.obs[lane], goes_on = env.reset(), False
                fresh = np.zeros(self._loop.num_envs)
                self._counts[lane] = self._counts[lane]._replace(score=fresh, clipped_score=fresh)
                self._counts[lane] = self._counts[lane]._replace(returns=self._no_counts().returns)
                self.ages[lane][:] = 0
                notes.append(f"not exact: {error}; a new game begins")
            if with_replay:
                arrays = f"{name}/replay"
                replay.refill(run["written"], lambda part, to, at=arrays: saved.read_into(f"{at}/{part}", to))
                self.memories[lane] = restored_tree(saved, f"{name}/memory", self.memories[lane], np)
            if not (with_replay and goes_on):
                replay.start(self.obs[lane], env.legal)
        return notes

    def close(self) -> None:
        """Releases the emulators."""
        for env in self.envs:
            env.close()

    def _no_counts(self) -> Counts:
        """Makes the counts of a run before its first step."""
        return counts.zero(self._loop.num_envs, np, self._recipe.controller.needs_returns)

    def _draw(self, lane: int, words: np.ndarray) -> tuple[Any, Transition]:
        """Draws a run's minibatch, and gives the transitions' numbers too."""
        replay = self.replays[lane]
        numbers, density = self._recipe.sampling.draw(self.memories[lane], words, len(replay), np)
        return numbers, replay.gather(replay.slots[numbers].astype(np.int64))._replace(density=density)

    def _actions(self, params: Any, agent_steps: int) -> np.ndarray:
        """Chooses the actions of every run, `[R, E]`; the network is asked only where an action is not random anyway.

        The lanes that fill up a block are the last run over again, and choose the same.
        """
        number = agent_steps // self._loop.num_envs
        chance, random_actions = self._exploration.at(number) if not self._masked else self._drawn_legally(number)
        epsilon = learner.epsilon_at(agent_steps, self._settings)
        rate = exploration_rate(np.stack(self.ages), self._random_first_actions, epsilon)
        explore = chance < rate
        if explore.all():
            return random_actions
        obs = stack(self.obs, self._width, np)
        drawn = stack([chance[lane] for lane in range(len(self.runs))], self._width, np)
        rates = stack([rate[lane] for lane in range(len(self.runs))], self._width, np)
        legal = stack(self._legal, self._width, np)
        moment = np.uint32(number)
        chosen = _choose(self._recipe, self._width, params, obs, self._act_keys, moment, drawn, rates, legal)
        return np.where(explore, random_actions, np.asarray(chosen).reshape(self._width, -1)[: len(self.runs)])

    def _drawn_legally(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns what `learner.exploration` draws for a step, `[R, E]` each, by the masks of this moment."""
        drawn = self._exploration.at(number)
        return drawn[:, 0], learner.random_legal(drawn[:, 1], np.stack(self._legal))  # pyright: ignore

    def _step(self, lane: int, actions: np.ndarray, agent_steps: int) -> None:
        """Steps one run's environments, the last of which makes `agent_steps`, and stores what came of it."""
        step = self.envs[lane].step(actions)
        if self._budget_cut_terminates and (
            agent_steps % self._loop.epoch_steps == 0 or agent_steps == self._loop.steps
        ):
            step = step._replace(terminated=np.ones_like(step.terminated))
        self.replays[lane].add(actions, step)
        self.obs[lane] = step.obs
        self.ages[lane] = np.where(np.logical_or(step.terminated, step.truncated), 0, self.ages[lane] + 1)
        own = counts.with_step(self._counts[lane], step, self._settings, np)
        own = counts.with_returns(own, step, self._settings, np)
        self._counts[lane] = counts.with_games(own, step.game_ended, np) if step.game_ended.any() else own


@partial(jax.jit, static_argnames=("recipe", "width"))
def _choose(
    recipe: Recipe, width: int, params: Any, obs: Any, keys: Any, number: Any, chance: Any, epsilon: Any, legal: Any
) -> jax.Array:
    """Chooses actions where none is to be random; `number` is that of the step."""

    def one(params: Any, obs: Any, key: Any, chance: Any, epsilon: Any, legal: Any) -> jax.Array:
        return learner.choose(recipe, params, obs, jax.random.fold_in(key, number), chance, epsilon, legal)

    return over_lanes(one, width)(params, obs, keys, chance, epsilon, legal)


@partial(jax.jit, static_argnames=("recipe", "width"), donate_argnames=("opt_state",))
def _learn(
    recipe: Recipe,
    width: int,
    state: LearnerState,
    opt_state: Any,
    operator: Any,
    batch: Transition,
    returns: Any = None,
) -> Any:
    """Makes one update of a block; returns the accumulators, what else has changed of the state, and the metrics.

    The accumulators are donated, and returned first: JAX gives donated memory to the first outputs of its shape, and
    to the parameters it would cost copies. The parameters are not donated, which would cost one too. The target network
    is not returned, which would copy it.
    """

    def one(state: LearnerState, operator: Any, batch: Transition, returns: Any) -> Any:
        return learner.learn_step(state, operator, batch, recipe, returns)

    state, metrics = over_lanes(one, width)(state._replace(opt_state=opt_state), operator, batch, returns)
    return state.opt_state, state._replace(opt_state=(), target_params=()), metrics
