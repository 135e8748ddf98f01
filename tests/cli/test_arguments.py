"""Command lines: those that are taken, those that are refused and how, and all that is printed without training."""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from softbellman import cli
from softbellman.cli import arguments
from softbellman.cli.commands import COMMANDS
from softbellman.operators.table import GROUPS

from .conftest import MAIN, ours

BAD_INPUT = [
    ("trian", "unknown command 'trian'; did you mean train?"),
    ("train", "Missing from softbellman train: ENV"),
    (
        "train breakout",
        "gym/<id>, package.module:function; did you mean atari/breakout, minatar/breakout",
    ),
    ("train atari/breakot", "unknown Atari game 'breakot'; did you mean breakout"),
    ("train gym/CartPol-v1", "did you mean CartPole-v1"),
    ("train gym/no_such_module:X-v0", "No module named 'no_such_module'"),
    ("train gym/Pendulum-v1", "has the action space Box(-2.0, 2.0, (1,), float32); a Discrete one is needed"),
    ("train gym/ALE/Breakout-v5", "skips frames by itself: use atari/<game>"),
    ("train ALE/Breakout-v5", "goes by atari/breakout here"),
    ("train gym/ale_py:ALE/Breakout-v5", "no network fits observations of shape (3, 210, 160)"),
    ("train atari/breakout --protocol.frame-skip 0", "frame_skip must be at least 1, got 0"),
    ("train gym/CartPole-v1 --protocol.noop-max 3", "does not heed the fields of protocol"),
    ("train gym/CartPole-v1 --operator softmx(5)", "Unknown operator 'softmx'. Did you mean softmax"),
    ("train gym/CartPole-v1 --operator softmax", "softmax takes tau, and was given none"),
    ("train gym/CartPole-v1 --operator softmax(-1)", "tau (-1) must be finite and at least 0"),
    ("train gym/CartPole-v1 --operator softmax(inf)", "for its limit use max, or double(max)"),
    ("train gym/CartPole-v1 --operator no_such_module:mine", "cannot import 'no_such_module'"),
    ("train gym/CartPole-v1 --operator mine:absent", "module 'mine' has no 'absent'; it has number"),
    ("train gym/CartPole-v1 --operator mine:number", "mine:number is neither an operator nor"),
    ("train gym/CartPole-v1 --preset papr-atari", "unknown preset 'papr-atari'; did you mean paper-atari"),
    ("train gym/CartPole-v1 --step 5", "unknown option --step; did you mean --steps"),
    ("train gym/CartPole-v1 --batch-size 5", "unknown option --batch-size; did you mean --learner.batch-size?"),
    ("train gym/CartPole-v1 --learner.gama 0.9", "unknown option --learner.gama; did you mean --learner.gamma"),
    ("train gym/CartPole-v1 --arms max", "unknown option --arms; it is one of compare"),
    ("train gym/CartPole-v1 --workers 2", "unknown option --workers; it is one of compare, resume"),
    ("solve forest --seed 2", "unknown option --seed; it is one of train, compare"),
    ("train gym/CartPole-v1 --tau 5", "the parameter belongs to the operator: --operator 'softmax(5)'"),
    ("train gym/CartPole-v1 --dry-run False", "--dry-run takes no value: write --dry-run or --no-dry-run"),
    ("train gym/CartPole-v1 --quiet=true", "--quiet takes no value: write --quiet or --no-quiet"),
    ("train gym/CartPole-v1 --steps many", "--steps: 'many' is no INT"),
    ("train gym/CartPole-v1 --learner.batch-size 3.5", "--learner.batch-size: '3.5' is no integer"),
    ("train gym/CartPole-v1 --learner.optimizer sgd", "invalid choice 'sgd' for argument '--learner.optimizer'"),
    ("train gym/CartPole-v1 more", "Unrecognized options: more"),
    ("train gym/CartPole-v1 --steps 5000 --frames 5000", "give --steps (5000) or --frames (5000), not both"),
    ("train gym/CartPole-v1 --steps 5000 --loop.steps 6000", "give --loop.steps or one of --steps and --frames"),
    ("train atari/breakout --frames 400002", "frames (400002) must be a multiple of the 4 frames"),
    ("train gym/CartPole-v1 --seed -1", "seeds must be different integers in 0 .. 4294967295, got -1"),
    ("train gym/CartPole-v1 --seeds 1 2 1", "seeds must be different integers in 0 .. 4294967295, got 1, 2, 1"),
    ("compare gym/CartPole-v1 --seeds 999999999", "seeds (999999999) must be at most 100,000 by their number"),
    (f"compare gym/CartPole-v1 --seeds {10**20}", f"seeds ({10**20}) must be at most 100,000 by their number"),
    ("train gym/CartPole-v1 --seed 1 --seeds 1 2", "give --seed or --seeds, not both"),
    ("train gym/CartPole-v1 --threads 0", "threads (0) must be at least 1"),
    ("train gym/CartPole-v1 --learner.batch-size 200 --learner.replay-capacity 100", "batch_size (200) is larger than"),
    ("train gym/CartPole-v1 --steps 1000", "replay_start_steps (1,000) is not below the budget of 1,000"),
    ("train gym/CartPole-v1 --learner.target-period-updates 90000", "target_period_updates (90,000) can't fire"),
    ("train gym/CartPole-v1 --learner.gamma 1", "learner.gamma (1.0) must be in [0, 1)"),
    ("train gym/CartPole-v1 --learner.replay-capacity 1000000000000", "lower learner.replay_capacity"),
    ("train gym/CartPole-v1 --network.kind nature_cnn", "nature_cnn takes observations of shape (4, 84, 84)"),
    (
        "train gym/CartPole-v1 --network.kind cnn",
        "network.kind ('cnn') must be one of auto, nature_cnn, minatar_cnn, mlp",
    ),
    (
        "train gym/CartPole-v1 --network.kind theirs:needs",
        "network.kind theirs:needs must take (obs_shape, ",
    ),
    (
        "train gym/CartPole-v1 --env.options size",
        "--env.options: 'size' is no option of an environment; write",
    ),
    ("train gym/CartPole-v1 --env.options a=1 a=2", "a is given twice, as 1 and as '2'"),
    (
        "train gym/CartPole-v1 --env.options render_mode=human",
        "render_mode is chosen where a film is made; leave it out",
    ),
    ("train minatar/breakout --env.options size=3", "minatar/breakout does not heed the fields of env; they are for"),
    ("train theirs:nothing_there", "environment theirs:nothing_there: theirs has no nothing_there"),
    ("train unwritten:make", "SyntaxError: '(' was never closed (MODULES/unwritten.py, line 2)"),
    ("compare theirs.py:make", "write theirs, without .py"),
    ("compare --operators max theirs:make", "ENV; write it first (--operators took max theirs:make)"),
    ("train minatar/breakout --loop.test-steps 10", "leaves no step for each of loop.test_episodes (20) games"),
    ("train gym/CartPole-v1 --out full", "full is there already and nothing is overwritten"),
    ("compare", "Missing from softbellman compare: ENV"),
    ("compare --operators max", "Missing from softbellman compare: ENV; write it first (--operators took max)"),
    (
        "compare --operators max breakout --seeds 3",
        "ENV; write it first (--operators took max breakout, --seeds took 3)",
    ),
    ("train --seeds 3 breakout --quiet", "; write it first (--seeds took 3 breakout)"),
    ("compare --operators max gym/CartPole-v1 mean --dry-run", "these environments have different presets"),
    ("compare --operators max gym/CartPole-v1 mean --preset classic-control --dry-run", "unknown environment 'mean'"),
    ("train gym/CartPole-v1 --learner.gamma none", "--learner.gamma: 'none' is no number"),
    ("train gym/CartPole-v1 --steps none", "--steps: 'none' is no INT"),
    ("train gym/CartPole-v1 --out ~no_such_user_of_this_machine/x", "~no_such_user_of_this_machine/x: Could not"),
    ("train gym/CartPole-v1 --operator theirs:Crash", "object has no attribute 'zz' (MODULES/theirs.py, line 5)"),
    ("train gym/CartPole-v1 --operator theirs:Shape", "the right shape is (5, 2)"),
    ("compare gym/CartPole-v1 --operators max theirs:Shape", "operator theirs:Shape gives weights of shape (5, 1)"),
    (
        "solve forest --operator theirs:Shape",
        "operator theirs:Shape gives weights of shape (4, 1) for action values of",
    ),
    (
        "solve forest --operator theirs:Crash",
        "AttributeError: 'Row' object has no attribute 'zz' (MODULES/theirs.py, line",
    ),
    ("simulate bias --operators max theirs:Shape", "operator theirs:Shape gives weights of shape (4, 1)"),
    ("simulate bias --operators theirs:Crash", "(MODULES/theirs.py, line 5)"),
    (
        "simulate comparison --families theirs:needs(*)",
        "ZeroDivisionError: float division by zero (MODULES/theirs.py, line 11)",
    ),
    ("operators --check theirs:Shape", "operator theirs:Shape gives weights of shape (4, 1)"),
    (
        "operators --check theirs:Crash",
        "does not run on NumPy arrays: AttributeError: 'Row' object has no attribute 'zz'",
    ),
    ("operators --check unwritten:Op", "SyntaxError: '(' was never closed (MODULES/unwritten.py, line 2)"),
    ("operators --check leaves:Op", "SystemExit: 0 (MODULES/leaves.py, line 2)"),
    ("train gym/leaves:X-v0", "SystemExit: 0 (MODULES/leaves.py, line 2)"),
    ("train gym/lacks:X-v0", "(MODULES/lacks.py, line 2)"),
    ("train gym/unsimulated:Unsimulated-v0", "no simulator (MODULES/unsimulated.py, line 3)"),
    ("compare gym/CartPole-v1 gym/CartPole-v1", "was given gym/CartPole-v1 twice"),
    ("compare gym/CartPole-v1 atari/breakout", "these environments have different presets (classic-control for gym/"),
    ("compare gym/CartPole-v1 atari/breakout --preset quick-atari", "takes observations of shape (4, 84, 84)"),
    ("compare gym/CartPole-v1 --operators max softmx(5)", "Unknown operator 'softmx'. Did you mean softmax"),
    ("compare gym/CartPole-v1 --operators max softmax:5 softmax(5)", "was given softmax(5) twice"),
    ("compare gym/CartPole-v1 --operators", "one operator or several different ones, and was given none"),
    ("compare gym/CartPole-v1 --arms max --operators mean", "--arms and --operators are one option by two names"),
    ("compare gym/CartPole-v1 --operators=max --arms=mean", "--operators and --arms are one option by two names"),
    (
        "compare gym/CartPole-v1 --operators max --operators mean",
        "--operators is there twice; write all of its values after one",
    ),
    ("train minatar/breakout --preset minatar --preset=demo-minatar", "--preset is there twice; give it once"),
    ("compare gym/CartPole-v1 --operator max", "unknown option --operator; did you mean --operators"),
    (
        "compare gym/CartPole-v1 --seeds 0",
        "seeds (0) by their number must be at least 1; for seed 0 alone write --seed 0",
    ),
    ("compare gym/CartPole-v1 --seeds -3", "seeds (-3) by their number must be at least 1"),
    ("train gym/CartPole-v1 --seeds 5", "--seeds lists several seeds; for seed 5 write --seed 5"),
    ("compare gym/CartPole-v1 --seeds 1 1", "got 1, 1"),
    ("compare gym/CartPole-v1 --seed 1 --seeds 2 3", "give --seed or --seeds, not both"),
    ("compare gym/CartPole-v1 --seed 1 --seeds 5", "give --seed or --seeds, not both"),
    ("compare gym/CartPole-v1 --workers 0", "workers (0) must be at least 1"),
    ("compare gym/CartPole-v1 --threads 0", "threads (0) must be at least 1"),
    ("compare gym/CartPole-v1 --steps 5000 --frames 5000", "give --steps (5000) or --frames (5000), not both"),
    ("compare gym/CartPole-v1 --steps 5000 --loop.steps 6000", "give --loop.steps or one of --steps and --frames"),
    ("compare gym/CartPole-v1 --steps 1000", "replay_start_steps (1,000) is not below the budget of 1,000"),
    (
        "compare gym/CartPole-v1 --learner.batch-size 200 --learner.replay-capacity 100",
        "batch_size (200) is larger than",
    ),
    ("compare gym/CartPole-v1 --learner.target-period-updates 90000", "target_period_updates (90,000) can't fire"),
    ("compare gym/CartPole-v1 --learner.replay-capacity 1000000000000", "lower learner.replay_capacity"),
    ("compare gym/CartPole-v1 --out full", "full is there already and nothing is overwritten"),
    ("compare gym/CartPole-v1 --out damaged", "damaged/study.json cannot be read"),
    ("report full", "full is no study that can be read"),
    ("evaluate nowhere", "nowhere is no run and no study"),
    ("evaluate full", "full is no run and no study"),
    ("evaluate damaged", "damaged/study.json cannot be read"),
    ("watch damaged", "damaged/study.json cannot be read"),
    ("watch", "Missing from softbellman watch: RUN"),
    ("operators --check softmax(nan)", "tau (nan)"),
]


