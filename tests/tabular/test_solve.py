"""Solutions: against exact arithmetic, against one another, and never one number in silence."""

import decimal
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse.linalg import spsolve

from softbellman import operators as ops
from softbellman.tabular import FiniteMDP, examples, linear, solve
from softbellman.tabular.enclosure import Enclosure

from ..operators import decimals

METHODS = ("newton", "iteration")
OPERATORS = ("max", "mean", "softmax(2)", "mellowmax(2)")


def small(gamma):
    """The small example of pymdptoolbox."""
    return FiniteMDP([[[0.5, 0.5], [0, 1]], [[0.8, 0.2], [0.1, 0.9]]], [[5, 10], [-1, 2]], gamma)


def forest(gamma, p=0.1, old=4, cut=2):
    """The forest of pymdptoolbox: wait or cut; a fire starts anew; waiting pays when old."""
    wait = [[p, 1 - p, 0], [p, 0, 1 - p], [p, 0, 1 - p]]
    return FiniteMDP([[row, [1, 0, 0]] for row in wait], [[0, 0], [0, 1], [old, cut]], gamma)


def two_ways(tau_reward=0.033, gamma=0.98):
    """The MDP of Asadi and Littman (2017): in state 0 both actions may end, action 1 more rarely."""
    return FiniteMDP(
        [[[0.66, 0.34], [0.99, 0.01]], [[0, 1]] * 2], [[0.122, tau_reward], [0, 0]], gamma, terminal=[False, True]
    )


def period_two():
    """One state; one of 500 actions pays 10 and ends, the others pay r and stay."""
    reward = np.full((2, 500), -3.649502564146246)
    reward[0, 0] = 10.0
    onward = np.zeros((2, 500, 2))
    onward[0, 1:, 0] = onward[0, 0, 1] = onward[1, :, 1] = 1.0
    return FiniteMDP(onward, reward, 0.9, terminal=[False, True])


def grid(side, gamma, slip=0.3):
    """A grid with random rewards, which mixes slowly; a move slips to either side."""
    rng, cells = np.random.default_rng(0), np.arange(side * side)
    row, column = np.divmod(cells, side)
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]
    ahead = [np.clip(row + r, 0, side - 1) * side + np.clip(column + c, 0, side - 1) for r, c in moves]
    kernels = []
    for a in range(4):
        parts = ((ahead[a], 1 - slip), (ahead[a - 1], slip / 2), (ahead[(a + 1) % 4], slip / 2))
        kernels.append(
            sum(sparse.csr_array((np.full(cells.size, p), (cells, to)), shape=2 * cells.shape) for to, p in parts)
        )
    return FiniteMDP(kernels, rng.random((cells.size, 4)), gamma)


def random_mdp(seed, *, gamma=0.9, states=6, actions=3, dense=True):
    """A random MDP with terminal states, illegal actions and few successors."""
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
    legal = rng.random((states, actions)) < 0.7
    legal[:, 0] = True
    terminal = rng.random(states) < 0.2
    form = transition if dense else sparse.csr_array(transition.reshape(-1, states))
    return FiniteMDP(form, rng.normal(size=(states, actions)), gamma, terminal=terminal, legal=legal)


def frozen_lake():
    return FiniteMDP.from_gymnasium("FrozenLake-v1", 0.99)


CASES = {
    "small 0.9": lambda: small(0.9),
    "small 0.99": lambda: small(0.99),
    "forest 0.9": lambda: forest(0.9),
    "forest 0.96": lambda: forest(0.96),
    "FrozenLake": frozen_lake,
    "random": lambda: random_mdp(3),
    "random sparse": lambda: random_mdp(4, dense=False),
}


# Exact arithmetic


def exact_solution(mdp, policy):
    """Evaluate a policy of the stored numbers in rational arithmetic: Q as `[S][A]`, and V as `[S]`."""
    states, actions = mdp.reward.shape
    kernel = mdp.kernel if isinstance(mdp.kernel, np.ndarray) else mdp.kernel.toarray()
    kernel = [[Fraction(float(p)) for p in row] for row in kernel]
    reward = [[Fraction(float(r)) for r in row] for row in mdp.reward]
    weights = [[Fraction(float(w)) for w in row] for row in policy]
    weights = [[w / sum(row) for w in row] for row in weights]
    gamma = Fraction(mdp.gamma)
    system = []
    for s in range(states):
        row = [
            Fraction(int(s == t)) - gamma * sum(w * kernel[s * actions + a][t] for a, w in enumerate(weights[s]) if w)
            for t in range(states)
        ]
        system.append([*row, sum((w * reward[s][a] for a, w in enumerate(weights[s])), Fraction(0))])
    for i in range(states):  # Gauss and Jordan; the diagonal dominates, so that no pivot is 0
        system[i] = [x / system[i][i] for x in system[i]]
        for j in range(states):
            if j != i and system[j][i]:
                system[j] = [x - system[j][i] * y for x, y in zip(system[j], system[i], strict=True)]
    values = [Fraction(0) if mdp.terminal[s] else system[s][-1] for s in range(states)]
    q = [
        [
            reward[s][a] + gamma * sum(p * v for p, v in zip(kernel[s * actions + a], values, strict=True))
            for a in range(actions)
        ]
        for s in range(states)
    ]
    return q, values


