"""Environments that a function or class of a user's own makes."""

import sys
import textwrap

import gymnasium
import numpy as np
import pytest

import softbellman as sb
from softbellman import envs
from softbellman.envs import EnvOptions
from softbellman.running.play import FilmWriter

from ..studies import TINY, planned_study

GRIDS = """
    import gymnasium as gym, numpy as np

    class Grid(gym.Env):
        action_space = gym.spaces.Discrete(2)

        def __init__(self, size=3, slippery=False, render_mode=None):
            self.size, self.slippery, self.render_mode = size, slippery, render_mode
            self.observation_space = gym.spaces.Box(0, 1, (size,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.place = 0
            return np.eye(self.size, dtype=np.float32)[0], {}

        def step(self, action):
            if self.slippery and self.np_random.random() < 0.3:
                action = 1 - action
            self.place = min(max(self.place + 2 * int(action) - 1, 0), self.size - 1)
            end = self.place == self.size - 1
            return np.eye(self.size, dtype=np.float32)[self.place], float(end), end, False, {}

        def render(self):
            return np.full((8, 8, 3), 30 * self.place, np.uint8)

    class Small(Grid):
        @classmethod
        def sized(cls, size): return gym.wrappers.TimeLimit(gym.wrappers.TimeLimit(cls(size), 9), 7)

    def make_grid(size=3, slippery=False): return gym.wrappers.TimeLimit(Grid(size, slippery), 20)
    def of_gymnasium(**options): return gym.make("CartPole-v1", **options)
    def nothing(size): pass
    def vector(): return gym.make_vec("CartPole-v1", 2)
    def failing(): return {}["licence"]
    def leaving(): raise SystemExit(3)
    ONLY = make_grid()
    def the_same(): return ONLY
    def the_same_wrapped(): return gym.wrappers.TimeLimit(ONLY, 5)
    number = 3
"""


@pytest.fixture
def grids(tmp_path, monkeypatch):
    (tmp_path / "grids.py").write_text(textwrap.dedent(GRIDS))
    monkeypatch.syspath_prepend(tmp_path)
    import grids  # pyright: ignore

    yield grids
    sys.modules.pop("grids", None)


@pytest.mark.usefixtures("grids")
def test_a_function_and_a_class_make_copies_by_their_options():
    env = envs.make("grids:make_grid", seed=0, num_envs=2, protocol=EnvOptions(options={"size": 5}))
    assert (env.obs_shape, env.num_actions, env.reset().shape) == ((5,), 2, (2, 5))
    facts = env.describe()
    assert facts["environment"] == "grids:make_grid" and facts["options"] == {"size": 5}
    assert facts["max_episode_steps"] == 20
    assert envs.make("grids:Grid", seed=0).obs_shape == (3,)
    sized = envs.make("grids:Small.sized", seed=0, protocol=EnvOptions(options={"size": 4}))
    assert (sized.obs_shape, sized.describe()["max_episode_steps"]) == ((4,), 7)


@pytest.mark.parametrize("name", ["gym/CartPole-v1", "mdp/small", "minatar/breakout", "atari/breakout", "grids:Grid"])
@pytest.mark.parametrize("number", [2.0, np.float32(2), np.int64(2)], ids=lambda number: type(number).__name__)
@pytest.mark.usefixtures("grids")
def test_a_whole_number_of_copies_of_any_type_makes_so_many(name, number):
    if name.startswith("atari"):
        pytest.importorskip("ale_py")
    env = envs.make(name, seed=0, num_envs=number)
    assert type(env.num_envs) is int and env.reset().shape == (2, *env.obs_shape)
    assert env.step(np.zeros(2, np.int32)).reward.shape == (2,)
    env.close()
    for wrong in (2.5, 0.0, "two", None):
        with pytest.raises((ValueError, TypeError), match="num_envs"):
            envs.make(name, seed=0, num_envs=wrong)


@pytest.mark.usefixtures("grids")
def test_the_plan_says_and_records_the_options():
    values = TINY | {"env.options": {"slippery": True, "size": 4}}
    planned = planned_study("grids:make_grid", "classic-control", "max", [0], values)
    said = dict(planned.environment_lines({}))["environment"]
    assert (
        said == "grids:make_grid: 2 actions, no frame skip, cut after 20 steps, size 4, slippery True; "
        "rewards enter learning as they are"
    )
    assert dict(planned.settings())["env.options"] == planned.facts["options"] == {"size": 4, "slippery": True}


