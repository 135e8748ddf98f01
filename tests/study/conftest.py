"""Small studies, made once for all tests here."""

import sys
import textwrap

import jax
import pytest

from softbellman import envs
from softbellman import operators as ops
from softbellman.study import config as configs
from softbellman.study import groups
from softbellman.study.plan import make_network, plan
from softbellman.study.store import Study, save_params

TINY = {
    "loop.steps": 400,
    "loop.epoch_steps": 200,
    "loop.test_steps": 300,
    "loop.held_out_states": 320,  # as many as the common ones, so that one compilation serves both
    "loop.gradient_batches": 2,
    "learner.replay_start_steps": 100,
    "learner.target_period_updates": 20,
}
WALK = """
    import gymnasium
    import numpy as np

    class Walk(gymnasium.Env):
        metadata = {"render_modes": ["rgb_array"]}
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)

        def __init__(self, length=12, size=(40, 60), render_mode=None):
            self.length, self.size, self.render_mode = length, size, render_mode

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.moment = 0
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.moment += 1
            return np.full(1, self.moment / 10, np.float32), float(action), self.moment == self.length, False, {}

        def render(self):
            picture = np.zeros((*self.size, 3), np.uint8)
            picture[..., 0], picture[..., 2] = 20 * self.moment, 255 - 20 * self.moment
            return picture

    gymnasium.register("Walk-v0", Walk)
"""


def _planned(environment, preset, operator, seeds, values):
    config = configs.preset(preset).config
    for name, value in values.items():
        config = configs.replaced(config, name, value)
    return plan(environment, ops.parse(operator), seeds, config)


def _created(folder, planned):
    facts = {planned.environment: planned.facts}
    return Study.create(
        folder, planned.environment, [planned.operator], planned.seeds, planned.config, facts, ["train"]
    )


def trained(folder, *of):
    study, rows = _created(folder, _planned(*of)), []
    groups.train(study, on_row=lambda index, row, phase: rows.append((index, row, phase)))
    return study, rows


def _untrained(folder, planned, env):
    study = _created(folder, planned)
    study.runs[0].path.mkdir(parents=True)
    params = make_network(planned.config.network, env.obs_scale, env.obs_shape, env.num_actions).init(jax.random.key(0))
    save_params(study.runs[0].path / "best.safetensors", params, 0, 0.0)
    env.close()
    return study


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory):
    """A study of two seeds of CartPole, and what was told after each test phase."""
    values = TINY | {"loop.test_episodes": 5}
    folder = tmp_path_factory.mktemp("studies") / "cartpole"
    return trained(folder, "gym/CartPole-v1", "classic-control", "double(softmax(5))", [0, 3], values)


@pytest.fixture(scope="session")
def breakout(tmp_path_factory):
    """A study, untrained, of Atari's Breakout."""
    pytest.importorskip("ale_py")
    planned = _planned("atari/breakout", "demo-atari", "softmax(5)", [0], {})
    env = envs.make("atari/breakout", seed=0, training=False, protocol=planned.config.protocol)
    return _untrained(tmp_path_factory.mktemp("studies") / "breakout", planned, env)


@pytest.fixture(scope="session")
def walk(tmp_path_factory):
    """A study, untrained, of an environment that renders without another package, `gym/walk:Walk-v0`."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "walk.py").write_text(textwrap.dedent(WALK))
    sys.path.insert(0, str(folder))
    planned = _planned("gym/walk:Walk-v0", "classic-control", "max", [0], TINY)
    yield _untrained(tmp_path_factory.mktemp("studies") / "walk", planned, envs.make(planned.environment, seed=0))
    sys.path.remove(str(folder))
