"""A user's callback after each test phase: it sees, changes nothing, may ask for a stop, and its faults end nothing."""

import json
import random
import re
import sys
import textwrap

import numpy as np
import pytest

import softbellman as sb
from softbellman.study.files import load_params
from softbellman.study.runs import read_status
from softbellman.study.store import Study

from ..studies import TINY

VALUES = {name: value for name, value in TINY.items() if name != "loop.steps"}
OWN = """
    import json, pathlib

    def note(row, policy):
        file = pathlib.Path(FOLDER) / f"{row['operator']}-{row['seed']}.jsonl"
        with file.open("a") as lines:
            print(json.dumps([row["agent_steps"], row["test_return"], policy.q([0.1, 0, 0, 0]).tolist()]), file=lines)

    def stop(row, policy):
        note(row, policy)
        raise StopIteration

    def fail(row, policy):
        return row["no such column"]

    NUMBER = 1
"""
PICTURES = """
    import gymnasium
    import numpy as np
    from gymnasium import spaces

    class Pictures(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (3, 4, 2), np.uint8)
        action_space = spaces.Discrete(3, start=-1)

        def seen(self):
            self.legal = np.roll([0, 1, 1], self.np_random.integers(3)).astype(np.int8)
            return self.np_random.integers(0, 256, (3, 4, 2), np.uint8), {"action_mask": self.legal}

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.left = 20
            return self.seen()

        def step(self, action):
            assert action in self.action_space and self.legal[action + 1]
            self.left -= 1
            obs, info = self.seen()
            return obs, float(action), self.left == 0, False, info
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module with callbacks of a user's own, which other processes find."""
    (tmp_path / "mine.py").write_text(textwrap.dedent(OWN).replace("FOLDER", repr(str(tmp_path))))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


def train(out, seeds=1, **options):
    return sb.train("gym/CartPole-v1", "softmax(5)", seeds, 400, settings=VALUES, out=out, quiet=True, **options)


def contents(study):
    """All that results are read from, but the wall-clock time."""
    found = {}
    for run in study.runs:
        table = study.metrics()
        found |= {name: column.tobytes() for name, column in table.items() if name != "seconds"}
        for name in ("best", "final"):
            found[f"{run}/{name}"] = (run.path / f"{name}.safetensors").read_bytes()
    return found


def test_it_is_called_after_each_phase_with_the_row_and_the_network_of_that_moment(tmp_path):
    seen = []
    obs = np.array([0.1, 0.0, -0.1, 0.0], np.float32)

    def on_phase(row, policy):
        seen.append((row, policy, policy.q(obs)))
        assert policy.act(obs) == policy.q(obs).argmax()

    study = train(tmp_path / "study", [0, 3], on_phase=on_phase)
    table = study.metrics()
    asked = sorted(
        zip(table["seed"].tolist(), table["agent_steps"].tolist(), table["test_return"].tolist(), strict=True)
    )
    assert sorted((row["seed"], row["agent_steps"], row["test_return"]) for row, _, _ in seen) == asked
    assert {(row["environment"], row["operator"]) for row, _, _ in seen} == {("gym/CartPole-v1", "softmax(5)")}
    first, last = seen[0], [each for each in seen if each[0]["seed"] == seen[0][0]["seed"]][-1]
    assert first[2].tolist() != last[2].tolist()
    assert first[1].q(obs).tolist() == first[2].tolist()  # a policy that was kept is as it was
    run = next(run for run in study.runs if run.seed == last[0]["seed"])
    params, _ = load_params(run.path / "final.safetensors")
    hidden = obs
    for layer in ("dense_1", "dense_2"):
        hidden = np.maximum(hidden @ params[layer]["w"] + params[layer]["b"], 0)
    np.testing.assert_allclose(last[2], hidden @ params["q"]["w"] + params["q"]["b"], rtol=1e-4)


def test_its_policy_speaks_the_environments_language(tmp_path, monkeypatch):
    """Raw pictures, channels last; actions from -1 on; a mask: as for the policy that is loaded afterwards."""
    (tmp_path / "masked_pictures.py").write_text(textwrap.dedent(PICTURES))
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    study = sb.train(
        "masked_pictures:Pictures",
        "softmax(5)",
        [0],
        400,
        settings=VALUES | {"network.kind": "mlp"},
        out=tmp_path / "study",
        quiet=True,
        on_phase=lambda row, policy: seen.append(policy),
    )
    loaded, last = sb.load(study.runs[0].path, network="final"), seen[-1]
    obs, legal = np.random.default_rng(0).integers(0, 256, (20, 3, 4, 2), np.uint8), [1, 0, 1]
    np.testing.assert_array_equal(last.q(obs), loaded.q(obs))
    np.testing.assert_array_equal(last.act(obs, legal), loaded.act(obs, legal=legal))
    assert set(last.act(obs, legal).tolist()) <= {-1, 1} and type(last.act(obs[0], legal)) is int
    with pytest.raises(ValueError, match="masked_pictures:Pictures has illegal actions; pass legal"):
        last.act(obs)
    with pytest.raises(ValueError, match=r"was given observations of shape \(2, 3, 4\)"):
        last.q(np.zeros((2, 3, 4), np.uint8))


def test_bits_are_the_same_with_it_and_without_whatever_it_does(tmp_path):
    def on_phase(row, policy):
        random.seed(0)
        row.clear()
        row["test_return"] = 1e9
        policy.q(np.zeros((7, 4), np.float32))
        for leaf in policy._fixed._params.values():
            leaf.clear()

    assert contents(train(tmp_path / "with", 1, on_phase=on_phase)) == contents(train(tmp_path / "without", 1))