def test_an_id_takes_options_too_its_time_limit_among_them():
    values = TINY | {"env.options": {"max_episode_steps": 20, "sutton_barto_reward": True}}
    planned = planned_study("gym/CartPole-v1", "classic-control", "max", [0], values)
    said = dict(planned.environment_lines({}))["environment"]
    assert said.startswith("gym/CartPole-v1: 2 actions, no frame skip, cut after 20 steps, sutton_barto_reward True;")
    with pytest.raises(ValueError, match="unexpected keyword argument 'siz'"):
        envs.make("gym/CartPole-v1", seed=0, protocol=EnvOptions(options={"siz": 3}))


@pytest.mark.parametrize("environment", ["atari/breakout", "minatar/breakout", "mdp/forest"])
def test_options_where_none_are_heeded_are_refused(environment):
    with pytest.raises(ValueError, match=r"does not heed the fields of env; they are for gym/<id> and package"):
        planned_study(environment, "classic-control", "max", [0], {"env.options": {"size": 3}})
    if not environment.startswith("atari"):
        with pytest.raises(ValueError, match="takes no protocol such as EnvOptions"):
            envs.make(environment, seed=0, protocol=EnvOptions())


@pytest.mark.usefixtures("grids")
@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        (
            "make_grid",
            {"siz": 3},
            r"unexpected keyword argument 'siz'; did you mean size\? \(options that it",
        ),
        (
            "Grid",
            {"size": 3, "xyzzy": 1},
            r"unexpected keyword argument 'xyzzy' \(options that",
        ),
        ("nothing", {}, r"missing a required argument: 'size'"),
        ("nothing", {"size": 3}, "must make one gymnasium.Env, not a vector of them; it made NoneType"),
        ("vector", {}, "must make one gymnasium.Env, not a vector of them; it made CartPoleVectorEnv"),
        ("failing", {}, r"cannot be made: KeyError: 'licence' \(.*grids.py, line \d+\)"),
        ("leaving", {}, r"cannot be made: SystemExit: 3 \(.*grids.py, line \d+\)"),
        ("number", {}, "environment grids:number is of int, and must be a function or class"),
        ("ONLY", {}, "environment grids:ONLY is of TimeLimit, and must be a function or class"),
        ("make_gird", {}, "grids has no make_gird; did you mean make_grid"),
        ("of_gymnasium", {"siz": 3}, "cannot be made: TypeError: .*unexpected keyword argument 'siz'"),
        ("the_same", {}, "makes the same environment again; it must make another at each call"),
        ("the_same_wrapped", {}, "makes the same environment again"),
    ],
)
def test_what_makes_no_environment_is_refused_by_the_plan(name, options, fault):
    with pytest.raises(ValueError, match=fault) as refused:
        planned_study(f"grids:{name}", "classic-control", "max", [0], TINY | {"env.options": options})
    assert f"grids:{name}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.usefixtures("grids")
@pytest.mark.parametrize("name", ["Grid", "of_gymnasium"])
def test_a_film_is_made_where_the_factory_takes_a_render_mode(name, tmp_path):
    env = envs.make(f"grids:{name}", seed=0, record=True)
    env.reset()
    assert "render_mode" not in env.describe()["options"]
    with FilmWriter(tmp_path / "film.gif", 30.0) as film:
        film.add(env.screen())
    assert film.pictures == 1
    with pytest.raises(ValueError, match=r'grids:make_grid renders no pictures; .*render_mode="rgb_array"'):
        envs.make("grids:make_grid", seed=0, record=True)


def test_a_comparison_of_what_no_worker_could_find_writes_nothing(grids, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    for given, why in (
        (lambda: grids.Grid(), "a lambda"),
        (grids.Grid().reset, "leads to another"),
        (grids.ONLY, "name"),
    ):
        with pytest.raises(ValueError, match=rf"^environment .*{why}"):
            sb.compare(given, "max", seeds=1)
    with pytest.raises(ValueError, match="was given grids:Grid twice"):
        sb.compare([grids.Grid, "grids:Grid"], "max", seeds=1)
    assert {path for path in tmp_path.iterdir() if path.name != "__pycache__"} == before - {tmp_path / "__pycache__"}


def test_an_object_is_named_and_an_environment_itself_is_no_name(grids):
    assert envs.name_of(grids.make_grid) == "grids:make_grid" and envs.name_of("gym/X") == "gym/X"
    for given in (grids.ONLY, 3, lambda: grids.Grid(), gymnasium.spec("CartPole-v1")):
        with pytest.raises(ValueError, match=r"^environment "):
            envs.name_of(given)
