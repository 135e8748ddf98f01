"""The examples show what their docstrings say."""

import inspect

import numpy as np
import pytest
from scipy.optimize import brentq, fsolve

from softbellman import operators as ops
from softbellman.tabular import FiniteMDP, bounds, examples
from softbellman.tabular.examples import EXAMPLES

PRINTED, PUBLISHED = 0.033, 0.0335  # the reward of action b: as printed, and as it may have been before rounding
# Reward of b, tau, V, Q_a, Q_b, and the slope F' of V -> F(V), by which iteration contracts.
FIXED_POINTS = [
    (PRINTED, 1, 0.407073823113, 0.385295348790, 0.427943023184, 0.8154),
    (PRINTED, 5, 0.418693618316, 0.392811032326, 0.439216548490, 0.8457),
    (PRINTED, 10, 0.441632438624, 0.407647861302, 0.461471791953, 0.8915),
    (PRINTED, 16.53, 0.5490751195, 0.4771417873, 0.5657126809, 0.98169),
    (PRINTED, 16.55, 0.550401857958, 0.477999921728, 0.566999882591, 0.982157),
    (PRINTED, 16.95, 0.594498049890, 0.506521338669, 0.609782008003, 0.993713),
    (PRINTED, 16.95, 0.723083510722, 0.589690414735, 0.734535622102, 1.002443),
    (PRINTED, 16.95, 0.861361149032, 0.679128391194, 0.868692586791, 0.996326),
    (PRINTED, 17, 0.607769820648, 0.515105519995, 0.622658279993, 0.995955),
    (PRINTED, 17, 0.691909222412, 0.569526885056, 0.704290327584, 1.002303),
    (PRINTED, 17, 0.876888712437, 0.689171619204, 0.883757428806, 0.995214),
    (PRINTED, 20, 1.052430537112, 0.802712071404, 1.054068107106, 0.9786),
    (PRINTED, 50, 1.107369614469, 0.838246666638, 1.107369999958, 0.9702),
    (PUBLISHED, 16.55, 0.592999619727, 0.505552154040, 0.608828231059, 0.992369),
    (PUBLISHED, 16.55, 0.755757700582, 0.610824080736, 0.766736121104, 1.002050),
    (PUBLISHED, 16.55, 0.857084168411, 0.676362040128, 0.865043060192, 0.997360),
]


def onward(mdp: FiniteMDP) -> np.ndarray:
    """How much of its own value each action of state 0 brings back to it: `[A]`."""
    return mdp.gamma * np.asarray(mdp.kernel)[: mdp.num_actions, 0]


def update(mdp: FiniteMDP, op: ops.Operator, value) -> np.ndarray:
    """The map F of the value of state 0, where nothing but an end lies beyond it: `[...]` to `[...]`."""
    return op(mdp.reward[0] + np.multiply.outer(value, onward(mdp)))


def slope(mdp: FiniteMDP, op: ops.Operator, value: float) -> float:
    """Its derivative."""
    return float(op.gradient(mdp.reward[0] + value * onward(mdp)) @ onward(mdp))


def settle(mdp: FiniteMDP, op: ops.Operator, starts, steps: int) -> np.ndarray:
    """Apply it so many times to each of several starts."""
    values = np.array(starts, float)
    for _ in range(steps):
        values = update(mdp, op, values)
    return values


def roots(mdp: FiniteMDP, op: ops.Operator, grid: np.ndarray) -> list[float]:
    """All fixed points that a grid of values tells apart."""
    signs = np.sign(update(mdp, op, grid) - grid)
    ends = np.flatnonzero(signs[:-1] != signs[1:])
    return [brentq(lambda v: float(update(mdp, op, v) - v), grid[i], grid[i + 1], xtol=1e-14) for i in ends]


@pytest.mark.parametrize(("reward_b", "tau", "value", "q_a", "q_b", "contraction"), FIXED_POINTS)
def test_fixed_points_of_softmax_and_how_fast_iteration_reaches_them(reward_b, tau, value, q_a, q_b, contraction):
    mdp, op = examples.two_fixed_points(reward_b), ops.softmax(tau)
    (found,) = roots(mdp, op, np.array([value - 1e-4, value + 1e-4]))
    assert found == pytest.approx(value, abs=1e-10)
    assert mdp.backup([found, 0.0])[0] == pytest.approx([q_a, q_b], abs=1e-10)
    digits = len(str(contraction)) - 2
    assert slope(mdp, op, found) == pytest.approx(contraction, abs=0.6 * 10**-digits)


