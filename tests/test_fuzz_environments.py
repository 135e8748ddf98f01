"""Small environments drawn at random, good and bad in one way each: trained with, tested, or refused in a sentence.

A hand-written agent, which scales observations and computes values in NumPy alone, must see and do the same.
"""

import itertools
import json
import re
import shutil
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from softbellman import cli
from softbellman.envs.gym import GymEnv
from softbellman.running.build import make_network, obs_scale
from softbellman.study.files import load_params
from softbellman.study.store import Study

TINY = [
    *("--steps", "300", "--loop.epoch-steps", "150", "--loop.test-steps", "30", "--loop.held-out-states", "64"),
    *("--loop.gradient-batches", "0", "--learner.replay-start-steps", "100", "--learner.target-period-updates", "20"),
    *("--learner.epsilon-decay-steps", "50", "--network.kind", "mlp", "--network.hidden", "8"),
]
LATER_STEP, LATER_RESET = 150, 30  # a rehearsal of at most a hundred steps is over, and training is not
INF = np.inf

# Low, high, shape and dtype. There are few, since each is compiled for.
SPACES = [
    (-1, 1, (4,), np.float32),
    (-INF, INF, (4,), np.float64),
    (0, 1, (4,), np.float16),
    (0, 1, (4,), np.uint8),
    (0, 255, (4,), np.uint8),
    (0, 1, (4,), bool),
    (-1, 1, (4,), np.int8),
    (-128, 127, (4,), np.int8),
    (-INF, INF, (4,), np.int8),
    (0, 1000, (4,), np.uint16),
    ([0, -3, 0, 1], [1, 2, 7, 1], (4,), np.int16),
    (-3, 12, (4,), np.int32),
    (-(2**31), 2**31 - 1, (4,), np.int32),
    (0, 2**32 - 1, (4,), np.uint32),
    ([0, -(2**40), 0, 0], [5, 5, 2**31 - 1, 2**31 - 2], (4,), np.int64),
    (0, INF, (4,), np.int64),
    (-2, 2, (), np.float32),
    (-5, 3, (), np.int64),
    (0, 9, (1,), np.uint8),
    (0, 1, (2, 3), np.float32),
    (0, 255, (3, 4, 5), np.uint8),
    (0, 255, (5, 6, 3), np.uint8),
    ([0, 0, 0], [255, 1, 16], (5, 6, 3), np.uint8),
    (0, 1, (5, 6, 3), np.float32),
]


@dataclass(frozen=True)
class Recipe:
    """An environment: its space, what it gives, and the one way in which it is bad, if it is."""

    space: tuple[Any, Any, tuple[int, ...], Any]
    first_action: int
    reward: str
    end: str
    end_type: str
    length: int
    limit: int | None
    info: str
    fault: str | None
    late: bool

    @property
    def bounds(self):
        low, high, shape, _ = self.space
        return (np.broadcast_to(np.array(bound, object), shape) for bound in (low, high))

    def box(self):
        low, high, shape, dtype = self.space
        if isinstance(low, list):
            low, high = (np.broadcast_to(np.array(bound, dtype), shape) for bound in (low, high))
            return Box(low, high, dtype=dtype)
        return Box(low, high, shape, dtype)


REWARDS = {
    "float": float, "float64": np.float64, "float32": np.float32, "int": int, "int64": np.int64, "bool": bool,
    "numpy bool": np.bool_, "array": np.array,
}  # fmt: skip
END_TYPES = {"bool": bool, "numpy bool": np.bool_, "int": int, "array": np.array}
ENDS = {"terminated": (True, False), "truncated": (False, True), "both": (True, True), "never": (False, False)}
INFOS = {
    "empty": {},
    "words": {"note": "x", "path": [1, 2]},
    "all legal": {"action_mask": np.ones(2, np.int8)},
    "one legal": {"action_mask": np.array([False, True])},
}

