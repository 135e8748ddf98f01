"""Loop of a group of runs: clocks, due updates and copies, tests, rows, divergence, and its saved state.

A group is runs that share everything but the seed and the operator's parameters. They are moved on in blocks of one
fixed width, each on a `Stage`: on the host, or within one compiled program. At each agent step, in this order and for
every run: choose an action, step the environment, store the transition; then, when an update is due, copy the target
network if that is due too, draw a minibatch, update (Deviation D20). Nothing runs ahead of anything else, so no result
depends on timing; and every random draw is a function of the run's seed and a counter, so there is no generator state.
"""

import time
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import HostEnv
from softbellman.learning import learner
from softbellman.learning.fixed_policy import FixedPolicy
from softbellman.learning.learner import LearnerState
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings
from softbellman.training import streams
from softbellman.training.checkpoint import Checkpoint, Damaged, State
from softbellman.training.counts import Clock
from softbellman.training.evaluation import TestPhase
from softbellman.training.exact import exact_of
from softbellman.training.lanes import lane_of, over_lanes, stack
from softbellman.training.measurement import COMMON_SEED, Ruler, States, common_states
from softbellman.training.metrics import Row
from softbellman.training.settings import LoopSettings
from softbellman.training.snapshot import restored_tree, saved_tree
from softbellman.training.stage import Stage
from softbellman.training.streams import Role

LAYOUT = 3  # of a saved state; a run goes on only with the version that has its layout and its draws


class Diverged(ArithmeticError):
    """No run of a group is left: the loss of each has become infinite or NaN."""


