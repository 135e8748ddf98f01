"""The report of a comparison: its table, sentences, files and films. The page in a browser: test_page.py."""

import csv
import html
import re
import shutil
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from softbellman import report
from softbellman.analysis.findings import Found, Row, find
from softbellman.analysis.records import Records
from softbellman.analysis.scores import summarise
from softbellman.analysis.statistics import paired_difference, simultaneous_differences
from softbellman.cli.results import print_findings
from softbellman.config import replaced
from softbellman.envs import MissingExtra
from softbellman.report import account, films
from softbellman.report.conclusions import conclude
from softbellman.report.wording import count
from softbellman.study.files import load_params, save_params
from softbellman.study.store import Study
from softbellman.study.writer import write_status

from ..studies import EPOCH, report_of, synthetic

L17 = {("softmax(5)", 2): "failed", ("softmax(5)", 3): "failed", ("softmax(5)", 4): "diverged"}


def found_of(random=None, **scores):
    """Findings in one environment from scores of runs, and no values."""
    names, arrays = list(scores), [np.array(values, float) for values in scores.values()]
    rows, several = [], len(names) > 2
    corrected = [None, *simultaneous_differences(arrays)] if several else [None] * len(names)
    for name, own, simultaneous in zip(names, arrays, corrected, strict=True):
        summary, known = summarise(own), ~np.isnan(own)
        missing = {"failed": int((~known).sum())} if not known.all() else {}
        difference = paired_difference(own, arrays[0]) if name != names[0] else None
        rows.append(
            Row("g/a", name, summary.counted, len(own), missing, *[summary] * 3, difference, None, None, simultaneous)
        )
    none = summarise(np.full(1, np.nan))
    label = "test score, mean of the last 10 of 200 test phases"
    chance = None if random is None else summarise(np.array(random, float))
    return Found("g/a", rows, np.array(arrays), label, [], [(name, none, None) for name in names], chance)


def found_in(study):
    return find(Records.read(study), "minatar/breakout")


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def changed(run, column, places, cell):
    """Writes a cell into some rows of a run."""
    rows = read(run.path / "metrics.csv")
    for place in places:
        rows[place][column] = cell
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (run.path / "metrics.csv").write_text("\n".join(lines) + "\n")


