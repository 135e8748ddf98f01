"""List of the paper's figures and tables, and the claims that each bears on."""

from collections.abc import Sequence
from functools import partial

from softbellman.arguments import nearest
from softbellman.paper.claims import CLAIMS
from softbellman.paper.figures import curves, simulated, simulations, tables
from softbellman.paper.figures.curves import BY_TAU, NORM, NORM_OF_MEAN, SCORE, VALUE, VARIANCE, Row
from softbellman.paper.figures.view import View
from softbellman.paper.results import Results
from softbellman.paper.verdicts import Verdict, judge

METHODS = ("DQN", "DDQN", "S-DQN", "S-DDQN")
_DEVIATIONS = "sd is over seeds, sd all over the last phases of all seeds"
_ENDS = f"mean is of the last phases; {_DEVIATIONS}; largest is the mean of each run's highest phase"
_SCORES = f"Mean is of the last phases, best of each run's best phase; {_DEVIATIONS}"
_THEIRS = "The paper's columns are of Atari's game of the same name."
ALL = "all"
# The supplement draws some figures again, for all games; ours have them from the start.
_FULL_VERSIONS = {"figure-a1": "figure-3", "figure-a2": "figure-5", "figure-a4": "figure-4", "figure-a5": "figure-6"}


def find(name: str) -> list[View]:
    """Return a view by name, as a list, or all of them for `all`.

    >>> [view.name for view in find("figure-a1")]
    ['figure-3']

    Raises:
        ValueError: for an unknown name; the nearest and all others are listed.
    """
    name = _FULL_VERSIONS.get(name, name)
    if name == ALL:
        return list(VIEWS.values())
    if name not in VIEWS:
        raise ValueError(
            f"unknown figure or table {name!r}{nearest(name, [*VIEWS, ALL])} (there are {', '.join(VIEWS)} and {ALL})"
        )
    return [VIEWS[name]]


def judge_all(names: Sequence[str], results: Results) -> list[Verdict]:
    """Give the verdicts on claims by name."""
    return [judge(claim, results) for claim in CLAIMS if claim.name in names]


def _over_training(
    name: str, title: str, expected: str, drawn: Sequence[Row], claims: Sequence[str], tabulated: Sequence[Row] = ()
) -> View:
    chosen = "" if all(row.arms == BY_TAU for row in drawn) else " {chosen}."
    return View(
        name,
        title,
        expected,
        f"Means over seeds and one standard deviation to either side, over agent steps.{chosen} In the table {_ENDS}.",
        partial(curves.analyse, [*drawn, *tabulated]),
        partial(curves.panels, drawn),
        partial(judge_all, claims),
        curves.arms(drawn),
    )


