"""Loop settings, and the checks of all numbers of training. Loads no JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from softbellman.learning.settings import LearnerSettings

SMALLEST, LARGEST = 1e-37, 1e38  # of the learner's numbers: beyond them, float32 has 0 and infinity
_IN_32 = f"be positive and finite in float32: from {SMALLEST} to {LARGEST}"


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """The loop around the learner. The defaults are the authors'.

    Attributes:
        steps: agent steps in all, the random ones before replay starts included.
        epoch_steps: agent steps from one test phase to the next.
        test_steps: budget of agent steps of a test phase; an unfinished last game does not count.
        test_episodes: a test phase ends earlier, after so many finished games; None: only the budget ends it.
        test_epsilon: exploration rate in test phases.
        held_out_states: states drawn from the replay after the first epoch, on which values are followed.
        gradient_batches: minibatches behind the gradient statistics of each test phase; 0 leaves them out.
        num_envs: environments that each run steps side by side.
        block_width: runs that one compiled call moves on together; on a CPU, 1 is fastest for Atari.
    """

    steps: int = 50_000_000
    epoch_steps: int = 250_000
    test_steps: int = 125_000
    test_episodes: int | None = None
    test_epsilon: float = 0.05
    held_out_states: int = 3_200
    gradient_batches: int = 50
    num_envs: int = 1
    block_width: int = 1

    @property
    def tested(self) -> str:
        """Says when test phases are played."""
        return f"every {self.epoch_steps:,} agent steps" if self.epoch_steps < self.steps else "once, at the end"

    def test_is_due(self, agent_steps: int, tested: int) -> bool:
        """Says if an epoch is over at `agent_steps` that is not among the `tested` ones; the last may be shorter."""
        whole, rest = divmod(agent_steps, self.epoch_steps)
        return tested < whole + bool(rest and agent_steps == self.steps)


def num_updates(learner: LearnerSettings, loop: LoopSettings) -> int:
    """Counts the updates of a whole run."""
    return loop.steps // learner.update_period_steps - learner.replay_start_steps // learner.update_period_steps


_OPTIMIZERS, _REDUCTIONS = (get_args(get_type_hints(LearnerSettings)[name]) for name in ("optimizer", "loss_reduction"))
_RANGES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("learner.optimizer", lambda x: x in _OPTIMIZERS, f"be one of {', '.join(_OPTIMIZERS)}"),
    ("learner.loss_reduction", lambda x: x in _REDUCTIONS, f"be one of {', '.join(_REDUCTIONS)}"),
    ("learner.gamma learner.rmsprop_decay", lambda x: 0 <= x < 1, "be in [0, 1)"),
    ("learner.learning_rate learner.huber_delta learner.optimizer_epsilon", lambda x: SMALLEST <= x <= LARGEST, _IN_32),
    ("learner.reward_scale", lambda x: SMALLEST <= x <= LARGEST, _IN_32),
    ("learner.reward_clip", lambda x: x is None or x >= SMALLEST, "be positive, or none to leave rewards as they are"),
    ("learner.batch_size learner.update_period_steps", lambda x: x >= 1, "be at least 1"),
    ("learner.target_period_updates learner.replay_capacity", lambda x: x >= 1, "be at least 1"),
    ("learner.replay_start_steps learner.epsilon_decay_steps", lambda x: x >= 0, "not be negative"),
    ("learner.epsilon_start learner.epsilon_end loop.test_epsilon", lambda x: 0 <= x <= 1, "be in [0, 1]"),
    ("loop.steps loop.epoch_steps loop.test_steps", lambda x: x >= 1, "be at least 1"),
    ("loop.held_out_states loop.num_envs loop.block_width", lambda x: x >= 1, "be at least 1"),
    ("loop.gradient_batches", lambda x: x >= 0, "not be negative"),
    ("loop.test_episodes", lambda x: x is None or x >= 1, "be at least 1, or none to let the budget end a test phase"),
)
"""Fields, what must hold of the value of each, and the words for it."""


def check(learner: LearnerSettings, loop: LoopSettings) -> None:
    """Refuses settings that could not run or could never learn, with both numbers and what to change.

    Raises:
        ValueError: at the first fault found.
    """
    given = SimpleNamespace(learner=learner, loop=loop)
    for names, holds, words in _RANGES:
        for name in names.split():
            value = attrgetter(name)(given)
            _require(holds(value), f"{name} ({value!r}) must {words}.")
    _require(
        learner.batch_size <= learner.replay_capacity,
        f"learner.batch_size ({learner.batch_size}) is larger than learner.replay_capacity "
        f"({learner.replay_capacity}); lower the one or raise the other.",
    )
    _require(
        learner.batch_size <= max(learner.replay_start_steps, 1),
        f"learner.replay_start_steps ({learner.replay_start_steps}) is less than learner.batch_size "
        f"({learner.batch_size}): the first update would draw from fewer transitions than it needs; "
        f"set learner.replay_start_steps to {learner.batch_size} or more.",
    )
    _require(
        learner.replay_start_steps < loop.steps,
        f"learner.replay_start_steps ({learner.replay_start_steps:,}) is not below the budget of {loop.steps:,} "
        "agent steps: nothing would be learned; raise --steps or lower learner.replay_start_steps.",
    )
    _require(
        learner.replay_start_steps < learner.replay_capacity,
        f"learner.replay_start_steps ({learner.replay_start_steps:,}) must be below learner.replay_capacity "
        f"({learner.replay_capacity:,}): the replay could never hold as many.",
    )
    updates = num_updates(learner, loop)
    _require(
        updates >= 1,
        f"learner.update_period_steps ({learner.update_period_steps}) leaves no update in the "
        f"{loop.steps - learner.replay_start_steps} agent steps after replay starts; lower it or raise --steps.",
    )
    _require(
        learner.target_period_updates < updates,
        f"learner.target_period_updates ({learner.target_period_updates:,}) can't fire: the run makes {updates:,} "
        f"updates, and the copy before the first changes nothing; set it below {updates:,}, or raise --steps.",
    )
    period, copies = learner.update_period_steps, loop.num_envs
    _require(
        period % copies == 0,
        f"learner.update_period_steps ({period}) must be a multiple of loop.num_envs ({copies}); "
        f"try {copies * max(1, round(period / copies))}.",
    )
    for name, value in (
        ("loop.steps", loop.steps),
        ("loop.epoch_steps", loop.epoch_steps),
        ("learner.replay_capacity", learner.replay_capacity),
    ):
        _require(value % copies == 0, f"{name} ({value}) must be a multiple of loop.num_envs ({copies}).")


def check_side_by_side(loop: LoopSettings) -> int:
    """Returns how many games of a test phase are played side by side, as they are on the device; all, or it refuses.

    Raises:
        ValueError: with what to change.
    """
    games = loop.test_episodes
    if games is None:
        raise ValueError("loop.test_episodes must be given: so many test games are played side by side; try 20.")
    _require(
        loop.test_steps >= games,
        f"loop.test_steps ({loop.test_steps}) leaves no step for each of loop.test_episodes ({games}) games, which are "
        "played side by side; raise the one or lower the other.",
    )
    return games


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
