"""Gaps in the solver: against loops over transitions, the published recursions, and what their papers prove."""

import numpy as np
import pytest
from scipy import sparse

from softbellman import gaps, tabular
from softbellman import operators as ops
from softbellman.tabular import examples
from softbellman.tabular.gapped import apply_gapped
from softbellman.tabular.mdp import FiniteMDP

OPERATORS = [ops.maximum(), ops.softmax(3.0), ops.mellowmax(3.0), ops.logsumexp(3.0), ops.mean(), ops.keep(0.3)]
GAPS = ["gap(0.7)", "gap(0.7, 0.3)", "gap(1, 0.5)", "persistent(0.7)", "persistent_q(0.7)"]


def random_mdp(seed, states=6, actions=3, *, blocks=1, gamma=0.8, is_random=True, masked=True, ends=True):
    """An MDP with some actions illegal and some transitions ends; several of them, one after the other, as blocks."""
    rng = np.random.default_rng(seed)
    kernel = np.zeros((blocks, states, actions, blocks, states + 1))
    own = np.arange(blocks)
    if is_random:
        kernel[own, :, :, own] = rng.dirichlet(np.full(states + 1, 0.3), (blocks, states, actions))
    else:
        onward = rng.integers(states + 1, size=(blocks, states, actions))
        kernel[own, :, :, own] = np.eye(states + 1)[onward]
    if not ends:
        kernel[..., 0] += kernel[..., states]
        kernel[..., states] = 0
    legal = rng.random((blocks * states, actions)) < (0.7 if masked else 1.0)
    legal[np.arange(blocks * states), rng.integers(actions, size=blocks * states)] = True
    going = kernel[..., :states].reshape(blocks * states, actions, blocks * states)
    full = np.zeros((blocks * states + 1, actions, blocks * states + 1))
    full[:-1, :, :-1] = going
    full[:-1, :, -1] = 1 - going.sum(axis=-1)
    reward = rng.normal(size=(blocks * states + 1, actions))
    terminal = np.arange(blocks * states + 1) == blocks * states
    if blocks > 1:
        full = sparse.csr_array(full.reshape(-1, len(full)))
    return FiniteMDP(full, reward, gamma, terminal=terminal, legal=np.vstack([legal, np.ones((1, actions), bool)]))


def by_loops(mdp, operator, gap, q):
    """The operator transition by transition, as the learner sees them: the mean of `r - penalty + gamma op(q')`."""
    kernel = mdp.kernel.reshape(mdp.num_states, mdp.num_actions, mdp.num_states)
    worth = np.array([0.0 if end else operator(q[s], q[s], mdp.legal[s]) for s, end in enumerate(mdp.terminal)])
    made = np.full_like(q, -np.inf)
    made[mdp.terminal] = 0.0
    for s, a in np.argwhere(mdp.legal & ~mdp.terminal[:, None]):
        here, total = worth[s] - q[s, a], 0.0
        for onward, probability in enumerate(kernel[s, a]):
            if probability:
                after = worth[onward] - q[onward, a] if mdp.legal[onward, a] else gap.where_illegal
                total += probability * float(_penalty(gap, here, after, mdp.gamma))
                total -= probability * mdp.gamma * worth[onward]
        total += (1 - kernel[s, a].sum()) * float(_penalty(gap, here, np.nan, 0.0))
        made[s, a] = mdp.reward[s, a] - total
    return made


def _penalty(gap, here, after, discount):
    """The penalties again, in plain Python."""
    after = discount * after if discount else 0.0
    match gap:
        case gaps.AdvantageGap():
            return gap.alpha * min(here, gap.ceiling)
        case gaps.PersistentGap():
            return gap.alpha * after
    return min(gap.alpha * here, after)


