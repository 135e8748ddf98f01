"""Statements of the paper: what is corrected holds on a thousand random MDPs, what is false fails where it should."""

import functools

import numpy as np
import pytest
from scipy import sparse

from softbellman import operators as ops
from softbellman.tabular import FiniteMDP, bounds, examples, theorems
from softbellman.tabular.iterates import Iterates, iterate_both
from softbellman.tabular.theorems import STATEMENTS, audit

# MDPs, states, actions, gamma, tau, the range of rewards, whether Q0 is among the rewards, whether episodes end.
FAMILIES = [
    (120, 3, 2, 0.9, 1.0, (0.0, 1.0), True, False),
    (120, 4, 3, 0.95, 5.0, (-0.5, 1.0), True, False),
    (120, 5, 2, 0.5, 0.1, (-1.0, 0.3), True, False),
    (120, 3, 4, 0.99, 20.0, (-1.0, 0.0), True, False),
    (120, 6, 5, 0.8, 2.0, (0.5, 1.0), True, False),
    (120, 3, 2, 0.9, 0.0, (-1.0, 1.0), True, False),
    (120, 4, 3, 0.97, 100.0, (-2.0, 2.0), False, False),
    (120, 5, 4, 0.9, 3.0, (-1.0, 2.0), True, True),
    (120, 4, 6, 0.7, 0.5, (1.0, 3.0), False, True),
]
STEPS = 30


def random_mdps(
    rng: np.random.Generator, count: int, states: int, actions: int, gamma: float, rewards: tuple, ends: bool
) -> FiniteMDP:
    """So many separate MDPs in one: few successors, gaps of many sizes; with ends, some actions illegal as well."""
    weights = rng.random((count, states, actions, states)) ** 8 + 1e-9
    rows = weights / weights.sum(axis=-1, keepdims=True)
    transition = sparse.block_diag([block.reshape(-1, states) for block in rows], format="csr")
    low, high = rewards
    reward = low + (high - low) * rng.random((count * states, actions)) ** rng.choice([0.2, 1.0, 5.0])
    if not ends:
        return FiniteMDP(transition, reward, gamma)
    legal = rng.random(reward.shape) < 0.8
    legal[:, 0] = True
    return FiniteMDP(transition, reward, gamma, terminal=rng.random(len(reward)) < 0.2, legal=legal)


@functools.cache
def family(index: int) -> Iterates:
    count, states, actions, gamma, tau, rewards, among, ends = FAMILIES[index]
    rng = np.random.default_rng(index)
    mdp = random_mdps(rng, count, states, actions, gamma, rewards, ends)
    by_mdp = mdp.reward.reshape(count, -1)
    low, high = by_mdp.min(axis=1), by_mdp.max(axis=1)
    share = rng.random((count, states, actions)) * (rng.random((count, 1, 1)) < 0.7)  # some starts are constant
    start = low[:, None, None] + (high - low)[:, None, None] * share if among else rng.normal(0, 30, share.shape)
    return iterate_both(mdp, tau, start.reshape(mdp.reward.shape), STEPS, blocks=count)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
@pytest.mark.parametrize("index", range(len(FAMILIES)))
def test_corrected_forms_hold_on_random_mdps_and_stated_ones_where_their_premise_does(index, statement):
    iterates = family(index)
    for form in statement.forms:
        needed = statement.premise.holds(iterates) if form == "paper" else np.True_
        assert np.all((statement.margin(form, iterates) >= 0) | ~needed), form


def test_there_are_a_thousand_random_mdps_and_premises_hold_for_many_and_fail_for_many():
    every = [family(index) for index in range(len(FAMILIES))]
    assert sum(len(iterates.soft) for iterates in every) >= 1000
    for premise in (theorems.SIGNS, theorems.GAINS, theorems.CLOSE):
        holds = np.concatenate([premise.holds(iterates) for iterates in every])
        assert 100 < holds.sum() < len(holds) - 100


def test_blocks_that_lead_into_one_another_are_refused():
    with pytest.raises(ValueError, match="must not lead from one into another"):
        iterate_both(examples.forest(), tau=1.0, blocks=3)


