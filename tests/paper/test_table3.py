"""Table 3 follows from laws, whether operators claim them or a search finds them."""

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.paper.figures import table3


def found(operator):
    """The laws that a search for violations leaves standing."""
    return ops.Laws(**{finding.law: finding.held for finding in ops.check_operator(operator, trials=400).findings})


@pytest.mark.parametrize("name", table3.OPERATORS)
def test_the_answers_are_those_that_a_search_gives(name):
    assert table3.derive(table3.OPERATORS[name], found) == table3.derive(table3.OPERATORS[name])


def test_an_operator_that_claims_nothing_gets_no_double_version_either():
    class Unclaimed(ops.Softmax):
        laws = ops.Laws()

    row = table3.derive(ops.operator(Unclaimed)(5.0))
    assert not row.policy_representation and not row.double_q_learning


def test_it_is_the_papers_but_for_the_policy_of_mellowmax():
    rows = {name: table3.derive(op) for name, op in table3.OPERATORS.items()}
    differing = {
        (name, criterion)
        for name, row in rows.items()
        for criterion in row._fields
        if getattr(row, criterion) != getattr(table3.PRINTED[name], criterion)
    }
    assert differing == {("mellowmax", "policy_representation"), ("mellowmax", "double_q_learning")}
    assert table3.table()[1] == ("mellowmax", "no", "yes", "yes", "yes (paper: no)", "yes (paper: no)")


def test_both_corrections_hold_at_values():
    """The policy averages to the mellowmax value, and double mellowmax has its weights from elsewhere."""
    q, selector = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    op = ops.mellowmax(5.0)
    assert op.weights(q) @ q == pytest.approx(float(op(q)), abs=1e-12)
    assert ops.double(op)(q, selector) == pytest.approx(op.weights(selector) @ q, abs=1e-12)


@pytest.mark.parametrize("name", ["mellowmax", "softmax"])
def test_overestimation_is_reduced_by_more_than_nothing(name):
    q = np.random.default_rng(0).normal(size=(1_000, 4))
    assert np.all(table3.OPERATORS[name](q) < q.max(axis=-1))


@pytest.mark.parametrize(
    ("change", "criterion", "answer"),
    [
        ({"weights_are_policy": False}, "policy_representation", False),
        ({"averages_with_its_weights": False}, "policy_representation", False),
        ({"averages_with_its_weights": False}, "double_q_learning", False),
        ({"at_most_max": False}, "overestimation_reduction", False),
        ({"within_largest_gap": False}, "bellman_optimality", False),
    ],
)
def test_an_answer_hangs_on_its_law(change, criterion, answer):
    def without(op):
        return ops.Laws(**{law: getattr(op.laws, law) for law in vars(op.laws)} | change)

    name = "max" if criterion == "bellman_optimality" else "softmax"
    assert getattr(table3.derive(table3.OPERATORS[name], without), criterion) is answer


def test_an_operator_of_ones_own_has_a_row():
    assert table3.derive(ops.mean()) == (False, False, True, True, True)
