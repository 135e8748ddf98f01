"""Finite MDPs: all forms of the same one agree, what is wrong is named, and nothing of the caller's is touched."""

import json
import re
import subprocess
import sys
import textwrap
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from softbellman import operators as ops
from softbellman.tabular import FiniteMDP, solve
from softbellman.tabular.files import read_mdp
from softbellman.tabular.kernel import shortfall

TRANSITION = np.array([[[0.5, 0.5, 0.0], [0.0, 0.8, 0.2]], [[0.0, 1.0, 0.0], [0.1, 0.0, 0.9]], [[0, 0, 1], [1, 0, 0]]])
REWARD = np.array([[5.0, 10.0], [-1.0, 2.0], [0.0, 1.0]])
GAMMA = 0.9


def ways_to_build(transition, reward, gamma):
    """Give a function for each form in which the arrays of an MDP may be given."""
    states, actions, _ = transition.shape
    by_action = [sparse.csr_array(transition[:, a]) for a in range(actions)]
    stacked = sparse.coo_array(transition.reshape(-1, states))
    by_next_state = [p.astype(bool) * reward[:, [a]] for a, p in enumerate(by_action)]
    s, a, onward = np.nonzero(transition)
    lists = (s, a, onward, transition[s, a, onward], reward[s, a])

    def outcomes(state, action):
        return [(p, s, reward[state, action], False) for s, p in enumerate(transition[state, action]) if p]

    return {
        "dense": lambda: FiniteMDP(transition, reward, gamma),
        "lists": lambda: FiniteMDP(transition.tolist(), reward.tolist(), gamma),
        "dense rewards by next state": lambda: FiniteMDP(
            transition, np.repeat(reward[:, :, None], states, axis=2), gamma
        ),
        "sparse by action": lambda: FiniteMDP(by_action, reward, gamma),
        "sparse rewards": lambda: FiniteMDP(by_action, by_next_state, gamma),
        "sparse stacked": lambda: FiniteMDP(stacked, reward, gamma),
        "function": lambda: FiniteMDP.from_function(outcomes, states, actions, gamma),
        "transitions": lambda: FiniteMDP.from_transitions(*lists, num_states=states, num_actions=actions, gamma=gamma),
    }


def in_all_forms(transition, reward, gamma):
    """The same MDP, built in every way there is."""
    return {form: build() for form, build in ways_to_build(transition, reward, gamma).items()}


FORMS = tuple(in_all_forms(TRANSITION, REWARD, GAMMA))


def kernel(mdp):
    return mdp.kernel.toarray() if sparse.issparse(mdp.kernel) else mdp.kernel


@pytest.mark.parametrize("form", FORMS)
def test_l36_every_form_gives_the_same_mdp_values_and_policy(form):
    mdp = in_all_forms(TRANSITION, REWARD, GAMMA)[form]
    np.testing.assert_allclose(kernel(mdp), TRANSITION.reshape(6, 3), rtol=1e-15)
    np.testing.assert_allclose(mdp.reward, REWARD, rtol=1e-15)
    expected = solve(FiniteMDP(TRANSITION, REWARD, GAMMA), ops.maximum())
    found = solve(mdp, ops.maximum())
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-13)
    np.testing.assert_array_equal(found.policy, expected.policy)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_forms_agree_on_random_mdps(states, actions, seed):
    rng = np.random.default_rng(seed)
    transition = rng.random((states, actions, states)) * (rng.random((states, actions, states)) < 0.6)
    transition[..., 0] += 0.1
    transition /= transition.sum(axis=2, keepdims=True)
    values = rng.normal(size=states)
    backups = [m.backup(values) for m in in_all_forms(transition, rng.normal(size=(states, actions)), 0.7).values()]
    for backup in backups[1:]:
        np.testing.assert_allclose(backup, backups[0], atol=1e-12)


