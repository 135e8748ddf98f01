"""The random policy's scores: played once for a study, within a budget, and no comparison fails for them."""

import numpy as np
import pytest

from softbellman.running import play
from softbellman.study import chance
from softbellman.study.locks import Lost
from softbellman.study.store import Study

from ..studies import synthetic


@pytest.fixture
def study(tmp_path):
    return synthetic(tmp_path / "study", seeds=(0,), phases=2)


def test_scores_are_measured_once_and_read_again(study, monkeypatch):
    notes = []
    assert chance.read(study, "minatar/breakout") is None
    play.measure_chance(study, notes.append)
    scores = chance.read(Study(study.path), "minatar/breakout")
    assert len(scores) == play.CHANCE_GAMES and 0.1 < scores.mean() < 0.8  # 0.36 over 100 other games
    monkeypatch.setattr(play, "evaluate_random", lambda *_, **__: pytest.fail("played again"))
    play.measure_chance(study, notes.append)
    assert np.array_equal(chance.read(study, "minatar/breakout"), scores) and not notes


def test_it_is_said_before_the_policy_plays(study, monkeypatch):
    order, played = [], play.evaluate_random
    monkeypatch.setattr(play, "evaluate_random", lambda *of, **more: order.append("plays") or played(*of, **more))
    for _ in range(2):
        play.measure_chance(study, pytest.fail, say=order.append)
    assert order == ["the random policy plays minatar/breakout, for the score of chance", "plays"]


def test_an_unfinished_game_is_no_score(study, monkeypatch):
    monkeypatch.setattr(play, "CHANCE_STEPS", 2)
    play.measure_chance(study, pytest.fail)
    assert chance.read(study, "minatar/breakout") is None


def test_a_failure_is_told_of_and_does_no_harm(study, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no emulator")

    notes = []
    monkeypatch.setattr(play, "evaluate_random", fail)
    play.measure_chance(study, notes.append)
    assert notes == ["the random policy could not be played in minatar/breakout: RuntimeError: no emulator"]
    assert chance.read(study, "minatar/breakout") is None


def test_a_damaged_file_counts_as_none(study):
    play.measure_chance(study, pytest.fail)
    next(study.path.glob("random/*.json")).write_text("{")
    assert chance.read(study, "minatar/breakout") is None


def test_nothing_is_written_by_one_whose_place_was_taken(study):
    def lost():
        raise Lost("another process has taken over")

    notes = []
    play.measure_chance(study, notes.append, lost)
    assert len(notes) == 1 and "another process has taken over" in notes[0]
    assert chance.read(study, "minatar/breakout") is None
