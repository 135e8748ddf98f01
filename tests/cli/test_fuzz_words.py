"""Command lines drawn from the commands' own fields, valid ones and those that are wrong in one word.

A valid one is carried out; any other ends in one line that says so, and leaves nothing behind.
"""

import dataclasses
import functools
import itertools
import os
import shutil
from types import UnionType
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tyro.conf import Positional

from softbellman import cli
from softbellman import config as configs
from softbellman import operators as ops
from softbellman import report as reports
from softbellman.cli.commands import COMMANDS, Training
from softbellman.paper import budget, document, page
from softbellman.paper.grid import SCALES

from ..studies import paper_study

FUZZ = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}
SPECS = ["max", "mean", "softmax(5)", "softmax:0.5", "double:mellowmax:5", "keep(0.1)"]


def one(*words):
    return st.sampled_from(words).map(lambda word: [word])


def several(*words):
    return st.lists(st.sampled_from(words), min_size=1, max_size=3, unique=True)


# The words of a field where its type says too little of them, by its name, or its command's first word and its name.
WORDS = {
    "environment": one("gym/CartPole-v1", "minatar/breakout", "mdp/forest"),
    "environments": several("minatar/breakout", "minatar/asterix", "minatar/freeway"),
    "operator": one(*SPECS),
    "operators": several(*SPECS),
    "operators check": one("max"),
    "families": several("softmax(*)", "double(mellowmax(*))"),
    "target": one("forest", "two-fixed-points", "FrozenLake-v1"),
    "gamma": one("0.5", "0.9"),
    "gap": one("none", "gap(0.5)", "persistent_q(0.3)"),
    "tolerance": one("1e-6"),
    "max_iterations": one("1000"),
    "epsilon": one("0", "0.05", "1"),
    "episodes": one("1"),
    "max_steps": one("5"),
    "trials": one("2"),
    "points": one("2"),
    "start": one("0.5"),
    "stop": one("20"),
    "distance": one("0.5"),
    "simulate scale": one("2"),
    "kappa": one("0.75", "2"),
    "correlation": several("0", "0.9"),
    "values": several("0", "-1.5", "1e3"),
    "actions": several("2", "3", "4"),
    "train seeds": st.lists(st.sampled_from("0123456789"), min_size=2, max_size=3, unique=True),  # of one it is --seed
    "workers": one("1"),
    "steps": one("1000000"),
    "frames": one("1000000"),
    "log": several("tensorboard"),
    "name": one("figure-1", "table-3", "all"),
    "paper scale": one("smoke"),
    "markdown": one("paper.md"),
    "evaluate out": one("new.json", "new/er.json"),
    "watch out": one("new.gif", "new/er.gif"),
    "card out": one("new", "new/er"),
    "export out": one("new.onnx", "new/er.onnx"),
    "solve out": one("new.csv", "new/er.csv"),
    "out": one("new", "new/er"),
}
ALWAYS = {"episodes", "max_steps", "trials", "points", "actions", "study", "scale"}  # else a command takes long
EXCLUSIVE = [{"steps", "frames"}, {"seed", "seeds"}]
NUMBERS = ["-1", "0", "1.5", "1e400", "-inf", "nan", "none", "true", "1e9", "9" * 20, "9" * 400, "0x10", "1_0"]
NAMES = [
    "",
    " ",
    "-",
    "=",
    "\0",
    "\n",
    "a\nb",
    "é",
    "..",
    "../..",
    "~nobody",
    "x/y",
    "gym/",
    "gym/x:Y-v0",
    "json:dumps",
]
OPERATORS = ["max(", "softmax", "softmax(nan)", "softmax(*)", "double", "double(double(max))", "mine:max"]
OPTIONS = ["--", "---", "--no-", "--tau", "--learner.gamma", "--seed", "--seeds=", "--steps=1", "--dry-run=1"]
# Of no place outside of the working directory, and without halves of letters, which no terminal sends.
LETTERS = st.text(st.characters(exclude_characters="/~", exclude_categories=["Cs"]), max_size=8)
VALUES = st.sampled_from(NUMBERS) | st.sampled_from(NAMES) | st.sampled_from(OPERATORS) | LETTERS


