"""Budgets by default: alike in Python and on the command line."""

import inspect
from dataclasses import MISSING, fields

import pytest

from softbellman.cli.commands import Evaluate, Watch
from softbellman.config import budgets
from softbellman.running import play


@pytest.mark.parametrize(("function", "command"), [(play.evaluate, Evaluate), (play.watch, Watch)])
def test_a_network_plays_alike_from_python_and_from_the_command_line(function, command):
    ours = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    theirs = {each.name: each.default for each in fields(command) if each.default is not MISSING}
    common = {name: value for name, value in ours.items() if name in theirs}
    assert set(common) == {"epsilon", "episodes", "max_steps", "seed"}
    assert common == {name: theirs[name] for name in common}


def test_the_help_names_the_steps_of_a_game():
    assert f"{budgets.STEPS_OF_A_GAME:,} a game" in " ".join((Evaluate.__doc__ or "").split())
    assert f"{budgets.STEPS_OF_A_GAME:,} a game" in " ".join((play.evaluate.__doc__ or "").split())
