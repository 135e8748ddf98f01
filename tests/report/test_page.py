"""The page of a comparison in a real browser, from its file: on a phone and on a desk, with its script and without."""

import shutil
import time
from contextlib import suppress

import pytest

from softbellman import report
from softbellman.analysis.findings import find_all
from softbellman.analysis.records import Records
from softbellman.report.page import Live
from softbellman.study.store import Study

from ..studies import report_of, synthetic

ELEVEN = (
    "max", "softmax(1)", "softmax(5)", "softmax(10)", "mellowmax(1)", "mellowmax(5)", "mellowmax(10)", "double(max)",
    "double(softmax(1))", "double(softmax(5))", "double(softmax(10))",
)  # fmt: skip
STUDIES = {
    "three operators": {},
    "eleven operators, runs that did not end": {
        "operators": ELEVEN,
        "phases": 20,
        "ends": {("softmax(5)", 2): "failed", ("softmax(5)", 3): "failed", ("softmax(5)", 4): "diverged"},
    },
    "one seed": {"environments": ["atari/breakout"], "operators": ELEVEN[:2], "seeds": [0], "frames": 4, "phases": 3},
    "two games": {"environments": ["atari/breakout", "atari/seaquest"], "operators": ELEVEN[:3], "seeds": [0, 1]},
}
WIDTHS = (390, 1280)

# How many operators can be seen in each picture.
DRAWN = """[...document.querySelectorAll("figure.picture")].map((figure) => {
    const seen = [...figure.querySelectorAll("svg [id*='.o']")].filter((part) => {
        const box = part.getBoundingClientRect();
        return getComputedStyle(part).display !== "none" && box.width + box.height > 4;
    });
    return new Set(seen.map((part) => part.id.match(/[.]o([0-9]+)[.]/)[1])).size;
})"""
# Labels of pictures that overlap, or that the picture's frame cuts off.
BAD_LABELS = """[...document.querySelectorAll("figure.picture svg")].flatMap((svg) => {
    const frame = svg.getBoundingClientRect();
    const across = (box) => box.left > frame.left - 1 && box.right < frame.right + 1;
    const within = (box) => across(box) && box.top > frame.top - 1 && box.bottom < frame.bottom + 1;
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
    const labels = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    const pairs = labels.flatMap((one, place) => labels.slice(place + 1).map((other) => [one, other]));
    const cut = labels.filter(([, box]) => !within(box));
    return [...cut, ...pairs.filter(([[, a], [, b]]) => meet(a, b)).map(([[one], [other]]) => [one, other])];
})"""
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll("figure.picture svg text")].map((text) => {
    const { b, d } = text.getScreenCTM();
    return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(b, d);
}))"""
HIDDEN = (
    """[...document.querySelectorAll(`svg [id*="${part}"]`)].map((each) => getComputedStyle(each).display === "none")"""
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages by name of the study, written when first asked for, with the processor time that it took."""
    written = {}

    def page(name):
        if name not in written:
            study = synthetic(tmp_path_factory.mktemp("page") / "study", **STUDIES[name])
            start = time.process_time()
            written[name] = report_of(study, films=False), time.process_time() - start
        return written[name]

    return page


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", STUDIES)
def test_the_page_is_whole(browser, pages, name, width):
    page, seconds = pages(name)
    browser.open(page, width)
    assert browser.problems == []
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.value("document.documentElement.scrollWidth") <= width
    drawn = browser.value(DRAWN)
    operators = STUDIES[name].get("operators", ELEVEN[:3])
    by_parameter = 4 if operators == ELEVEN else 0  # whose lines are families
    assert drawn == [len(operators)] * (19 if name == "two games" else 9) + [0] * by_parameter
    assert browser.value(BAD_LABELS) == []
    assert browser.value(SMALLEST_TEXT) > 9.5  # CSS pixels
    assert seconds < 15


@pytest.mark.parametrize("width", WIDTHS)
def test_operators_can_be_hidden_in_every_figure(browser, pages, width):
    browser.open(pages("eleven operators, runs that did not end")[0], width)
    browser.click('button[data-operator="1"]')
    assert set(browser.value(HIDDEN.replace("${part}", ".o1."))) == {True}
    assert False in browser.value(HIDDEN.replace("${part}", ".o10."))  # whose number begins alike
    assert (
        browser.value("""document.querySelector('button[data-operator="1"]').getAttribute("aria-pressed")""") == "false"
    )
    browser.click('button[data-operator="1"]')
    assert False in browser.value(HIDDEN.replace("${part}", ".o1."))
    browser.click('button[data-all="false"]')
    assert set(browser.value(HIDDEN.replace("${part}", ".o"))) == {True}
    browser.click('button[data-all="true"]')
    assert set(browser.value(HIDDEN.replace("${part}", ".mean"))) == {False}
    assert browser.problems == []


@pytest.mark.parametrize("width", WIDTHS)
def test_bands_and_single_seeds_are_shown_on_demand(browser, pages, width):
    browser.open(pages("three operators")[0], width)
    bands, seeds = HIDDEN.replace("${part}", ".band"), HIDDEN.replace("${part}", ".seed")
    assert (set(browser.value(bands)), set(browser.value(seeds))) == ({False}, {True})
    assert len(browser.value(seeds)) == 8 * 3 * 5
    size = browser.value("document.body.scrollHeight")
    browser.click('button[data-view="seeds"]')
    browser.click('button[data-view="bands"]')
    assert (set(browser.value(bands)), set(browser.value(seeds))) == ({True}, {False})
    assert browser.value("document.body.scrollHeight") == size  # nothing but the figures has changed
    assert browser.problems == []


