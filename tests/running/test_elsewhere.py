"""Environments that no other process can make are refused before any is started."""

import subprocess
import sys
import textwrap
from types import ModuleType

import gymnasium
import pytest

from softbellman import config as configs
from softbellman import envs
from softbellman import operators as ops
from softbellman.config import with_settings
from softbellman.running import comparison as module
from softbellman.running.elsewhere import require_elsewhere
from softbellman.running.plan import plan

GRID = """
    import gymnasium as gym, numpy as np
    class Grid(gym.Env):
        observation_space = gym.spaces.Box(0, 1, (3,), np.float32)
        action_space = gym.spaces.Discrete(2)
        def reset(self, *, seed=None, options=None): return np.zeros(3, np.float32), {}
        def step(self, action): return np.zeros(3, np.float32), 1.0, True, False, {}
"""


@pytest.fixture
def registered(tmp_path, monkeypatch):
    """Registers ids, and forgets them; `grids.Grid` is a class that can be imported, and registers nothing."""
    (tmp_path / "grids.py").write_text(textwrap.dedent(GRID))
    ours = textwrap.dedent(GRID) + "print('a word')\ngym.register('OfModule-v0', entry_point=lambda: Grid())\n"
    (tmp_path / "registering.py").write_text(ours)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(gymnasium.registry)
    yield gymnasium.register
    for name in set(gymnasium.registry) - known:
        del gymnasium.registry[name]
    for name in ("grids", "registering"):
        sys.modules.pop(name, None)


def refuse(name, *more, config=None):
    with pytest.raises(ValueError, match=r"can't be made by the processes that train") as refused:
        require_elsewhere([name, *more], config or configs.Config())
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_an_id_that_only_this_process_registered_is_refused_with_what_to_do(registered):
    class Local(gymnasium.Env):
        pass

    registered("OfClass-v0", entry_point=Local)
    registered("OfLambda-v0", entry_point=lambda: Local())
    registered("OfName-v0", entry_point="grids:Grid")
    for name in ("OfClass-v0", "OfLambda-v0", "OfName-v0"):
        fault = refuse(f"gym/{name}", "gym/CartPole-v1")
        assert fault.startswith(f"gym/{name} can't") and f"as in gym/my_module:{name}" in fault
        assert f"unknown Gymnasium environment {name!r}" in fault


def test_an_id_that_an_earlier_import_registered_needs_its_module(registered):
    import registering  # noqa: F401  # pyright: ignore

    assert "as in gym/my_module:OfModule-v0" in refuse("gym/OfModule-v0")
    require_elsewhere(["gym/registering:OfModule-v0", "gym/CartPole-v1", "minatar/breakout"], configs.Config())


def test_a_module_that_does_not_register_the_id_is_refused(registered):
    registered("OfScript-v0", entry_point="grids:Grid")
    assert "unknown Gymnasium environment" in refuse("gym/grids:OfScript-v0")
    assert "__main__" in refuse("gym/__main__:OfScript-v0")


def test_a_process_that_dies_is_told_of(registered, tmp_path):
    (tmp_path / "dying.py").write_text("import os, sys\nprint('no licence', file=sys.stderr)\nos._exit(3)\n")
    assert "(no licence)" in refuse("gym/dying:X-v0")


def test_a_factory_is_made_elsewhere_with_its_options(registered, tmp_path):
    (tmp_path / "made.py").write_text("from grids import Grid\ndef make(size): return Grid()\n")
    sized = with_settings(configs.Config(), {"env.options": {"size": 5}})
    require_elsewhere(["grids:Grid"], configs.Config())
    require_elsewhere(["made:make"], sized)
    assert "missing a required argument: 'size'" in refuse("made:make", config=configs.Config())


def test_what_is_in_no_file_is_refused_though_this_process_finds_it(registered, monkeypatch):
    memory = ModuleType("memory")
    exec(
        "from grids import Grid\ndef make(): return Grid()\ndef net(obs_shape, num_actions, scale): pass\n",
        vars(memory),
    )
    memory.make.__module__ = "memory"
    monkeypatch.setitem(sys.modules, "memory", memory)
    fault = refuse(envs.name_of(memory.make))
    assert fault.startswith("memory:make can't") and "No module named 'memory'" in fault
    assert fault.endswith("put it into a module, outside of any function, and import it from there")
    own = with_settings(configs.Config(), {"network.kind": "memory:net"})
    assert refuse("minatar/breakout", config=own).startswith("memory:net can't be made by the processes that train")


def test_a_comparison_is_refused_and_training_in_this_process_is_not(registered):
    registered("OfName-v0", entry_point="grids:Grid")
    config = configs.preset("classic-control").config
    with pytest.raises(ValueError, match="gym/OfName-v0 can't be made by the processes that train"):
        module.prepare(["gym/OfName-v0"], [ops.maximum()], [0], config)
    assert plan("gym/OfName-v0", ops.maximum(), 0, config).facts["num_actions"] == 2


def test_a_script_that_registers_its_own_is_refused_before_anything_starts(tmp_path):
    script = textwrap.dedent(GRID) + textwrap.dedent(
        """
        import softbellman as sb
        gym.register("Mine-v0", entry_point=Grid)
        try:
            sb.compare("gym/Mine-v0", ["max"], seeds=1, out="study")
        except ValueError as error:
            print(error)
        """
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("gym/Mine-v0 can't be made by the processes that train")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("end", ["", "\\n"], ids=["within a line", "with a line"])
def test_what_python_prints_when_it_starts_is_no_answer(registered, tmp_path, end):
    (tmp_path / "sitecustomize.py").write_text(f"import os\nos.write(1, b'[1] patched{end}')\n")
    require_elsewhere(["grids:Grid"], configs.Config())
    assert "No module named 'nowhere'" in refuse("nowhere:Grid")
