"""The page docs/environments.md is true: its modules are written, its commands run, its Python too."""

import re
import shlex
import sys

import numpy as np
import pytest

from softbellman import cli, envs
from softbellman.running.build import make_network

from ..pages import read_page, run_page

PAGE, (GRIDS, COMPARED, WALLS, NETS) = read_page("environments.md")
COMMANDS = re.findall(r"^softbellman .*$", PAGE, re.MULTILINE)
TINY = ["--quiet", "--loop.test-steps", "100", "--loop.held-out-states", "320", "--loop.gradient-batches", "2"]
SHORT = {"train": TINY, "compare": [*TINY, "--seeds", "1"], "watch": []}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory with the page's modules, found as on the command line."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "grids.py").write_text(GRIDS)
    (folder / "walls.py").write_text(WALLS)
    (folder / "nets.py").write_text(NETS)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.syspath_prepend(folder)
        patched.setenv("NPROC", "2")
        yield folder
    make_network.cache_clear()
    for name in ("grids", "walls", "nets"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_the_commands_do_what_the_page_says(folder, capsys):
    assert len(COMMANDS) == 5
    for line in COMMANDS:
        program, *words = shlex.split(line)
        assert (program, cli.run([*words, *SHORT[words[0]]])) == ("softbellman", 0), capsys.readouterr().err
    assert list((folder / "runs" / "grid" / "runs" / "grids-make_grid" / "max" / "seed-0" / "videos").iterdir())
    assert len(list((folder / "runs").glob("*"))) == 4


def test_the_function_itself_is_passed_in_python(folder):
    with run_page([COMPARED], "compared", tolerance=0.0) as (names, promises):
        assert promises == 2
    assert names["study"].record["environments"] == ["grids:make_grid"]
    assert (folder / "runs" / "seven" / "study.json").exists()


def test_the_masks_of_the_page_are_heeded(folder):
    env, rng, seen = envs.make("walls:Walled", seed=0), np.random.default_rng(0), set()
    assert env.rehearse() == []
    env.reset()
    for _ in range(200):
        seen.add(tuple(env.legal[0].tolist()))
        env.step(rng.choice(np.flatnonzero(env.legal[0]), size=1))
    assert seen == {(False, True), (True, True)}
