"""The claims are those of docs/claims.md, and each difference is what the page says it is."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

from softbellman.paper.arms import ARMS, PAPERS, WHOLE, take
from softbellman.paper.claims import CLAIMS, LEVEL
from softbellman.paper.grid import COOLED, SCALES
from softbellman.paper.views import VIEWS

from ..studies import RANDOM, paper_study, results_of

PAGE = (Path(__file__).parents[2] / "docs" / "claims.md").read_text()
LAPTOP = SCALES["laptop"]
BY_NAME = {claim.name: claim for claim in CLAIMS}

# Of each operator at the end: score, value, overestimation, gradient norm; all others have the last line's.
MEASURED = {
    "max": (6.5, 10.0, 1.0, 0.8),
    "double(max)": (8.5, 8.0, 0.5, 0.4),
    "softmax(30)": (10.5, 5.0, 0.2, 0.2),
    "double(softmax(1))": (2.5, 1.0, -3.0, 0.1),
    "double(softmax(5))": (9.5, 2.0, -1.0, 0.1),
    "double(softmax(10))": (9.0, 3.0, -1.0, 0.2),
    "double(softmax(30))": (8.0, 4.0, 0.1, 0.2),
    "double(softmax(100))": (4.5, 5.0, 0.1, 0.3),
    "double(softmax(300))": (4.5, 6.0, 0.1, 0.3),
    "mellowmax(100)": (10.0, 5.0, 0.2, 0.2),
    COOLED: (9.0, 5.0, 0.2, 0.2),
    "max, exploration=policy(softmax(30))": (6.0, 5.0, 0.2, 0.2),
    "max, exploration=policy(softmax(100))": (20.0, 5.0, 0.2, 0.2),
    "mellowmax(100), exploration=policy(mellowmax(100))": (4.0, 5.0, 0.2, 0.2),
    "": (3.5, 2.0, 0.2, 0.2),
}


def measured(game, spec, seed, done):
    score, value, over, norm = MEASURED.get(spec, MEASURED[""])
    grown = 4.0 if spec == "max" and done > 0.5 else 1.0  # DQN's gradient grows to four times what it was
    apart = (seed - 12) * (1.0 if spec == "max" else 0.5)  # how far a run's value lies from the median
    return {
        "test_return": score + 5.0 * (done == 0.5) * (spec == "softmax(30)"),
        "held_out_value": value + apart,
        "overestimation": over,
        "gradient_norm": norm * grown,
        "gradient_variance": norm**2,
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims") / "study"
    return results_of(LAPTOP, paper_study(folder, LAPTOP, measured, operators=LAPTOP.arms))


def differences(name, results, reading=WHOLE):
    pick = functools.partial(take, results, reading=reading)
    return [part.difference(results, pick, reading) for part in BY_NAME[name].parts]


def test_the_table_of_the_page_is_the_codes():
    table = PAGE.partition("## The claims")[2].partition("## Scales")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)
    assert [(claim.name, claim.says, claim.claimed) for claim in CLAIMS] == [(row[0], row[1], row[3]) for row in rows]
    assert len(rows) == 20 and LEVEL == 1 - 0.05 / 20


def test_every_claim_belongs_to_a_view(results):
    told = {verdict.name for view in VIEWS.values() if not view.measure for verdict in view.check(results)}
    assert told == set(BY_NAME)
    assert all(claim.parts for claim in CLAIMS)


def test_the_arms_of_the_page_are_the_codes():
    table = PAGE.partition("## Arms of the last three claims")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([a-z ]+) \| `(.*?)`", table, re.MULTILINE))
    assert rows == {
        "cooled softmax": ARMS["cooled softmax"],
        "exploring max": ARMS["exploring max"].replace("{:g}", "tau"),
        "exploring mellowmax": ARMS["exploring mellowmax"].replace("{0:g}", "omega"),
    }


SCALE = 10.5 - RANDOM  # of scores: the best operator's, less the random policy's
EXPECTED = {
    "maximum-dqn": [(15.5 - 6.5) / SCALE],
    "maximum-ddqn": [(9.5 - 8.5) / SCALE],
    "faster-dqn": [(10.5 + 5 / 12 - 6.5) / SCALE],
    "faster-ddqn": [(9.5 - 8.5) / SCALE],
    "above-ddqn": [(10.5 - 8.5) / SCALE],
    "most-taus": [2 / 6 - 0.5],
    "both-ends-hurt": [(9.5 - 2.5) / SCALE, (9.5 - 8.5) / SCALE],
    "softmax-above-max": [(10.5 - 6.5) / SCALE],
    "mellowmax-above-max": [(10.0 - 6.5) / SCALE],
    "not-below-mellowmax": [(10.5 - 10.0) / SCALE],
    "values-grow": [1.0],
    "small-tau-underestimates": [-3.0 / 10.0],
    "smaller-gradients": [np.log(3.2 / 0.2), np.log(0.4 / 0.1)],
    "out-of-bounds": [np.log(4.0)],
    "cooling": [(9.0 - 10.5) / SCALE],
    "not-exploration": [(10.5 - 6.0) / SCALE],
    "mellowmax-exploration": [(10.0 - 4.0) / SCALE],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_difference_is_what_the_page_says(results, name):
    found = differences(name, results)
    assert len(found) == len(EXPECTED[name])
    for difference, expected in zip(found, EXPECTED[name], strict=True):
        assert difference.shape == (3, 5)
        assert difference == pytest.approx(np.full((3, 5), expected))


def test_differences_of_values_vary_by_seed(results):
    apart = np.arange(-2.0, 3.0)
    first, second = differences("smaller-values", results)
    assert first[0] == pytest.approx((10.0 + apart - 5.0 - 0.5 * apart) / 10.0)
    assert second[0] == pytest.approx((10.0 + apart - 2.0 - 0.5 * apart) / 10.0)
    for steadier in differences("steadier-values", results):
        assert steadier[0] == pytest.approx(0.5 * np.abs(apart) / 10.0)


def test_ties_count_for_kendalls_tau_b(results):
    """Variances by tau are 1, 1, 4, 4, 9, 9, 16: of 21 pairs 18 agree and 3 are tied."""
    (found,) = differences("gradients-grow", results)
    assert found == pytest.approx(np.full((3, 5), 18 / np.sqrt(21 * 18)))


def test_the_papers_grid_has_another_share_and_another_choice(results):
    (share,) = differences("most-taus", results, PAPERS)
    assert share == pytest.approx(np.full((3, 5), 2 / 3 - 0.5))
    (score,) = differences("softmax-above-max", results, PAPERS)
    assert score == pytest.approx(np.full((3, 5), (3.5 - 6.5) / SCALE))
