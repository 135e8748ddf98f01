"""The document of a scale: generated from the rows that the repository keeps, and not changed by hand."""

import re
from pathlib import Path

import pytest

from softbellman.analysis.records import Records
from softbellman.paper import document
from softbellman.paper.contents import contents
from softbellman.paper.grid import SCALES, open_study
from softbellman.paper.views import VIEWS

from ..studies import paper_study, results_of

ROOT = Path(__file__).parents[2]
LAPTOP = SCALES["laptop"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A document of a study whose runs in seaquest have not ended, and its text."""
    folder = tmp_path_factory.mktemp("document")
    states = {("seaquest", spec, seed): "running" for spec in LAPTOP.operators for seed in LAPTOP.seeds}
    study = paper_study(folder / "study", LAPTOP, states=states)
    path = document.write(
        results_of(LAPTOP, study), Records.read(study), folder / "docs" / "paper.md", study.path / "paper"
    )
    return path, path.read_text()


def test_each_view_has_its_command_its_time_and_its_table(written):
    _, text = written
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")[1:]}
    for view in VIEWS.values():
        part = parts[view.title]
        assert f"\nsoftbellman paper run {view.name} --scale laptop\n" in part
        assert f"**The paper:** {view.expected}" in part
        hours = r"Time: about [\d.]+ (minutes|hours) of one worker, \d+ of \d+ runs"
        took = "Time: seconds." if view.measure else hours
        assert re.search(took, part) and view.meaning(LAPTOP) in part and "\n| --- " in part
    assert "hardware: " in text and "100 of 300 runs are missing" in text


def test_runs_that_diverged_are_told_of(tmp_path):
    study = paper_study(tmp_path / "study", LAPTOP, states={("seaquest", "max", 11): "diverged"})
    found = contents(results_of(LAPTOP, study), Records.read(study))
    text = document.render(found, tmp_path / "paper.md", tmp_path / "study" / "paper")
    assert text.count("**Diverged:** 1 run diverged: ") == sum("DQN" in v.arms for v in VIEWS.values())


def test_estimates_say_in_how_many_games_they_are(written):
    found = re.findall(r"n = (\d+) in (\d games?)", written[1])
    assert {games for _, games in found} == {"1 game", "2 games"}  # of asterix alone, and of all but seaquest
    assert ", 10 in 2 games" in written[1]


def test_links_to_pictures_lead_to_them(written):
    path, text = written
    links = re.findall(r"\]\((.*?\.png)\)", text)
    assert len(links) == len(VIEWS) - 1 and all((path.parent / link).is_file() for link in links)  # Table 3 has none


def test_rows_of_a_table_have_as_many_cells_as_its_head(written):
    tables = re.findall(r"^(\|.*)\n\| ---.*\n((?:\|.*\n)+)", written[1], re.MULTILINE)
    assert len(tables) >= len(VIEWS)
    for head, body in tables:
        assert {row.count("|") for row in body.splitlines()} == {head.count("|")}


def test_the_repositorys_document_is_what_its_rows_give():
    path, folder = Path("docs/reproduction.md"), Path("results/paper/laptop")
    study = open_study(LAPTOP, ROOT / folder)
    assert study is not None
    found = contents(results_of(LAPTOP, study), Records.read(study))
    assert document.render(found, path, folder / "paper") == (ROOT / path).read_text()
    assert found["first"] in " ".join((ROOT / "README.md").read_text().split())