MODULES = {
    "mine": "number = 5\n",
    "unwritten": "x = 1\ny = (\n",
    "leaves": "import sys\nsys.exit(0)\n",
    "lacks": "import os\nimport no_such_package\n",
    "theirs": """from softbellman import operators as ops
@ops.operator
class Crash(ops.Operator):
    def policy(self, row):
        return row.zz
@ops.operator
class Shape(ops.Operator):
    def policy(self, row):
        return row.z[..., :1]
def needs(n):
    return n / 0
""",
    "unsimulated": """import gymnasium
class Broken(gymnasium.Env):
    def __init__(self): raise OSError("no simulator")
gymnasium.register("Unsimulated-v0", Broken)
""",
}


@pytest.fixture(autouse=True)
def _forget_modules():
    """Has each test import the modules of its own directory."""
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("line", "message"), BAD_INPUT, ids=[line for line, _ in BAD_INPUT])
def test_bad_input_is_one_line_and_exit_code_2_before_any_work(softbellman, tmp_path, monkeypatch, line, message):
    pytest.importorskip("ale_py")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("precious")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "study.json").write_text('{"format": 1,')
    (tmp_path / "modules").mkdir()
    for name, source in MODULES.items():
        (tmp_path / "modules" / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    before = sorted(tmp_path.rglob("*.*"))
    code, out, errors = softbellman(*line.split())
    assert code == 2
    assert out == ""
    (complaint,) = [line for line in errors.splitlines() if "Stella" not in line and "A.L.E" not in line]
    assert complaint.startswith("softbellman: ")
    assert message.replace("MODULES", str(tmp_path / "modules")) in complaint
    assert "fault of softbellman's own" not in complaint
    assert [path for path in sorted(tmp_path.rglob("*.*")) if "__pycache__" not in str(path)] == before
    assert (tmp_path / "full" / "mine").read_text() == "precious"


def test_l31_without_an_emulator_one_line_names_the_extra(softbellman, monkeypatch):
    atari = pytest.importorskip("softbellman.envs.atari.env")
    atari._ale_py.cache_clear()
    for module in [name for name in sys.modules if name.split(".")[0] == "ale_py"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "ale_py", None)  # as if it were not installed
    for environment in ("atari/breakout", "ALE/Breakout-v5"):
        code, out, errors = softbellman("train", environment, "--dry-run")
        assert (code, out) == (2, "")
        assert errors == 'softbellman: ale-py is not installed; run: pip install "softbellman[atari]"\n'
    assert softbellman("train", "gym/CartPole-v1", "--dry-run")[0] == 0
    monkeypatch.undo()
    atari._ale_py.cache_clear()


def test_the_list_of_commands(softbellman):
    code, out, errors = softbellman("--help")
    assert (code, errors) == (0, "")
    for name, command in COMMANDS.items():
        assert f"  {name:20} {(command.__doc__ or '').splitlines()[0]}" in out
    assert softbellman() == (2, out, "")


def test_the_version(softbellman):
    assert re.fullmatch(r"softbellman \d+\.\d+.*\n", softbellman("--version")[1])


def test_help_takes_less_than_a_second_of_the_processor():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", MAIN, "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(softbellman, name):
    code, out, errors = softbellman(name, "--help")
    assert (code, errors) == (0, "")
    plain = re.sub(r"[│╭╮╰╯─]", " ", out)
    for option in dict(arguments._options(COMMANDS[name])):
        assert option in plain
        if "-no-" in option or ".no-" in option:
            continue
        help_text = re.split(r"\n\s*--", plain.partition(f"{option} ")[2] or plain.partition(f"{option},")[2])[0]
        words = re.sub(r"\(default:.*?\)|\{.*?\}|--\S+", "", help_text, flags=re.DOTALL).split()
        assert len([word for word in words if word.islower()]) >= 2, f"{option} has no help"
    assert not re.search(r"--(\w+\.)?tau\b", plain)


def test_l48_no_option_is_called_tau():
    options = [option for command in COMMANDS.values() for option in dict(arguments._options(command))]
    assert not [option for option in options if option.rpartition(".")[2].strip("-") in ("tau", "omega")]


def test_a_dry_run_prints_every_value_with_its_source_in_80_columns_and_leaves_nothing(softbellman, tmp_path):
    pytest.importorskip("ale_py")
    code, out, errors = softbellman(
        "train", "atari/breakout", "--learner.replay-capacity", "60_000", "--learner.gamma", "0.9", "--dry-run"
    )
    assert (code, errors) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: re.split(r"\s{2,}", line.strip())[1:] for line in lines if re.match(r" (\w+)\.", line)}
    assert rows["learner.gamma"] == ["0.9", "command line"]
    assert rows["learner.replay_capacity"] == ["60,000", "command line"]
    assert rows["loop.steps"] == ["50,000,000", "authors' code"]
    assert rows["protocol.random_first_actions"] == ["0", "deviation D2"]
    assert rows["network.kind"] == ["nature_cnn", "authors' code"]
    text = " ".join(out.split())
    for told in (
        "preset paper-atari: Song et al. 2019",
        "4 actions (minimal), frame skip 4, repeat probability 0, 0 to 30 no-ops, a lost life ends an episode",
        "frames per step 4",
        "50,000,000 agent steps, 200,000,000 frames, 12,487,500 updates",
        "epsilon 1 at 0, 1 at 50,000, 0.55 at 550,000, 0.1 at 1,050,000, 0.1 at 50,000,000 agent steps; 0.05 in tests",
        "memory 424,620,000 bytes for the replay",
    ):
        assert told in text
    assert not any(tmp_path.iterdir())