@pytest.mark.parametrize("spec", GAPS)
@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_the_operator_is_the_mean_of_the_learners_target(operator, spec):
    gap, rng = gaps.as_gap(spec), np.random.default_rng(1)
    for seed in range(2):
        mdp = random_mdp(seed)
        q = np.where(mdp.terminal[:, None], 0.0, rng.normal(size=mdp.reward.shape))
        made, expected = apply_gapped(mdp, operator, gap, q), by_loops(mdp, operator, gap, q)
        np.testing.assert_allclose(made, expected, atol=1e-13)
        assert (np.isneginf(made) == ~mdp.legal).all()


def test_no_gap_is_the_plain_operator():
    mdp = random_mdp(0)
    q = np.where(mdp.terminal[:, None], 0.0, np.random.default_rng(0).normal(size=mdp.reward.shape))
    np.testing.assert_array_equal(apply_gapped(mdp, ops.softmax(3.0), gaps.NoGap(), q), mdp.apply(ops.softmax(3.0), q))
    for spec in (None, "none", gaps.NoGap()):
        plain, given = tabular.solve(mdp, "mellowmax(3)"), tabular.solve(mdp, "mellowmax(3)", gap=spec)
        np.testing.assert_array_equal(plain.q, given.q)
        assert given.method == "newton"


# --------------------------------------------------------------------------------------------- published recursions


def transition_of(mdp):
    return mdp.kernel.reshape(mdp.num_states, mdp.num_actions, mdp.num_states)


@pytest.fixture(scope="module")
def continuing():
    """An MDP without ends and illegal actions, but for a state nobody gets to, and action values."""
    mdp = random_mdp(4, masked=False, ends=False)
    q = np.random.default_rng(0).normal(size=mdp.reward.shape)
    return mdp, np.where(mdp.terminal[:, None], 0.0, q)


@pytest.mark.parametrize(("tau", "alpha"), [(1.0, 0.9), (5.0, 0.5), (30.0, 1.0)])
def test_logsumexp_with_a_gap_is_munchausen(continuing, tau, alpha):
    """`r + alpha log pi(a|s) / tau + gamma sum pi (q - log pi / tau)` (Vieillard et al., 2020); 1 / tau is theirs."""
    mdp, q = continuing
    log_pi = tau * q - np.log(np.exp(tau * q).sum(-1, keepdims=True))
    soft = (np.exp(log_pi) * (q - log_pi / tau)).sum(-1) * ~mdp.terminal
    expected = mdp.reward + alpha * log_pi / tau + mdp.gamma * transition_of(mdp) @ soft
    made = apply_gapped(mdp, ops.logsumexp(tau), gaps.AdvantageGap(alpha), q)
    np.testing.assert_allclose(made[~mdp.terminal], expected[~mdp.terminal], atol=1e-12)
    clipped = mdp.reward + alpha * np.maximum(log_pi / tau, -0.4) + mdp.gamma * transition_of(mdp) @ soft
    made = apply_gapped(mdp, ops.logsumexp(tau), gaps.AdvantageGap(alpha, 0.4), q)
    np.testing.assert_allclose(made[~mdp.terminal], clipped[~mdp.terminal], atol=1e-12)


@pytest.mark.parametrize("eta", [0.5, 4.0])
def test_softmax_with_the_whole_gap_is_dynamic_policy_programming(continuing, eta):
    """`psi + r + gamma P M psi - M psi`, M the Boltzmann average (Azar, Gomez and Kappen, 2012)."""
    mdp, psi = continuing
    weights = np.exp(eta * psi) / np.exp(eta * psi).sum(-1, keepdims=True)
    average = (weights * psi).sum(-1) * ~mdp.terminal
    expected = psi + mdp.reward + mdp.gamma * transition_of(mdp) @ average - average[:, None]
    made = apply_gapped(mdp, ops.softmax(eta), gaps.AdvantageGap(1.0), psi)
    np.testing.assert_allclose(made[~mdp.terminal], expected[~mdp.terminal], atol=1e-12)