def assert_encloses(solution, mdp, exact):
    for s, a in itertools.product(range(mdp.num_states), range(mdp.num_actions)):
        if mdp.legal[s, a]:
            assert Fraction(float(solution.lower[s, a])) <= exact[s][a] <= Fraction(float(solution.upper[s, a]))
            assert solution.lower[s, a] <= solution.q[s, a] <= solution.upper[s, a]
        else:
            assert solution.lower[s, a] == solution.q[s, a] == solution.upper[s, a] == -np.inf


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_the_maximum_is_right_and_enclosed_in_exact_arithmetic(case, method):
    mdp = CASES[case]()
    solution = solve(mdp, ops.maximum(), method=method)
    q, values = exact_solution(mdp, solution.policy)
    for s in np.flatnonzero(~mdp.terminal):  # the policy is optimal, exactly
        assert values[s] == max(q[s][a] for a in np.flatnonzero(mdp.legal[s]))
    np.testing.assert_allclose(solution.values, [float(v) for v in values], atol=1e-10, rtol=0)
    assert_encloses(solution, mdp, q)
    assert np.max(solution.upper[mdp.legal] - solution.lower[mdp.legal]) <= 2e-10
    assert solution.converged and solution.unique == "proved" and solution.notes == () and solution.cycle is None


@pytest.mark.parametrize("case", CASES)
def test_the_mean_is_right_and_enclosed_in_exact_arithmetic(case):
    mdp = CASES[case]()
    solution = solve(mdp, ops.mean())
    q, values = exact_solution(mdp, mdp.legal)
    np.testing.assert_allclose(solution.values, [float(v) for v in values], atol=1e-10, rtol=0)
    assert_encloses(solution, mdp, q)


@pytest.mark.parametrize("omega", [0.5, 30.0])
@pytest.mark.parametrize("case", ["small 0.9", "forest 0.9"])
def test_mellowmax_is_right_and_enclosed_in_arithmetic_of_40_digits(case, omega):
    mdp = CASES[case]()
    with decimal.localcontext(prec=40):
        kernel = [[decimal.Decimal(float(p)) for p in row] for row in mdp.kernel]
        reward = [decimal.Decimal(float(r)) for r in mdp.reward.ravel()]
        gamma, rate, actions = decimal.Decimal(mdp.gamma), decimal.Decimal(omega), mdp.num_actions
        values = [decimal.Decimal(v) for v in solve(mdp, ops.mellowmax(omega)).values]
        for _ in range(500):  # from 1e-12 by 0.9^500 to 1e-35
            q = [
                r + gamma * sum(p * v for p, v in zip(row, values, strict=True))
                for r, row in zip(reward, kernel, strict=True)
            ]
            rows = [q[s * actions : (s + 1) * actions] for s in range(mdp.num_states)]
            values = [
                (sum(((x - max(row)) * rate).exp() for x in row) / actions).ln() / rate + max(row) for row in rows
            ]
        solution = solve(mdp, ops.mellowmax(omega))
        np.testing.assert_allclose(solution.values, [float(v) for v in values], atol=1e-10, rtol=0)
        assert_encloses(solution, mdp, [[Fraction(x) for x in row] for row in rows])


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(
    "spec",
    [
        *("keep(0.5)", "keep(0.999)", "gini(1)", "gini(0.3)", "entmax(1.1, 0.3)", "entmax(8, 1e-4)", "sparsemax(1e-6)"),
        *("logsumexp(1e-8)", "mellowmax(5)", "barrier(5)", "general_mellowmax(mean, 0, 1e-8)"),
    ],
)
def test_one_state_is_enclosed_in_arithmetic_of_60_digits(spec, gamma):
    """Its value is `op(rewards) / (1 - gamma)`, and its operator may have a root to find, or values far above all."""
    rng, op = np.random.default_rng(0), ops.parse(spec)
    for rewards in (rng.normal(size=2), rng.normal(size=9), np.arange(6.0), np.r_[1, -1 + 0.01 * rng.normal(size=17)]):
        solution = solve(examples.one_state(rewards, gamma), op, tolerance=1e-13)
        value = Fraction(decimals.value(spec, rewards)) / (1 - Fraction(gamma))
        assert solution.unique == "proved"
        for a, reward in enumerate(rewards):
            exact = Fraction(reward) + Fraction(gamma) * value
            assert Fraction(float(solution.lower[0, a])) <= exact <= Fraction(float(solution.upper[0, a]))
        width = 2 * op.rounding(len(rewards), np.ptp(rewards)) + 1e-13 + 1e-14 * np.abs(solution.values[0])
        assert np.max(solution.upper - solution.lower) <= 4 * width / (1 - gamma)


