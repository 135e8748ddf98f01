"""Operators that stand for an arm: its parameter is chosen for each seed by the others, from one grid or another."""

import numpy as np
import pytest

from softbellman.paper.arms import ARMS, FIXED, PAPERS, WHOLE, candidates, needed, readings, take, waiting
from softbellman.paper.expected import TABLE_A1
from softbellman.paper.grid import SCALES
from softbellman.paper.results import read

from ..studies import paper_study, results_of

SMOKE, LAPTOP, FULL = SCALES.values()
# Final scores of softmax by seed: each seed's own favourite is another than that of the four others.
FINAL = {
    "softmax(5)": [10, 0, 6, 6, 6],
    "softmax(30)": [0, 20, 5, 5, 5],
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    def measured(game, spec, seed, done):
        score = FINAL.get(spec, [1] * 5)[seed - 10]
        return {"test_return": float(score), "held_out_value": 100.0 * score}

    folder = tmp_path_factory.mktemp("arms") / "study"
    return results_of(
        LAPTOP, paper_study(folder, LAPTOP, measured, operators=[*candidates(LAPTOP, "S-DQN"), "double(max)"])
    )


def test_a_parameter_is_chosen_by_the_other_seeds(results):
    arm = take(results, "S-DQN")
    # Without seed 10, softmax(30) has 35 and softmax(5) 18; without seed 11, 15 and 28; else 30 and 22.
    assert arm.operators[0].tolist() == ["softmax(30)", "softmax(5)", "softmax(30)", "softmax(30)", "softmax(30)"]
    assert arm.of(results.final)[0].tolist() == [0, 0, 5, 5, 5]
    assert arm.of(results.columns["held_out_value"])[0, 2].tolist() == [500.0] * 12
    assert arm.described(0) == "softmax(30) x4, softmax(5) x1"


def test_an_arm_that_explores_has_the_parameters_of_its_partner(results):
    arm, other = (take(results, name) for name in ("S-DQN", "exploring max"))
    assert other.operators.tolist() == [
        [f"max, exploration=policy({spec})" for spec in row] for row in arm.operators.tolist()
    ]
    assert np.isnan(other.of(results.final)).all()  # none of them has run
    assert set(take(results, "exploring max", PAPERS).operators.flat) == {None}


def test_an_arm_that_explores_needs_one_run_for_each_game_and_seed(results):
    """A family is needed as a whole, since a parameter is chosen from it."""
    family, exploring = (needed(results, [name]) for name in ("S-DQN", "exploring max"))
    assert family.sum() == 6 * 15 and exploring.sum(axis=1).tolist() == [[1] * 5] * 3
    assert [LAPTOP.arms[place] for _, place, _ in np.argwhere(exploring)[:2]] == [
        "max, exploration=policy(softmax(5))",
        "max, exploration=policy(softmax(30))",
    ]
    assert (needed(results, ["S-DQN", "exploring max"]) == family | exploring).all()
    for scale, runs in ((SMOKE, 22), (LAPTOP, 345), (FULL, 420)):
        assert needed(read(scale, None), ARMS).sum() == runs


def test_runs_that_explore_wait_in_each_game_for_those_by_which_their_parameter_is_chosen(tmp_path, results):
    arms = ("S-DQN", "exploring max", "mellowmax", "exploring mellowmax")
    whole = waiting(results, arms)
    assert (whole == needed(results, ["exploring mellowmax"])).all()  # none of mellowmax has run
    assert not waiting(results, ["S-DQN", "mellowmax"]).any()
    states = {("asterix", "softmax(1)", 14): "failed", ("seaquest", "softmax(1)", 14): "diverged"}
    study = paper_study(tmp_path / "study", LAPTOP, operators=candidates(LAPTOP, "S-DQN"), states=states)
    found = waiting(results_of(LAPTOP, study), ["exploring max"])
    assert found.sum(axis=(1, 2)).tolist() == [0, 5, 0]
    both = [spec for name in ("S-DQN", "exploring max") for spec in candidates(LAPTOP, name)]
    study = paper_study(tmp_path / "older", LAPTOP, operators=both, states=states)
    assert not waiting(results_of(LAPTOP, study), ["exploring max"]).any()  # what has run waits for nothing


def test_the_papers_grid_is_a_part_of_the_scales(results):
    assert readings(LAPTOP) == (WHOLE, PAPERS)
    assert set(take(results, "S-DQN", PAPERS).operators.flat) == {"softmax(5)"}
    assert candidates(LAPTOP, "mellowmax", PAPERS) == ("mellowmax(1)", "mellowmax(5)", "mellowmax(10)")
    assert candidates(SMOKE, "S-DDQN", PAPERS) == ("double(softmax(1))",)
    assert readings(FULL) == (WHOLE, FIXED) and candidates(FULL, "DDQN") == ("double(max)",)


def test_an_operator_alone_is_taken_for_every_seed(results):
    arm = take(results, "DDQN", PAPERS)
    assert set(arm.operators.flat) == {"double(max)"} and arm.described(2) == "double(max)"


def test_with_one_seed_nothing_is_chosen(tmp_path):
    specs = candidates(LAPTOP, "S-DQN")
    states = {(game, spec, seed): "running" for game in LAPTOP.games for spec in specs for seed in range(11, 15)}
    arm = take(results_of(LAPTOP, paper_study(tmp_path / "study", LAPTOP, operators=specs, states=states)), "S-DQN")
    assert arm.operators[0, 0] is None and np.isnan(arm.of(arm.results.final)[0, 0])


def test_the_paper_has_a_tau_for_each_game():
    arm = take(read(FULL, None), "S-DDQN", FIXED)
    assert [row[0] for row in arm.operators] == [f"double(softmax({TABLE_A1['S-DDQN'][game]}))" for game in FULL.games]
    assert arm.operators[:, 0].tolist()[-1] == "double(softmax(10))"
