"""Figures and tables: the rows they are made of, what is drawn, and that what is missing is marked."""

import csv
import math

import numpy as np
import pytest

from softbellman.paper.arms import candidates
from softbellman.paper.expected import TABLE_1, TABLE_2, TABLE_A1
from softbellman.paper.figures.view import lay_out
from softbellman.paper.grid import SCALES
from softbellman.paper.results import read
from softbellman.paper.views import VIEWS, find

from ..studies import RANDOM, paper_study, results_of

SMOKE, LAPTOP, FULL = SCALES.values()
TRAINED = [name for name, view in VIEWS.items() if not view.measure]


def measured(game, spec, seed, done):
    """Last phases score 9, 10 and 11 times the rank of the operator, a point apart by seed; the best is the last."""
    rank = 1 + LAPTOP.operators.index(spec)
    return {
        "test_return": rank * (round(done * 12) - 1) + (seed - 12.0),
        "gradient_norm": done,
        "gradient_variance": 1e-6,
    }


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return results_of(LAPTOP, paper_study(tmp_path_factory.mktemp("views") / "study", LAPTOP, measured))


@pytest.fixture(scope="module")
def part(tmp_path_factory):
    """Half of the operators, none in seaquest."""
    specs = (*candidates(LAPTOP, "S-DDQN")[:3], "max", "double(max)")
    states = {("seaquest", spec, seed): "running" for spec in specs for seed in LAPTOP.seeds}
    folder = tmp_path_factory.mktemp("part") / "study"
    return results_of(LAPTOP, paper_study(folder, LAPTOP, measured, operators=specs, states=states))


def test_the_papers_numbers_are_there_for_every_game_of_every_scale():
    for scale in SCALES.values():
        assert set(scale.games) <= set(FULL.games) == set(TABLE_1) == set(TABLE_2)
    assert TABLE_1["asterix"][5] == (10266.12, 2682.00) and TABLE_1["seaquest"][math.inf] == (5695.35, 1862.59)
    assert TABLE_2["asterix"]["DQN"] == (196.91, 135.16)
    for arm, taus in TABLE_A1.items():  # the paper's own choice is that of the highest mean
        for game, tau in taus.items():
            if arm == "S-DDQN":
                assert max((1, 5, 10), key=lambda t, game=game: TABLE_1[game][t]) == tau


def test_table_1_has_both_deviations_and_the_best_phase(results):
    rows = VIEWS["table-1"].analyse(results)
    assert [row["tau"] for row in rows[:7]] == [1, 5, 10, 30, 100, 300, math.inf]
    row = rows[1]
    rank = 1 + LAPTOP.operators.index("double(softmax(5))")
    assert (row["game"], row["runs"], row["mean"], row["best"]) == ("breakout", 5, 10.0 * rank, 11.0 * rank)
    seeds, phases = np.arange(-2.0, 3.0), rank * np.array([9.0, 10.0, 11.0])
    assert row["mean sd"] == row["best sd"] == pytest.approx(np.std(seeds, ddof=1))
    assert row["sd all"] == pytest.approx(np.std(seeds[:, None] + phases, ddof=1))
    assert (row["paper"], row["paper sd"]) == TABLE_1["breakout"][5] and math.isnan(rows[3]["paper"])


def test_a_run_that_diverged_is_told_of_and_is_within_its_rows_deviations(tmp_path):
    """Curves leave it out, tables have it at the random policy's score: in means and in both deviations."""
    states = {("breakout", "max", 11): "diverged"}
    lost = results_of(LAPTOP, paper_study(tmp_path / "study", LAPTOP, measured, operators=["max"], states=states))
    drawn, tabulated = (
        next(row for row in VIEWS[name].analyse(lost) if row["method"] == "DQN") for name in ("figure-1", "table-2")
    )
    assert (drawn["runs"], tabulated["runs"]) == (4, 5) and drawn["mean"] != tabulated["mean"]
    known = (np.array([-2.0, 0.0, 1.0, 2.0])[:, None] + [9.0, 10.0, 11.0]).ravel()
    assert drawn["sd all"] == pytest.approx(np.std(known, ddof=1))
    assert tabulated["sd all"] == pytest.approx(np.std([*known, *[RANDOM] * 3], ddof=1))
    for name in ("figure-1", "table-2"):
        view = VIEWS[name]
        assert view.heading(lost).endswith("; 1 run diverged") and view.diverged(lost).startswith("1 run diverged: ")
    assert VIEWS["figure-4"].diverged(lost) == "" and VIEWS["figure-2"].diverged(lost) == ""


def test_table_2_has_the_choice_of_the_paper_and_the_fair_one(results):
    rows = [row for row in VIEWS["table-2"].analyse(results) if row["game"] == "asterix"]
    assert [(row["method"], row["parameter"]) for row in rows[:3]] == [
        ("DQN", "-"),
        ("S-DQN", "best of the whole grid"),
        ("S-DQN", "best by other seeds of the whole grid"),
    ]
    assert rows[1]["operators"] == "softmax(300)" and rows[3]["operators"] == "softmax(10)"
    assert rows[1]["paper"] == 8868.00 and math.isnan(rows[2]["paper"])


def test_table_a1_has_the_best_tau_of_each_grid(results):
    assert VIEWS["table-a1"].analyse(results)[0] == {
        "game": "breakout",
        "method": "S-DQN",
        "best": "300",
        "best of 1, 5, 10": "10",
        "best of other seeds": "300, 300, 300, 300, 300",
        "paper": 5,
    }