def test_blocks_are_separate():
    """Every block, taken alone, has the iterates, the ranges and the margins that it has among the others."""
    rng = np.random.default_rng(3)
    mdps = [FiniteMDP(rng.dirichlet(np.ones(3), (3, 2)), rng.normal(size=(3, 2)), 0.8) for _ in range(3)]
    starts = rng.normal(size=(3, 3, 2))
    kernel = sparse.block_diag([mdp.kernel for mdp in mdps], format="csr")
    union = FiniteMDP(kernel, np.concatenate([mdp.reward for mdp in mdps]), 0.8)
    together = iterate_both(union, 2.0, starts.reshape(9, 2), 10, blocks=3)
    for i, (mdp, start) in enumerate(zip(mdps, starts, strict=True)):
        alone = iterate_both(mdp, 2.0, start, 10)
        assert alone.soft[0] == pytest.approx(together.soft[i], abs=1e-12)
        for statement in STATEMENTS:
            for form in statement.forms:
                assert statement.margin(form, alone)[0] == pytest.approx(statement.margin(form, together)[i], abs=1e-9)
    with pytest.raises(ValueError, match=r"blocks \(2\) must be at least 1 and divide the number of states, 9"):
        iterate_both(union, 2.0, blocks=2)
    with pytest.raises(ValueError, match=r"steps \(0\)"):
        iterate_both(union, 2.0, steps=0)


def test_an_end_counts_as_a_state_of_reward_0_and_what_is_illegal_counts_nowhere():
    ending = iterate_both(examples.two_fixed_points(), 1.0, start=5.0, steps=3)
    assert ending.rewards.ravel().tolist() == [0.0, 0.122]
    assert ending.start.ravel().tolist() == [0.0, 5.0]
    assert ending.soft[0, :, 1].tolist() == [[0.0, 0.0]] * 4

    def by_flag(state: int, action: int):
        return None if (state, action) == (0, 1) else [(0.5, state, 3.0, False), (0.5, state, 3.0, True)]

    masked = iterate_both(
        FiniteMDP.from_function(by_flag, 2, 2, gamma=0.5), 1.0, start=[[4.0, 99.0], [4.0, 2.0]], steps=3
    )
    assert masked.rewards.ravel().tolist() == [0.0, 3.0]
    assert masked.start.ravel().tolist() == [0.0, 4.0]
    assert masked.spread[0, 0].tolist() == [0.0, 2.0]
    assert np.isneginf(masked.soft[0, :, 0, 1]).all()
    assert masked.values[0, 0].tolist() == [2.0, 4.0]
    assert masked.error[0].max() < 1


FALSE = [statement for statement in STATEMENTS if statement.counterexample]


@pytest.mark.parametrize("statement", FALSE, ids=lambda statement: statement.name)
def test_stated_forms_fail_at_their_counterexample_where_the_others_hold(statement):
    iterates = statement.counterexample()
    assert not statement.premise.holds(iterates).any()
    assert statement.margin("paper", iterates) < -1e-3
    assert all(statement.margin(form, iterates) >= 0 for form in statement.forms if form != "paper")


def test_a_statement_has_a_counterexample_unless_it_is_true():
    for statement in STATEMENTS:
        is_true = statement.premise is theorems.ALWAYS or statement.paper is None
        assert (statement.counterexample is None) == is_true, statement.name


def test_lemma_a1_where_every_reward_is_1():
    """Q0 = 1 and every reward 1, gamma 0.9: Q10 = 6.862, below the least that the lemma allows, 10."""
    iterates = theorems.LEMMA_A1.counterexample()
    assert iterates.soft[0, -1, 0, 0] == pytest.approx(6.862, abs=5e-4)
    assert theorems.LEMMA_A1.margin("paper", iterates) == pytest.approx(1 - 10)
    assert theorems.LEMMA_A1.margin("sharp", iterates) == 0