def text_of(page):
    """The words of a page."""
    body = re.sub(r"<(style|script|svg)\b.*?</\1>", " ", page.read_text(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """A study with runs that failed and diverged, and its page."""
    study = synthetic(tmp_path_factory.mktemp("report") / "study", ends=L17, frames=4)
    return study, report_of(study, films=False)


@pytest.fixture
def no_pictures(monkeypatch):
    """Saves the time of drawing where a test is about words and numbers."""
    monkeypatch.setattr(report, "_pictures", lambda *_: [])


def test_l17_the_table_counts_the_runs_that_ended(failures):
    study, page = failures
    rows = found_in(study).rows
    assert [(row.operator, row.counted, row.asked) for row in rows] == [
        ("max", 5, 5), ("softmax(5)", 2, 5), ("mellowmax(5)", 5, 5),
    ]  # fmt: skip
    assert rows[1].missing == {"failed": 2, "diverged": 1}
    assert rows[1].difference.n == 2  # on common seeds
    words = text_of(page)
    assert "2 of 5 runs of softmax(5) count: 2 failed, 1 diverged." in words
    assert "failed RuntimeError: the emulator is gone (runs/minatar-breakout/softmax-5/seed-2/error.txt)" in words
    assert "diverged the loss was not finite" in words


def test_a_study_of_several_versions_names_them_all(tmp_path, no_pictures):
    study = synthetic(tmp_path / "study")
    first, versions = study.record["provenance"], study.record["provenance"]["versions"]
    second = first | {"versions": versions | {"softbellman": "9.1", "more": "3"}, "revision": "feed", "cores": 64}
    third = second | {"revision": "beef"}
    launches = [{"groups": 1, "workers": 1, "provenance": each} for each in (first, second, second)]
    study.update(launches=launches, resumptions=[{"agent_steps": 1, "notes": [], "provenance": third}])
    version, revision = versions["softbellman"], f", revision {first['revision']}" if first["revision"] else ""
    made = f"softbellman {version}{revision}; softbellman 9.1, revision feed; softbellman 9.1, revision beef"
    assert account.made_with(study) == made
    words = text_of(report_of(study, films=False))
    assert f"This was {made}. " in words and f"softbellman {version} and 9.1, numpy {versions['numpy']}, " in words
    assert ", more 3 " in words and f", {count(first['cores'], 'core')}, " in words and ", 64 cores, " in words


def test_a_final_score_of_games_that_did_not_end_is_called_so(tmp_path, no_pictures):
    study = synthetic(tmp_path / "study", operators=["max", "mean", "softmax(5)"], seeds=[0, 1])
    for operator, seed, phase in (("max", 0, 12), ("softmax(5)", 0, 3), ("softmax(5)", 1, 10), ("softmax(5)", 0, 10)):
        (run,) = (run for run in study.runs if (run.operator, run.seed) == (operator, seed))
        changed(run, "test_unfinished", [phase - 1], "1")
    (told,) = (each for each in conclude(found_in(study)) if "unfinished" in each)
    assert told == (
        "In final scores of max (1 of 2 runs) and softmax(5) (2 of 2 runs) are test phases in which no game ended: "
        "each is the score of the unfinished one."
    )
    assert "in a test phase; where none did, that of the unfinished one." in text_of(report_of(study, films=False))


def test_a_difference_is_that_of_common_seeds(tmp_path):
    rows = found_in(synthetic(tmp_path / "study")).rows
    assert rows[0].difference is None and rows[0].improvement is None
    for row, expected in zip(rows[1:], (2, 4), strict=True):  # by what their scores grow more, at the end
        low, high = row.difference.interval
        assert row.difference.mean == pytest.approx(expected * np.mean(np.arange(10, 13) / 12), abs=0.05)
        assert low < row.difference.mean < high and high - low < 0.1  # paired: the seeds' own spread is 5 times that
        assert row.final.interval[1] - row.final.interval[0] > 1.5
    assert [row.improvement for row in rows[1:]] == pytest.approx([24 / 25, 1.0])
    low, high = rows[1].improvement_interval
    assert 0.7 < low < 24 / 25 < high == 1.0 and rows[2].improvement_interval == (1.0, 1.0)


@pytest.mark.parametrize(
    ("scores", "sentences"),
    [
        (
            {"max": [1, 2, 3, 4], "softmax(5)": [4.1, 5.0, 6.0, 6.9]},
            ["softmax(5) scored 3.00 a game more than max (95% interval 2.87 to 3.13, 4 common seeds)."],
        ),
        (
            {"max": [4.1, 5.0, 6.0, 6.9], "softmax(5)": [1, 2, 3, 4]},
            ["softmax(5) scored 3.00 a game less than max (95% interval 2.87 to 3.13, 4 common seeds)."],
        ),
        (
            {"max": [1, 2, 3, 4], "softmax(5)": [4, 3, 2, 1]},
            ["No difference in scores to max can be told from 4 seeds for softmax(5) (0.00, −4.11 to 4.11)."],
        ),
        (
            {"max": [100], "softmax(5)": [300]},
            [
                (
                    "From 1 common seed no difference can be told: one run shows no spread. "
                    "Scores a game were max 100, softmax(5) 300."
                )
            ],
        ),
        (
            {"max": [1, np.nan], "softmax(5)": [np.nan, 2]},
            [
                "1 of 2 runs of each of max and softmax(5) counts: 1 failed.",
                (
                    "From 0 common seeds no difference can be told: no seed counts both with max and with another. "
                    "Scores a game were max 1.00, softmax(5) 2.00."
                ),
            ],
        ),
        (
            {"max": [1, 1, 4]},
            [
                (
                    "max scored 2.00 a game (mean of the last 10 of 200 test phases, 95% interval −2.30 to 6.30, "
                    "3 seeds). There is no other operator to compare it with."
                )
            ],
        ),
    ],
)
def test_l12_plain_words_say_what_can_be_told_and_what_cannot(scores, sentences):
    assert conclude(found_of(**scores)) == sentences


@pytest.mark.parametrize(
    ("scores", "sentences"),
    [
        (
            {"max": [3, 3.1, 3.2], "softmax(5)": [4, 4.1, 4.2]},
            ["Both operators learned: 3.10 to 4.10 a game, where random actions score 1.00 (0.57 to 1.43 at 95%)."],
        ),
        (
            {"max": [3, 3.1, 3.2], "softmax(5)": [1, 1.1, 1.2]},
            [
                "max learned: 3.10 a game, where random actions score 1.00 (0.57 to 1.43 at 95%).",
                "softmax(5) can't be told from random actions.",
            ],
        ),
        (
            {"max": [0.1, 0.11, 0.12], "softmax(5)": [1, 1.1, 1.2]},
            [
                "max scored less than random actions, which score 1.00 (0.57 to 1.43 at 95%) a game.",
                "softmax(5) can't be told from random actions.",
            ],
        ),
        (
            {"max": [1, 1.1, 1.2]},
            ["max can't be told from random actions, which score 1.00 (0.57 to 1.43 at 95%) a game."],
        ),
        ({"max": [3], "softmax(5)": [4]}, []),  # one run shows no spread
    ],
)
def test_plain_words_tell_learning_from_chance(scores, sentences):
    random = [1 + 0.1732 * x for x in (-1, 0, 1)]
    with_chance, without = conclude(found_of(random, **scores)), conclude(found_of(**scores))
    assert with_chance == [*sentences, *without]


def test_scores_without_a_spread_are_told_as_no_certainty():
    assert conclude(found_of([20, 21, 22], max=[400, 300], mean=[500, 400])) == [
        "max and mean can't be told from random actions, which score 21 (19 to 23 at 95%) a game.",
        "mean scored 100 a game more than max with each of 2 common seeds: there is no spread to tell from.",
    ]
    same = "all runs scored the same: there is no spread to tell them from random actions by"
    mixed = conclude(found_of([20, 21, 22], max=[500, 500], mean=[9, 9], last=[400, 401]))
    assert mixed[:2] == [
        "last learned: 400 a game, where random actions score 21 (19 to 23 at 95%).",
        f"Of max (500 a game) and mean (9 a game) {same}.",
    ]
    flat = conclude(found_of([20, 21, 22], max=[500, 500], mean=[400, 400], last=[9, 9]))
    assert flat[0].endswith(f"{same}, which score 21 (19 to 23 at 95%) a game.") and len(flat) == 3
    assert flat[2] == "last scored 491 a game less than max with each of 2 seeds: there is no spread to tell from."
    (alone,) = conclude(found_of(max=[500, 500]))
    assert "a game (mean of the last 10 of 200 test phases, no spread to tell from, 2 seeds)." in alone


def test_many_comparisons_are_said_to_be_many():
    sentences = conclude(found_of(max=[1, 2, 3], b=[2, 3.1, 4], c=[0, 1.1, 2], d=[1, 2.1, 3], e=[1, 4, 1]))
    assert sentences[-1].startswith(
        "These 4 intervals hold all together at 95% (Dunnett's method, which takes the spread"
    )
    assert not any("together" in each for each in conclude(found_of(max=[1, 2, 3], b=[2, 3.1, 4])))


def test_spreads_that_differ_are_said_to():
    sentences = conclude(found_of(max=[1, 2, 3, 2], b=[2, 3, 4, 3], c=[0, 0.01, 0.02, 0.01], d=[0, 60, 0, 30]))
    assert sentences[-1] == (
        "But spreads differ: standard deviations of final scores lie between 0.0 (c) and 28.7 (d). So intervals are "
        "too narrow for d and too wide for the rest."
    )
    unsteady = conclude(found_of(max=[0, 60, 0, 30], b=[2, 3, 4, 3], c=[0, 0.01, 0.02, 0.01]))
    assert unsteady[-1].endswith("between 0.0 (c) and 28.7 (max). So intervals are too narrow for b and c.")
    alike = conclude(found_of(max=[1, 2, 3, 2], b=[2, 3, 4, 3], c=[0, 1, 2, 3]))
    assert alike[-1].startswith("These 2 intervals hold all together")


def test_where_one_comparison_is_left_it_is_the_paired_one(tmp_path, no_pictures):
    ends = {("mean", 1): "failed", ("mean", 2): "failed"}
    study = synthetic(tmp_path / "study", operators=["max", "softmax(5)", "mean"], ends=ends, seeds=[0, 1, 2])
    found = found_in(study)
    row = found.rows[1]
    assert row.simultaneous is None and row.told == row.difference and found.overestimation[1][2].n == 3
    assert any("3 common seeds" in sentence for sentence in conclude(found))
    assert not any("Dunnett" in sentence for sentence in conclude(found))


@pytest.mark.parametrize(
    ("own", "told"),
    [([200.3, 200.4, 200.45, 200.35], "0.375 a game more"), ([205, 206, 204.1, 206.3], "5.35 a game more")],
)
def test_no_interval_that_excludes_0_is_told_as_one_that_holds_it(own, told):
    sentences = conclude(found_of(max=[200, 200.01, 200, 199.99], b=own))
    (sentence,) = (each for each in sentences if told in each)
    low, high = re.search(r"interval ([\d.]+) to ([\d.]+)", sentence).groups()
    assert 0 < float(low) < float(high)


def test_spreads_of_values_are_looked_at_too():
    values = [np.array(each) for each in ([0.0, 3, 1, 2], [0.1, 0.1, 0.2, 0.1], [0.3, 0.2, 0.3, 0.3])]
    differences = [None, *simultaneous_differences(values)]
    over = [(name, summarise(own), each) for name, own, each in zip("abc", values, differences, strict=True)]
    sentences = conclude(found_of(a=[1, 2, 3], b=[2, 3.1, 4], c=[0, 1.1, 2])._replace(overestimation=over))
    assert sentences[-2] == "These 2 intervals hold all together at 95%, apart from those of scores."
    assert sentences[-1].endswith("lie between 0.05 (c) and 1.29 (a). So intervals are too narrow for b and c.")


def test_environments_are_told_each_for_itself():
    found = found_of(max=[1, 2, 3], b=[2, 3.1, 4], c=[0, 1.1, 2])
    assert "would show one here. The" in conclude(found)[-1]
    assert "would show one here, and 26% in some of 6 environments. The" in conclude(found._replace(environments=6))[-1]


def test_what_one_comparison_shows_four_together_may_not():
    """With Student's interval each of five same differences could be told from nothing; Dunnett's are wider."""
    scores = {"max": [0.0, 1, 2, 3, 4], **{name: [2.6, 3.6, 4.6, 5.6, 6.5] for name in "bcde"}}
    alone, together = conclude(found_of(max=scores["max"], b=[2.6, 3.6, 4.6, 5.6, 6.5])), conclude(found_of(**scores))
    assert alone == ["b scored 2.58 a game more than max (95% interval 2.52 to 2.64, 5 common seeds)."]
    assert together[0].startswith("No difference in scores to max can be told from 5 seeds for b (+2.58, ")


def test_a_small_p_value_is_not_told_as_0(tmp_path, no_pictures, capsys):
    study = synthetic(tmp_path / "study", operators=["max", "mean"], seeds=range(12))
    assert found_in(study).rows[1].permutation == 2 / 2**12
    print_findings([found_in(study)])
    assert re.search(r"0\.00049 *\n", capsys.readouterr().out) and " 0.00049 " in text_of(report_of(study, films=False))


def test_values_are_compared_too(failures):
    sentences = conclude(found_in(failures[0]))
    lower = r"lie 0\.{} lower than those of max, each against what its policy obtains \(95% interval 0\.\d+ to 0\.\d+, "
    lower += r"{} seeds\)\."
    patterns = (
        r"Values of max lie 1\.\d\d above what its policy goes on to obtain \(95% interval 1\.\d\d to 1\.\d\d\)\.",
        r"Values of mellowmax\(5\) " + lower.format(r"\d+", 5),
        r"Values of softmax\(5\) " + lower.format(r"1\d+", 2),
        r"These 2 intervals hold all together at 95%, apart from those of scores\.",
    )
    for sentence, pattern in zip(sentences[-4:], patterns, strict=True):
        assert re.fullmatch(pattern, sentence), sentence


def test_the_tables_hold_what_the_page_shows(failures):
    study, page = failures
    folder = page.parent / "tables"
    assert sorted(path.name for path in folder.iterdir()) == ["curves.csv", "operators.csv", "runs.csv"]
    rows, runs, curves = (read(folder / f"{name}.csv") for name in ("operators", "runs", "curves"))
    table = [{name: "" if value is None else str(value) for name, value in row.items()} for row in study.table()]
    assert table == rows
    assert rows[1]["final_iqm"] and not rows[1]["final_iqm_low"]  # of two runs there is no bootstrap interval
    for row, expected in zip(rows, found_in(study).rows, strict=True):
        assert (row["operator"], row["counted"]) == (expected.operator, str(expected.counted))
        assert float(row["final"]) == expected.final.mean
        assert [float(row["final_low"]), float(row["final_high"])] == list(expected.final.interval)
        assert float(row["final_iqm"]) == expected.final.interquartile_mean
    assert rows[0]["difference"] == "" and float(rows[1]["difference_seeds"]) == 2
    assert [run["state"] for run in runs[5:10]] == ["finished", "finished", "failed", "failed", "diverged"]
    assert runs[7]["final"] == ""
    score = [row for row in curves if (row["operator"], row["column"]) == ("softmax(5)", "test_return")]
    assert [int(row["agent_steps"]) for row in score] == [EPOCH * phase for phase in range(1, 13)]
    assert {row["n"] for row in score} == {"2"}


def test_figures_stand_alone_as_svg(failures):
    _, page = failures
    files = sorted((page.parent / "figures").iterdir())
    assert [file.name.removeprefix("minatar-breakout-").removesuffix(".svg") for file in files] == [
        "action_gap", "gradient_norm", "gradient_variance", "held_out_value_common", "operator_gap", "operator_slope",
        "overestimation", "scores", "test_return",
    ]  # fmt: skip
    for file in files:
        picture = ElementTree.parse(file)
        texts = ["".join(part.itertext()).strip() for part in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert {"max", "softmax(5)", "mellowmax(5)"} <= set(texts), "the legend, or the labels of an axis"
        ids = [part.get("id") for part in picture.iter() if part.get("id")]
        assert len(ids) == len(set(ids)) and not any(".seed" in name for name in ids)
    assert "agent steps (4 frames each)" in (page.parent / "figures" / "minatar-breakout-test_return.svg").read_text()


def test_l26_the_unit_of_steps_is_named(failures):
    assert failures[1].read_text().count("agent steps (4 frames each)") == 8
    words = text_of(failures[1])
    assert "600,000 agent steps, 2,400,000 frames, 150,000 updates" in words


def test_the_same_study_gives_the_same_files(failures):
    study, page = failures
    files = [file for file in page.parent.rglob("*") if file.is_file()]
    before = [file.read_bytes() for file in files]
    report_of(study, films=False)
    assert [file.read_bytes() for file in files] == before


def test_the_commands_of_the_page_name_the_study_as_the_first_did(tmp_path):
    study = synthetic(tmp_path / "study", seeds=[0], phases=3)
    assert account.commands(study).splitlines()[1] == f"softbellman report {study.path}"
    study.record["command"] += ["--out", "runs/mine"]
    assert account.commands(study).endswith("--out runs/mine\nsoftbellman report runs/mine")


def test_no_id_of_the_page_is_there_twice(failures):
    ids = re.findall(r'\bid="([^"]*)"', failures[1].read_text())
    assert len(ids) == len(set(ids)) > 50


def test_l43_one_seed_is_a_line_without_a_band(tmp_path):
    page = report_of(synthetic(tmp_path / "study", seeds=[0], phases=3), films=False)
    assert "frames each" not in page.read_text()
    parts = re.findall(r'\bid="minatar-breakout-[a-z_]+\.o\d\.(\w+)"', page.read_text())
    assert "mean" in parts and "band" not in parts
    words = text_of(page)
    assert "One seed (n = 1) is behind each line: there is no spread to draw a band from." in words
    assert "From 1 seed no difference can be told" in words
    assert {row["low"] for row in read(page.parent / "tables" / "curves.csv")} == {""}
    assert "nan" not in words.lower()


def test_l43_no_curve_goes_beyond_the_shortest_run_under_way(tmp_path, no_pictures):
    study = synthetic(
        tmp_path / "study",
        ["g/a"],
        ["max", "mean"],
        [0, 1],
        ends=dict.fromkeys([("max", 0), ("max", 1), ("mean", 0), ("mean", 1)], "running"),
    )
    long = study.runs[0].path / "metrics.csv"
    further = long.read_text().splitlines()[-1].replace("6,300000", "7,350000").split(",")
    for name in ("test_return", "overestimation"):
        further[long.read_text().splitlines()[0].split(",").index(name)] = "1e6"
    long.write_text(long.read_text() + ",".join(further) + "\n")
    page = report_of(study, films=False)
    steps = {int(row["agent_steps"]) for row in read(page.parent / "tables" / "curves.csv")}
    assert steps == {EPOCH * phase for phase in range(1, 7)}
    assert (
        "no run has finished yet, and what follows is of 4 of 4; scores are compared up to where all of a game's are, "
        "and the curves of each operator go on as far as its own runs."
    ) in text_of(page)
    first, runs = (read(page.parent / "tables" / f"{name}.csv")[0] for name in ("operators", "runs"))
    told = [float(each) for each in (first["final"], first["overestimation"], runs["final"], runs["best"])]
    assert max(told) < 100  # compared at the same steps


def test_l44_scores_of_games_are_averaged_only_on_a_common_scale(tmp_path, no_pictures):
    atari = report_of(synthetic(tmp_path / "atari", ["atari/breakout", "atari/seaquest"], seeds=[0, 1]), films=False)
    words = text_of(atari)
    assert "normalised, interquartile mean" in words and "Mnih et al. 2015, Extended Data Table 2" in words
    assert (atari.parent / "figures" / "games-profile.svg").exists()
    none = synthetic(tmp_path / "none", ["atari/breakout", "atari/seaquest"], ["max", "mean"], [0], phases=2)
    for run in none.runs[:1]:
        write_status(run, "diverged")
    undrawn = report_of(none, films=False)  # no profile without a score of every operator in every game
    assert not (undrawn.parent / "figures" / "games-profile.svg").exists()
    assert "0 is the random policy, 1 the human; Mnih et al. 2015, Extended Data Table 2" in text_of(undrawn)
    assert float(read(atari.parent / "tables" / "games.csv")[0]["normalised_iqm"]) > 0
    other = report_of(synthetic(tmp_path / "other", ["minatar/breakout", "minatar/asterix"], seeds=[0, 1]), films=False)
    assert "they are not averaged" in text_of(other)
    second = read(other.parent / "tables" / "games.csv")[1]
    assert [second[f"improvement{end}"] for end in ("", "_low", "_high")] == ["1.0"] * 3
    assert read(other.parent / "tables" / "games.csv")[1]["normalised_iqm"] == ""


@pytest.mark.parametrize("score", [-50.0, 0.0])
def test_a_profile_goes_up_to_where_no_run_scores_more(tmp_path, no_pictures, monkeypatch, score):
    """Also of runs that score as random actions do, 0 in these games, or less."""
    drawn = []
    monkeypatch.setattr(report.pictures, "draw_profile", lambda axis, label, *given, name: drawn.append(given))
    games, scores = ["atari/enduro", "atari/freeway"], {"test_return": score}
    report_of(synthetic(tmp_path / "study", games, ["max", "mean"], [0, 1], values=scores), films=False)
    ((thresholds, shares),) = drawn
    assert (np.diff(thresholds) > 0).all() and all(share[-1] == 0 for share in shares)
    assert thresholds[0] <= min(0, score / 29.6)


def test_a_parameter_that_was_chosen_is_reported_three_ways(tmp_path, no_pictures):
    operators = ["max", "softmax(1)", "softmax(5)", "softmax(10)"]
    page = report_of(synthetic(tmp_path / "study", operators=operators, seeds=[0, 1, 2]), films=False)
    choices = read(page.parent / "tables" / "choices.csv")
    assert [(row["way"], row["chosen"]) for row in choices] == [
        ("best on the same runs", "softmax(10)"),
        ("chosen on the other seeds", "softmax(10)"),
        ("fixed beforehand", "softmax(5)"),
    ]
    assert [float(row["difference"]) for row in choices] == pytest.approx([5.5, 5.5, 11 / 3], abs=0.05)
    assert "on the other seeds; where the one fixed beforehand was run, with that too." in text_of(page)


def test_no_parameter_is_told_of_that_was_not_run(tmp_path, no_pictures):
    page = report_of(synthetic(tmp_path / "study", operators=["max", "softmax(1)", "softmax(10)"]), films=False)
    words = text_of(page)
    assert "chosen, for each seed, on the other seeds. " in words and "beforehand" not in words


def test_what_was_never_measured_is_said_and_not_drawn(tmp_path):
    page = report_of(synthetic(tmp_path / "study", seeds=[0, 1], values={"overestimation": None}), films=False)
    assert "Overestimation Values of the states" in text_of(page)
    assert "not drawn: no run that counts has measured it" in text_of(page)
    assert not (page.parent / "figures" / "minatar-breakout-overestimation.svg").exists()


def test_a_mean_of_fewer_runs_than_count_is_called_so(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max", "mean"], seeds=[0, 1, 2])
    for run, rows in ((study.runs[0], range(12)), (study.runs[4], [3])):
        changed(run, "overestimation", rows, "")
    page = report_of(study, films=False)
    words = text_of(page)
    told = "Some points are of fewer runs, for others have no value there: down to 2 of 3 of max, 2 of 3 of mean."
    assert words.count("Some points are of fewer runs") == words.count(told) == 1


def test_an_environment_without_a_run_that_counts_is_in_the_page(tmp_path):
    study = synthetic(tmp_path / "study", ["g/a", "g/b"], ["max", "mean"], [0, 1], phases=2)
    for run in study.runs[:4]:
        write_status(run, "diverged", reason="the loss was not finite")
    words = text_of(report_of(study, films=False))
    assert "0 of 2 runs of each of max and mean count: 2 diverged." in words
    assert "From 0 common seeds no difference can be told: no seed counts both with max and with another." in words
    assert "No run counts, and there is nothing to draw." in words
    assert re.search(r"mean scored 2\.\d\d a game more than max", words)


def test_a_name_of_an_environment_is_no_part_of_a_figure(tmp_path):
    """As the page's style and script, and a figure alone, find parts: by what follows a dot."""
    page = report_of(synthetic(tmp_path / "study", ["pkg.o1.seeds:make"], ["max", "mean"], [0, 1, 2], phases=3))
    parts = set(re.findall(r'id="([^"]*[.]o[0-9]+[.][^"]*)"', page.read_text()))
    assert len(parts) > 20 and all(part.count(".") == 2 for part in parts)
    alone = (page.parent / "figures" / "pkg.o1.seeds-make-test_return.svg").read_text()
    assert ".o0.mean" in alone and ".o1.mean" in alone and ".seed" not in alone


def test_options_are_written_as_on_the_command_line(tmp_path):
    options = {"size": 5, "name": "7", "slippery": True}
    study = synthetic(tmp_path / "study", ["gym/Grid-v0"], ["max"], [0], phases=2)
    study.take_config(replaced(study.config, "env.options", options), [])
    assert dict(account.settings(study))["env.options"] == 'name="7" size=5 slippery=true'


def test_a_hostile_name_is_text(tmp_path):
    study = synthetic(tmp_path / "study", ["gym/<img src=x onerror=alert(1)>"], ["max"], [0, 1], phases=2)
    page = report_of(study, films=False).read_text()
    assert "<img src=x" not in page and "&lt;img src=x" in page


def test_nothing_to_report_is_an_error(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0], ends={("max", 0): "failed"})
    (study.runs[0].path / "metrics.csv").unlink()
    with pytest.raises(ValueError, match=r"no run of .* has finished a test phase yet: there is nothing to report"):
        report_of(study)
    assert not (study.path / "report").exists()


def test_a_study_all_of_whose_runs_failed_has_a_page_that_says_so(tmp_path):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0], ends={("max", 0): "failed"})
    words = text_of(report_of(study))
    assert "0 of 1 runs count" in words and "No run counts, and there is nothing to draw." in words


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package):
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0], phases=2)
    for module in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=package):
        report_of(study, films=False)