@pytest.mark.parametrize(
    ("mdp", "values"),
    [
        (small(0.9), [1825 / 43, 1550 / 43]),
        (forest(0.9), [26.244, 29.484, 33.484]),
        (forest(0.96), [74.6496, 78.1056, 82.1056]),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_published_values(mdp, values, method):
    np.testing.assert_allclose(solve(mdp, ops.maximum(), method=method).values, values, atol=1e-10)


def test_taxi_against_a_plain_loop_over_its_table():
    import gymnasium

    table = gymnasium.make("Taxi-v4").unwrapped.P
    outcomes = [[table[s][a] for a in range(6)] for s in range(500)]
    assert all(len(one) == 1 for row in outcomes for one in row)
    onward, reward, ended = (np.array([[one[0][i] for one in row] for row in outcomes]) for i in (1, 2, 3))
    q = np.zeros((500, 6))
    for _ in range(3500):
        q = reward + 0.99 * np.where(ended, 0.0, q.max(axis=1)[onward])
    mdp = FiniteMDP.from_gymnasium("Taxi-v4", 0.99)
    for method in METHODS:
        solution = solve(mdp, ops.maximum(), method=method)
        np.testing.assert_allclose(solution.q, q, atol=1e-10, rtol=0)
        assert (solution.lower <= q + 1e-12).all() and (q - 1e-12 <= solution.upper).all()


# One answer whichever way


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("case", [*CASES, "Taxi"])
def test_newton_and_iteration_agree(case, operator):
    mdp = FiniteMDP.from_gymnasium("Taxi-v4", 0.99) if case == "Taxi" else CASES[case]()
    newton, iteration = (solve(mdp, ops.parse(operator), method=method, tolerance=1e-11) for method in METHODS)
    assert newton.converged and iteration.converged
    np.testing.assert_allclose(newton.q, iteration.q, atol=1e-9)
    np.testing.assert_allclose(newton.policy, iteration.policy, atol=1e-8)
    applied = mdp.apply(ops.parse(operator), newton.q)
    np.testing.assert_allclose(applied, newton.q, atol=1e-10)
    assert newton.iterations < max(iteration.iterations, 3)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dense", [True, False])
def test_large_systems_that_mix_fast(operator, dense):
    mdp = random_mdp(5, gamma=0.99, states=linear.SMALL + 50, actions=2, dense=dense)
    op = ops.parse(operator)
    solution = solve(mdp, op)
    assert solution.converged
    np.testing.assert_allclose(mdp.apply(op, solution.q), solution.q, atol=1e-10)
    np.testing.assert_allclose(solution.q, solve(mdp, op, method="iteration").q, atol=1e-8)


@pytest.mark.parametrize("gamma", [0.99, 0.999])
def test_large_systems_that_mix_slowly(gamma):
    mdp = grid(40, gamma)
    solution = solve(mdp, ops.maximum())
    assert solution.converged and solution.iterations < 60
    greedy = np.arange(1600) * 4 + solution.policy.argmax(axis=1)
    values = spsolve(
        sparse.eye_array(1600, format="csc") - gamma * mdp.kernel[greedy].tocsc(), mdp.reward.ravel()[greedy]
    )
    np.testing.assert_allclose(solution.values, values, atol=1e-9)
    np.testing.assert_allclose(mdp.backup(values).max(axis=1), values, atol=1e-9)  # so it is optimal
    for op in (ops.softmax(20.0), ops.mellowmax(20.0)):
        other = solve(mdp, op)
        assert other.converged and other.residual < 1e-10
        assert (other.values < solution.values).all()


def test_newton_does_without_factors_where_they_fail(monkeypatch):
    monkeypatch.setattr(linear, "_factorise", lambda matrix: None)
    monkeypatch.setattr(linear, "UNAIDED", 3)
    mdp = grid(25, 0.99)
    assert solve(mdp, ops.maximum()).converged


def test_a_singular_system_is_no_obstacle():
    """A start at which the slope of `V - op(backup(V))` is 0, so that Newton's first step has no solution."""
    mdp, op = two_ways(), ops.softmax(17.0)
    onward = 0.98 * mdp.kernel[:2, 0]

    def slope(value):
        return 1 - float(op.gradient(mdp.reward[0] + value * onward) @ onward)

    start = brentq(slope, 0.61, 0.69, xtol=1e-16)  # between a fixed point that attracts and one that repels
    assert abs(slope(start)) < 1e-13
    solution = solve(mdp, op, start=[start, 0.0])
    assert solution.converged and 0.3 < solution.values[0] < 1.0


def test_the_singular_branch_of_a_linear_system_gives_the_plain_step():
    mdp = FiniteMDP([[[1.0]]], [[1.0]], 0.5)
    solver = linear.LinearSolver(mdp)
    assert solver.solve(np.array([[2.0]]), np.array([3.0]), 1e-10).tolist() == [3.0]
    assert solver.solve(np.array([[1.0]]), np.array([3.0]), 1e-10).tolist() == [6.0]


@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e30])
def test_a_linear_system_is_as_easy_whatever_the_size_of_its_numbers(size, monkeypatch):
    def refuse(matrix):
        raise AssertionError("factorised")

    monkeypatch.setattr(linear, "_factorise", refuse)
    states = np.arange(linear.SMALL + 1)
    kernel = sparse.csr_array((np.ones(states.size), (states, np.roll(states, 7))))
    b = size * np.cos(states)
    x = linear.LinearSolver(FiniteMDP(kernel, np.zeros((states.size, 1)), 0.5)).solve(
        np.ones((states.size, 1)), b, 1e-8
    )
    np.testing.assert_allclose(x - 0.5 * (kernel @ x), b, atol=1e-7 * size)


