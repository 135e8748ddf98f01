"""The page of a scale: every figure and table with its verdict, readable on a phone and on a desk, from its file."""

import re

import pytest

from softbellman.analysis.records import Records
from softbellman.paper import page
from softbellman.paper.claims import CLAIMS
from softbellman.paper.contents import first_sentence
from softbellman.paper.grid import SCALES
from softbellman.paper.results import read
from softbellman.paper.verdicts import Verdict
from softbellman.paper.views import VIEWS

from ..studies import paper_study, results_of

LAPTOP = SCALES["laptop"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page of a study whose runs in seaquest have not ended."""
    folder = tmp_path_factory.mktemp("page")
    states = {("seaquest", spec, seed): "running" for spec in LAPTOP.operators for seed in LAPTOP.seeds}
    study = paper_study(folder / "study", LAPTOP, states=states)
    return page.write(results_of(LAPTOP, study), Records.read(study), study.path / "paper" / "index.html")


def test_the_first_sentence_sums_up_the_verdicts():
    states = ["supported"] * 1 + ["not supported"] * 2 + ["undecided"] * 17
    verdicts = [Verdict(claim.name, "", "", state, "") for claim, state in zip(CLAIMS, states, strict=True)]
    assert first_sentence(read(LAPTOP, None), verdicts) == (
        "Of the paper's 20 claims about training, 1 is supported, 2 are not supported and 17 are undecided at scale "
        "laptop (3 games of MinAtar, 5 seeds, 600,000 agent steps a run): 345 of 345 runs are missing."
    )


def test_the_page_has_every_view_and_every_claim(written):
    text = written.read_text()
    assert "undecided at scale laptop (3 games of MinAtar, " in re.search(r'<p class="first">(.*?)</p>', text)[1]
    for view in VIEWS.values():
        assert f'<h2 id="{view.name}">' in text and f"softbellman paper run {view.name} --scale laptop" in text
    assert all(f"<code>{claim.name}</code>" in text for claim in CLAIMS)
    assert text.count("<svg") == 3 * (3 + 1 + 1 + 2 + 2 + 1) + 4 * 3 + 3 + 2
    assert "145 of 345 runs are missing" in text and ", so far</li>" in text
    assert "no run counts yet" in text
    tables = {section.partition('"')[0]: section for section in text.split('<h2 id="')[1:]}
    assert "<details>" in tables["figure-3"] and "<details>" not in tables["table-1"]
    ids = re.findall(r'<h2 id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_a_phone_and_a_desk(written, width, browser):
    browser.open(written, width)
    assert browser.problems == [] and [address.rpartition("/")[2] for address in browser.requests] == ["index.html"]
    assert browser.value("document.documentElement.scrollWidth") <= width
    widths = browser.value(
        "[...document.querySelectorAll('figure svg')].map((svg) => svg.getBoundingClientRect().width)"
    )
    assert min(widths) >= min(width - 40, 330)
    smallest = """Math.min(...[...document.querySelectorAll("figure svg text")].map((text) => {
        const { b, d } = text.getScreenCTM();
        return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(b, d);
    }))"""
    assert browser.value(smallest) >= 5