def test_plot_draws_means_for_each_environment(tmp_path):
    study = synthetic(tmp_path / "study", ["g/a", "g/b"], seeds=[0, 1, 2], phases=3)
    figure = study.plot()
    assert [axis.get_title() for axis in figure.axes[::3]] == ["g/a: test score", "g/b: test score"]
    mean = figure.axes[0].lines[1]
    assert mean.get_ydata()[-1] == pytest.approx(6.5, abs=0.1)  # the middle of three seeds, 6.0 and halves
    assert len(figure.axes[0].lines) == 3 and len(figure.axes[0].collections) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == study.operators


def test_l46_the_best_agent_is_filmed_once(cartpole, tmp_path, monkeypatch):
    pytest.importorskip("imageio")
    study = Study(shutil.copytree(cartpole[0].path, tmp_path / "study"))
    page = report_of(study)
    (video,) = (page.parent / "videos").rglob("*.mp4")
    assert page.read_text().count('src="data:video/mp4;base64,') == 1
    assert "double(softmax(5)) A game, score " in text_of(page)
    before = page.read_bytes()

    def refuse(*_, **__):
        raise AssertionError("filmed again")

    monkeypatch.setattr("softbellman.running.play.watch", refuse)
    report_of(study)
    assert page.read_bytes() == before
    monkeypatch.setattr("softbellman.report.page.LARGEST_FILM", 10)
    report_of(study)
    assert f'src="{video.relative_to(page.parent)}"' in page.read_text()