# Bounds


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["max", "mean", "mellowmax(3)"]),
    st.sampled_from([0.0, 0.5, 0.95]),
    st.integers(1, 12),
    st.sampled_from(METHODS),
)
def test_bounds_hold_wherever_it_stops(seed, operator, gamma, stop, method):
    mdp, op = random_mdp(seed, gamma=gamma), ops.parse(operator)
    rough = solve(mdp, op, method=method, max_iterations=stop, start=np.random.default_rng(seed).normal(size=6))
    fine = solve(mdp, op, tolerance=1e-13)
    legal = mdp.legal
    assert (rough.lower[legal] <= fine.upper[legal]).all() and (fine.lower[legal] <= rough.upper[legal]).all()
    assert (rough.lower[legal] <= rough.q[legal]).all() and (rough.q[legal] <= rough.upper[legal]).all()
    width = np.max(fine.upper[legal] - fine.lower[legal])
    assert width < 1e-11


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.01, 1.0, 10.0, 100.0]), st.sampled_from([0.5, 0.9, 0.98]))
def test_the_band_of_softmax_holds_every_fixed_point_found(seed, tau, gamma):
    mdp, rng = random_mdp(seed, gamma=gamma), np.random.default_rng(seed)
    solution = solve(mdp, ops.softmax(tau), starts=rng.normal(scale=5, size=(3, 6)))
    assert solution.converged and solution.residual < 1e-8 and len(solution.fixed_points) >= 1
    legal = mdp.legal
    assert np.isfinite(solution.lower[legal]).all() and np.isfinite(solution.upper[legal]).all()
    for q in solution.fixed_points:
        assert (
            np.abs(mdp.apply(ops.softmax(tau), q)[legal] - q[legal]).max() < 1e-8
        )  # solve keeps what it finds within bounds
        assert (solution.lower[legal] <= q[legal]).all() and (q[legal] <= solution.upper[legal]).all()


def test_a_looser_tolerance_hides_no_fixed_point():
    """The two are 0.27 apart."""
    for tolerance in (1e-10, 2e-4, 3e-4, 2e-3):
        solution = solve(examples.two_fixed_points(), "softmax(17)", tolerance=tolerance)
        assert solution.unique == "no" and len(solution.fixed_points) >= 2, tolerance


@pytest.mark.parametrize(
    ("tau", "tolerance", "points"),
    [(16.8, 1e-2, 1), (16.87, 1e-3, 1), (16.873794, 1e-8, 3), (16.88, 1e-3, 3), (17, 1e-2, 3)],
)
def test_a_small_residual_alone_makes_no_fixed_point(tau, tolerance, points):
    """Two fixed points meet at tau 16.87379331 and are gone below it; the residual stays small where they met."""
    mdp, op = examples.two_fixed_points(), ops.softmax(tau)
    v = np.linspace(0.5, 1.1, 400_001)
    excess = op(mdp.reward[0] + mdp.gamma * np.multiply.outer(v, [0.66, 0.99])) - v
    assert np.count_nonzero(np.diff(np.sign(excess))) == points
    solution = solve(mdp, op, tolerance=tolerance, starts=[[0.7, 0.0], [0.9, 0.0]])
    assert solution.unique == ("no" if points > 1 else "unknown") and solution.converged
    found = np.array([op(q)[0] for q in solution.fixed_points])
    assert np.sort(found) == pytest.approx(v[:-1][np.diff(np.sign(excess)) != 0], abs=2e-6)
    assert np.array_equal(solution.fixed_points[0], solution.q)


def test_points_that_rounding_cannot_tell_apart_are_one():
    """Fixed points of an operator that moves along with constants do not differ by one."""
    rng, gamma = np.random.default_rng(0), 1 - 1e-8
    for states in (30, 10):
        mdp = FiniteMDP(rng.dirichlet(np.ones(states), (states, 3)), rng.normal(size=(states, 3)), gamma)
        assert solve(mdp, "softmax(5)").unique != "no"


class InFloat32(ops.Mean):
    """A mean computed in float32, as code on jax.numpy does by default."""

    def __call__(self, q, selector=None, where=None):
        return np.asarray(super().__call__(q, selector, where), np.float32)


def test_an_operator_in_float32_is_refused():
    with pytest.raises(ValueError, match="answers in float32 to values in float64"):
        solve(small(0.9), InFloat32())


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
def test_newtons_method_stops_at_the_limit(limit):
    assert solve(small(0.999999), "max", max_iterations=limit).iterations <= limit