@pytest.mark.parametrize(("reward_b", "tau"), sorted({(reward_b, tau) for reward_b, tau, *_ in FIXED_POINTS}), ids=str)
def test_there_are_no_other_fixed_points(reward_b, tau):
    expected = [value for b, t, value, *_ in FIXED_POINTS if (b, t) == (reward_b, tau)]
    grid = np.linspace(0.3, 1.2, 46)
    assert roots(examples.two_fixed_points(reward_b), ops.softmax(tau), grid) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("tau", "value"), [(16.87379331, 0.80067685), (17.04571397, 0.64317740)], ids=["from this tau", "to this tau"]
)
def test_where_several_fixed_points_begin_and_end(tau, value):
    """There the curve F touches the diagonal: F(V) = V and F'(V) = 1."""
    mdp = examples.two_fixed_points()

    def touching(point: np.ndarray) -> list[float]:
        op = ops.softmax(point[0])
        return [update(mdp, op, point[1]) - point[1], slope(mdp, op, point[1]) - 1]

    solution = fsolve(touching, [tau + 0.01, value + 0.01], xtol=1e-13)
    assert solution == pytest.approx([tau, value], abs=2e-8)


def test_one_fixed_point_either_side_of_that_interval():
    mdp, grid = examples.two_fixed_points(), np.linspace(0.3, 1.2, 901)
    counts = [len(roots(mdp, ops.softmax(tau), grid)) for tau in (16.873, 16.875, 17.045, 17.046)]
    assert counts == [1, 3, 3, 1]


@pytest.mark.parametrize(
    ("omega", "value", "q"),
    [(16.55, 0.4315480482, (0.40112528, 0.45168792)), (5, 0.4109801352, (0.38782195, 0.43173293))],
)
def test_mellowmax_has_one_fixed_point(omega, value, q):
    mdp, op = examples.two_fixed_points(), ops.mellowmax(omega)
    assert roots(mdp, op, np.linspace(0.0, 1.2, 25)) == pytest.approx([value], abs=1e-9)
    assert mdp.backup([value, 0.0])[0] == pytest.approx(q, abs=6e-9)


@pytest.mark.parametrize(
    ("op", "start", "steps", "value"),
    [
        (ops.softmax(16.55), 0.0, 915, 0.5504019),
        (ops.softmax(16.55), 1.0, 1516, 0.5504019),
        (ops.mellowmax(16.55), 0.0, 145, 0.4315480),
        (ops.mellowmax(16.55), 1.0, 159, 0.4315480),
        (ops.softmax(16.95), 0.0, 2368, 0.5944980),
        (ops.softmax(16.95), 1.0, 3973, 0.8613611),
        (ops.mellowmax(16.95), 0.0, 147, None),
        (ops.mellowmax(16.95), 1.0, 162, None),
    ],
    ids=str,
)
def test_how_long_iteration_takes_and_where_it_ends(op, start, steps, value):
    mdp = examples.two_fixed_points()
    q, change, count = np.full((2, 2), start) * ~mdp.terminal[:, None], 1.0, 0
    while change >= 1e-10:
        new = mdp.apply(op, q)
        change, q, count = np.abs(new - q).max(), new, count + 1
    assert count == steps
    if value is not None:
        assert mdp.value(op, q)[0] == pytest.approx(value, abs=1e-7)


def test_the_unstable_fixed_point_is_the_watershed():
    ends = settle(examples.two_fixed_points(), ops.softmax(16.95), [0.0, 0.7230, 0.7232, 1.0], 6000)
    assert ends == pytest.approx([0.594498, 0.594498, 0.861361, 0.861361], abs=1e-6)