class Loop:
    """A group of runs in training. `advance` trains, `test` measures; nothing is written to disk here.

    Attributes:
        runs: the `R` runs.
        stages: one for each block of runs.
        learners: the learners' states, one for each block; see `lanes.stack`.
        clock: agent steps, updates and test phases so far; one clock for all.
        held_out: each run's held-out states, from the first test phase on.
        diverged: runs that are lost, each with the agent step at which its loss was no longer finite. They are
            neither tested nor counted any more; the others go on.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        recipe: Recipe,
        make_env: Callable[[int, bool], HostEnv],
        settings: LearnerSettings,
        loop: LoopSettings,
    ) -> None:
        """Makes the learners of stages of `loop.block_width` runs, the last of which may have fewer.

        See `host_stage.host_loop` and `device_stage.device_loop`.
        """
        self.stages, self.recipe, self.settings, self.loop = list(stages), recipe, settings, loop
        self.runs = tuple(run for stage in stages for run in stage.runs)
        self._make_env, self._width = make_env, loop.block_width
        self._operators = [stack([run.operator for run in stage.runs], self._width) for stage in stages]
        self.learners: list[LearnerState] = [
            stack([_init(recipe, streams.key(run.seed, Role.INIT), run.operator) for run in stage.runs], self._width)
            for stage in stages
        ]
        self.clock = Clock()
        self.held_out: list[States] = []
        self.diverged: dict[int, int] = {}
        self._started = time.monotonic()  # less what the runs took before they were resumed

    @property
    def agent_steps(self) -> int:
        """Agent steps taken by each run so far."""
        return self.clock.agent_steps

    @property
    def updates(self) -> int:
        """Updates made by each run so far."""
        return self.clock.updates

    @property
    def replay_bytes(self) -> int:
        """Bytes of all the replays."""
        return sum(stage.replay_bytes for stage in self.stages)

    def advance(self, steps: int, on_progress: Callable[[int], None] | None = None) -> None:
        """Trains every run for `steps` agent steps.

        An update is due by the agent steps of the run alone: Deviation D10.

        Args:
            steps: a multiple of the number of environments of a run.
            on_progress: called with `agent_steps` after each step on the host, now and then on the device.

        Raises:
            ValueError: if `steps` is no such multiple.
            Diverged: no run is left.
        """
        if steps % self.loop.num_envs:
            raise ValueError(f"steps ({steps}) must be a multiple of loop.num_envs ({self.loop.num_envs})")
        end, period = self.agent_steps + steps, self.settings.update_period_steps
        while self.agent_steps < end:
            now, until = self.agent_steps, min(end, self.agent_steps + self.stages[0].longest)
            due = (max(now, self.clock.replay_from + self.settings.replay_start_steps) // period + 1) * period
            if due > until:
                self._play(until - now)
            else:
                several = (until - now) // period if due - now == period else 1
                self._learn(several, due - now)
            if on_progress is not None:
                on_progress(self.agent_steps)

    @property
    def test_is_due(self) -> bool:
        """An epoch is over that has not been tested yet."""
        return self.loop.test_is_due(self.agent_steps, self.clock.epoch)

    def test(self, on_step: Callable[[], None] | None = None) -> dict[int, tuple[Row, TestPhase]]:
        """Plays a test phase of every run that has not diverged, takes every measurement, and closes the epoch.

        Each phase has an environment and random numbers of its own: Deviations D13, D14.

        Args:
            on_step: called now and then while it plays. If it raises, the loop is as it was before the test.

        Returns:
            The row and the test phase of each of these runs, by index.

        Raises:
            Diverged: no run is left.
        """
        self.check_losses()
        self._hold_out()
        ruler, phases, closed = self._ruler, dict[int, TestPhase](), self.clock._replace(epoch=self.clock.epoch + 1)
        seeds = [streams.derived_seed(run.seed, Role.TEST, closed.epoch) for run in self.runs]
        for number, stage in enumerate(self.stages):
            first = number * self._width
            lanes = [lane for lane in range(len(stage.runs)) if first + lane not in self.diverged]
            own = seeds[first : first + len(stage.runs)]
            played = stage.test(self.learners[number], own, lanes, on_step)
            phases |= {first + lane: phase for lane, phase in played.items()}
        measured = {
            index: (self._row(ruler, closed, index, phase, seeds[index]), phase) for index, phase in phases.items()
        }
        self.clock = closed
        for stage in self.stages:
            stage.next_epoch()
        return measured

    def check_losses(self) -> None:
        """Waits for the last update, and records the runs whose loss was not finite.

        Raises:
            Diverged: no run is left.
        """
        for stage in self.stages:
            stage.settle()
        self._note_lost()

    def params(self, index: int) -> Any:
        """Returns a copy of the online network's parameters of run `index`."""
        return self.state(index).params

    def policy(self, index: int) -> FixedPolicy:
        """Returns the policy of the online network of run `index`, as it is now; once a test phase was played."""
        return FixedPolicy(self.recipe, self.params(index), self.held_out[index].obs.shape[1:])

    def state(self, index: int) -> LearnerState:
        """Returns a copy of the learner's state of run `index`, without an axis of lanes."""
        number, lane = divmod(index, self._width)
        return jax.tree.map(jnp.copy, lane_of(self.learners[number], lane, self._width))

    def snapshot(self, *, with_replay: bool = True) -> State:
        """Returns the whole state between two agent steps. Its arrays are views: write it before the next step.

        Args:
            with_replay: False leaves the replays out, which are nearly all of the bytes; the loop can then go on, with
                empty ones, but not exactly.

        Raises:
            Diverged: no run is left.
        """
        self.check_losses()
        if self.test_is_due:
            self._hold_out()  # without the replay it could not be done later
        arrays = dict[str, list[np.ndarray]]()
        for index, states in enumerate(self.held_out):
            arrays |= {name: [array] for name, array in zip(_held_out(index), states, strict=True) if array is not None}
        for number, state in enumerate(self.learners):
            arrays |= saved_tree(f"learners/{number}", state)
        parts = [
            stage.snapshot(f"stages/{number}", self.clock, with_replay=with_replay)
            for number, stage in enumerate(self.stages)
        ]
        facts = {
            "layout": LAYOUT,
            "clock": self.clock._asdict(),
            "seconds": time.monotonic() - self._started,
            "runs": len(self.runs),
            "replay": with_replay,
            "stages": [part.facts for part in parts],
        }
        for part in parts:
            arrays |= part.arrays
        return State(facts, arrays)

    def restore(self, saved: Checkpoint, *, inexact: bool = False) -> list[str]:
        """Puts a loop, just made for the same runs and settings, where the saved one was.

        Args:
            saved: the checkpoint.
            inexact: begins a new game where the old one, played again, does not come to where it was. Without it, that
                is an error.

        Returns:
            Differences from a loop that was not stopped: none if it goes on bit for bit.

        Raises:
            Damaged: the checkpoint is of other runs or settings.
            ValueError: a game can't be played again up to where it was.
        """
        facts, notes = saved.facts, list[str]()
        own = {name for number, state in enumerate(self.learners) for name in saved_tree(f"learners/{number}", state)}
        if facts.get("runs") != len(self.runs) or own != {name for name in saved.names if name.startswith("learners/")}:
            raise Damaged(f"{saved.path} is of another network, optimiser or number of runs")
        try:
            self.clock, with_replay = Clock(**facts["clock"]), facts["replay"]
            self._started = time.monotonic() - facts["seconds"]
            if not with_replay:
                self.clock = self.clock._replace(replay_from=self.agent_steps)
            for number, stage in enumerate(self.stages):
                self.learners[number] = restored_tree(saved, f"learners/{number}", self.learners[number])
                prefix, part = f"stages/{number}", facts["stages"][number]
                notes += stage.restore(saved, prefix, part, self.clock, with_replay=with_replay, inexact=inexact)
            if _held_out(0)[0] in saved.names:
                names = [_held_out(index) for index in range(len(self.runs))]
                self.held_out = [States(*(saved.array(name) for name in own if name in saved.names)) for own in names]
        except (KeyError, TypeError, IndexError) as error:
            raise Damaged(f"{saved.path} is not of this study: {error!r}") from error
        self._find_lost()
        if not with_replay:
            notes.append(
                "not exact: the replay was not saved (checkpoint.replay) and is empty; learning goes on after "
                f"{self.settings.replay_start_steps:,} more agent steps"
            )
        return list(dict.fromkeys(notes))

    def close(self) -> None:
        """Releases the environments."""
        for stage in self.stages:
            stage.close()

    def _play(self, steps: int) -> None:
        for stage, state in zip(self.stages, self.learners, strict=True):
            stage.play(state, self.clock, steps)
        self.clock = self.clock._replace(agent_steps=self.agent_steps + steps)

    def _learn(self, updates: int, steps: int) -> None:
        """Makes updates, up to the next copy of the target network; it is copied before updates 0, P, 2P, ..."""
        period = self.settings.target_period_updates
        updates = min(updates, period - self.updates % period)
        for number, stage in enumerate(self.stages):
            if self.updates % period == 0:
                self.learners[number] = self._copied(self.learners[number])
            self.learners[number] = stage.learn(
                self.learners[number], self._operators[number], self.clock, updates, steps
            )
        self.clock = self.clock._replace(agent_steps=self.agent_steps + updates * steps, updates=self.updates + updates)
        self._note_lost()

    def _copied(self, state: LearnerState) -> LearnerState:
        """Copies the online networks of a block into the target networks."""
        return over_lanes(partial(learner.copy_target, recipe=self.recipe), self._width)(state)

    def _find_lost(self) -> None:
        moments = [moment for stage in self.stages for moment in stage.lost_at()]
        self.diverged = {index: moment for index, moment in enumerate(moments) if moment}

    def _note_lost(self) -> None:
        self._find_lost()
        if len(self.diverged) == len(self.runs):
            raise Diverged("the loss is no longer finite")

    def _hold_out(self) -> None:
        """Sets states apart, before the first test phase, for the measurements of all."""
        if not self.held_out:
            size = self.loop.held_out_states
            drawn = [self._minibatch(index, Role.HELD_OUT, 0, size) for index in range(len(self.runs))]
            self.held_out = [States(*jax.tree.map(np.ascontiguousarray, (each.obs, each.legal))) for each in drawn]

    def _minibatch(self, index: int, role: Role, counter: int, size: int) -> Transition:
        """Draws a minibatch of a run outside training."""
        number, lane = divmod(index, self._width)
        key = jax.random.fold_in(streams.key(self.runs[index].seed, role), counter)
        return self.stages[number].minibatch(lane, self.clock, streams.words(key, size))

    @cached_property
    def _ruler(self) -> Ruler:
        env = self._make_env(COMMON_SEED, True)
        exact, common = exact_of(env, self.settings), common_states(env)
        return Ruler(self.recipe, self.settings, self.loop, common, self.stages[0].frames_per_step, exact)

    def _row(self, ruler: Ruler, clock: Clock, index: int, phase: TestPhase, test_seed: int) -> Row:
        number, lane = divmod(index, self._width)
        stage = self.stages[number]
        count = self.loop.gradient_batches if stage.stored(lane, clock) else 0  # none are if the replay was not saved
        size, first = self.settings.batch_size, clock.epoch * count
        return ruler.row(
            self.state(index),
            self.held_out[index],
            [self._minibatch(index, Role.GRADIENT, first + i, size) for i in range(count)],
            run=self.runs[index],
            clock=clock,
            counts=stage.counts(lane),
            phase=phase,
            test_seed=test_seed,
            seconds=time.monotonic() - self._started,
        )


def _held_out(index: int) -> tuple[str, str]:
    """Returns the names under which a run's held-out states and their masks are saved."""
    return f"runs/{index}/held_out", f"runs/{index}/held_out_legal"


_init = jax.jit(learner.init, static_argnames=("recipe",))