@pytest.mark.parametrize("sigma", [1.0, 1e3, 1e6])
def test_bounds_of_perturbed_hold_with_a_single_action(sigma):
    mdp = FiniteMDP([[[1.0]]], [[1.0]], 0.9)
    solution, exact = solve(mdp, ops.perturbed(sigma)), 1 / (1 - Fraction(0.9))
    assert Fraction(float(solution.lower[0, 0])) <= exact <= Fraction(float(solution.upper[0, 0]))


def test_the_band_of_softmax_is_that_of_the_sharp_gap():
    mdp, op = small(0.9), ops.softmax(4.0)
    solution, best = solve(mdp, op), solve(mdp, ops.maximum())
    np.testing.assert_allclose(solution.upper, best.q, atol=1e-6)
    np.testing.assert_allclose(solution.lower, best.q - 9 * op.largest_gap(2), atol=1e-6)
    assert (solution.upper >= best.q).all()


def test_a_softmax_that_is_nearly_the_mean_has_the_maximum_above_as_tight():
    for tau in (0.0, 1e-8, 1e-3):
        solution = solve(small(0.9), ops.softmax(tau))
        np.testing.assert_allclose(solution.upper, solve(small(0.9), ops.maximum()).q, atol=5e-4)


@ops.operator
class Unclaimed(ops.Softmax):
    """A softmax that claims nothing, and so may be anything."""

    laws = ops.Laws()


def test_what_a_subclass_does_not_claim_is_not_proved():
    assert solve(small(0.5), ops.softmax(0.1)).unique == "proved"
    solution = solve(small(0.5), Unclaimed(0.1))
    assert solution.unique == "unknown" and not np.isfinite(solution.upper).any()


@ops.operator
class Above(ops.Softmax):
    """A softmax average, and half of the way from it to the best: no average with its weights."""

    laws = ops.Laws(weights_are_policy=True)

    def offset(self, row):
        """Give half of softmax's offset."""
        return row.sum(self.policy(row) * row.z) / 2


def test_a_double_operator_whose_derivative_is_not_known_is_iterated():
    solution = solve(small(0.9), ops.double(Above(1.0)))
    assert solution.method == "iteration" and "it was iterated" in solution.notes[0]
    q = solution.q
    np.testing.assert_allclose(q, small(0.9).backup(ops.double(Above(1.0))(q, q)), atol=1e-8)


def test_rounding_that_limits_a_fixed_point_without_a_proof_is_said():
    solution = solve(random_mdp(0, gamma=0.99), ops.softmax(5.0), tolerance=1e-18)
    assert solution.converged and solution.unique != "proved"
    assert any(note.startswith("Rounding in float64 limits how near") for note in solution.notes)


def test_bounds_hold_for_mellowmax_with_many_actions():
    """The sum of a thousand terms near -1 would hide what is left of it; the fixed point is known in closed form."""
    actions, low, gamma = 1000, -30.5, 0.5
    onward = np.zeros((2, actions, 2))
    onward[0, :, 0] = onward[1, :, 1] = 1.0
    reward = np.full((2, actions), low)
    reward[:, 0] = 0.0
    solution = solve(FiniteMDP(onward, reward, gamma), ops.mellowmax(1.0))
    with decimal.localcontext(prec=50):
        offset = ((1 + (actions - 1) * decimal.Decimal(low).exp()) / actions).ln()
        values = [offset / (1 - decimal.Decimal(gamma)) * decimal.Decimal(gamma) + r for r in (0, decimal.Decimal(low))]
    assert solution.unique == "proved"
    for action, value in ((0, values[0]), (1, values[1])):
        assert (
            decimal.Decimal(float(solution.lower[0, action]))
            <= value
            <= decimal.Decimal(float(solution.upper[0, action]))
        )


def test_a_softmax_that_is_the_mean_has_the_mean_below():
    solution = solve(small(0.9), ops.softmax(0.0))
    np.testing.assert_allclose(solution.lower, solve(small(0.9), ops.mean()).q, atol=1e-9)
    np.testing.assert_allclose(solution.q, solution.lower, atol=1e-9)


def test_rounding_that_limits_what_can_be_proved_is_said():
    mdp = small(0.999999)
    solution = solve(mdp, ops.maximum(), tolerance=1e-13)
    assert solution.converged and solution.unique == "proved"
    assert len(solution.notes) == 1 and solution.notes[0].startswith("Rounding in float64 limits")
    q, _ = exact_solution(mdp, solution.policy)
    assert_encloses(solution, mdp, q)