@pytest.mark.parametrize("unit", [1e-10, 1e10])
def test_a_violation_is_one_in_any_unit(unit):
    iterates = iterate_both(examples.one_state([unit], gamma=0.9), tau=1 / unit, start=unit, steps=10)
    assert theorems.LEMMA_A1.margin("paper", iterates) == pytest.approx(-9 * unit)


def test_lemma_a1_where_every_reward_is_negative():
    iterates = iterate_both(examples.one_state([-1.0], gamma=0.9), tau=1.0, start=-1.0, steps=10)
    assert theorems.LEMMA_A1.margin("paper", iterates) == pytest.approx(-9)
    assert theorems.LEMMA_A1.margin("corrected", iterates) == 0


def test_the_sign_assumption_is_no_loss_of_generality_only_after_a_shift_of_rewards():
    """Rewards 0 and -10, tau 0.1: the gap is 2.6894, the bound 0.4762. Rewards 10 and 0: the same gap is within it."""
    losses = theorems.LEMMA_2_UPPER.counterexample()
    assert losses.q_max == 0
    assert losses.gap[0, 0] == pytest.approx(2.6894, abs=5e-5)
    assert theorems.LEMMA_2_UPPER.margin("paper", losses) == pytest.approx(0.4762 - 2.6894, abs=1e-4)
    assert theorems.COROLLARY.margin("paper", losses) == pytest.approx(0 - 10)
    assert theorems.THEOREM_4_UPPER.margin("paper", losses) == pytest.approx(0.4762 - 2.6894, abs=1e-4)
    assert theorems.THEOREM_3_LOWER.margin("paper", losses) == pytest.approx(9 * (0.4762 - 2.6894), abs=2e-3)
    shifted = iterate_both(examples.one_state([10.0, 0.0], gamma=0.9), tau=0.1, start=[[10.0, 0.0]], steps=100)
    assert shifted.gap == pytest.approx(losses.gap)
    assert theorems.GAINS.holds(shifted).all()
    for statement in (theorems.LEMMA_2_UPPER, theorems.COROLLARY, theorems.THEOREM_4_UPPER, theorems.THEOREM_3_LOWER):
        assert statement.margin("paper", shifted) >= 0


def test_the_lower_bound_of_lemma_2_fails_if_one_iterate_is_tied():
    """Q0 = (0, 0), Q1 = (1, 0): the bound is 0.18394, the gap of Q0 is 0, and the average gap 0.13447."""
    tied = theorems.LEMMA_2_LOWER.counterexample()
    assert tied.soft[0, :, 0].tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert theorems.LEMMA_2_LOWER.margin("paper", tied) == pytest.approx(-0.18394, abs=5e-6)
    assert theorems.THEOREM_4_LOWER.margin("paper", tied) == pytest.approx(0.13447 - 0.18394, abs=1e-5)


def test_bounds_of_lemma_2_are_met_on_iterates():
    """One best action and one worse, rewards 1.2784645 apart: the sharp bounds leave nothing."""
    worst = 1.2784645427610738
    iterates = iterate_both(examples.one_state([worst, 0.0], gamma=0.9), tau=1.0, start=[[worst, 0.0]], steps=200)
    for statement in (theorems.LEMMA_2_UPPER, theorems.LEMMA_2_LOWER):
        assert statement.margin("sharp", iterates) == 0
    expected = 9 * (1 - 0.9**200) * 0.2784645427610738  # Theorem 3 (I), lower bound, with the sharp gap
    assert iterates.error[0, -1] == pytest.approx([expected, expected])
    assert bounds.discounted_sum(0.9, 200) * bounds.largest_gap(1.0, 2) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tau", "worst", "step"), [(1, 0.26625, 1), (10, 0.0275678, 206), (100, 0.00275679, 435), (1000, 0.000275680, 664)]
)
def test_theorem_3_ii_has_no_exponential_rate_that_serves_every_k(tau, worst, step):
    """The chain: whatever tau, some k has an error of about `0.27568 / tau`."""
    iterates = iterate_both(examples.vanishing_gap(), tau, examples.vanishing_gap_start(), steps=900)
    error = iterates.exact[0, :, 0, 0] - iterates.soft[0, :, 0, 0]
    gap = 0.99 ** (iterates.steps[1:] - 1)
    assert error[1:] == pytest.approx(0.99 * gap * ops.Softmax(float(tau)).weights(np.stack([gap, 0 * gap], -1))[:, 1])
    assert np.argmax(error) == step
    assert error.max() == pytest.approx(worst, rel=2e-5)
    if tau >= 10:
        assert tau * error.max() == pytest.approx(0.99 * bounds.largest_gap(1.0, 2), rel=1e-4)  # 0.27568