def test_the_preset_fits_the_environment_whatever_else_is_named_like_one(softbellman):
    for words, preset in (
        (["gym/CartPole-v1"], "classic-control"),
        (["--out", "atari/results", "gym/CartPole-v1"], "classic-control"),
        (["gym/CartPole-v1", "--preset=classic-control"], "classic-control"),
    ):
        code, out, _ = softbellman("train", *words, "--dry-run")
        assert code == 0
        assert f"{preset}:" in out
        assert "adam" in out


def parsed(line):
    return arguments.parse(line.split()[0], line.split()[1:])


@pytest.mark.parametrize(
    "line",
    [
        "compare --operators max mean gym/CartPole-v1 minatar/breakout --preset minatar --seeds 3",
        "compare --operators max mean gym/CartPole-v1 --seeds 3 minatar/breakout --preset minatar",
        "compare gym/CartPole-v1 --seeds 3 minatar/breakout --preset minatar --operators max mean",
        "compare --preset minatar gym/CartPole-v1 --seeds=3 minatar/breakout --operators max mean",
        "compare --quiet gym/CartPole-v1 minatar/breakout --no-quiet --seeds 3 --preset=minatar --operators max mean",
    ],
)
def test_a_list_ends_where_the_name_of_an_environment_begins(line):
    command = parsed(line)
    assert command.environments == ("gym/CartPole-v1", "minatar/breakout")
    assert (command.operators, command.seeds) == (("max", "mean"), (3,))