@pytest.mark.parametrize(("method", "gamma", "tolerance"), [("newton", 0.999999, 1e-7), ("iteration", 0.999, 1e-10)])
@pytest.mark.parametrize("case", ["dense", "sparse", "illegal", "ends"])
def test_a_gamma_near_1_needs_no_digits_for_what_all_values_share(case, method, gamma, tolerance):
    rng = np.random.default_rng(3)
    transition = rng.dirichlet(np.ones(6), size=(6, 3))
    legal, terminal = np.arange(18).reshape(6, 3) != (0 if case == "illegal" else -1), np.zeros(6, bool)
    if case == "ends":  # rarely
        terminal[5] = True
        transition[..., 5] = (1 - gamma) * transition[..., :5].sum(axis=-1)
        transition /= transition.sum(axis=-1, keepdims=True)
    form = sparse.csr_array(transition.reshape(-1, 6)) if case == "sparse" else transition
    mdp = FiniteMDP(form, rng.normal(size=(6, 3)), gamma, terminal=terminal, legal=legal)
    solution = solve(mdp, ops.maximum(), method=method, tolerance=tolerance)
    floor = Enclosure.of(mdp, ops.maximum(), lipschitz=1.0, by_shifts=True).floor(solution.values, solution.q)
    assert floor > 2 * tolerance
    assert np.max(solution.upper[mdp.legal] - solution.lower[mdp.legal]) < 2 * tolerance
    assert solution.converged and solution.notes == ()
    assert not solution.lower[terminal].any() and not solution.upper[terminal].any()
    q, _ = exact_solution(mdp, solution.policy)
    assert_encloses(solution, mdp, q)


def test_a_gamma_that_float64_cannot_tell_from_1_is_refused():
    mdp = FiniteMDP(np.full((3, 1, 3), 1 / 3), np.ones((3, 1)), np.nextafter(1.0, 0.0))
    with pytest.raises(ValueError, match="too near to 1"):
        solve(mdp, ops.maximum())


def test_shifts_are_the_best_constants():
    """Where all rows sum to 1 and the residual is the same everywhere, both bounds meet at the solution."""
    enclosure = Enclosure.of(small(0.9), ops.maximum(), lipschitz=1.0, by_shifts=True)
    assert enclosure.shifts(np.array([2.0, 2.0])) == pytest.approx((20.0, 20.0))
    assert enclosure.shifts(np.array([-1.0, 2.0])) == pytest.approx((-10.0, 20.0))
    leaking = Enclosure.of(two_ways(gamma=0.5), ops.maximum(), lipschitz=1.0, by_shifts=True)
    assert leaking.shifts(np.array([2.0, 99.0])) == pytest.approx((2 / (1 - 0.33), 2 / (1 - 0.495)))


# More than one fixed point, or none


@pytest.mark.parametrize(
    ("tau", "reward", "expected"),
    [
        (16.55, 0.033, [0.550401857958]),
        (16.95, 0.033, [0.594498049890, 0.723083510722, 0.861361149032]),
        (17, 0.033, [0.607769820648, 0.691909222412, 0.876888712437]),
        (16.55, 0.0335, [0.592999619727, 0.755757700582, 0.857084168411]),
    ],
)
def test_l20_softmax_finds_all_three_fixed_points_of_the_two_state_example(tau, reward, expected):
    mdp, op = two_ways(reward), ops.softmax(tau)
    solution = solve(mdp, op)
    assert solve(mdp, op, starts=[[v, 0.0] for v in np.linspace(0, 1.2, 13)]).fixed_points[len(expected) :] == ()
    found = sorted(mdp.value(op, q)[0] for q in solution.fixed_points)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert solution.unique == ("no" if len(expected) > 1 else "unknown") and solution.converged
    assert f"{len(expected)} different fixed points found" in solution.notes[0]
    repelled = [note for note in solution.notes if note.startswith("Plain iteration moves away")]
    assert len(repelled) == len(expected) // 2
    if repelled:
        radius = float(repelled[0].split("spectral radius is ")[1].rstrip("."))
        assert radius == pytest.approx(
            {0.033: {16.95: 1.002443, 17: 1.002303}.get(tau), 0.0335: 1.002050}[reward], abs=1e-6
        )


@pytest.mark.parametrize("method", METHODS)
def test_l20_both_ends_of_the_band_are_followed_unasked(method):
    solution = solve(two_ways(), ops.softmax(17.0), method=method)
    found = [q.max() for q in solution.fixed_points]
    assert found[:2] == pytest.approx([0.622658279993, 0.883757428806], abs=1e-9)
    assert len(found) == (3 if method == "newton" else 2)  # iteration moves away from the one between them
    assert solution.unique == "no"
    assert solve(two_ways(), ops.mellowmax(16.55)).values[0] == pytest.approx(0.4315480482, abs=1e-10)


def test_l20_a_cycle_is_reported_and_is_no_solution():
    mdp = period_two()
    solution = solve(mdp, ops.softmax(1.0), method="iteration")
    assert solution.cycle == 2 and not solution.converged and solution.fixed_points == ()
    assert solution.notes[0].startswith("Iteration goes round in a cycle of period 2")
    orbit = {
        round(float(solution.values[0]), 9),
        round(float(mdp.value(ops.softmax(1.0), mdp.backup(solution.values))[0]), 9),
    }
    assert orbit == {8.564869553, 6.628665662}


def test_l20_newton_finds_the_fixed_point_that_iteration_goes_round():
    solution = solve(period_two(), ops.softmax(1.0))
    assert solution.values[0] == pytest.approx(7.591486182385, abs=1e-9) and solution.converged
    assert any("spectral radius is 1.08385" in note for note in solution.notes)
    assert (solution.lower[0] <= solution.q[0]).all() and (solution.q[0] <= solution.upper[0]).all()
    assert solution.upper[0].max() == pytest.approx(10.0, abs=1e-4)


