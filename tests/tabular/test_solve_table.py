"""Every operator of the table on finite MDPs: bounds where its laws give them, and which policy it makes greedy."""

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.operators.table import TABLE
from softbellman.simulation import measure
from softbellman.tabular import FiniteMDP, solve

ENTRIES = pytest.mark.parametrize("entry", TABLE.values(), ids=TABLE)


def random_mdp(seed, states=4, actions=3, gamma=0.9):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(states) * 0.5, size=(states, actions))
    return FiniteMDP(transition, rng.normal(size=(states, actions)), gamma)


@ENTRIES
def test_bounds_hold_where_the_laws_give_them(entry):
    op, mdp = ops.parse(entry.spec), random_mdp(0)
    single = op.on_one_set or op
    solution = solve(mdp, op, tolerance=1e-9)
    assert solution.converged and solution.residual < 1e-8
    for q in solution.fixed_points:
        assert np.all(np.abs(mdp.apply(op, q) - q) < 1e-8)  # solve keeps what it finds within bounds
        assert np.all(solution.lower <= q) and np.all(q <= solution.upper)
    laws = single.laws
    if laws.monotone and laws.translation_equivariant:
        rough = solve(mdp, op, method="iteration", max_iterations=3)
        assert solution.unique == "proved" and np.max(solution.upper - solution.lower) < 4e-9
        assert np.all(rough.lower <= solution.upper) and np.all(solution.lower <= rough.upper)
    elif laws.at_most_max and (laws.at_least_mean or laws.within_largest_gap):
        assert np.all(np.isfinite(solution.lower)) and np.all(np.isfinite(solution.upper))


@ENTRIES
def test_a_counterexample_to_preservation_is_an_mdp_whose_greedy_policy_is_not_optimal(entry):
    """State 0 chooses between two states, of action values `q` and `other`, which end the game."""
    op = ops.parse(entry.spec)
    finding = ops.check_operator(op, trials=200)["optimality_preserving"]
    assert finding.held == op.laws.optimality_preserving
    if finding.held:
        return
    rows, gamma = np.stack([finding.witness.q, finding.witness.other]), 0.9
    rows /= np.max(np.abs(rows[0]))
    if not op.laws.homogeneous:
        rows *= np.max(np.abs(finding.witness.q))
    actions, best, worth = rows.shape[1], np.max(rows, axis=-1), op(rows, rows)
    better = int(np.argmax(best - worth))  # which the operator undervalues more
    transition, legal = np.zeros((4, actions, 4)), np.ones((4, actions), bool)
    transition[1:, :, 3] = transition[0, 0, 1] = transition[0, 1, 2] = transition[0, 2:, 3] = 1
    legal[0, 2:] = False
    reward = np.zeros((4, actions))
    reward[1:3] = rows
    lead = np.abs((best - worth)[0] - (best - worth)[1]) * gamma / 2
    reward[0, :2] = -gamma * best
    reward[0, better] += lead
    mdp = FiniteMDP(transition, reward, gamma, terminal=[False, False, False, True], legal=legal)
    q = np.array([[*reward[0, :2] + gamma * worth]])
    optimal = solve(mdp, ops.maximum()).q
    assert np.argmax(optimal[0, :2]) == better and np.argmax(q[0]) == 1 - better
    assert np.argmax(solve(mdp, op).q[0, :2]) == 1 - better


@pytest.mark.parametrize("spec", [entry.spec for entry in TABLE.values()])
def test_it_can_be_simulated(spec):
    op = ops.parse(spec)
    (cell,) = measure(op, np.zeros(op.for_actions or 4), trials=50)
    assert np.isfinite(cell.overestimation.mean)


def test_a_number_of_actions_that_an_operator_is_not_for_is_refused_before_any_work():
    for spec in ("owa(0.5, 0.5)", "kl_prior(5, 0.5, 0.5)", "double(fixed(0.5, 0.5))"):
        with pytest.raises(ValueError, match="is for 2 actions, and there are 3"):
            solve(random_mdp(0), spec)
        with pytest.raises(ValueError, match="is for 2 actions, and there are 4"):
            measure(spec, np.zeros(4))


def test_sm2_contracts_where_softmax_does():
    """It is an average of softmax over tau, so that it has softmax's Lipschitz constant."""
    assert solve(random_mdp(1, gamma=0.7), "sm2(2, 1)").unique == "proved"
    assert solve(random_mdp(1, gamma=0.99), "sm2(2, 1)").unique == "unknown"


def test_operators_on_two_sets_equal_what_they_are_made_of():
    for spec in ("clipped_double(softmax(2))", "maxmin(softmax(2))", "averaged(softmax(2))"):
        twice, once = solve(random_mdp(2), spec), solve(random_mdp(2), "softmax(2)")
        np.testing.assert_array_equal(twice.q, once.q)
        assert twice.notes[0] == f"{spec} equals softmax(2) here, since both sets of values are the same."
    for spec in ("self_correcting(3)", "weighted_double(1)"):
        assert solve(random_mdp(2), spec).notes[0].startswith(f"{spec} equals max here")


def test_where_an_operator_is_no_average_its_double_is_iterated_and_nothing_is_claimed():
    solution = solve(random_mdp(2), "double(logsumexp(2))")
    assert solution.converged and solution.unique == "unknown" and solution.method == "iteration"