def kind_of(hint):
    """The kind of a field's value, without what says how it is read and that it may be left out."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return next(kind for kind in get_args(hint) if kind is not type(None)) if isinstance(hint, UnionType) else hint


def words_of(name, field, hint, places):
    """Words for a field's value."""
    if field in places:
        return st.just([str(places[field])])
    for key in (f"{name.split()[0]} {field}", field):
        if key in WORDS:
            return WORDS[key]
    kind = kind_of(hint)
    if get_origin(kind) is Literal:
        return one(*get_args(kind))
    if get_origin(kind) is tuple:
        return several("1", "2", "3")
    assert kind is int, f"say in WORDS which words {field} of {name} takes"
    return one("1", "2", "3")


def written(value):
    """A value of the configuration as words."""
    return [str(each) for each in value] or ["none"] if isinstance(value, tuple) else [str(value)]


@st.composite
def valid_lines(draw, name, places):
    """Draws a valid command line: its command, and its other words."""
    command, parts = COMMANDS[name], []
    hints = get_type_hints(command, include_extras=True)
    fields, environment = set(), ""
    for item in dataclasses.fields(command):
        is_positional = Positional in getattr(hints[item.name], "__metadata__", ())
        is_drawn = is_positional or item.name in ALWAYS or draw(st.booleans())
        if not is_drawn or item.name in ("config", "preset", "dry_run", "engine"):
            continue
        if any(item.name in exclusive and exclusive & fields for exclusive in EXCLUSIVE):
            continue
        fields.add(item.name)
        option = f"--{item.name.replace('_', '-')}"
        if kind_of(hints[item.name]) is bool:
            parts.append([draw(st.sampled_from([option, option.replace("--", "--no-")]))])
            continue
        words = draw(words_of(name, item.name, hints[item.name], places))
        parts.append(words if is_positional else [option, *words])
        environment = words[0] if is_positional else environment
    if issubclass(command, Training):
        preset = configs.default_preset(environment)
        if draw(st.booleans()):
            parts.append(["--preset", preset])
        if draw(st.booleans()):
            parts.append([f"--engine={draw(st.sampled_from(['here', 'local']))}"])
        own = configs.fields(configs.preset(preset).config)
        listed = [(key, value) for key, value in own if not isinstance(value, dict)]
        for key, value in draw(st.lists(st.sampled_from(listed), max_size=2, unique=True)):
            option = f"--{key.replace('_', '-')}"
            section, _, last = option.rpartition(".")
            flag = option if value else f"{section}.no-{last}"
            parts.append([flag] if isinstance(value, bool) else [option, *written(value)])
    dry = ["--dry-run"] if "dry_run" in hints else []
    return [*name.split(), *dry], [word for part in draw(st.permutations(parts)) for word in part]


@st.composite
def lines_with_a_fault(draw, name, places):
    """Draws a valid command line and changes one of its words; what makes it dry stays."""
    command, words = draw(valid_lines(name, places))
    words = words or [draw(VALUES)]
    place = draw(st.integers(0, len(words) - 1))
    match draw(st.sampled_from(["a value", "a number", "left out", "twice", "moved", "added", "misspelt"])):
        case "a value":
            words[place] = draw(VALUES)
        case "a number":
            numbers = [place for place, word in enumerate(words) if word.replace(".", "").isdigit()]
            words[draw(st.sampled_from(numbers or [place]))] = draw(st.sampled_from(NUMBERS))
        case "left out":
            del words[place]
        case "twice":
            words.insert(place, words[place])
        case "moved":
            words.insert(draw(st.integers(0, len(words) - 1)), words.pop(place))
        case "added":
            words.insert(place, draw(VALUES | st.sampled_from(OPTIONS)))
        case _:
            word, letter = words[place], draw(st.integers(1, max(1, len(words[place]) - 1)))
            words[place] = word[:letter] + draw(st.sampled_from(["", "x", "-", "0"])) + word[letter + 1 :]
    return [*command, *words]