def test_a_film_of_another_network_is_not_taken_for_its_own(cartpole, tmp_path):
    """As a study has that was trained anew, or another one whose page goes to the same place."""
    pytest.importorskip("imageio")
    studies = [Study(shutil.copytree(cartpole[0].path, tmp_path / name)) for name in ("first", "second")]
    for run in studies[1].runs:
        params, facts = load_params(run.path / "best.safetensors")
        turned = {name: -array for name, array in params["q"].items()}  # the worst action is its best
        save_params(run.path / "best.safetensors", params | {"q": turned}, facts["agent_steps"], facts["test_return"])
    seen = []
    for study in studies:
        (film,) = films.film_best(Records.read(study), "gym/CartPole-v1", tmp_path / "videos")
        seen.append(film.path.read_bytes())
    assert seen[0] != seen[1]


def test_nothing_of_another_study_stays_beside_its_page(tmp_path):
    page, own = tmp_path / "page", ["figures/mine-scores.svg", "tables/mine.csv", "videos/mine.mp4"]
    two = synthetic(tmp_path / "two", ["g/a", "g/b"], ["max", "mean"], [0, 1], phases=2)
    one = synthetic(tmp_path / "one", ["g/c"], ["max"], [0, 1], phases=2)
    report_of(two, out=page)
    for name in (*own, "videos/g-a/max.mp4"):
        (page / name).parent.mkdir(parents=True, exist_ok=True)
        (page / name).write_text("of a user")
    with (page / "files.txt").open("a") as listing:
        listing.write("videos/g-a/max.mp4\n../two/study.json\n")
    report_of(one, out=page, films=False)
    report_of(one, films=False)

    def files(folder):
        return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}

    assert files(page) == files(one.path / "report") | set(own) and (two.path / "study.json").exists()


