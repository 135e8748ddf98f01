"""Measures: one entry is a column, a line of the documentation, and a panel of the page."""

import re
from pathlib import Path

import pytest

from softbellman.analysis.records import Records
from softbellman.training import metrics
from softbellman.training.metrics import Measure, Panel

from ..studies import TINY, synthetic, trained

ROOT = Path(__file__).parents[2]


def test_names_are_different_and_what_is_counted_is_whole():
    assert len(set(metrics.columns())) == len(metrics.MEASURES)
    assert metrics.counted() == {
        *("epoch", "agent_steps", "env_frames", "updates", "episodes", "test_episodes", "test_unfinished", "test_seed")
    }


def test_the_documentation_has_a_line_for_each():
    text = (ROOT / "docs" / "measures.md").read_text()
    assert text.endswith(metrics.documented()), "write documented() below the text of docs/measures.md"
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == list(metrics.columns())


@pytest.fixture
def longest(monkeypatch):
    """A measure of one's own: one entry."""
    panel = Panel("Longest game", "agent steps", "The longest game of a test phase.")
    own = Measure(
        "longest_game", "agent steps of it", lambda m: int(m.phase.lengths.max(initial=0)), panel, counts=True
    )
    monkeypatch.setattr(metrics, "MEASURES", (*metrics.MEASURES, own))


def test_a_measure_of_ones_own_is_a_column(longest, tmp_path):
    values = TINY | {"loop.steps": 200, "loop.test_episodes": 3}
    study, told = trained(tmp_path / "study", "gym/CartPole-v1", "classic-control", "max", [0], values)
    assert Records.read(study).runs[0].column("longest_game").tolist() == [max(phase.lengths) for _, _, phase in told]
    assert study.metrics()["longest_game"].dtype == "int64"


def test_a_measure_of_ones_own_is_a_panel(longest, tmp_path):
    study = synthetic(tmp_path / "study", seeds=(0, 1), phases=3, values={"longest_game": 7})
    page = study.report(tmp_path / "page").read_text()
    assert "Longest game" in page and "The longest game of a test phase." in page