def test_theorem_3_ii_for_one_k_has_the_smallest_positive_gap_as_its_rate():
    """Any fixed MDP, start and k: the logarithm of the error falls by that gap per unit of tau, in the end."""
    rng = np.random.default_rng(2)
    mdp = FiniteMDP(rng.dirichlet(np.ones(3), (3, 3)), rng.random((3, 3)), 0.9)
    start = rng.random((3, 3))
    gaps = np.abs(np.diff(np.sort(iterate_both(mdp, 1.0, start, 5).exact[0, :5], axis=-1)[..., -2:]))
    smallest = gaps.min()
    low, high = (iterate_both(mdp, tau, start, 5).error[0, 5, 1] for tau in (15 / smallest, 20 / smallest))
    assert np.log(high / low) / (5 / smallest) == pytest.approx(-smallest, rel=0.01)


def test_in_the_limit_of_k_the_rate_is_the_smallest_positive_gap_of_the_optimal_values():
    """An exact tie between different actions costs nothing: it is no gap."""
    rng = np.random.default_rng(5)
    transition, reward = rng.dirichlet(np.ones(3), (3, 3)), rng.random((3, 3))
    best = iterate_both(FiniteMDP(transition, reward, 0.7), 1.0, steps=200).exact[0, -1]
    first, second = np.argsort(-best[0])[:2]
    reward[0, second] += best[0, first] - best[0, second]
    mdp = FiniteMDP(transition, reward, 0.7)
    distance = best.max(axis=1, keepdims=True) - mdp.backup(best.max(axis=1))
    smallest = distance[distance > 1e-9].min()
    assert np.sum(distance < 1e-9) == 4
    low, high = (iterate_both(mdp, tau, steps=200).error[0, -1, 1] for tau in (12 / smallest, 15 / smallest))
    assert np.log(high / low) / (3 / smallest) == pytest.approx(-smallest, rel=0.02)


def test_theorem_3_ii_even_a_tied_start_defeats_the_bound_of_the_proof():
    """One state, rewards 1 and 0, Q0 = 0: the sum over the distances of Q0 is 0, the error after two steps is not."""
    iterates = iterate_both(examples.one_state([1.0, 0.0], gamma=0.9), tau=1.0, steps=2)
    assert theorems.THEOREM_3_RATE.margin("paper", iterates) == pytest.approx(-0.9 / (1 + np.e))


def test_the_limits_of_theorem_3_hold_where_softmax_never_settles():
    """The cycle of two stays between Q* less the sharp gap, summed, and Q*."""
    mdp = examples.period_two()
    iterates = iterate_both(mdp, 1.0, steps=400)
    best = iterates.exact[0, -1]
    band = bounds.discounted_sum(mdp.gamma) * bounds.largest_gap(1.0, 500)
    late = iterates.soft[0, -50:]
    assert np.all(late <= best + 1e-9)
    assert np.all(late >= best - band)
    assert np.abs(late[-1] - late[-2]).max() > 1.7


def test_an_audit_names_every_statement():
    lines = audit(theorems.LEMMA_2_LOWER.counterexample()).splitlines()
    assert len(lines) == 1 + len(STATEMENTS)
    assert all(line.startswith(statement.name) for line, statement in zip(lines[1:], STATEMENTS, strict=True))
    assert sum("-0." in line for line in lines) == 2


def test_a_form_that_there_is_not():
    iterates = theorems.LEMMA_2_LOWER.counterexample()
    with pytest.raises(ValueError, match="Lemma A3 has no form 'sharp'; it has paper"):
        theorems.LEMMA_A3.margin("sharp", iterates)