def test_l36_a_hundred_thousand_states_stay_sparse():
    code = """
        import re, numpy as np
        from softbellman import operators as ops, tabular
        rng, states, actions, successors = np.random.default_rng(0), 100_000, 4, 3
        count = states * actions * successors
        pair = np.repeat(np.arange(states * actions), successors)
        mdp = tabular.FiniteMDP.from_transitions(
            pair // actions, pair % actions, rng.integers(states, size=count), np.full(count, 1 / 3),
            rng.random(count), num_states=states, num_actions=actions, gamma=0.95)
        solution = tabular.solve(mdp, ops.maximum())
        assert solution.converged and np.max(solution.upper - solution.lower) < 1e-9
        peak = re.search(r"VmHWM: *([0-9]+)", open("/proc/self/status").read().replace("\\t", " "))[1]
        print(int(peak) / 2**20)  # not ru_maxrss, which counts the process that started this one
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert float(process.stdout) < 1  # GiB at most; a dense kernel alone has 300


# L35: validation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"transition": [[[0.45, 0.9, 0.45]] * 2] * 3},
            "state 0, action 0: its probabilities sum to 1.8, not 1 .5 more",
        ),
        (
            {"transition": [[[1.5, -0.5, 0.0]] * 2] * 3},
            "state 0, action 0: a probability is -0.5; it must be finite and at least 0",
        ),
        ({"transition": [[[np.nan, 0.5, 0.5]] * 2] * 3}, "state 0, action 0: a probability is nan; it must be finite"),
        ({"transition": np.ones((2, 3, 3)) / 3}, r"shape \[2, 3, 3\].*the state first.*swapaxes"),
        ({"transition": np.ones((3, 3)) / 3}, r"shape \[3, 3\]"),
        ({"transition": [[[1.0]], [[1.0, 0.0]]]}, "no array of numbers"),
        ({"transition": sparse.eye_array(4, 3)}, r"sparse of shape \(4, 3\).*S \* A"),
        ({"transition": [sparse.eye_array(3), sparse.eye_array(2)]}, r"shapes \[\(2, 2\), \(3, 3\)\]"),
        ({"reward": np.zeros((2, 3))}, r"reward has shape \[2, 3\]; it must be \[3, 2\] or \[3, 2, 3\]"),
        ({"reward": [[0, 0], [0, np.inf], [0, 0]]}, "reward of state 1, action 1 is inf"),
        ({"reward": sparse.eye_array(3)}, "reward is sparse"),
        ({"gamma": 1.0}, r"gamma \(1.0\).*below 1: without a discount"),
        ({"gamma": -0.1}, r"gamma \(-0.1\) must be at least 0"),
        ({"gamma": np.nan}, r"gamma \(nan\) must be at least 0"),
        ({"legal": [[True, True], [False, False], [True, False]]}, "state 1 has no legal action"),
        ({"legal": np.ones((2, 3), bool)}, r"legal has dtype bool and shape \[2, 3\]; it must be bool \[3, 2\]"),
        ({"terminal": [0, 0, 1]}, "terminal has dtype int64"),
    ],
)
def test_l35_what_is_wrong_is_named(change, message):
    arguments = {"transition": TRANSITION, "reward": REWARD, "gamma": GAMMA} | change
    with pytest.raises(ValueError, match=message):
        FiniteMDP(**arguments)


@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12, 1e-7])
def test_l35_rows_off_by_rounding_are_accepted_and_normalised(off):
    thirds = np.full((3, 2, 3), 1 / 3)
    thirds[0, 1, 2] += off
    assert abs(FiniteMDP(thirds, REWARD, GAMMA).kernel.sum(axis=1) - 1).max() < 3e-16


def test_l35_float32_tables_are_accepted():
    rows = np.random.default_rng(0).random((50, 3, 50)).astype(np.float32)
    rows /= rows.sum(axis=2, keepdims=True)
    assert abs(FiniteMDP(rows, np.zeros((50, 3)), GAMMA).kernel.sum(axis=1) - 1).max() < 1e-15


def test_l35_arrays_of_the_caller_are_neither_changed_nor_kept():
    transition, reward = TRANSITION + 1e-9 / 3, REWARD.copy()
    legal, terminal = np.array([[True, False], [True, True], [True, True]]), np.array([False, False, True])
    matrices = [sparse.csr_array(transition[:, a]) for a in range(2)]
    given = [transition, reward, legal, terminal, *(m.data for m in matrices)]
    before = [array.copy() for array in given]
    for form in (transition, matrices):
        mdp = FiniteMDP(form, reward, GAMMA, legal=legal, terminal=terminal)
        values = mdp.backup(np.ones(3)).copy()
        for array, copy in zip(given, before, strict=True):
            np.testing.assert_array_equal(array, copy)
        transition += 1
        reward += 1
        np.testing.assert_array_equal(mdp.backup(np.ones(3)), values)
        transition -= 1
        reward -= 1
        before[0], before[1] = transition.copy(), reward.copy()
        with pytest.raises(ValueError, match="read-only"):
            mdp.reward[0, 0] = 1.0


def test_an_mdp_cannot_be_changed():
    with pytest.raises(AttributeError):
        FiniteMDP(TRANSITION, REWARD, GAMMA).gamma = 0.5  # pyright: ignore


# Ends


@ops.operator
class OneMore(ops.Operator):
    """The maximum and 1 more, whose value of nothing is not 0."""

    def offset(self, row):
        return row.xp.ones_like(row.best)


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_no_value_leaks_from_a_terminal_state(form):
    transition = TRANSITION if form == "dense" else [sparse.csr_array(TRANSITION[:, a]) for a in range(2)]
    mdp = FiniteMDP(transition, REWARD, GAMMA, terminal=[False, False, True])
    assert not kernel(mdp)[:, 2].any() and not kernel(mdp)[4:].any()
    np.testing.assert_array_equal(mdp.reward[2], 0)
    q = mdp.apply(OneMore(), np.zeros((3, 2)))
    assert q[2].tolist() == [0.0, 0.0]
    assert q[1] == pytest.approx([-1 + 0.9, 2 + 0.9 * 0.1])  # action 1 ends with probability 0.9


def test_what_terminal_states_and_illegal_actions_are_given_is_not_looked_at():
    transition, reward = TRANSITION.copy(), REWARD.copy()
    transition[2], transition[0, 1], reward[2], reward[0, 1] = np.nan, 7.0, np.inf, np.nan
    legal = np.array([[True, False], [True, True], [False, False]])
    mdp = FiniteMDP(transition, reward, GAMMA, terminal=[False, False, True], legal=legal)
    assert mdp.legal.tolist() == [[True, False], [True, True], [True, True]]
    assert mdp.backup(np.zeros(3)).tolist() == [[5.0, -np.inf], [-1.0, 2.0], [0.0, 0.0]]
    assert np.isfinite(solve(mdp, ops.softmax(1.0)).values).all()


def test_rewards_that_cannot_happen_do_not_matter():
    reward = np.where(TRANSITION > 0, REWARD[:, :, None], np.nan)
    np.testing.assert_allclose(FiniteMDP(TRANSITION, reward, GAMMA).reward, REWARD, rtol=1e-15)


def test_rewards_of_next_states_are_averaged():
    reward = np.arange(18.0).reshape(3, 2, 3)
    expected = np.einsum("sat,sat->sa", TRANSITION, reward)
    np.testing.assert_allclose(FiniteMDP(TRANSITION, reward, GAMMA).reward, expected, rtol=1e-15)
    stacked = sparse.csr_array(reward.reshape(6, 3))
    for transition in (TRANSITION, sparse.csr_array(TRANSITION.reshape(6, 3))):
        np.testing.assert_allclose(FiniteMDP(transition, stacked, GAMMA).reward, expected, rtol=1e-15)


# Functions and lists of transitions


def test_a_function_marks_ends_and_illegal_actions():
    def outcomes(place, move):
        if place == "b" and move == "stay":
            return None
        return [(0.5, "a", 1.0, False), (0.25, "elsewhere", 2.0, True), (0.25, "a", 3.0, False)]

    mdp = FiniteMDP.from_function(outcomes, ["a", "b"], ["stay", "go"], GAMMA)
    assert mdp.legal.tolist() == [[True, True], [False, True]]
    assert mdp.backup([10.0, -5.0]).tolist() == [[1.75 + 0.9 * 7.5] * 2, [-np.inf, 1.75 + 0.9 * 7.5]]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ([(1.0, "c", 0.0, False)], "f.'a', 0. leads to 'c', which is not among the 2 states"),
        ([(1.0, "a", 0.0)], r"f.'a', 0. gives \(1.0, 'a', 0.0\); it must give tuples \(probability, next_state"),
        ([(0.7, "a", 0.0, False)], "state 0, action 0: its probabilities sum to 0.7, not 1 .1 more"),
        (
            [(-0.5, "a", 0.0, False), (1.5, "b", 0.0, False)],
            "state 0, action 0: a probability is -0.5; it must be finite and at least 0",
        ),
    ],
)
def test_a_function_that_is_wrong_is_told_where(outcome, message):
    with pytest.raises(ValueError, match=message):
        FiniteMDP.from_function(lambda state, action: outcome, ["a", "b"], 1, GAMMA)


def test_states_need_names_of_their_own():
    with pytest.raises(ValueError, match="a name occurs twice"):
        FiniteMDP.from_function(lambda state, action: None, ["a", "a"], 1, GAMMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"next_state": [0, 3]}, "transition 1: next state 3 is not among the 2"),
        ({"next_state": [2, 0]}, "transition 0: next state 2 is not among the 2"),
        ({"state": [-1, 0]}, "transition 0: state -1 is not among the 2"),
        ({"action": [0, 1]}, "transition 1: action 1 is not among the 1"),
        ({"action": [0.0, 0.0]}, "action has dtype float64; it must be whole numbers"),
        ({"reward": [0.0]}, r"shapes .*\(1,\)"),
    ],
)
def test_l35_indices_out_of_range_are_named(change, message):
    arguments = {
        "state": [0, 1], "action": [0, 0], "next_state": [1, 0], "probability": [1.0, 1.0], "reward": [0.0, 0.0],
        "num_states": 2, "num_actions": 1, "gamma": GAMMA,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        FiniteMDP.from_transitions(**arguments | change)


# Gymnasium


@pytest.mark.parametrize(("name", "states", "actions"), [("FrozenLake-v1", 16, 4), ("CliffWalking-v1", 48, 4)])
def test_tables_of_gymnasium_are_read(name, states, actions):
    mdp = FiniteMDP.from_gymnasium(name, 0.99)
    assert (mdp.num_states, mdp.num_actions) == (states, actions)
    assert repr(mdp) == f"FiniteMDP({states} states, {actions} actions, gamma 0.99)"


def test_a_transition_that_terminates_carries_no_value():
    mdp = FiniteMDP.from_gymnasium("FrozenLake-v1", 0.99, is_slippery=False)
    right_of_14 = mdp.backup(np.full(16, 100.0))[14]
    assert right_of_14[2] == 1.0  # into the goal: its reward and nothing else
    assert right_of_14[1] == 99.0  # down, against the wall


def test_an_environment_without_a_table_is_refused():
    with pytest.raises(ValueError, match="has no table P"):
        FiniteMDP.from_gymnasium("CartPole-v1", 0.99)


def test_without_any_transition_all_states_are_terminal():
    mdp = FiniteMDP.from_function(lambda state, action: None, 2, 2, 0.9)
    assert mdp.terminal.all() and mdp.backup([1.0, 1.0]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_an_environment_itself_will_do():
    import gymnasium

    env = gymnasium.make("FrozenLake-v1")
    assert FiniteMDP.from_gymnasium(env, 0.9).num_states == 16


def test_without_gymnasium_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r'pip install "softbellman\[train\]"'):
        FiniteMDP.from_gymnasium("FrozenLake-v1", 0.99)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_what_a_row_lacks_of_1_is_found_in_spite_of_rounding(form):
    rows = np.random.default_rng(0).dirichlet(np.full(30, 0.3), size=50)
    rows[10:20] *= 1 - rows[10:20, :1]  # some lack more
    exact = [1 - sum(Fraction(float(p)) for p in row) for row in rows]
    found = shortfall(form(rows))
    assert any(0 < abs(x) < 2**-53 for x in exact)  # less than float64 has room for beside 1
    for x, y in zip(exact, found, strict=True):
        assert abs(Fraction(float(y)) - x) <= abs(x) / 2**52 + Fraction(1, 2**70)


def test_other_rewards_share_the_kernel():
    legal = [[True, True], [True, False], [True, True]]
    old = FiniteMDP(np.full((3, 2, 3), 1 / 3), np.ones((3, 2)), 0.5, terminal=[False, False, True], legal=legal)
    mdp = old.with_reward([[1.0, 2.0], [3.0, np.nan], [5.0, 6.0]])
    assert mdp.reward.tolist() == [[1, 2], [3, 0], [0, 0]] and old.reward.tolist() == [[1, 1], [1, 0], [0, 0]]
    assert mdp.kernel is old.kernel and mdp.backup(np.zeros(3)).tolist() == [[1, 2], [3, -np.inf], [0, 0]]
    with pytest.raises(ValueError, match=r"reward has shape \[3\]; it must be \[3, 2\]"):
        old.with_reward(np.zeros(3))
    with pytest.raises(ValueError, match="reward of state 1, action 0 is inf; it must be finite"):
        old.with_reward([[1.0, 2.0], [np.inf, 0.0], [5.0, 6.0]])


def test_the_package_gives_the_tabular_part_when_asked():
    import softbellman

    assert softbellman.FiniteMDP is FiniteMDP and softbellman.solve is solve
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        softbellman.nothing  # noqa: B018


# Probabilities that miss 0 by rounding


def ways_to_read(transition, reward, gamma, folder):
    """Give a function for each other way in: files, and a table of Gymnasium."""
    states, actions, _ = transition.shape
    entries = [[s, a, t, transition[s, a, t], reward[s, a]] for s, a, t in np.argwhere(transition).tolist()]
    document = {"states": states, "actions": actions, "gamma": gamma, "transitions": entries}
    (folder / "mdp.json").write_text(json.dumps(document))
    np.savez(folder / "mdp.npz", transition=transition, reward=reward, gamma=gamma)
    table = {s: {a: [] for a in range(actions)} for s in range(states)}
    for s, a, t, probability, gain in entries:
        table[s][a].append((probability, t, gain, False))
    return {
        "json": lambda: read_mdp(folder / "mdp.json"),
        "npz": lambda: read_mdp(folder / "mdp.npz"),
        "table": lambda: FiniteMDP.from_gymnasium(SimpleNamespace(P=table), gamma),
    }


def every_way(transition, reward, gamma, folder):
    return ways_to_build(transition, reward, gamma) | ways_to_read(transition, reward, gamma, folder)


@pytest.mark.parametrize("below", [-1e-17, -1e-9, -9e-7])
def test_probabilities_below_0_by_rounding_are_taken_for_0_in_every_form(below, tmp_path):
    transition = TRANSITION.copy()
    transition[0, 0, 2] = transition[2, 1, 1] = below
    transition[2, 1, 0] -= below  # as a solver leaves it: the sum is 1
    for name, build in every_way(transition, REWARD, GAMMA, tmp_path).items():
        probability = kernel(build())
        assert probability.min() == 0 and abs(probability.sum(axis=1) - 1).max() < 3e-16, name
        np.testing.assert_allclose(probability, TRANSITION.reshape(6, 3), atol=1e-6)


@pytest.mark.parametrize("below", [-2e-6, -0.1, -np.inf, np.nan, np.inf])
def test_other_probabilities_are_named_with_value_state_and_action_in_every_form(below, tmp_path):
    transition = TRANSITION.copy()
    transition[2, 1, 1] = below
    message = re.escape(f"state 2, action 1: a probability is {below:.9g}; it must be finite and at least 0")
    for build in every_way(transition, REWARD, GAMMA, tmp_path).values():
        with pytest.raises(ValueError, match=f"{message}|is no number that an MDP can have"):
            build()


def test_many_probabilities_below_0_are_refused_by_the_sum_of_what_is_left():
    row = np.full(101, -5e-7)
    row[0] = 1 + 100 * 5e-7
    with pytest.raises(ValueError, match=r"state 0, action 0: its probabilities sum to 1\.00005, not 1"):
        FiniteMDP(np.tile(row, (101, 1, 1)), np.zeros((101, 1)), GAMMA)


def test_the_reward_of_a_transition_below_0_by_rounding_does_not_count():
    transition, reward = TRANSITION.copy(), np.repeat(REWARD[:, :, None], 3, axis=2)
    transition[0, 0, 2], reward[0, 0, 2] = -1e-17, 1e20
    stacked, gains = (sparse.csr_array(x.reshape(6, 3)) for x in (transition, reward))
    s, a, t = np.nonzero(transition)
    for mdp in (
        FiniteMDP(transition, reward, GAMMA),
        FiniteMDP(stacked, gains, GAMMA),
        FiniteMDP.from_transitions(
            s, a, t, transition[s, a, t], reward[s, a, t], num_states=3, num_actions=2, gamma=GAMMA
        ),
    ):
        np.testing.assert_allclose(mdp.reward, REWARD, rtol=1e-14)


def test_probabilities_below_0_where_an_action_is_not_legal_are_not_looked_at():
    transition = TRANSITION.copy()
    transition[0, 1] = [-5.0, np.nan, 0.0]
    legal = np.array([[True, False], [True, True], [True, True]])
    for form in (transition, sparse.csr_array(transition.reshape(6, 3))):
        assert not kernel(FiniteMDP(form, REWARD, GAMMA, legal=legal))[1].any()


def test_the_probabilities_of_the_caller_keep_their_values():
    transition = TRANSITION.copy()
    transition[0, 0, 2] = -1e-17
    stacked, probability = sparse.csr_array(transition.reshape(6, 3)), np.array([1.0, -1e-17])
    FiniteMDP(transition, REWARD, GAMMA)
    FiniteMDP(stacked, REWARD, GAMMA)
    FiniteMDP.from_transitions(
        [0, 0], [0, 0], [0, 1], probability, [0.0, 0.0], num_states=2, num_actions=1, gamma=GAMMA
    )
    assert transition[0, 0, 2] == stacked.data.min() == probability[1] == -1e-17