@pytest.mark.parametrize("end", [KeyError("x"), SystemExit(3), np.linalg.LinAlgError("singular")])
def test_what_it_raises_is_told_of_once_in_a_line_with_its_place(tmp_path, capsys, end):
    calls = []

    def on_phase(row, policy):
        calls.append(row)
        raise end

    study = train(tmp_path / "study", 1, on_phase=on_phase)
    (told,) = capsys.readouterr().err.splitlines()
    place = f"{__file__}, line {on_phase.__code__.co_firstlineno + 2}"
    assert told.startswith("softbellman: on_phase failed, and training goes on: ") and told.endswith(f"({place})")
    assert len(calls) == 1 and read_status(study.runs[0]) == "finished"


def test_stop_iteration_ends_all_runs_where_they_are_and_they_can_go_on(tmp_path, capsys):
    def on_phase(row, policy):
        raise StopIteration

    study = train(tmp_path / "study", [0, 3], on_phase=on_phase)
    assert capsys.readouterr().err == ""
    states = {run.seed: read_status(run) for run in study.runs}
    assert states == {0: "stopped", 3: None}
    assert study.metrics()["agent_steps"].tolist() == [200]
    went_on = train(tmp_path / "study", [0, 3])
    assert contents(went_on) == contents(train(tmp_path / "undisturbed", [0, 3]))


def test_a_stop_after_the_last_phase_leaves_a_finished_run(tmp_path):
    def on_phase(row, policy):
        if row["agent_steps"] == 400:
            raise StopIteration

    study = train(tmp_path / "study", [0, 3], on_phase=on_phase)
    assert [read_status(run) for run in study.runs] == ["finished", None]


def test_runs_that_train_together_stop_together_with_the_rows_of_that_phase(tmp_path):
    def on_phase(row, policy):
        raise StopIteration

    values = VALUES | {"loop.block_width": 2}
    options = {"settings": values, "out": tmp_path / "study", "quiet": True, "on_phase": on_phase}
    study = sb.train("gym/CartPole-v1", "softmax(5)", 2, 400, **options)
    assert [read_status(run) for run in study.runs] == ["stopped"] * 2
    assert study.metrics()["agent_steps"].tolist() == [200, 200]


def test_processes_of_their_own_call_a_function_of_a_module(mine, tmp_path):
    import mine as module

    options = {"settings": VALUES, "out": tmp_path / "study", "quiet": True, "workers": 2}
    study = sb.compare("gym/CartPole-v1", ["max", "mean"], 1, 400, on_phase=module.note, **options)
    table = study.metrics()
    for operator in ("max", "mean"):
        lines = [json.loads(line) for line in (mine / f"{operator}-0.jsonl").read_text().splitlines()]
        own = table["operator"] == operator
        assert [line[:2] for line in lines] == [
            [steps, score] for steps, score in zip(table["agent_steps"][own], table["test_return"][own], strict=True)
        ]
        assert all(len(line[2]) == 2 for line in lines)


@pytest.mark.slow
def test_processes_of_their_own_stop_when_one_asks(mine, tmp_path):
    options = {"settings": VALUES, "out": tmp_path / "study", "quiet": True, "workers": 1}
    study = sb.compare("gym/CartPole-v1", ["max", "mean"], 1, 4_000, on_phase="mine:stop", **options)
    assert [read_status(run) for run in study.runs] == ["stopped", None]
    assert not list(study.path.rglob("error.txt"))
    went_on = sb.compare("gym/CartPole-v1", ["max", "mean"], 1, 4_000, **options)
    assert [read_status(run) for run in went_on.runs] == ["finished"] * 2


def test_a_fault_in_another_process_names_its_line(mine, tmp_path, capfd):
    options = {"settings": VALUES, "out": tmp_path / "study", "quiet": True}
    sb.compare("gym/CartPole-v1", "max", 1, 400, on_phase="mine:fail", **options)
    (told,) = capfd.readouterr().err.splitlines()
    line = 1 + textwrap.dedent(OWN).splitlines().index('    return row["no such column"]')
    assert told.startswith("softbellman: on_phase failed, and training goes on: KeyError: 'no such column' (")
    assert told.endswith(f"mine.py, line {line})")


@pytest.mark.parametrize(
    ("on_phase", "said"),
    [
        (
            lambda row, policy: None,
            "a lambda has no name; put it into a module, outside of any function, and import it",
        ),
        ("mine:NUMBER", "on_phase is a int, which can't be called with a row and a policy"),
        (3, "on_phase is a int, which can't be called with a row and a policy"),
        ("mine:missing", "on_phase mine:missing: mine has no missing"),
        (lambda row: None, "on_phase is called with a row and a policy, which it does not take: too many positional"),
        (lambda *, row, policy: None, "on_phase is called with a row and a policy, which it does not take"),
    ],
)
def test_what_can_not_be_called_is_refused_before_any_work(mine, tmp_path, on_phase, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        sb.compare("gym/CartPole-v1", "max", 1, 400, settings=VALUES, out=tmp_path / "study", on_phase=on_phase)
    assert not (tmp_path / "study").exists()


def test_an_engine_of_ones_own_gets_it_in_its_tasks(mine, tmp_path):
    from softbellman.running.engines import Here

    class Mine(Here):
        spec = "mine:Mine"

        def train(self, tasks, on_event, check):
            assert [task.on_phase.__name__ for task in tasks] == ["note"]
            super().train(tasks, on_event, check)

    import mine as module

    train(tmp_path / "study", 1, on_phase=module.note, engine=Mine())
    assert (tmp_path / "softmax(5)-0.jsonl").read_text().count("\n") == 2
    assert Study(tmp_path / "study").record["engine"] == "mine:Mine"
