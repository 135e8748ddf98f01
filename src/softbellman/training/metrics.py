"""Measures: each quantity of a test phase is one entry here, which gives its column, its meaning and its panel.

Units of `loss` and `policy_entropy`: Deviation D35.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from softbellman.training.counts import mean

Row = dict[str, Any]
"""One test phase of one run, by the names of `MEASURES`. None: the quantity could not be had, which is not 0."""


class Measured(NamedTuple):
    """Source of measures: a run, as a test phase finds it.

    Attributes:
        run: the run, with its operator.
        clock: the clock of its group, the epoch that is over counted.
        counts: its counts.
        phase: its test phase.
        test_seed: seed of the test phase's games.
        seconds: wall-clock time so far.
        frames_per_step: frames of an agent step.
        test_epsilon: exploration rate of the test phase.
        epsilon: exploration rate of training.
        values: statistics of values on the run's own held-out states, by name.
        common: the same on states that all runs of a game share.
        gradients: statistics of gradients, by name; empty where there were no minibatches.
        exact: distances from exact values, by name; empty where the environment is no finite MDP.
        parameters: the numbers that its operator has at this moment.
    """

    run: Any
    clock: Any
    counts: Any
    phase: Any
    test_seed: int
    seconds: float
    frames_per_step: int
    test_epsilon: float
    epsilon: float
    values: Mapping[str, float]
    common: Mapping[str, float]
    gradients: Mapping[str, float]
    exact: Mapping[str, float]
    parameters: tuple[float, ...]


class Panel(NamedTuple):
    """A quantity over training, as the page draws it.

    Attributes:
        title: the title.
        label: the label of its axis.
        meaning: what it is, in a sentence.
        place: where it stands among the panels, the smallest first; by default at the end.
        reference: a value worth a line of its own, or None.
    """

    title: str
    label: str
    meaning: str
    place: int = 100
    reference: float | None = None


class Measure(NamedTuple):
    """A quantity that is measured after each test phase.

    Attributes:
        name: its column in `metrics.csv`.
        meaning: what it is, for the documentation.
        of: takes it.
        panel: how the page draws it; None: it does not.
        counts: it is a whole number in every row.
        is_rare: few environments have it: a table may lack it, and a page is silent where nothing was measured.
    """

    name: str
    meaning: str
    of: Callable[[Measured], float | int | None]
    panel: Panel | None = None
    counts: bool = False
    is_rare: bool = False


def _value(name: str, meaning: str, panel: Panel | None = None) -> Measure:
    return Measure(name, meaning, lambda m: m.values[name], panel)


def _gradient(name: str, meaning: str, panel: Panel | None = None) -> Measure:
    return Measure(name, meaning, lambda m: m.gradients.get(name), panel)


def _exact(name: str, meaning: str, panel: Panel | None = None) -> Measure:
    return Measure(name, meaning, lambda m: m.exact.get(name), panel, is_rare=True)


MEASURES: tuple[Measure, ...] = (
    Measure("epoch", "test phases so far, from 1", lambda m: m.clock.epoch, counts=True),
    Measure(
        "agent_steps",
        "decisions of the agent in training so far, the random ones included",
        lambda m: m.clock.agent_steps,
        counts=True,
    ),
    Measure(
        "env_frames",
        "emulator frames in training, `agent_steps` times the frames of a step",
        lambda m: m.clock.agent_steps * m.frames_per_step,
        counts=True,
    ),
    Measure("updates", "updates of the online network so far", lambda m: m.clock.updates, counts=True),
    Measure("episodes", "whole games finished in training so far", lambda m: int(m.counts.episodes), counts=True),
    Measure(
        "test_return",
        "mean raw undiscounted score of finished test games, at `loop.test_epsilon`; an unfinished one counts, "
        "flagged, only if it is the only one; without any the cell is empty, never 0 or NaN",
        lambda m: m.phase.mean,
        Panel("Test score", "raw score a game", "Mean raw score of a test phase's games.", 1),
    ),
    Measure("test_episodes", "games behind it", lambda m: len(m.phase.scores), counts=True),
    Measure(
        "test_unfinished",
        "1 if no game ended within the test budget, and the score is of the unfinished one; else 0",
        lambda m: int(m.phase.unfinished),
        counts=True,
    ),
    Measure(
        "train_return",
        "mean raw score of the training games that ended in this epoch",
        lambda m: mean(m.counts.return_sum, m.counts.finished),
    ),
    Measure(
        "train_clipped_return",
        "the same of rewards as the learner sees them, multiplied and clipped",
        lambda m: mean(m.counts.clipped_return_sum, m.counts.finished),
    ),
    _value("held_out_value", "mean over the run's own held-out states of `max_a Q_online`, for every operator"),
    Measure(
        "held_out_value_common",
        "the same on states that all runs of a game share",
        lambda m: m.common["held_out_value"],
        Panel("Value of held-out states", "mean of max Q", "States set apart, the same ones for all runs.", 3),
    ),
    _value("held_out_operator_value", "the same of `op(Q_target, Q_online)`, as the operator would enter a target"),
    Measure(
        "realised_return",
        "discounted return, of rewards as the learner sees them, that the test policy obtained from the states it "
        "visited, cut where training sees an end; states near the end of the budget, or near where a time "
        "limit cut a game, are left out",
        lambda m: m.phase.realised_return,
    ),
    Measure(
        "overestimation",
        "`max_a Q_online` at those states minus `realised_return`",
        lambda m: m.phase.overestimation,
        Panel(
            "Overestimation",
            "max Q minus realised return",
            "Values of the states that the test policy visited, minus the return it went on to obtain from them.",
            2,
            0.0,
        ),
    ),
    _gradient(
        "gradient_norm",
        "mean l2 norm of the gradient in the last layer's weights, of the loss that is trained with (summed or "
        "averaged over a minibatch, as `learner.loss_reduction` says), over `loop.gradient_batches` uniform "
        "minibatches, without noise in the network, random mixtures of an ensemble or weights of sampling",
        Panel("Gradient norm", "mean l2 norm", "Of the loss in the last layer's weights, over minibatches.", 7),
    ),
    _gradient(
        "gradient_variance",
        "variance of each coordinate over these, averaged over coordinates, as the authors' code logs it",
        Panel("Gradient variance", "mean over weights", "Of each of these weights' gradients, over the same.", 8),
    ),
    _gradient("gradient_mean", "mean over these and over coordinates, as the authors' code logs it"),
    _gradient("gradient_norm_of_mean", "l2 norm of the mean gradient over these"),
    _value(
        "action_gap",
        "mean over held-out states of the best minus the second value",
        Panel("Action gap", "best minus second Q", "How far the best action stands out in those states.", 4),
    ),
    _value("policy_entropy", "mean entropy of `op.weights`, in nats"),
    _value(
        "operator_gap",
        "mean of max minus operator",
        Panel("Operator gap", "max Q minus operator", "How far the operator stays below max in those states.", 5),
    ),
    _value(
        "operator_slope",
        "mean of gamma times the l1 norm of `op.gradient`",
        Panel(
            "Operator slope",
            "γ · l1 norm of its gradient",
            "How much an error in values grows in one backup; above 1 the operator is locally expansive.",
            6,
            1.0,
        ),
    ),
    _value("q_std", "mean standard deviation of `Q_online` over actions, the scale that gives tau its meaning"),
    _exact(
        "value_error",
        "of an environment that is a finite MDP: root mean square of `Q_online - Q*` over its states and their legal "
        "actions, `Q*` the optimal values of rewards as the learner sees them",
        Panel(
            "Value error",
            "root mean square of Q minus Q*",
            "How far values are from the exact optimal ones.",
        ),
    ),
    _exact(
        "value_bias",
        "mean over its states of `max_a Q_online - max_a Q*`",
        Panel(
            "Value bias",
            "max Q minus max Q*",
            "How far the best values lie above the exact optimal ones; below 0, beneath.",
            reference=0.0,
        ),
    ),
    _exact(
        "policy_loss",
        "mean over its states of `V*` minus the exact value of the greedy policy",
        Panel("Policy loss", "V* minus value of the policy", "How much the greedy policy loses, exactly."),
    ),
    Measure(
        "loss",
        "mean loss of this epoch's updates, summed or averaged over the minibatch as the learner does",
        lambda m: mean(m.counts.loss_sum, m.counts.losses),
    ),
    Measure("epsilon", "exploration rate at the end of the epoch", lambda m: m.epsilon),
    Measure(
        "operator_parameter",
        "first number of the operator, such as tau or omega, where it has one; as a controller has set it",
        lambda m: next(iter(m.parameters), None),
    ),
    Measure("test_epsilon", "exploration rate of the test phase", lambda m: m.test_epsilon),
    Measure("test_seed", "seed of the test phase's games", lambda m: m.test_seed, counts=True),
    Measure("seconds", "wall-clock time of the run so far, tests included", lambda m: m.seconds),
)


def columns() -> tuple[str, ...]:
    """Return the columns of `metrics.csv`."""
    return tuple(measure.name for measure in MEASURES)


def counted() -> frozenset[str]:
    """Return those of them that hold whole numbers."""
    return frozenset(measure.name for measure in MEASURES if measure.counts)


def rare() -> frozenset[str]:
    """Return those of them that few environments have."""
    return frozenset(measure.name for measure in MEASURES if measure.is_rare)


def documented() -> str:
    """Return the table of measures in Markdown, as docs/measures.md has it."""
    rows = [f"| `{measure.name}` | {measure.meaning} |" for measure in MEASURES]
    return "\n".join(["| column | meaning |", "|---|---|", *rows, ""])
