"""The page docs/presets.md is true: their names, their steps, which is an environment's own."""

import inspect
import re
import shlex
import subprocess
import sys

import softbellman as sb
from softbellman import config as configs
from softbellman.cli.commands import Training
from softbellman.config.presets import PRESETS, default_preset
from softbellman.envs.families import FACTORIES, FAMILIES

from ..pages import read_page

PAGE, BLOCKS = read_page("presets.md")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_preset_is_listed_once_with_its_steps():
    steps = {}
    for names, counts, _ in ROWS:
        found = re.findall(r"\d[\d,]+", counts)
        listed = re.findall(r"`([\w-]+)`", names)
        steps |= dict(zip(listed, found * (len(listed) // len(found)), strict=True))
    assert steps == {name: f"{preset.config.loop.steps:,}" for name, preset in PRESETS.items()}
    assert len(steps) == sum(len(re.findall(r"`([\w-]+)`", names)) for names, *_ in ROWS)


def test_the_preset_of_an_environment_is_the_one_that_is_said():
    said = dict(re.findall(r"^\| `([\w-]+)`, default for (`\w+/`|all others)", PAGE, re.MULTILINE))
    others = {family.preset for prefix, family in FAMILIES.items() if f"`{prefix}/`" not in said.values()}
    assert others | {FACTORIES.preset} == {name for name, of in said.items() if of == "all others"}
    for name, of in said.items():
        if of != "all others":
            assert default_preset(f"{of.strip('`')}any") == name


def test_the_readme_says_the_same():
    readme = " ".join(read_page("../README.md")[0].split())
    assert "by default `paper-atari` for `atari/`" in readme and "`sharp-minatar` for `minatar/`" in readme
    assert "`classic-control` for the others" in readme
    assert len(PRESETS) == 11 and "There are eleven ([docs/presets.md]" in readme


def test_the_help_of_a_command_names_each():
    assert all(f"`{name}`" in (Training.__doc__ or "") for name in PRESETS)


def test_what_it_shows_can_be_asked_for(monkeypatch, tmp_path):
    (command,) = re.findall(r"^softbellman (.*)$", PAGE, re.MULTILINE)
    words = [sys.executable, "-m", "softbellman", *shlex.split(command)]
    process = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert "500,000 agent steps" in process.stdout
    assert not any(tmp_path.iterdir())
    asked, signature = {}, inspect.signature(sb.compare)
    monkeypatch.setattr(sb, "compare", lambda *given, **more: asked.update(signature.bind(*given, **more).arguments))
    (block,) = BLOCKS
    exec(block, {})
    config = configs.preset(asked["preset"]).config
    for name, value in asked["settings"].items():
        assert configs.replaced(config, name, value) != config