def test_l20_two_identical_actions_end_within_two_rounds_and_the_first_is_taken():
    once = np.random.default_rng(0).dirichlet(np.ones(20), size=20)
    mdp = FiniteMDP(np.stack([once, once], axis=1), np.ones((20, 2)) * np.arange(20)[:, None], 0.99)
    solution = solve(mdp, ops.maximum(), tolerance=1e-8)
    assert solution.iterations <= 2 and solution.converged
    assert solution.policy.tolist() == [[1.0, 0.0]] * 20


@pytest.mark.parametrize(("gamma", "unique"), [(0.83, "proved"), (0.84, "unknown")])
def test_softmax_contracts_below_the_inverse_of_its_lipschitz_constant(gamma, unique):
    solution = solve(small(gamma), ops.softmax(3.0))  # 1 / L_2 = 0.83356
    assert solution.unique == unique and solution.converged
    assert bool(solution.notes) == (unique == "unknown")
    if unique == "proved":
        assert np.max(solution.upper - solution.lower) < 1e-9


def test_doubled_operators_equal_what_they_double():
    for op in (ops.maximum(), ops.softmax(2.0), ops.mellowmax(2.0)):
        twice, once = solve(small(0.9), ops.double(op)), solve(small(0.9), op)
        np.testing.assert_array_equal(twice.q, once.q)
        assert twice.notes == (f"double({op}) equals {op} here, since both sets of values are the same.", *once.notes)


# What the early versions of others did in silence


@pytest.mark.parametrize("method", METHODS)
def test_l19_a_problem_without_rewards_takes_one_sweep(method):
    solution = solve(FiniteMDP(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), 0.99), ops.maximum(), method=method)
    assert solution.values.tolist() == [0, 0, 0] and solution.converged
    assert solution.iterations == 1 and solution.residual == 0 and solution.notes == ()


def test_l19_stopping_early_is_said_with_both_numbers():
    solution = solve(forest(0.99), ops.maximum(), method="iteration", max_iterations=3)
    assert not solution.converged and solution.iterations == 3 and solution.residual > 1e-10
    numbers = f"the residual is {solution.residual:.3g} after 3 iterations, and the tolerance 1e-10 asks for less"
    assert solution.notes == (f"Not converged: {numbers}; raise max_iterations or leave it out.",)
    assert solution.fixed_points == ()


def test_l19_the_forest_waits():
    for method in METHODS:
        solution = solve(forest(0.96), ops.maximum(), method=method)
        np.testing.assert_allclose(solution.values, [74.6496, 78.1056, 82.1056], atol=1e-10)
        assert solution.policy.tolist() == [[1, 0]] * 3


@pytest.mark.parametrize("method", METHODS)
def test_l35_a_start_at_the_solution_takes_one_sweep(method):
    mdp = forest(0.96)
    solution = solve(mdp, ops.maximum(), tolerance=1e-12)
    for start in (solution.values, solution.q):
        assert solve(mdp, ops.maximum(), method=method, start=start).iterations == 1


# Operators of a user's own


@ops.operator
class Doubled(ops.Operator):
    """Twice the best value, and no law."""

    def policy(self, row):
        return ops.maximum().policy(row)

    def offset(self, row):
        return row.best

    def gradient(self, q, selector=None, where=None):
        return 2 * ops.maximum().gradient(q, where=where)


@ops.operator
class HalfGreedy(ops.Operator):
    """Halfway between the best and the average, which is declared to be an average."""

    laws = ops.Laws.of_an_average(at_least_mean=True)

    def policy(self, row):
        return (ops.maximum().policy(row) + ops.mean().policy(row)) / 2


@ops.operator
class Broken(ops.Operator):
    def __call__(self, q, selector=None, where=None):
        return np.where(q[:, 0] == 7, np.nan, q[:, 0])

    def policy(self, row):
        return ops.maximum().policy(row)


@ops.operator
class BreaksBelow(ops.Operator):
    """An average, until all values of a state are below -10."""

    def policy(self, row):
        if row.best.min() < -10:
            raise KeyError("no such policy")
        return ops.mean().policy(row)

    def gradient(self, q, selector=None, where=None):
        return self.weights(q, where)


@ops.operator
class OneWeight(ops.Operator):
    def policy(self, row):
        return row.z[..., :1]


def test_an_operator_without_laws_is_solved_and_nothing_is_claimed():
    solution = solve(small(0.4), Doubled())
    assert solution.converged and solution.residual < 1e-9 and solution.unique == "unknown"
    assert np.isneginf(solution.lower).all() and np.isposinf(solution.upper).all()
    assert any("does not claim the laws from which bounds" in note for note in solution.notes)


def test_an_operator_that_diverges_is_not_called_solved():
    solution = solve(FiniteMDP([[[1.0]]], [[1.0]], 0.9), Doubled(), method="iteration", max_iterations=50)
    assert not solution.converged and solution.fixed_points == () and "Not converged" in solution.notes[0]


