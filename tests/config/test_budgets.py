"""Budgets by default: alike in Python and on the command line."""

import inspect
from dataclasses import MISSING, fields

import pytest

import softbellman as sb
from softbellman.cli.commands import Evaluate, Watch
from softbellman.config import budgets
from softbellman.running import play


@pytest.mark.parametrize(("function", "command"), [(play.evaluate, Evaluate), (play.watch, Watch)])
def test_a_network_plays_alike_from_python_and_from_the_command_line(function, command):
    ours = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    theirs = {each.name: each.default for each in fields(command) if each.default is not MISSING}
    common = {name: value for name, value in ours.items() if name in theirs}
    assert set(common) == {"network", "epsilon", "episodes", "max_steps", "seed"}
    assert common == {name: theirs[name] for name in common}


def test_so_many_seeds_are_the_first_and_too_many_are_refused_before_they_are_listed():
    assert list(budgets.first_seeds(3)) == [0, 1, 2] and len(budgets.first_seeds(100_000)) == 100_000
    for seeds in (100_001, 10**9, 10**20):
        with pytest.raises(ValueError, match=rf"seeds \({seeds}\) must be at most 100,000 by their number; list"):
            sb.compare("gym/CartPole-v1", "max", seeds=seeds)


def test_the_help_names_the_steps_of_a_game():
    assert f"{budgets.STEPS_OF_A_GAME:,} a game" in " ".join((Evaluate.__doc__ or "").split())
    assert f"{budgets.STEPS_OF_A_GAME:,} a game" in " ".join((play.evaluate.__doc__ or "").split())