def test_bands_of_many_operators_are_hidden_at_first(browser, pages):
    path, _ = pages("eleven operators, runs that did not end")
    browser.open(path, 1280)
    bands = HIDDEN.replace("${part}", ".band")
    assert set(browser.value(bands)) == {True} and "Bands are hidden at first" in path.read_text()
    browser.click('button[data-view="bands"]')
    assert False in browser.value(bands)


def test_an_operator_under_the_mouse_stands_out(browser, pages):
    browser.open(pages("three operators")[0], 1280)
    browser.point('button[data-operator="1"]')
    dim = """[0, 1].map((number) => document.querySelector(`svg [id*=".o${number}.mean"]`).classList.contains("dim"))"""
    assert browser.value(dim) == [True, False]


@pytest.mark.parametrize("width", WIDTHS)
def test_without_its_script_the_page_shows_all(browser, pages, width):
    browser.open(pages("three operators")[0], width, script=False)
    assert browser.value("document.body.className") == "show-bands"
    assert min(browser.value(DRAWN)) >= 3
    assert browser.value("document.querySelector('.views').hidden")
    assert browser.value("document.querySelector('button[data-operator]').disabled")


LIVE = "document.querySelector('.live')?.textContent"


def live_page(folder, study, seconds=1):
    records = Records.read(study)
    live = Live("2 of 15 runs have ended", "2026-01-02 03:04:05 UTC", seconds)
    return report.write(records, find_all(records), folder, films=False, live=live)


def until(browser, expression, value):
    """Waits until an expression has a value, over reloads, in the middle of which a page answers nothing."""
    end = time.monotonic() + 60
    while True:
        with suppress(AssertionError):
            if browser.value(expression) == value:
                return
        assert time.monotonic() < end
        time.sleep(0.1)


def reload(browser):
    """Has the page reload itself, as it does when its time has come, and waits until it is there."""
    browser.value("window.mark = 1; reload()")
    until(browser, "window.mark === undefined && document.readyState", "complete")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_of_a_study_under_way_stays_as_its_reader_left_it(browser, tmp_path, width):
    study = synthetic(tmp_path / "study", operators=ELEVEN[:3], phases=4)
    browser.open(live_page(tmp_path / "page", study, 3600), width)
    assert browser.value(LIVE) == (
        "Under way: 2 of 15 runs have ended. Last update 2026-01-02 03:04:05 UTC; "
        "this page reloads itself every 3600 seconds. Films come with the last one."
    )
    browser.click('button[data-operator="1"]')
    browser.click('button[data-view="seeds"]')
    browser.value("document.querySelectorAll('details')[1].open = true")
    browser.value("scrollTo(0, 900)")
    browser.value("document.querySelectorAll('summary')[1].focus({preventScroll: true})")
    reload(browser)
    left = """[scrollY, document.querySelector('button[data-operator="1"]').getAttribute("aria-pressed"),
        document.body.className, [...document.querySelectorAll("details")].map((each) => each.open),
        [...document.querySelectorAll("summary")].indexOf(document.activeElement)]"""
    as_left = [900, "false", "show-bands show-seeds", [False, True], 1]
    assert browser.value(left) == as_left
    assert set(browser.value(HIDDEN.replace("${part}", ".o1."))) == {True}
    page = report_of(study, out=tmp_path / "page", films=False)  # the last page
    reload(browser)
    assert browser.value(LIVE) is None and browser.value(left) == as_left
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.problems == [] and set(browser.requests) == {page.resolve().as_uri()}


@pytest.mark.parametrize("script", [True, False])
def test_a_page_under_way_reloads_itself_until_the_last_one_is_there(browser, tmp_path, script):
    study = synthetic(tmp_path / "study", operators=ELEVEN[:2], phases=4)
    browser.open(live_page(tmp_path / "page", study), 1280, script=script)
    report_of(study, out=tmp_path / "page", films=False)
    until(browser, f"{LIVE} ?? 'it is the last'", "it is the last")
    browser.value("window.mark = 3")
    time.sleep(2.5)
    assert browser.value("window.mark") == 3  # it does not reload itself any more


@pytest.mark.parametrize("width", WIDTHS)
def test_a_legend_of_many_or_long_names_leaves_room_for_the_page(browser, tmp_path, width):
    many = [f"softmax({tau})" for tau in range(1, 41)]
    long = [f"{'a name of many words ' * 5}{number}=softmax({number + 1})" for number in range(12)]
    for place, operators in enumerate((many, long)):
        study = synthetic(tmp_path / f"study-{place}", operators=operators, seeds=[0, 1], phases=2)
        browser.open(report_of(study, films=False), width)
        height, window = browser.value("[document.querySelector('.legend').offsetHeight, innerHeight]")
        assert 0 < height <= window / 4 + 1
        assert browser.value("document.documentElement.scrollWidth") <= width
        views = browser.value("[...document.querySelectorAll('.views button')].map((each) => each.textContent)")
        assert views == ["each seed", "all", "none"]  # two seeds have no bands


def test_a_page_opened_later_begins_at_its_top(browser, pages):
    browser.open(pages("three operators")[0], 1280)
    browser.value("scrollTo(0, 900)")
    browser.open(pages("two games")[0], 1280)
    assert browser.value("scrollY") == 0


def test_a_film_plays(browser, cartpole, tmp_path):
    pytest.importorskip("imageio")
    page = report_of(Study(shutil.copytree(cartpole[0].path, tmp_path / "study")))
    browser.open(page, 390)
    loaded = """new Promise((resolve) => {
        const film = document.querySelector("video");
        const tell = () => resolve([film.videoWidth, film.duration > 0.2]);
        film.readyState ? tell() : film.addEventListener("loadedmetadata", tell);
        film.addEventListener("error", () => resolve(film.error.message));
    })"""
    assert browser.value(loaded) == [600, True]
    assert browser.problems == [] and len(browser.requests) == 1