def test_figures_name_both_readings_of_the_gradient(results):
    rows = VIEWS["figure-5"].analyse(results)
    assert {row["quantity"] for row in rows} == {
        "gradient norm, mean of norms",
        "gradient norm, norm of the mean",
        "gradient variance",
    }
    assert {row["mean"] for row in rows if row["quantity"].endswith("norm of the mean")} == {0.5}
    assert rows[0]["mean"] == pytest.approx(11 / 12) and rows[0]["largest"] == 1.0
    assert {row["parameter"] for row in rows} == {"-", "the whole grid", "1, 5, 10"}


def test_notes_tell_the_choices_that_a_scale_has():
    for scale, told in ((LAPTOP, "as drawn, and from what it shares with the paper's."), (FULL, "of its Table A1.")):
        assert all(told in VIEWS[name].meaning(scale) for name in ("figure-1", "figure-3", "figure-5"))
        assert all("hosen for each game" not in VIEWS[name].meaning(scale) for name in ("figure-4", "figure-a3"))
    assert "shares" not in VIEWS["figure-1"].meaning(FULL) and "A1" not in VIEWS["figure-1"].meaning(LAPTOP)
    assert all(view.meaning(LAPTOP) == view.notes for view in VIEWS.values() if "{" not in view.notes)


def test_a_curve_is_the_mean_over_seeds(results):
    figure = VIEWS["figure-1"].plot(results, results)
    assert len(figure.axes) == 9
    axis = figure.axes[0]
    assert axis.get_title() == "breakout: S-DQN and DQN" and axis.get_xlabel() == "agent steps"
    lines = {line.get_label(): line for line in axis.lines}
    assert lines["DQN"].get_xdata().tolist() == results.agent_steps.tolist()
    assert lines["DQN"].get_ydata() == pytest.approx(np.arange(12.0))
    assert lines["S-DQN"].get_ydata() == pytest.approx(np.arange(12.0) * (1 + LAPTOP.operators.index("softmax(300)")))
    ends = axis.collections[0].get_paths()[0].vertices  # of S-DQN's band
    spread = np.std(np.arange(5.0), ddof=1)
    last = ends[ends[:, 0] == 600_000][:, 1] - lines["S-DQN"].get_ydata()[-1]
    assert (last.min(), last.max()) == pytest.approx((-spread, spread))


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_missing_is_marked_and_the_rest_is_drawn(part, name):
    view = VIEWS[name]
    missing = view.missing(part)
    assert 0 < missing.runs < missing.asked
    assert f"scale laptop; so far: {missing.asked - missing.runs} of {missing.asked} runs" in view.heading(part)
    figure = view.plot(part, part)
    texts = [text.get_text() for axis in figure.axes if "seaquest" in axis.get_title() for text in axis.texts]
    assert texts and set(texts) == {"no run counts yet"}
    assert any(axis.has_data() for axis in figure.axes)
    assert view.analyse(part)


@pytest.mark.parametrize("name", TRAINED)
def test_a_view_of_nothing_says_so(name):
    nothing = read(FULL, None)
    assert VIEWS[name].plot(nothing, nothing).axes
    assert {verdict.state for verdict in VIEWS[name].check(nothing)} <= {"undecided"}


def test_what_is_written_is_what_was_found(results, tmp_path):
    view = VIEWS["table-1"]
    rows = view.analyse(results)
    table, picture = view.write(results, results, rows, tmp_path / "paper")
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == 21 and float(written[1]["mean"]) == rows[1]["mean"] and written[3]["paper"] == ""
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_rows_are_laid_out_with_their_deviations():
    rows = [
        {"tau": 5, "mean": -1234.5, "mean sd": 0.25, "v": 1e-7},
        {"tau": math.inf, "mean": 1.0, "mean sd": math.nan, "v": 0.0},
    ]
    assert lay_out(rows, left_out=["v"]).cells == [["5", "−1,234 (0.250)"], ["∞", "1.00"]]
    assert lay_out(rows).headings == ["tau", "mean (sd)", "v"] and lay_out(rows).cells[0][2] == "1e−07"


def test_simulated_views_are_checked_statement_by_statement():
    states = {}
    for name in ("figure-2", "figure-7", "table-3"):
        view = VIEWS[name]
        data = view.data(None)
        assert view.analyse(data) and view.missing(read(SMOKE, None)).runs == 0
        states |= {verdict.name: verdict.state for verdict in view.check(data)}
    contrary = {"double-below-double-max", "answers-mellowmax"}
    assert {name for name, state in states.items() if state == "not supported"} == contrary
    assert {state for name, state in states.items() if name not in contrary} == {"supported"}


def test_a_statement_about_a_simulation_can_fail():
    view = VIEWS["figure-2"]
    cells = view.data(None)
    worse = [
        cell
        if str(cell.operator) != "softmax(5)"
        else type(cell)(
            cell.operator, cell.actions, cell.trials, cell.overestimation._replace(mean=9.0), cell.approximation_error
        )
        for cell in cells
    ]
    states = {verdict.name: verdict.state for verdict in view.check(worse)}
    assert states["softmax-below-max"] == states["gap-shrinks"] == "not supported"


def test_a_figure_of_the_supplement_is_found_under_the_one_that_it_is_a_full_version_of():
    for number in range(1, 6):
        (view,) = find(f"figure-a{number}")
        assert f"A{number}" in view.title


def test_unknown_names_list_the_nearest():
    assert [view.name for view in find("all")] == list(VIEWS) and find("table-a1") == [VIEWS["table-a1"]]
    for name, hint in (("figure3", "figure-3, "), ("Table A1", "table-a1, "), ("al", r"all\? \(there are figure-1, ")):
        with pytest.raises(ValueError, match=f"unknown figure or table '{name}'; did you mean {hint}"):
            find(name)
