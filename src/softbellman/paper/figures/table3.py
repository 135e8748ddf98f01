"""Table 3 of the paper, derived from the laws of operators.

Two of the paper's answers are corrected so. Mellowmax does represent a policy, the one of largest entropy among those
that average to its value; and with it, mellowmax can be used in double Q-learning.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from softbellman.operators import Laws, Operator, double, maximum, mellowmax, softmax
from softbellman.simulation import parameter

Answer = bool | None


class Row(NamedTuple):
    """The paper's criteria for one operator, in the order of its columns.

    Attributes:
        bellman_optimality: it is the max, so that the fixed point is `Q*`.
        tuning: it has a parameter.
        overestimation_reduction: it is never above the max; None for the max itself.
        policy_representation: it averages with the policy `op.weights`.
        double_q_learning: `double(op)` averages one estimate with a policy for another.
    """

    bellman_optimality: Answer
    tuning: Answer
    overestimation_reduction: Answer
    policy_representation: Answer
    double_q_learning: Answer


OPERATORS: dict[str, Operator] = {"max": maximum(), "mellowmax": mellowmax(5.0), "softmax": softmax(5.0)}

PRINTED = {
    "max": Row(True, False, None, True, True),
    "mellowmax": Row(False, True, True, False, False),
    "softmax": Row(False, True, True, True, True),
}
"""Answers that the paper prints."""


def claimed(operator: Operator) -> Laws:
    """Give the laws that an operator claims."""
    return operator.laws


def derive(operator: Operator, laws_of: Callable[[Operator], Laws] = claimed) -> Row:
    """Derive an operator's row from laws.

    Args:
        operator: any but a double one.
        laws_of: where the laws come from; by default the operator's claims.

    Example:
        >>> from softbellman import operators as ops
        >>> derive(ops.mellowmax(5.0)).double_q_learning
        True
    """
    laws, doubled = laws_of(operator), laws_of(double(operator))
    is_max = laws.at_most_max and laws.within_largest_gap and operator.largest_gap(2) == 0
    return Row(
        bellman_optimality=is_max,
        tuning=parameter(operator) is not None,
        overestimation_reduction=None if is_max else laws.at_most_max,
        policy_representation=laws.weights_are_policy and laws.averages_with_its_weights,
        double_q_learning=doubled.weights_are_policy and doubled.averages_with_its_weights,
    )


def table() -> list[Sequence[str]]:
    """Lay the table out: name and five answers for each operator, with the paper's answer where it differs."""
    return [
        (name, *(_answer(found, printed) for found, printed in zip(derive(op), PRINTED[name], strict=True)))
        for name, op in OPERATORS.items()
    ]


def _answer(found: Answer, printed: Answer) -> str:
    words = {True: "yes", False: "no", None: "-"}
    return words[found] if found == printed else f"{words[found]} (paper: {words[printed]})"
