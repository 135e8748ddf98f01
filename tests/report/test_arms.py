"""Arms in a report: names with commas, long names, what differs between them, values that can't be compared."""

import itertools
import re
from xml.etree import ElementTree

import pytest

from softbellman.analysis.findings import find
from softbellman.analysis.records import Records
from softbellman.report import account, pictures
from softbellman.report.conclusions import conclude
from softbellman.report.wording import listed
from softbellman.study.store import Study

from ..studies import report_of, synthetic

LONG = "double(softmax(5)), gap=gap(0.9), estimate=categorical(51, -10, 10), noise=noisy(0.5)"
ARMS = (
    *("max", "softmax(5)", "munchausen=logsumexp(30), gap=gap(0.9, 1)", "softmax(1), gap=gap(0.9)"),
    *(
        "softmax(30), gap=gap(0.9)",
        "fast=max, returns=3, learner.learning_rate=0.001",
        LONG,
        "short=max, learner.gamma=0.9",
    ),
    *("max, network.hidden=64 32", "loud=max, learner.reward_clip=none"),
)
NAMES = [text.partition("=")[0] if re.match(r"\w+=", text) else text for text in ARMS]


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Ten arms of five seeds that nobody trained."""
    return synthetic(tmp_path_factory.mktemp("ten") / "study", operators=ARMS, random=1.0)


@pytest.fixture(scope="module")
def page(ten, tmp_path_factory):
    return report_of(ten, out=tmp_path_factory.mktemp("page"), films=False)


def test_sentences_part_names_that_have_commas_by_semicolons(ten):
    found = find(Records.read(ten), "minatar/breakout")
    sentences = conclude(found)
    assert "All 10 arms learned: " in sentences[0]
    (more,) = (each for each in sentences if each.startswith("Scored a game more than max: "))
    assert re.findall(r"(?:: |; )(.*?) by [\d.]+ \(", more) == NAMES[:0:-1]
    assert listed(["max", "a"]) == "max and a" and listed(["max, returns=3", "a"], "or") == "max, returns=3 or a"


def test_values_of_another_discount_clipping_or_gap_are_not_compared(ten):
    found = find(Records.read(ten), "minatar/breakout")
    compared = {name: difference is not None for name, _, difference in found.overestimation}
    gapped = [name for name, text in zip(NAMES, ARMS, strict=True) if "gap=" in text]
    assert {name for name, alike in compared.items() if not alike} == {"max", "short", "loud", *gapped}
    (told,) = (each for each in conclude(found) if "another discount factor" in each)
    assert told.startswith("Values of munchausen; softmax(1), gap=gap(0.9); ")
    assert told.endswith(
        " have another discount factor, scale or clipping of rewards, or gap, and are not compared with those of max."
    )


def test_an_operators_parameter_is_chosen_among_arms_with_the_same_settings(ten):
    found = find(Records.read(ten), "minatar/breakout")
    assert {choice.family for choice in found.choices} == {"softmax, gap=gap(0.9)"}
    assert found.choices[0].chosen == "softmax(30), gap=gap(0.9)"
    assert {choice.way for choice in found.choices} == {"best on the same runs", "chosen on the other seeds"}


def test_the_settings_say_what_differs_between_arms(ten):
    listing = dict(account.settings(ten))
    assert listing["recipe.gap"] == "none" and listing["recipe.gap of munchausen"] == "gap(0.9, 1)"
    assert listing["learner.learning_rate"] == "0.00025" and listing["learner.learning_rate of fast"] == "0.001"
    assert listing["learner.reward_clip of loud"] == "none" and listing["recipe.returns of fast"] == "3"
    assert listing[f"recipe.noise of {LONG}"] == "noisy(0.5)"
    assert sum(" of " in name for name in listing) == sum(len(arm.changes) for arm in ten.arms.values()) == 11
    assert dict(account.facts(Records.read(ten)))["arms"] == "; ".join(ARMS)


def test_the_page_and_its_files_show_names(page, ten):
    text = page.read_text()
    assert (
        "Comparison of arms" in text and "<h3>Arms compared</h3>" in text and "<h1>10 arms on minatar/breakout" in text
    )
    assert re.findall(r'data-operator="\d+" aria-pressed="true" disabled><svg.*?</svg>([^<]+)<', text) == NAMES
    assert len(re.findall(r'<th scope="row" class="long">', text)) >= 1
    for name in ("minatar-breakout-scores", "minatar-breakout-test_return"):
        ElementTree.fromstring((page.parent / "figures" / f"{name}.svg").read_text())


def test_a_legend_of_long_names_stays_within_its_picture(page):
    svg = ElementTree.fromstring((page.parent / "figures" / "minatar-breakout-test_return.svg").read_text())
    entries = [each for each in svg if each.tag.endswith("text") and each.get("font-size") == "11"]
    assert " ".join(each.text for each in entries) == " ".join(NAMES)
    assert all(float(each.get("x")) + 7 * len(each.text) < float(svg.get("width")) + 40 for each in entries)
    heights = [float(each.get("y")) for each in entries]
    assert heights == sorted(set(heights)) and heights[-1] < float(svg.get("height"))


def labels_of_intervals(study, names):
    """The labels of a picture of intervals, from top to bottom, with the room that each takes."""
    found = find(Records.read(study), "minatar/breakout")
    rows = [(number, row.operator, row.final, found.scores[number]) for number, row in enumerate(found.rows)]
    figure = pictures.new_figure(5.2, 3.7 + pictures.height_added(names))
    axis = figure.subplots()
    pictures.draw_intervals(axis, "score", rows)
    figure.canvas.draw()
    return [(label.get_text().replace("\n", " "), label.get_window_extent()) for label in axis.get_yticklabels()]


def test_rows_of_long_names_or_of_many_do_not_lie_on_each_other(ten, tmp_path):
    many = [f"softmax({tau})" for tau in range(1, 41)]
    study = synthetic(tmp_path / "study", operators=many, seeds=[0, 1], phases=2)
    for each, names in ((ten, NAMES), (study, many)):
        labels = labels_of_intervals(each, names)
        assert [text for text, _ in labels] == names
        assert all(upper.y0 >= lower.y1 for (_, upper), (_, lower) in itertools.pairwise(labels))


def test_the_facts_say_that_arms_have_settings_of_their_own(ten, tmp_path):
    label = "settings of arms"
    assert "Every setting" in dict(account.facts(Records.read(ten)))[label]
    plain = synthetic(tmp_path / "study", operators=["max"], seeds=[0])
    assert label not in dict(account.facts(Records.read(plain)))


def test_operators_alone_are_shown_as_before(tmp_path):
    study = synthetic(tmp_path / "study")
    assert find(Records.read(study), "minatar/breakout").noun == "operator"
    assert pictures.height_added(study.operators) == 0.0
    assert dict(account.facts(Records.read(study)))["operators"] == "max, softmax(5), mellowmax(5)"
    text = report_of(study, films=False).read_text()
    assert (
        "Comparison of Bellman operators" in text
        and "<h3>Operators compared</h3>" in text
        and 'class="long"' not in text
    )
    assert Study(study.path).record["operators"] == study.operators