@pytest.mark.parametrize(("beta", "alpha"), [(0.5, 0.3), (4.0, 1.0)])
def test_mellowmax_with_a_gap_is_conservative_value_iteration(continuing, beta, alpha):
    """`r + gamma P m psi + alpha (psi - m psi)`, m the mellowmax (Kozuno, Uchibe and Doya, 2019)."""
    mdp, psi = continuing
    mellow = np.log(np.exp(beta * psi).mean(-1)) / beta * ~mdp.terminal
    expected = mdp.reward + mdp.gamma * transition_of(mdp) @ mellow + alpha * (psi - mellow[:, None])
    made = apply_gapped(mdp, ops.mellowmax(beta), gaps.AdvantageGap(alpha), psi)
    np.testing.assert_allclose(made[~mdp.terminal], expected[~mdp.terminal], atol=1e-12)


def test_persistent_advantage_learning_is_the_larger_of_two_where_nothing_is_random():
    """`max(AL, r + gamma q(s', a))` (Bellemare et al., 2016), and persistent Q-learning, which mixes."""
    mdp = random_mdp(3, is_random=False, masked=False)
    q = np.where(mdp.terminal[:, None], 0.0, np.random.default_rng(0).normal(size=mdp.reward.shape))
    kernel, going = transition_of(mdp), ~mdp.terminal
    for alpha in (0.4, 1.0):
        learning = apply_gapped(mdp, ops.maximum(), gaps.AdvantageGap(alpha), q)
        repeated = np.einsum("sat,ta->sa", kernel, q)
        persistent = mdp.reward + mdp.gamma * ((1 - alpha) * kernel @ q.max(-1) + alpha * repeated)
        stays = mdp.reward + mdp.gamma * repeated
        made = apply_gapped(mdp, ops.maximum(), gaps.PersistentAdvantageGap(alpha), q)
        np.testing.assert_allclose(made[going], np.maximum(learning, stays)[going], atol=1e-13)
        made = apply_gapped(mdp, ops.maximum(), gaps.PersistentGap(alpha), q)
        np.testing.assert_allclose(made[going], persistent[going], atol=1e-13)


# --------------------------------------------------------------------------------------------------- what is proved