def test_whatever_takes_a_list_or_a_path_leaves_the_environment_alone():
    command = parsed("train --network.hidden 64 64 gym/CartPole-v1 --out gym/results")
    assert command.environment == "gym/CartPole-v1" and command.config.network.hidden == (64, 64)
    assert command.out == Path("gym/results") and command.preset == "classic-control"
    command = parsed("train --out atari/results --seeds 3 4 minatar/breakout")
    assert (command.environment, command.seeds, command.preset) == ("minatar/breakout", (3, 4), "sharp-minatar")
    command = arguments.parse("simulate bias", ["--values", "-1", "0.5", "--operators", "max", "mean"])
    assert (command.values, command.operators) == ((-1.0, 0.5), ("max", "mean"))


def test_an_environment_of_ones_own_ends_a_list_but_one_of_specs():
    own = "grids.envs:Grid.small"
    for line in (
        f"compare --env.options size=5 map=a:b {own} --operators max --seeds 3",
        f"compare --operators max --seeds 3 {own} --env.options size=5 map=a:b",
        f"compare --network.hidden 64 {own} --seeds=3 --operators max --env.options size=5 map=a:b",
        f"compare {own} --operators max --seeds 3 --env.options size=5 map=a:b",
    ):
        command = parsed(line)
        assert command.environments == (own,) and command.operators == ("max",) and command.seeds == (3,)
        assert command.config.env.options == {"map": "a:b", "size": 5} and command.preset == "classic-control"
    assert parsed(f"compare {own} --operators max theirs:op").operators == ("max", "theirs:op")
    assert parsed(f"compare --env.options none {own}").config.env.options == {}
    assert parsed(f"train --env.options=size=5 --network.kind nets:linear {own}").config.env.options == {"size": 5}