def test_to_choose_b_always_is_optimal():
    mdp = examples.two_fixed_points()
    value_a, value = (mdp.reward[0, a] / (1 - mdp.gamma * mdp.kernel[a, 0]) for a in (0, 1))
    assert value == pytest.approx(1.107382550336, abs=1e-12)
    assert mdp.backup([value, 0.0])[0] == pytest.approx([0.838255033557, 1.107382550336], abs=1e-12)
    assert update(mdp, ops.maximum(), value) == pytest.approx(value, abs=1e-15)
    assert value_a == pytest.approx(0.345413363533, abs=1e-12)


def test_the_published_labels():
    assert examples.two_fixed_points_published().reward[0, 1] == PUBLISHED
    assert len(roots(examples.two_fixed_points_published(), ops.softmax(16.55), np.linspace(0.3, 1.2, 91))) == 3
    for tau, count in ((16.51, 1), (16.53, 3), (16.66, 3), (16.68, 1)):
        assert len(roots(examples.two_fixed_points_published(), ops.softmax(tau), np.linspace(0.3, 1.2, 901))) == count


def test_period_two():
    mdp, op = examples.period_two(), ops.softmax(1.0)
    high, low, repelling = 8.564869553258, 6.628665662252, 7.591486182385
    assert update(mdp, op, high) == pytest.approx(low, abs=1e-10)
    assert update(mdp, op, low) == pytest.approx(high, abs=1e-10)
    assert update(mdp, op, repelling) == pytest.approx(repelling, abs=1e-10)
    assert slope(mdp, op, repelling) == pytest.approx(-1.08385, abs=5e-6)
    assert abs(slope(mdp, op, high) * slope(mdp, op, low)) < 1  # so the cycle attracts
    assert update(mdp, ops.maximum(), 10.0) == 10
    odd = settle(mdp, op, [0.0, 7.5, 7.6, 10.0], 2001)
    assert np.sort([odd, update(mdp, op, odd)], axis=0) == pytest.approx(np.outer([low, high], np.ones(4)), abs=1e-9)


def test_softmax_expands_in_one_step_and_yet_converges():
    mdp, op = examples.expansive(), ops.softmax(1.0)
    q, other = np.array([[2.4, 0.0]]), np.array([[2.5, -0.1]])
    moved = np.abs(mdp.apply(op, other) - mdp.apply(op, q)).max()
    assert moved == pytest.approx(0.118656, abs=5e-7)
    assert moved / 0.1 == pytest.approx(0.99 * 1.198546, abs=1e-6)
    assert mdp.gamma * bounds.softmax_lipschitz(2) > 1
    assert settle(mdp, op, [0.0, 500.0], 2500) == pytest.approx(2.200385528415 / (1 - 0.99), abs=1e-6)


def test_the_chain_has_no_gap_in_the_end():
    mdp, q = examples.vanishing_gap(), examples.vanishing_gap_start()
    assert mdp.reward.min() <= q.min() and q.max() <= mdp.reward.max()
    for step in range(1, 6):
        q = mdp.apply(ops.maximum(), q)
        assert q[1].tolist() == pytest.approx([0.0, 0.99**step])


@pytest.mark.parametrize(
    ("mdp", "values", "policy"),
    [
        (examples.small(0.9), (42.4418604651, 36.0465116279), (1, 0)),
        (examples.small(0.99), (392.299107143, 386.160714286), (1, 0)),
        (examples.forest(gamma=0.9), (26.244, 29.484, 33.484), (0, 0, 0)),
        (examples.forest(gamma=0.96), (74.6496, 78.1056, 82.1056), (0, 0, 0)),
    ],
    ids=["small 0.9", "small 0.99", "forest 0.9", "forest 0.96"],
)
def test_optimal_values_of_the_examples_of_pymdptoolbox(mdp, values, policy):
    """A policy is optimal if no action improves on its values, and these solve a linear system."""
    kernel = mdp.kernel if isinstance(mdp.kernel, np.ndarray) else mdp.kernel.toarray()
    chosen = np.arange(mdp.num_states) * mdp.num_actions + policy
    solved = np.linalg.solve(np.eye(mdp.num_states) - mdp.gamma * kernel[chosen], mdp.reward.ravel()[chosen])
    assert solved == pytest.approx(values, abs=1e-9)
    assert mdp.value(ops.maximum(), mdp.backup(solved)) == pytest.approx(solved, abs=1e-9)


