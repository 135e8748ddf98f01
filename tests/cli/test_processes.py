"""Each command once, as a process of its own, in its cheapest form: it starts, does its work, and says nothing else."""

import shutil

import pytest

from softbellman.cli.commands import COMMANDS
from softbellman.paper.grid import SCALES

from ..studies import paper_study
from .conftest import run_alone

# The words after a command, and what it prints; STUDY is a trained study, PAPER that of a scale of the paper.
LINES = {
    "train": ("gym/CartPole-v1 --dry-run", "directory        runs/gym-CartPole-v1-max-seed-0"),
    "compare": ("gym/CartPole-v1 --seeds 2 --dry-run", "directory        runs/compare-gym-CartPole-v1-"),
    "resume": ("STUDY", "film a game      softbellman watch STUDY"),
    "report": ("STUDY --out page", "page             page/index.html"),
    "evaluate": ("STUDY --episodes 1 --max-steps 5", "tested           gym/CartPole-v1: best network of seed 3"),
    "watch": ("STUDY --max-steps 2 --out film.gif", "video            film.gif (3 pictures"),
    "card": ("STUDY --out card", "card             card/README.md"),
    "export": ("STUDY", "file             STUDY/runs/gym-CartPole-v1/softmax-5/seed-3/export/best.safetensors"),
    "operators": ("", "double(softmax(5))"),
    "solve": ("forest", "solved           forest, max: 3 states"),
    "simulate bias": ("--trials 2 --actions 2", "table            runs/simulations/bias.csv"),
    "simulate comparison": ("--trials 2 --actions 2 --points 2", "table            runs/simulations/comparison.csv"),
    "simulate temperature": ("--trials 2 --sigma 1", "table            runs/simulations/temperature.csv"),
    "paper list": ("", "scale smoke"),
    "paper run": ("table-3 --dry-run", "none: it is measured anew each time"),
    "paper check": ("figure-1 --study PAPER", "undecided        "),
    "paper page": ("--study PAPER", "page             PAPER/paper/index.html"),
    "doctor": ("", "jax"),
}


@pytest.fixture(scope="module")
def of_the_paper(tmp_path_factory):
    return paper_study(tmp_path_factory.mktemp("paper") / "study", SCALES["smoke"]).path


def test_every_command_has_a_line():
    assert list(LINES) == list(COMMANDS)


NEEDS_TORCH = ("export",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.torch if name in NEEDS_TORCH else ()) for name in LINES]
)
def test_a_command_runs_as_a_process_of_its_own(name, trained, of_the_paper, tmp_path):
    if name == "watch":
        pytest.importorskip("pygame")  # it draws the environment
    words, said = LINES[name]
    for place, folder in (("STUDY", trained[0]), ("PAPER", of_the_paper)):
        if place in words:
            shutil.copytree(folder, tmp_path / place)
    assert said in run_alone(tmp_path, *name.split(), *words.split())