def test_none_is_taken_in_any_case_wherever_there_may_be_none():
    for word in ("none", "None", "NONE"):
        command = parsed(
            f"train --learner.reward-clip {word} --loop.test_episodes={word} --minatar.max-steps {word} "
            f"minatar/breakout --protocol.max-frames-per-game={word} --network.hidden {word}"
        )
        assert command.config.learner.reward_clip is command.config.loop.test_episodes is None
        assert command.config.minatar.max_steps is command.config.protocol.max_frames_per_game is None
        assert command.config.network.hidden == () and command.environment == "minatar/breakout"
    assert parsed("train --network.hidden none gym/CartPole-v1").config.network.hidden == ()
    assert parsed("train gym/CartPole-v1 --network.hidden=none --quiet").config.network.hidden == ()
    assert parsed("train gym/CartPole-v1 --operator none").operator == "none"  # an operator may be called so


def test_a_home_directory_is_meant_wherever_a_path_is_taken(softbellman, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for line in ("train gym/CartPole-v1 --out=~/x", "compare gym/CartPole-v1 --out ~/x", "solve forest --out ~/x"):
        assert parsed(line).out == tmp_path / "home" / "x"
    for name in ("report", "resume"):
        assert parsed(f"{name} ~/x").study == tmp_path / "home" / "x"
    for name in ("evaluate", "watch"):
        assert parsed(f"{name} ~/x").run == tmp_path / "home" / "x"
    (tmp_path / "home").mkdir()
    content = '{"states": 1, "actions": 1, "gamma": 0.5, "transitions": [[0, 0, 0, 1.0, 1.0]]}'
    (tmp_path / "home" / "one.json").write_text(content)
    code, out, errors = softbellman("solve", "~/one.json", "--out", "~/table.csv")
    assert (code, errors) == (0, "") and "solved" in out
    assert (tmp_path / "home" / "table.csv").exists() and not (tmp_path / "~").exists()


def test_so_few_steps_cannot_teach_an_atari_game(softbellman):
    pytest.importorskip("ale_py")
    _, out, _ = softbellman("train", "atari/breakout", "--preset", "demo-atari", "--dry-run")
    assert "note 10,000 agent steps cannot teach an Atari game" in " ".join(out.split())


def test_operators_are_listed_and_checked(softbellman):
    code, out, errors = softbellman("operators")
    assert (code, errors) == (0, "")
    assert re.search(r"softmax\(5\) +no +value +0\.1207 +S-DQN", out)
    assert re.search(r"keep\(0\.1\) +yes +none +0\.0238 s", out)
    assert re.search(r"double\(mellowmax\(5\)\) +yes +value +1\.0000 s +double mellowmax", out)
    for group, entries in GROUPS.items():
        assert f"{group[0].upper()}{group[1:]}\n" in out
        assert all(f" {entry.spec} " in out for entry in entries), "a spec is broken over lines"
    assert max(map(len, out.splitlines())) <= 100
    code, out, _ = softbellman("operators", "--check", "mellowmax(5)")
    assert code == 0
    assert "no claimed law violated" in out


def test_doctor_says_what_works(softbellman):
    _, out, errors = softbellman("doctor")
    assert errors == ""
    assert re.search(r"^ok +Gymnasium +gym/CartPole-v1 starts", out, flags=re.MULTILINE)


def test_a_fault_of_a_users_is_one_line_and_never_one_of_our_own(softbellman, monkeypatch):
    def theirs(_):
        raise KeyError("no such thing")

    monkeypatch.setitem(cli._HANDLERS, "doctor", theirs)
    code, out, errors = softbellman("doctor")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"softbellman: KeyError: 'no such thing' \(.*test_arguments\.py, line \d+\)\n", errors)


