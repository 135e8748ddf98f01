"""Stage interface: what the loop asks of environments, replays and counts of a block of runs."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from softbellman.learning.learner import LearnerState
from softbellman.learning.replay import Transition
from softbellman.training.checkpoint import Checkpoint, State
from softbellman.training.counts import Clock, Counts
from softbellman.training.evaluation import TestPhase
from softbellman.training.lanes import Run


class Stage(Protocol):
    """Environments, replays and counts of a block of runs, and how they and the learner are moved on.

    The order at each agent step is the same on every stage: act, step, store; then, where an update is due, draw a
    minibatch and update. The clock given to a method is that of its beginning.
    """

    runs: Sequence[Run]  # of the block, without those that fill it up
    longest: int  # agent steps that one call may take
    frames_per_step: int

    @property
    def replay_bytes(self) -> int:
        """Bytes of the replays, and of what sampling keeps in mind."""
        ...

    def play(self, state: LearnerState, clock: Clock, steps: int) -> None:
        """Takes `steps` agent steps of every run without an update."""
        ...

    def learn(self, state: LearnerState, operator: Any, clock: Clock, updates: int, steps: int) -> LearnerState:
        """Makes `updates` updates of every run, each after `steps` agent steps; the learner's state is given away."""
        ...

    def settle(self) -> None:
        """Waits for the last update, and counts its losses."""
        ...

    def lost_at(self) -> list[int]:
        """Returns the agent step at which each run's loss ceased to be finite; 0 if none is counted that did."""
        ...

    def counts(self, lane: int) -> Counts:
        """Returns the counts of a run."""
        ...

    def next_epoch(self) -> None:
        """Sets the counts of an epoch to zero."""
        ...

    def stored(self, lane: int, clock: Clock) -> int:
        """Returns how many transitions a run's replay holds."""
        ...

    def minibatch(self, lane: int, clock: Clock, words: Any) -> Transition:
        """Draws a minibatch of a run outside training, by random words `[B]`."""
        ...

    def test(
        self, state: LearnerState, seeds: Sequence[int], lanes: Sequence[int], on_step: Callable[[], None] | None
    ) -> dict[int, TestPhase]:
        """Plays test phases of the runs in these lanes, with games of their own; `seeds` has one for each run."""
        ...

    def snapshot(self, prefix: str, clock: Clock, *, with_replay: bool) -> State:
        """Returns its state, the names of arrays beginning with `prefix`; the arrays are views."""
        ...

    def restore(
        self, saved: Checkpoint, prefix: str, facts: Any, clock: Clock, *, with_replay: bool, inexact: bool
    ) -> list[str]:
        """Takes over a saved state, and returns what is not as it was.

        Raises:
            Damaged: it is of other runs or settings.
            ValueError: a game can't be played again up to where it was, and that is not taken for `inexact`.
        """
        ...

    def close(self) -> None:
        """Releases what it holds."""
        ...
