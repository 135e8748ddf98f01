"""Published curves stand beside a study's where they were made under its protocol, and nowhere else."""

import dataclasses
from importlib.resources import files

import numpy as np
import pytest

from softbellman.config import preset, replaced
from softbellman.report import pictures
from softbellman.report.published import NOTE, published_curve

from ..studies import report_of, synthetic
from .test_report import text_of

CONFIG = preset("machado-atari").config
GAMES = ("asterix", "breakout", "crazy_climber", "ms_pacman", "qbert", "seaquest")


@pytest.mark.parametrize("game", GAMES)
def test_each_of_the_papers_games_has_a_curve(game):
    curve = published_curve(f"atari/{game}", CONFIG)
    assert len(curve.x) == 199 and (curve.n == 5).all() and (np.diff(curve.x) == 250_000).all()
    assert (curve.low < curve.mean).all() and (curve.mean < curve.high).all()
    assert curve.mean[-20:].mean() > 2 * curve.mean[0]  # it learned


def test_the_curve_ends_with_the_study():
    assert published_curve("atari/qbert", replaced(CONFIG, "loop.steps", 700_000)).x.tolist() == [125e3, 375e3, 625e3]


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ("atari/breakout", preset("paper-atari").config),
        ("atari/breakout", replaced(CONFIG, "protocol", dataclasses.replace(CONFIG.protocol, action_set="minimal"))),
        ("atari/breakout", replaced(CONFIG, "loop.steps", 100_000)),
        ("atari/pong", CONFIG),
        ("minatar/breakout", CONFIG),
    ],
)
def test_there_is_none_for_another_protocol_game_or_length(environment, config):
    assert published_curve(environment, config) is None


def test_the_table_is_small():
    assert len((files("softbellman.report.published") / "dopamine-dqn.csv").read_bytes()) < 100_000


def test_a_page_shows_it_with_what_differs(tmp_path, monkeypatch):
    drawn, draw = {}, pictures.draw_panel
    monkeypatch.setattr(
        pictures,
        "draw_panel",
        lambda axis, panel, *given, **more: (
            drawn.update({panel.title: more["behind"]}) or draw(axis, panel, *given, **more)
        ),
    )
    studies = {
        name: synthetic(tmp_path / name, ["atari/breakout"], ["max"], [0, 1], preset=name, frames=4)
        for name in ("machado-atari", "paper-atari")
    }
    assert NOTE in text_of(report_of(studies["machado-atari"], films=False))
    assert len(drawn.pop("Test score").x) == 2 and not any(drawn.values())
    assert NOTE not in text_of(report_of(studies["paper-atari"], films=False)) and drawn["Test score"] is None


def test_it_lies_within_its_panel_behind_the_others():
    figure = pictures.new_figure(4, 3)
    axis, curve = figure.subplots(), published_curve("atari/breakout", replaced(CONFIG, "loop.steps", 5_000_000))
    own = pictures.Curves(0, {0: (curve.x, np.full(len(curve.x), 2.0))})
    pictures.draw_panel(axis, pictures.panels()["test_return"], [own], "agent steps", behind=curve)
    low, high = axis.get_ylim()
    assert low < curve.low.min() and curve.high.max() < high
    grey, line = axis.lines
    assert grey.get_zorder() < line.get_zorder() and grey.get_ydata().tolist() == curve.mean.tolist()