def test_what_cannot_be_filmed_is_said(tmp_path):
    study = synthetic(tmp_path / "study", ["gym/nobody:Knows-v0"], ["max"], [0])
    (film,) = films.film_best(Records.read(study), "gym/nobody:Knows-v0", tmp_path)
    assert (
        film.path is None
        and film.caption.startswith("Not filmed: ")
        and "best.safetensors is not there" in film.caption
    )


def test_several_differences_of_values_are_corrected_for_their_number(tmp_path):
    """As those of scores are: in studies without any difference one in three would otherwise show some."""
    study = synthetic(tmp_path / "study", operators=["max", "mean", "softmax(5)"], seeds=[0, 1, 2])
    found = found_in(study)
    scores = [Records.read(study).runs[place].column("overestimation")[-3:].mean() for place in range(9)]
    expected = simultaneous_differences(np.array(scores).reshape(3, 3))
    assert [told for _, _, told in found.overestimation] == [None, *expected]
    assert any("apart from those of scores" in sentence for sentence in conclude(found))


@pytest.mark.parametrize("ended", [[], [1, 2]])
def test_a_run_without_a_row_takes_no_report_with_it(tmp_path, ended):
    """As one whose process died before its first test phase, while others have ended or have not."""
    study = synthetic(tmp_path / "study", operators=["max"], seeds=[0, 1, 2], phases=4)
    for number, run in enumerate(study.runs):
        if number not in ended:
            write_status(run, "stopped", reason="its process died")
    (study.runs[0].path / "metrics.csv").unlink()
    words = text_of(study.report(str(tmp_path / "page")))
    assert "2 of 3 runs of max count" in words and "its process died" in words