def test_the_forest_burns_and_grows():
    mdp = examples.forest(states=4, reward_wait=40.0, reward_cut=7.0, fire=0.3)
    kernel = mdp.kernel.toarray().reshape(4, 2, 4)
    assert kernel[:, 0] == pytest.approx(
        np.array([[0.3, 0.7, 0, 0], [0.3, 0, 0.7, 0], [0.3, 0, 0, 0.7], [0.3, 0, 0, 0.7]])
    )
    assert kernel[:, 1].tolist() == [[1.0, 0.0, 0.0, 0.0]] * 4
    assert mdp.reward.tolist() == [[0, 0], [0, 1], [0, 1], [40, 7]]
    assert examples.forest(states=100_000).kernel.nnz <= 300_000
    with pytest.raises(ValueError, match=r"states \(1\) must be at least 2"):
        examples.forest(states=1)
    with pytest.raises(ValueError, match=r"fire \(1.5\) must be a probability"):
        examples.forest(fire=1.5)


def test_the_random_family():
    mdps = [examples.asadi_littman(seed) for seed in range(200)]
    assert {mdp.num_states for mdp in mdps} == set(range(2, 11))
    assert {mdp.num_actions for mdp in mdps} == set(range(2, 6))
    assert all(mdp.reward.max() == 0.5 and mdp.reward.min() >= 0 for mdp in mdps)
    assert np.array_equal(examples.asadi_littman(7).kernel, examples.asadi_littman(7).kernel)
    rows = np.concatenate([mdp.kernel.max(axis=1) for mdp in mdps])
    assert 0.3 < np.mean(rows > 0.9) < 0.6  # one successor of 100, if only one is drawn


def test_seed_0_of_the_random_family_ends_in_a_cycle_of_three():
    mdp, op = examples.asadi_littman(), ops.softmax(16.55)
    values = [np.zeros(mdp.num_states)]
    for _ in range(1000):
        values.append(mdp.value(op, mdp.backup(values[-1])))
    changes = [np.abs(values[-1] - values[-1 - period]).max() for period in (1, 2, 3)]
    assert min(changes[:2]) > 0.2 and changes[2] < 1e-6


def test_garnets_branch_as_often_as_they_should():
    mdps = [examples.garnet(seed, states=20, actions=3, branching=5) for seed in range(100)]
    rows = np.concatenate([mdp.kernel for mdp in mdps])
    assert rows.shape == (100 * 20 * 3, 20) and set((rows > 0).sum(axis=1)) == {5}
    assert rows.sum(axis=1) == pytest.approx(1.0)
    assert rows.mean(axis=0) == pytest.approx(1 / 20, abs=0.01)
    rewards = np.concatenate([mdp.reward.ravel() for mdp in mdps])
    assert abs(rewards.mean()) < 0.05 and abs(rewards.std() - 1) < 0.05
    assert np.array_equal(examples.garnet(7).kernel, examples.garnet(7).kernel)
    assert set(examples.garnet(branching=1).kernel.ravel()) == {0.0, 1.0}
    for wrong in ({"states": 0}, {"actions": 0}, {"branching": 0}, {"states": 3}):
        with pytest.raises(ValueError, match="must be at least 1, branching"):
            examples.garnet(**wrong)


@pytest.mark.slow
def test_how_often_iteration_does_not_settle_in_the_random_family():
    def settles(mdp: FiniteMDP, op: ops.Operator) -> bool:
        values = np.zeros(mdp.num_states)
        for _ in range(1000):
            new = mdp.value(op, mdp.backup(values))
            if np.abs(new - values).max() < 1e-3:
                return True
            values = new
        return False

    mdps = [examples.asadi_littman(seed) for seed in range(200)]
    assert sum(not settles(mdp, ops.softmax(16.55)) for mdp in mdps) == 13
    assert all(settles(mdp, ops.mellowmax(16.55)) for mdp in mdps)


def test_by_name():
    for name, build in EXAMPLES.items():
        mdp = build()
        assert isinstance(mdp, FiniteMDP), name
        assert build(gamma=0.5).gamma == 0.5
        assert inspect.getdoc(build)
    with pytest.raises(TypeError):
        EXAMPLES["mine"] = examples.small  # pyright: ignore