def test_a_fault_of_our_own_is_one_line_with_the_rest_in_a_file(softbellman, monkeypatch):
    monkeypatch.setitem(cli._HANDLERS, "doctor", ours("raise KeyError('no such thing')"))
    code, _, errors = softbellman("doctor")
    assert code == 1
    told = re.fullmatch(r"softbellman: a fault of softbellman's own, KeyError: .* \(all of it: (.*)\)\n", errors)
    assert told
    assert "Traceback" in Path(told[1]).read_text()
    os.unlink(told[1])

    monkeypatch.setitem(
        cli._HANDLERS, "doctor", ours("""raise ModuleNotFoundError("No module named 'jax'", name="jax")""")
    )
    code, _, errors = softbellman("doctor")
    assert (code, errors) == (2, 'softbellman: jax is not installed; run: pip install "softbellman[train]"\n')


def test_who_reads_no_further_sees_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "train", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() in (0, 1)
    assert errors == ""


@pytest.mark.parametrize("group", ["paper", "simulate"])
def test_a_group_lists_its_commands(softbellman, group):
    code, out, errors = softbellman(group, "--help")
    assert (code, errors) == (0, "")
    listed = {line[2:22].strip() for line in out.splitlines() if line.startswith("  ")}
    assert listed == {name for name in COMMANDS if name.startswith(f"{group} ")}
    assert softbellman(group) == (2, out, "")