def test_declared_laws_are_all_that_is_needed_for_bounds():
    mdp = forest(0.9)
    solution = solve(mdp, HalfGreedy())
    assert solution.unique == "proved" and solution.notes == ()
    mean, best = solve(mdp, ops.mean()), solve(mdp, ops.maximum())
    assert (mean.q < solution.q).all() and (solution.q < best.q).all()
    np.testing.assert_allclose(solution.q, solve(mdp, HalfGreedy(), method="iteration").q, atol=1e-9)


def test_an_operator_that_gives_nan_is_named_with_the_state():
    with pytest.raises(ValueError, match=r"Broken.* gives nan for the values .* of state 1"):
        solve(FiniteMDP([[[1.0, 0.0]], [[0.0, 1.0]]], [[1.0], [7.0]], 0.9), Broken())


def test_an_operator_of_ones_own_is_tried_before_any_work():
    with pytest.raises(ValueError, match=r"OneWeight gives weights of shape \(4, 1\).*the right shape is \(4, 2\)"):
        solve(small(0.9), OneWeight())
    with pytest.raises(ValueError, match="OneWeight"):
        solve(small(0.9), ops.double(OneWeight()), method="iteration")


@pytest.mark.parametrize("method", ["newton", "iteration"])
def test_what_an_operator_raises_at_some_values_only_names_its_line(method):
    assert solve(FiniteMDP([[[1.0]]], [[2.0]], 0.9), BreaksBelow(), method=method).converged
    with pytest.raises(ValueError, match=r"^KeyError: 'no such policy' \(.*test_solve.py, line \d+\)$") as caught:
        solve(FiniteMDP([[[1.0]]], [[-2.0]], 0.9), BreaksBelow(), method=method)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_spec_serves_as_an_operator_and_numbers_of_numpy_as_numbers():
    mdp = FiniteMDP.from_function(lambda s, a: [(1.0, s, a, False)], np.int64(2), 2.0, np.float32(0.9))
    assert mdp.gamma == 0.9 and repr(mdp) == "FiniteMDP(2 states, 2 actions, gamma 0.9)"
    by_spec = solve(mdp, "softmax(5)", tolerance=np.float32(1e-6), max_iterations=1e3)
    np.testing.assert_array_equal(by_spec.q, solve(mdp, ops.softmax(5), tolerance=1e-6, max_iterations=1_000).q)
    with pytest.raises(ValueError, match=r"max_iterations \(1.5\) must be a whole number"):
        solve(mdp, "max", max_iterations=1.5)
    with pytest.raises(ValueError, match=r"gamma \('0.9'\) must be a number"):
        FiniteMDP([[[1.0]]], [[1.0]], "0.9")
    assert FiniteMDP.from_function(lambda s, a: [(1.0, s, 0.0, False)], "ab", ["go"], 0.9).num_states == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "magic"}, ValueError, r"method \('magic'\) must be one of newton, iteration"),
        ({"tolerance": 0.0}, ValueError, r"tolerance \(0.0\) must be above 0"),
        ({"tolerance": float("nan")}, ValueError, "tolerance"),
        ({"max_iterations": 0}, ValueError, r"max_iterations \(0\) must be at least 1"),
        ({"start": [1.0, 2.0, 3.0]}, ValueError, r"a start has shape \[3\]; it must be \[2\] or \[2, 2\]"),
        ({"start": [[1.0, np.nan], [0.0, 0.0]]}, ValueError, r"a start is not finite at \[0, 1\]"),
        ({"operator": 5.0}, TypeError, "5.0 is no operator; pass one such as .*softmax"),
        ({"operator": "mx"}, ops.SpecError, "Unknown operator 'mx'"),
        ({"operator": ops.Maximum}, TypeError, "is no operator; call it"),
        ({"operator": ops.maximum}, TypeError, "is no operator; call it"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        solve(small(0.9), **{"operator": ops.maximum()} | arguments)


def test_nothing_but_ends():
    mdp = FiniteMDP(np.ones((1, 2, 1)), np.ones((1, 2)), 0.9, terminal=[True])
    for op in (ops.maximum(), ops.softmax(1.0)):
        solution = solve(mdp, op)
        assert solution.q.tolist() == [[0.0, 0.0]] and solution.values.tolist() == [0.0] and solution.converged


def test_bounds_that_shift_by_the_operators_own_rate_hold_after_one_iteration():
    onward = np.zeros((2, 2, 2))
    onward[0, 0, 1] = onward[0, 1, 0] = 1
    onward[1, :, 1] = 1
    mdp, op = FiniteMDP(onward, [[0.0, 0.5736], [0.0, 0.0]], 0.83, terminal=[False, True]), ops.softmax(1.0)
    fine = solve(mdp, op)
    rough = solve(mdp, op, method="iteration", start=[fine.values[0] + 0.01, 0.0], max_iterations=1)
    assert fine.unique == rough.unique == "proved"
    assert (rough.lower <= fine.q + 1e-9).all() and (fine.q <= rough.upper + 1e-9).all()