@pytest.fixture(scope="module")
def places(cartpole, tmp_path_factory):
    """By command, the studies and runs that lines name."""
    root = tmp_path_factory.mktemp("places")
    trained, of_the_paper = root / "trained", paper_study(root / "paper", SCALES["smoke"])
    shutil.copytree(cartpole[0].path, trained)
    run = trained / cartpole[0].runs[0].path.relative_to(cartpole[0].path)
    return {
        "resume": {"study": trained},
        "report": {"study": trained},
        "evaluate": {"run": run},
        "watch": {"run": run},
        "card": {"run": run},
        "export": {"run": run},
        "paper check": {"study": of_the_paper.path},
        "paper page": {"study": of_the_paper.path},
    }


@pytest.fixture
def attempt(tmp_path, monkeypatch, capsys, places):
    """Runs a command line in an empty directory, checks what holds of any, and returns code, output and errors."""
    # All of this is slow, and not what is tried.
    for module, name in ((reports, "_pictures"), (reports, "film_best"), (page, "write"), (document, "write")):
        monkeypatch.setattr(module, name, lambda *_, **__: [])
    monkeypatch.setattr("softbellman.report.pictures.draw_curves", lambda *_: None)
    monkeypatch.setattr("softbellman.paper.figures.simulations.draw_bias", lambda _, path: path)
    monkeypatch.setattr("softbellman.paper.figures.simulations.draw_comparison", lambda _, path: path)
    monkeypatch.setattr("softbellman.paper.figures.simulations.draw_temperatures", lambda _, path: path)
    monkeypatch.setattr("softbellman.report.card.write_card", lambda _, __, out, **___: out)
    monkeypatch.setattr("softbellman.policies.export.export", lambda *_, **__: "written")
    monkeypatch.setattr("softbellman.doctor.examine", list)
    monkeypatch.setattr(budget, "calibrate", lambda *_: budget.Calibration(100.0, 1_000, "not at all"))
    monkeypatch.setattr(ops, "check_operator", functools.cache(ops.check_operator))
    for variable in ("NPROC", "XLA_FLAGS", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    folders = [next(iter(places["resume"].values())).parent, tmp_path]
    numbers = itertools.count()

    def files():
        return {path: path.lstat().st_mtime_ns for folder in folders for path in folder.rglob("*") if path.is_file()}

    def attempt(words):
        here = tmp_path / str(next(numbers))
        here.mkdir()
        monkeypatch.chdir(here)
        os.environ["NPROC"], os.environ["XLA_FLAGS"] = "2", ""
        before = files()
        try:
            code = cli.run(words)
        except SystemExit as end:  # the help was asked for
            code = end.code or 0
        out, errors = capsys.readouterr()
        assert code in (0, 1, 2), errors
        assert "Traceback" not in out + errors and "fault of softbellman's own" not in errors
        if code == 2:
            (line,) = errors.splitlines()
            assert line.startswith("softbellman: ") and len(line) > 20
            assert files() == before
        return code, out, errors

    return attempt


TAKE_WORDS = [name for name in COMMANDS if dataclasses.fields(COMMANDS[name])]


@pytest.mark.parametrize("name", TAKE_WORDS)
@settings(max_examples=8, **FUZZ)
@given(st.data())
def test_a_valid_line_is_carried_out(attempt, places, name, data):
    command, words = data.draw(valid_lines(name, places.get(name, {})))
    code, out, errors = attempt([*command, *words])
    assert code == 0 or (name, code) == ("solve", 1), errors  # what can't be solved is no fault of the line
    assert out or "--quiet" in words


@pytest.mark.parametrize("name", COMMANDS)
@settings(max_examples=25, **FUZZ)
@given(st.data())
def test_one_wrong_word_is_an_answer_or_one_line(attempt, places, name, data):
    attempt(data.draw(lines_with_a_fault(name, places.get(name, {}))))