@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("spec", ["gap(0.7)", "gap(0.7, 0.2)", "persistent(0.7)"])
def test_optimality_is_preserved_and_gaps_increase_on_a_thousand_mdps(spec, is_random):
    """Theorem 1 of Bellemare et al. (2016), with ends and illegal actions: V* stays, and no gap becomes smaller."""
    seen = strictly = 0
    for seed in range(20):
        mdp = random_mdp(seed, states=4, blocks=50, is_random=is_random, gamma=0.7)
        plain, gapped = tabular.solve(mdp, "max"), tabular.solve(mdp, "max", gap=spec)
        assert gapped.converged and gapped.residual < 1e-9
        np.testing.assert_allclose(gapped.values, plain.values, atol=1e-8)
        before, after = (s.values[:, None] - np.where(mdp.legal, s.q, 0.0) for s in (plain, gapped))
        active = mdp.legal & ~mdp.terminal[:, None]
        assert (after >= before - 1e-8)[active].all()
        chosen = np.take_along_axis(plain.q, gapped.q.argmax(axis=1)[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(chosen, plain.values, atol=1e-8)
        assert "The greedy policy is optimal." in gapped.notes
        seen, strictly = seen + 50, strictly + (after > before + 1e-3)[active].mean() / 20
    assert seen == 1000 and strictly > 0.1


def test_persistent_q_learning_contracts_and_need_not_preserve_optimality():
    """It is a contraction by gamma, but to repeat an action may cost: its greedy policy is another one."""
    rng, lost = np.random.default_rng(0), 0
    for seed in range(60):
        mdp = random_mdp(seed, masked=seed % 2 == 0)
        for operator in (ops.maximum(), ops.mellowmax(2.0)):
            pair = np.where(mdp.terminal[:, None], 0.0, rng.normal(0, 3, size=(2, *mdp.reward.shape)))
            apart = np.abs(pair[0] - pair[1])[mdp.legal].max()
            made = [apply_gapped(mdp, operator, gaps.PersistentGap(0.6), q)[mdp.legal] for q in pair]
            assert np.abs(made[0] - made[1]).max() <= mdp.gamma * apart + 1e-12
        solution = tabular.solve(mdp, "max", gap="persistent_q(0.6)")
        assert solution.unique == "proved" and solution.converged
        lost += "The greedy policy is optimal." not in solution.notes
    assert lost > 5


def test_advantage_learning_is_no_contraction():
    mdp = examples.one_state((0.0, 0.0), gamma=0.5)
    one, other = np.array([[1.0, -1.0]]), np.zeros((1, 2))
    made = [apply_gapped(mdp, ops.maximum(), gaps.AdvantageGap(0.9), q) for q in (one, other)]
    assert np.abs(made[0] - made[1]).max() > 1.2


@pytest.mark.parametrize(
    ("spec", "operator", "sharper"),
    [
        ("gap(0.75)", "max", "max"),
        ("gap(0.75)", "softmax(5)", "softmax(20)"),
        ("gap(0.75)", "mellowmax(5)", "mellowmax(20)"),
        ("gap(0.5)", "logsumexp(5)", "logsumexp(10)"),
        ("gap(0.5)", "mean", "mean"),
        ("gap(0.5)", "double(softmax(5))", "softmax(10)"),
    ],
)
def test_a_gap_makes_the_operator_sharper(spec, operator, sharper):
    """The values of the fixed point are those of `k op(q / k)` with `k = 1 - alpha`, on any MDP."""
    alpha = gaps.as_gap(spec).alpha
    for seed in range(10):
        mdp = random_mdp(seed)
        gapped, plain = tabular.solve(mdp, operator, gap=spec), tabular.solve(mdp, sharper)
        assert gapped.converged
        np.testing.assert_allclose(gapped.values, plain.values, atol=1e-8)
        expected = (plain.q - alpha * plain.values[:, None]) / (1 - alpha)
        np.testing.assert_allclose(
            gapped.q[mdp.legal], np.where(mdp.terminal[:, None], 0, expected)[mdp.legal], atol=1e-8
        )


@pytest.mark.parametrize("spec", [*GAPS, "gap(0.02)", "persistent(0.02)", "gap(0.9)"])
@pytest.mark.parametrize("operator", [*OPERATORS, ops.double(ops.softmax(3.0))], ids=str)
def test_bounds_hold_where_they_are_given_and_are_given_where_they_are_proved(operator, spec):
    """The fixed point is found again from far away, to the last bits."""
    gap = gaps.as_gap(spec)
    for seed, tolerance in enumerate((1e-2, 1e-9)):
        mdp = random_mdp(seed, gamma=0.6)
        solution = tabular.solve(mdp, operator, gap=gap, tolerance=tolerance)
        if solution.unique != "proved":
            assert np.isneginf(solution.lower[~mdp.terminal]).all()
            assert np.isposinf(solution.upper[mdp.legal & ~mdp.terminal[:, None]]).all()
            continue
        q = np.where(mdp.terminal[:, None], 0.0, np.full(mdp.reward.shape, 100.0))
        for _ in range(500):
            q = apply_gapped(mdp, operator, gap, q)
        assert (solution.lower <= q).all() and (q <= solution.upper).all()
        assert (solution.lower <= solution.q).all() and (solution.q <= solution.upper).all()
        assert (solution.upper[mdp.legal] - solution.lower[mdp.legal]).max() < 1e3 * tolerance
    laws = operator.on_one_set.laws
    near_none = ("gap(0.02)", "persistent(0.02)")  # contractions at this gamma
    if laws.monotone and laws.translation_equivariant:
        assert solution.unique == "proved" or spec not in ("persistent_q(0.7)", "gap(0.7)", "gap(0.9)", *near_none)


def test_the_greedy_policy_is_not_called_optimal_for_a_tolerance_that_is_not_small():
    """State 0 chooses between a state that pays 1 or 0 and one that pays 0.8 anyway; the mean prefers the latter."""
    onward, reward = np.zeros((4, 2, 4)), np.zeros((4, 2))
    onward[0, 0, 1] = onward[0, 1, 2] = 1
    onward[1:, :, 3] = 1
    reward[1], reward[2] = (1, 0), (0.8, 0.8)
    mdp = FiniteMDP(onward, reward, 0.9, terminal=[False, False, False, True])
    for tolerance in (1e-10, 1e-3, 0.1):
        notes = tabular.solve(mdp, "mean", gap="gap(0.5)", tolerance=tolerance).notes
        assert any("not optimal" in note and "by up to 0.18" in note for note in notes), tolerance


def test_values_without_bound_are_told_as_such():
    solution = tabular.solve(examples.small(0.99), ops.deviation(20), gap="gap(0.9)", max_iterations=3_000)
    assert not solution.converged and any("grow without bound" in note for note in solution.notes)


def test_ends_and_illegal_actions_are_as_ever():
    mdp = examples.doors()
    for spec in GAPS:
        solution = tabular.solve(mdp, "softmax(3)", gap=spec)
        assert (np.isneginf(solution.q) == ~mdp.legal).all() and (solution.q[mdp.terminal] == 0).all()
        assert (solution.policy[~mdp.legal] == 0).all() and solution.values[mdp.terminal] == 0


def test_an_action_that_is_illegal_in_the_next_state_is_not_repeated():
    """Persistent advantage learning is advantage learning there, persistent Q-learning the plain equation."""
    transition = np.zeros((2, 2, 2))
    transition[0, :, 1] = transition[1, 0, 0] = 1.0
    mdp = FiniteMDP(transition, [[1.0, 2.0], [0.5, 0.0]], 0.5, legal=[[True, True], [True, False]])
    q = np.array([[1.0, 4.0], [2.0, 9.0]])  # what is illegal counts nowhere
    learning = apply_gapped(mdp, ops.mean(), gaps.AdvantageGap(0.5), q)
    assert apply_gapped(mdp, ops.mean(), gaps.PersistentAdvantageGap(0.5), q)[0, 1] == learning[0, 1]
    assert apply_gapped(mdp, ops.mean(), gaps.PersistentGap(0.5), q)[0, 1] == mdp.apply(ops.mean(), q)[0, 1] == 3.0


def test_several_starts_are_followed_where_nothing_is_proved():
    mdp = examples.two_fixed_points()
    low = tabular.solve(mdp, "softmax(8.5)", gap="gap(0.5)", starts=[np.ones(2)])  # as sharp as softmax(17)
    assert low.unique == "no" and len(low.fixed_points) == 2 and low.converged
    assert low.values[0] == pytest.approx(0.607769820648, abs=1e-9)
    high = tabular.solve(mdp, "softmax(8.5)", gap="gap(0.5)", start=[[0.7, 0.9], [0.0, 0.0]])
    assert high.values[0] == pytest.approx(0.876888712437, abs=1e-9)
    assert any("2 different fixed points" in note for note in low.notes)


def test_slow_progress_makes_no_fixed_points():
    """With the maximum and `alpha` below 1 there is one, which iteration nears by a thousandth at each step."""
    mdp = examples.forest()
    far = [np.stack([np.zeros(mdp.num_states), np.full(mdp.num_states, gap)], axis=1) for gap in (-1e6, -1e5)]
    solution = tabular.solve(mdp, "max", gap="gap(0.99, 1e6)", tolerance=1e-6, starts=far)
    assert solution.converged and solution.unique == "unknown" and len(solution.fixed_points) == 1
    two = examples.two_fixed_points()
    ends = tabular.solve(two, "softmax(8.5)", gap="gap(0.5)", starts=[np.ones(2)], tolerance=1e-3)
    assert ends.unique == "no" and np.array_equal(ends.fixed_points[0], ends.q)


def test_iteration_that_does_not_settle_is_told_of():
    cycling = tabular.solve(examples.period_two(), "softmax(1)", gap="persistent_q(0.01)")
    assert cycling.cycle == 2 and not cycling.converged and "cycle of period 2" in cycling.notes[0]
    short = tabular.solve(examples.small(), "max", gap="gap(0.5)", max_iterations=5)
    assert not short.converged and short.iterations == 5 and "raise max_iterations" in short.notes[0]
    assert (short.lower <= tabular.solve(examples.small(), "max", gap="gap(0.5)").q).all()  # bounds hold all the same


@pytest.mark.parametrize("gap", ["gap(0.5)", "gap(0.9)", "gap(0.7, 0.3)", "persistent_pfrl(0.5)"])
@pytest.mark.parametrize("operator", ["softmax(1)", "mellowmax(2)", "weighted(1)"])
@pytest.mark.parametrize("gamma", [0.0, 1e-300, 1e-12, 0.2])
def test_a_small_gamma_ends_no_iteration_early(gamma, operator, gap):
    """The loss of a reward depends on the action values of its own state, which nothing discounts."""
    mdp = examples.one_state((1.0, 0.0), gamma)
    solution = tabular.solve(mdp, operator, gap=gap, tolerance=1e-9)
    assert solution.converged and solution.residual <= 1e-9
    assert solution.unique != "no" and len(solution.fixed_points) == 1


def test_a_worse_policy_is_told_in_any_unit():
    mdp = examples.small()
    for each in (mdp, mdp.with_reward(1e-11 * mdp.reward)):
        notes = tabular.solve(each, "min", gap="gap(0.1)", tolerance=1e-9 * float(np.abs(each.reward).max())).notes
        assert any("The greedy policy is not optimal" in note for note in notes)


def test_what_has_no_solution_is_refused():
    for operator in ("max", "softmax(5)"):
        with pytest.raises(
            ValueError, match=r"gap\(1\) has no fixed point where actions differ, since gaps grow at every step"
        ):
            tabular.solve(examples.small(), operator, gap="gap(1)")
    with pytest.raises(
        ValueError, match=r"persistent_pfrl\(0.5\) takes values from behind an end, and this MDP has ends"
    ):
        tabular.solve(examples.doors(), "max", gap="persistent_pfrl(0.5)")
    assert tabular.solve(examples.small(), "max", gap="persistent_pfrl(0.5)").converged
    with pytest.raises(ValueError, match=r"gap 'gap\(2\)': alpha \(2\) must be in 0 .. 1"):
        tabular.solve(examples.small(), "max", gap="gap(2)")
    with pytest.raises(TypeError, match=r"0\.9 is no gap"):
        tabular.solve(examples.small(), "max", gap=0.9)


class Half(gaps.Gap):
    """Half of the gap, of which nothing is known."""

    def penalty(self, here, after, discount):
        return 0.5 * here()


class Unfinished(gaps.Gap):
    """A gap that does not say what is lost."""


def test_of_a_gap_of_ones_own_nothing_is_taken_for_proved():
    mdp = random_mdp(3)
    own, ours = (tabular.solve(mdp, ops.mellowmax(5.0), gap=gap) for gap in (Half(), "gap(0.5)"))
    assert own.unique == "unknown" and not np.isfinite(own.lower[mdp.legal & ~mdp.terminal[:, None]]).any()
    assert own.residual < 1e-6
    np.testing.assert_allclose(own.q[mdp.legal], ours.q[mdp.legal], atol=1e-6)
    with pytest.raises(NotImplementedError, match="Unfinished must define penalty"):
        tabular.solve(mdp, ops.maximum(), gap=Unfinished())