VIEWS = {
    view.name: view
    for view in (
        _over_training(
            "figure-1",
            "Figure 1: test scores of S-DQN and DQN, S-DDQN and DDQN, S-DQN and DDQN",
            "S-DQN and S-DDQN generally reach higher maximum scores, and faster, than their max counterparts, by far "
            "in Asterix; S-DQN generally outperforms DDQN.",
            [Row(SCORE, ("S-DQN", "DQN")), Row(SCORE, ("S-DDQN", "DDQN")), Row(SCORE, ("S-DQN", "DDQN"))],
            ("maximum-dqn", "maximum-ddqn", "faster-dqn", "faster-ddqn", "above-ddqn"),
        ),
        View(
            "figure-2",
            "Figure 2: overestimation error of max and softmax, simulated",
            "Softmax overestimates less than max, single and double; the gap becomes smaller when tau increases.",
            "100 trials, standard normal noise, equal true values. The paper does not say which tau its panels have: "
            "1, 5 and 10 here. See docs/simulations.md.",
            simulated.bias_rows,
            lambda found: [simulations.bias_panels(found)],
            simulated.check_bias,
            measure=simulated.measure_bias,
        ),
        _over_training(
            "figure-3",
            "Figure 3 and its full version A1: estimated Q-values by method",
            "S-DQN and S-DDQN have smaller values than DQN, whose values vary more.",
            [Row(VALUE, METHODS)],
            ("smaller-values", "steadier-values"),
        ),
        _over_training(
            "figure-4",
            "Figure 4 and its full version A4: estimated Q-values of S-DDQN by tau",
            "Values grow with tau; tau 1 underestimates in Asterix.",
            [Row(VALUE, BY_TAU)],
            ("values-grow", "small-tau-underestimates"),
        ),
        _over_training(
            "figure-5",
            "Figure 5 and its full version A2: gradient norm and variance by method",
            "S-DQN and S-DDQN have smaller gradient norm and variance; DQN's gradient explodes in Asterix.",
            [Row(NORM, METHODS), Row(VARIANCE, METHODS)],
            ("smaller-gradients", "out-of-bounds"),
            [Row(NORM_OF_MEAN, METHODS)],
        ),
        _over_training(
            "figure-6",
            "Figure 6 and its full version A5: gradient norm and variance of S-DDQN by tau",
            "Gradients generally grow with tau.",
            [Row(NORM, BY_TAU), Row(VARIANCE, BY_TAU)],
            ("gradients-grow",),
            [Row(NORM_OF_MEAN, BY_TAU)],
        ),
        View(
            "figure-7",
            "Figure 7: softmax and mellowmax over their parameter, simulated",
            "Softmax approaches max faster; mellowmax overestimates less.",
            "100 trials, standard normal noise. The paper does not say which numbers of actions: 2, 10 and 100 here.",
            simulated.comparison_rows,
            lambda found: [simulations.comparison_panels(found)],
            simulated.check_comparison,
            measure=simulated.measure_comparison,
        ),
        _over_training(
            "figure-a3",
            "Figure A3: test scores of S-DDQN by tau",
            "The full curves behind Table 1: most tau are above DDQN, the infinite tau.",
            [Row(SCORE, BY_TAU)],
            ("most-taus", "both-ends-hurt"),
        ),
        View(
            "table-1",
            "Table 1: test scores of S-DDQN by tau",
            "S-DDQN scores more than DDQN, the infinite tau, for most tau; too small and too large a tau both hurt.",
            f"{_SCORES}. {_THEIRS}",
            tables.table_1,
            partial(tables.panels, tables.draw_by_tau),
            partial(judge_all, ("most-taus", "both-ends-hurt")),
            ("S-DDQN", "DDQN"),
        ),
        View(
            "table-2",
            "Table 2: test scores of max, softmax and mellowmax",
            "Softmax and mellowmax score more than max, softmax about as much as mellowmax or more except in Asterix.",
            f"{_SCORES}. The best parameters are chosen by these very scores, as in the paper, which flatters; those "
            f"by other seeds took no part in their choice. {_THEIRS}",
            tables.table_2,
            partial(tables.panels, tables.draw_by_operator),
            partial(
                judge_all,
                ("softmax-above-max", "mellowmax-above-max", "not-below-mellowmax"),
            ),
            ("DQN", "S-DQN", "mellowmax"),
        ),
        View(
            "table-3",
            "Table 3: a comparison of operators, derived",
            "Five answers for each of max, mellowmax and softmax.",
            "Each answer follows from laws that the operator claims, and that a search for violations tests. Mellowmax "
            "does represent a policy, and with it can be used in double Q-learning.",
            simulated.answer_rows,
            None,
            simulated.check_answers,
            measure=simulated.answers,
        ),
        View(
            "table-a1",
            "Table A1: tau of S-DQN and S-DDQN",
            "The tau of each game in the paper's figures, 1, 5 or 10.",
            "Best is the tau with the highest mean final score over all seeds, as the paper chose; beside it the "
            "choice for each seed by the other seeds.",
            tables.table_a1,
            partial(tables.panels, tables.draw_both_by_tau),
            lambda _: [],
            ("S-DQN", "S-DDQN"),
        ),
        View(
            "exploration",
            "Sections 4 and 5: softmax in the target, in exploration, and cooled",
            "The gain comes from the target and not from exploration; exploring by mellowmax's policy did much worse; "
            "cooling found no better policy.",
            "The paper gives no numbers. An exploring arm draws its actions from the policy of the parameter that was "
            "chosen for softmax, or mellowmax, in the target; epsilon is as for all. Softmax is cooled by the "
            f"authors' formula, in every update (Deviation D29). Mean is of the last phases; {_DEVIATIONS}.",
            tables.exploration,
            partial(tables.panels, tables.draw_exploration),
            partial(judge_all, ("cooling", "not-exploration", "mellowmax-exploration")),
            tables.EXPLORATION,
        ),
    )
}