# A faulty return of the step or the reset, and the words of the message about it.
STEP_FAULTS = {
    "of the old Gym": (lambda o, r, t, c, i: (o, r, t or c, i), "step must return 5 values"),
    "nothing": (lambda *_: None, "step must return 5 values"),
    "no reward": (lambda o, r, t, c, i: (o, None, t, c, i), "a reward must be a real number, and is None"),
    "reward in an array": (lambda o, r, t, c, i: (o, np.ones(1), t, c, i), "a reward must be a real number"),
    "reward of words": (lambda o, r, t, c, i: (o, "much", t, c, i), "a reward must be a real number, and is str"),
    "infinite reward": (lambda o, r, t, c, i: (o, INF, t, c, i), "the reward inf, which is not finite"),
    "no end": (lambda o, r, t, c, i: (o, r, None, c, i), "terminated must be True or False, and is None"),
    "end in an array": (lambda o, r, t, c, i: (o, r, t, np.array([c]), i), "truncated must be True or False"),
    "no info": (lambda o, r, t, c, i: (o, r, t, c, []), "the info that step returns must be a dict"),
    "no observation": (lambda o, r, t, c, i: (None, r, t, c, i), "an observation of dtype object"),
    "another shape": (lambda o, r, t, c, i: (np.stack([o, o]), r, t, c, i), "an observation of shape"),
    "words seen": (lambda o, r, t, c, i: (np.full(o.shape, "a"), r, t, c, i), "an observation of dtype <U1"),
    "beyond": (lambda o, r, t, c, i: (_beyond(o), r, t, c, i), "not finite|where its space says"),
    "raises": (
        lambda *_: {}["key"],
        r"fails (in step|for action).*KeyError: 'key' \(.*test_fuzz_environments.py, line \d+\)",
    ),
}
RESET_FAULTS = {
    "alone": (lambda o, i: o, "reset must return 2 values, observation, info"),
    "three": (lambda o, i: (o, i, 0), "reset must return 2 values"),
    "info of none": (lambda o, i: (o, None), "the info that reset returns must be a dict, and is None"),
    "raises in reset": (
        lambda *_: 1 / 0,
        r"fails in reset: ZeroDivisionError: .*test_fuzz_environments.py, line \d+\)",
    ),
}


def _beyond(obs):
    """An observation that no space here could declare: NaN, or more than any integer of its dtype."""
    if obs.dtype.kind == "f":
        return np.full_like(obs, np.nan)
    return np.full(obs.shape, 2 if obs.dtype.kind == "b" else int(np.iinfo(obs.dtype).max) + 1, object).astype(
        np.uint64 if obs.dtype == np.int64 else np.int64
    )


class Drawn(gymnasium.Env):
    """An environment after a recipe, which remembers what it was shown to do."""

    made: list["Drawn"] = []  # noqa: RUF012

    def __init__(self, recipe):
        self.recipe = recipe
        self.observation_space = recipe.box()
        self.action_space = Discrete(2, start=recipe.first_action)
        self.steps = self.resets = self.time = 0
        self.played: list[tuple[np.ndarray, int]] = []
        self.made.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.time = self.resets + 1, 0
        return self._wrong(RESET_FAULTS, self.resets >= LATER_RESET, self._observe(), self._info())

    def step(self, action):
        assert self.action_space.contains(action)
        self.played.append((self.seen, int(action)))
        self.steps, self.time = self.steps + 1, self.time + 1
        ended = self.time >= self.recipe.length
        ends = [END_TYPES[self.recipe.end_type](ended and which) for which in ENDS[self.recipe.end]]
        reward = REWARDS[self.recipe.reward](action == self.recipe.first_action)
        return self._wrong(STEP_FAULTS, self.steps >= LATER_STEP, self._observe(), reward, *ends, self._info())

    def _wrong(self, faults, is_late, *right):
        if self.recipe.fault not in faults or not (is_late or not self.recipe.late):
            return right
        return faults[self.recipe.fault][0](*right)

    def _info(self):
        return dict(INFOS[self.recipe.info])

    def _observe(self):
        low, high = (bound.astype(np.float64) for bound in self.recipe.bounds)
        low, high = np.maximum(low, -50), np.minimum(high, 120 if self.recipe.space[3] == np.int8 else 300)
        at = low + self.np_random.random(low.shape) * (high - low)
        dtype = np.dtype(self.recipe.space[3])
        self.seen = np.asarray(at if dtype.kind == "f" else np.rint(at)).astype(dtype)
        return self.seen


def by_hand(recipe, params, raw):
    """The values of the two actions, as a hand-written agent computes them from what the environment gave."""
    x = raw.astype(np.float32)
    if np.dtype(recipe.space[3]).kind in "iu":
        for at, bounds in zip(
            np.ndindex(raw.shape), zip(*(bound.flat for bound in recipe.bounds), strict=True), strict=True
        ):
            largest = max(abs(bound) for bound in bounds)
            if 1 < largest < 2**31 - 1:
                x[at] /= np.float32(largest)
    if raw.dtype == np.uint8 and raw.shape == (5, 6, 3):
        x = x.transpose(2, 0, 1)
    hidden = np.maximum(x.reshape(1, -1) @ params["dense_1"]["w"] + params["dense_1"]["b"], 0)
    return (hidden @ params["q"]["w"] + params["q"]["b"])[0]


@st.composite
def recipes(draw):
    pick = lambda names: draw(st.sampled_from(list(names)))  # noqa: E731
    recipe = Recipe(
        space=pick(SPACES),
        first_action=pick([0, 5, -1]),
        reward=pick(REWARDS),
        end=pick(ENDS),
        end_type=pick(END_TYPES),
        length=draw(st.integers(1, 7)),
        limit=pick([None, 5]),
        info=pick(INFOS),
        fault=pick([None, *STEP_FAULTS, *RESET_FAULTS]) if draw(st.booleans()) else None,
        late=draw(st.booleans()),
    )
    if recipe.fault in RESET_FAULTS:  # there must be resets for it, and none in a rehearsal that waits for a mask
        recipe = replace(recipe, end="terminated", length=min(recipe.length, 3), info="empty")
    return recipe


@pytest.fixture
def attempt(tmp_path, monkeypatch, capsys):
    """Trains with an environment and tests it, and checks all that should hold."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NPROC", "2")
    monkeypatch.setattr("softbellman.report.pictures.draw_curves", lambda *_: None)  # slow, and not what is tried
    # Drawn environments are registered in this process alone, where a factory would be refused and rightly so.
    monkeypatch.setattr("softbellman.running.comparison.require_elsewhere", lambda environments, config: None)
    numbers = itertools.count()

    def run(*words):
        code = cli.run([*words])
        out, errors = capsys.readouterr()
        assert "Traceback" not in out + errors and "fault of softbellman's own" not in errors
        return code, out, errors

    def attempt(recipe):
        name, out = f"Drawn{next(numbers)}-v0", tmp_path / "study"
        gymnasium.register(name, entry_point=lambda: Drawn(recipe), max_episode_steps=recipe.limit)
        try:
            code, told, errors = run("train", f"gym/{name}", "--operator", "max", "--out", str(out), *TINY)
            if recipe.fault is None:
                assert (code, errors) == (0, "")
                assert ("the legal ones by" in " ".join(told.split())) == recipe.info.endswith("legal")
                tested(name, recipe, Study(out))
            else:
                _, rule = (STEP_FAULTS | RESET_FAULTS)[recipe.fault]
                assert code == (1 if recipe.late else 2), errors
                assert len(errors.splitlines()) == 1
                assert f"gym/{name} " in errors
                assert re.search(rule, errors), errors
                assert out.exists() == recipe.late
                if recipe.late:
                    (run_path,) = Study(out).runs
                    assert json.loads((run_path.path / "status.json").read_text())["state"] == "failed"
        finally:
            del gymnasium.registry[name]
            Drawn.made.clear()
            shutil.rmtree(out, ignore_errors=True)

    def tested(name, recipe, study):
        params, _ = load_params(study.runs[0].path / "final.safetensors")
        Drawn.made.clear()
        code, _, errors = run(
            "evaluate", str(study.path), "--network", "final", "--epsilon", "0", "--episodes", "2", "--max-steps", "20"
        )
        assert (code, errors) == (0, "")
        for raw, action in Drawn.made[0].played:
            q = by_hand(recipe, params, raw)
            if recipe.info == "one legal":
                assert action - recipe.first_action == 1
                continue
            assert abs(q[0] - q[1]) < 1e-4 * max(1, abs(q).max()) or action - recipe.first_action == q.argmax()
        env = GymEnv(name, seed=3)
        obs, raw = env.reset(), Drawn.made[-1].seen
        scale = obs_scale(f"gym/{name}", study.record["environment_facts"][f"gym/{name}"], study.config)
        network = make_network(study.config.network, scale, env.obs_shape, env.num_actions)
        np.testing.assert_allclose(network.apply(params, obs)[0], by_hand(recipe, params, raw), rtol=1e-4, atol=1e-5)

    return attempt


def fuzz(examples, **options):
    return settings(
        max_examples=examples,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],  # to shrink would take a training for each try
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        **options,
    )


@fuzz(16, derandomize=True)
@given(recipes())
def test_an_environment_is_learned_from_or_refused_in_a_sentence(attempt, recipe):
    attempt(recipe)


@pytest.mark.slow
@fuzz(300)
@given(recipes())
def test_three_hundred_environments_are_learned_from_or_refused_in_a_sentence(attempt, recipe):
    attempt(recipe)
