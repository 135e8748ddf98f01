"""Many runs as one study: only what is missing is trained, and no way of being stopped changes what comes of it."""

import dataclasses
import inspect
import json
import os
import re
import shutil
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import softbellman as sb
from softbellman import config as configs
from softbellman import operators as ops
from softbellman.running import compare as module
from softbellman.running import comparison as comparison_module
from softbellman.running import group_training as groups
from softbellman.running.compare import Options, train_comparison
from softbellman.running.comparison import Resources, prepare, resources_for
from softbellman.running.engines import Event
from softbellman.running.engines.here import Here
from softbellman.running.engines.local import Local
from softbellman.running.launch import outcome
from softbellman.running.plan import Plan
from softbellman.running.progress import Reporter
from softbellman.running.worker import work
from softbellman.study.groups import Group, open_group
from softbellman.study.provenance import provenance
from softbellman.study.runs import read_status
from softbellman.study.store import Study
from softbellman.study.writer import write_error, write_status
from softbellman.training.metrics import columns

from ..studies import TINY
from ..studies import train as train_study

CARTPOLE, OPERATORS = "gym/CartPole-v1", [ops.maximum(), ops.softmax(5.0)]
SMALL = TINY | {"loop.test_episodes": 3, "loop.test_steps": 150, "loop.block_width": 2}
TWO = Resources(workers=2, threads=2)


def configured(values=SMALL):
    return configs.with_settings(configs.preset("classic-control").config, values)


def comparison(operators=OPERATORS, seeds=(0, 3), values=SMALL, environments=(CARTPOLE,)):
    return prepare(environments, operators, seeds, configured(values))


class InThisProcess:
    """An engine without processes, whose groups share what is compiled. It counts the groups that it trained."""

    capacity, process_bytes, spec = 2, 0, "here"

    def __init__(self):
        self.trained = []

    def train(self, tasks, on_event, check):
        for task in tasks:
            check()
            self.trained += [(run.operator, run.seed) for run in open_group(Study(task.study), task.group).runs]

            def send(kind, task=task, **facts):
                on_event(task, Event(kind, facts))

            work(task.study, task.group, inexact=task.inexact, send=send)
            on_event(task, Event("ended", {}))


def trained(out, *arguments, engine=None, planned=comparison, **options):
    resources = TWO._replace(engine=engine or InThisProcess())
    return train_comparison(planned(*arguments, **options), out, resources, quiet=True)


def rows(study, run=None):
    frame = pd.DataFrame(study.metrics()).drop(columns="seconds")
    return frame if run is None else frame[frame["seed"] == run.seed].reset_index(drop=True)


def files(study):
    return {path: path.read_bytes() for path in study.path.glob("runs/**/*") if path.is_file()}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two operators, two seeds each, undisturbed."""
    return trained(tmp_path_factory.mktemp("studies") / "compared")


# ---------------------------------------------------------------------------------------------------- what is trained


def test_every_operator_is_trained_with_every_seed(compared):
    assert [(run.operator, run.seed, read_status(run)) for run in compared.runs] == [
        ("max", 0, "finished"),
        ("max", 3, "finished"),
        ("softmax(5)", 0, "finished"),
        ("softmax(5)", 3, "finished"),
    ]
    assert outcome(compared) == [] and not (compared.path / "groups").exists()
    record = json.loads((compared.path / "study.json").read_text())
    assert (record["format"], record["environments"], record["launches"][0]["workers"]) == (2, [CARTPOLE], 2)
    assert "workers" not in record  # they change no result, and a study goes on with those of the machine
    assert record["provenance"]["threads"] == record["launches"][0]["provenance"]["threads"] == "2"
    assert record["environment_facts"][CARTPOLE]["num_actions"] == 2


def test_l5_l26_all_rows_load_by_one_call_and_no_two_runs_are_alike(compared):
    frame = pd.DataFrame(compared.metrics())
    assert list(frame.columns) == ["environment", "operator", "seed", *columns()]
    assert frame.groupby(["operator", "seed"])["agent_steps"].apply(list).tolist() == [[200, 400]] * 4
    assert (frame["env_frames"] == frame["agent_steps"]).all() and frame["seed"].dtype == np.int64
    assert (frame["environment"] == CARTPOLE).all()
    assert frame["loss"].nunique() == 8
    assert frame["operator_parameter"].isna().tolist() == [True] * 4 + [False] * 4


def test_a_run_of_a_comparison_is_the_run_that_train_makes(compared, tmp_path):
    alone = Study.create(tmp_path, CARTPOLE, [ops.softmax(5.0)], [3, 0], configured(), {}, [])
    train_study(alone)
    for run in alone.runs:
        ours = rows(compared).query("operator == 'softmax(5)'")
        ours = ours[ours["seed"] == run.seed].reset_index(drop=True)
        pd.testing.assert_frame_equal(ours, rows(alone, run), check_exact=True)


# ---------------------------------------------------------------------------------------------- only what is missing


def test_a_second_launch_does_nothing_and_a_larger_one_only_what_is_new(compared, tmp_path):
    study, before = trained(tmp_path / "study", OPERATORS[:1]), {}
    for larger, new in (
        ({"operators": OPERATORS[:1]}, []),
        ({"operators": OPERATORS[:1], "values": SMALL | {"checkpoint.keep": 1}}, []),
        ({"operators": OPERATORS}, [("softmax(5)", 0), ("softmax(5)", 3)]),
        ({"operators": OPERATORS[::-1], "seeds": (0, 1, 3)}, [("softmax(5)", 1), ("max", 1)]),
    ):
        before, engine = files(study), InThisProcess()
        study = trained(tmp_path / "study", **larger, engine=engine)
        assert engine.trained == new
        assert files(study).items() >= before.items()
        assert study.operators == [str(operator) for operator in larger["operators"]]
    assert study.config.checkpoint.keep == 2 and all(read_status(run) == "finished" for run in study.runs)
    both = [rows(each).query("seed != 1").sort_values(["operator", "seed", "epoch"]) for each in (study, compared)]
    pd.testing.assert_frame_equal(*(frame.reset_index(drop=True) for frame in both), check_exact=True)


def test_the_random_policy_is_played_later_where_it_was_not(compared, tmp_path):
    """As where a process was stopped while it played."""
    study = Study(shutil.copytree(compared.path, tmp_path / "study"))
    played = {file.name: file.read_bytes() for file in (study.path / "random").iterdir()}
    shutil.rmtree(study.path / "random")
    engine = InThisProcess()
    trained(study.path, engine=engine)
    assert engine.trained == []
    assert {file.name: file.read_bytes() for file in (study.path / "random").iterdir()} == played


@pytest.mark.parametrize("end", ["finished", "diverged"])
def test_a_group_that_was_killed_when_all_was_done_leaves_no_directory(end, compared, tmp_path):
    """A group all of whose runs have diverged keeps its last good state."""
    study = Study(shutil.copytree(compared.path, tmp_path / "study"))
    left = [Group.create(study, study.runs[:2]), Group.create(study, study.runs[2:])]
    write_status(study.runs[0], end)
    for run in study.runs[2:]:
        write_status(run, "diverged")
    engine = InThisProcess()
    trained(study.path, engine=engine)
    assert engine.trained == [] and [group.path.exists() for group in left] == [False, True]


def test_progress_counts_no_run_that_is_left_as_it_is(compared, tmp_path, monkeypatch):
    asked, study = [], Study(shutil.copytree(compared.path, tmp_path / "study"))
    write_error(study.runs[0], "failed", "RuntimeError: no emulator", "")
    monkeypatch.setattr(module, "reporter", lambda *sizes, quiet: asked.append(sizes) or Reporter())
    trained(study.path, seeds=(0, 3, 7))
    steps = study.config.loop.steps
    assert asked == [(5 * steps, 5)]  # three that had finished and two new ones, and not the one that failed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": SMALL | {"learner.gamma": 0.5}}, "learner.gamma 0.99 there, 0.5 asked for"),
        (
            {"values": SMALL | {"loop.steps": 600}},
            "loop.steps 400 there, 600 asked for: a run that has ended can't go on",
        ),
        ({"operators": OPERATORS[1:]}, "operators max there, and not asked for"),
        ({"seeds": (3, 4)}, "seeds 0 there, and not asked for"),
        ({"environments": ("gym/Acrobot-v1",)}, f"environments {CARTPOLE} there, and not asked for"),
    ],
)
def test_another_comparison_is_refused_and_nothing_touched(compared, changes, message):
    before = files(compared) | {compared.path: (compared.path / "study.json").read_bytes()}
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        trained(compared.path, **changes)
    assert "name another directory with --out" in str(caught.value)
    assert files(compared) | {compared.path: (compared.path / "study.json").read_bytes()} == before


def test_an_environment_that_has_become_another_is_refused(compared):
    planned = comparison()
    facts = planned.plans[0].facts | {"max_episode_steps": 200}
    said = r"can't go on: .* \(gym/CartPole-v1: max_episode_steps 500 there, 200 now\); .*, or begin another study$"
    with pytest.raises(ValueError, match=said):
        planned._replace(plans=[planned.plans[0]._replace(facts=facts)]).work(compared.path, TWO)


def test_l48_a_study_json_alone_reruns_the_comparison(compared, tmp_path):
    (tmp_path / "study.json").write_bytes((compared.path / "study.json").read_bytes())
    again = trained(tmp_path)
    pd.testing.assert_frame_equal(rows(again), rows(compared), check_exact=True)


def test_a_study_of_the_older_format_grows_too(compared, tmp_path):
    """Format 1 had one environment, and its facts without its name."""
    record = json.loads((compared.path / "study.json").read_text())
    old = {key: value for key, value in record.items() if key not in ("environments", "launches")}
    old |= {"format": 1, "environment": CARTPOLE, "environment_facts": record["environment_facts"][CARTPOLE]}
    (tmp_path / "study.json").write_text(json.dumps(old))
    study = Study(tmp_path)
    assert (study.environments, study.runs[0].path.parts[-4:]) == ([CARTPOLE], compared.runs[0].path.parts[-4:])
    found = comparison(seeds=(0, 3, 9)).work(tmp_path, Resources(1, 1))
    assert [len(runs) for runs in found.groups] == [2, 1, 2, 1]


# ------------------------------------------------------------------------------------------------------------ stopped


class Killed(BaseException):
    """Stands for a kill: nothing is done on the way out but what Python does."""


def test_l3_l34_a_comparison_goes_on_after_stops_as_if_there_had_been_none(compared, tmp_path):
    """Its first group dies at its first row, its second at its resumption; then all is well."""
    deaths = ["row", "resumed"]
    while deaths:
        with pytest.raises(Killed):
            trained(tmp_path / "study", values=SMALL | {"checkpoint.minutes": 0.0}, engine=Dying(deaths))
    assert len(list((tmp_path / "study").glob("groups/*/checkpoint/*"))) >= 1
    study = trained(tmp_path / "study")
    pd.testing.assert_frame_equal(rows(study), rows(compared), check_exact=True)
    steps = [each["agent_steps"] for each in study.record["resumptions"]]
    assert steps and all(set(each) == {"gym-CartPole-v1-max-seed-0"} for each in steps)
    assert not (study.path / "groups").exists()


class Dying(InThisProcess):
    """It ends at the first of the `deaths` that are left, as if every process were killed."""

    def __init__(self, deaths):
        self.deaths = deaths

    def train(self, tasks, on_event, check):
        for task in tasks:
            study = Study(task.study)
            groups.train_group(
                study,
                open_group(study, task.group),
                on_resumed=lambda steps, notes, made, task=task: self._say(
                    on_event, task, "resumed", agent_steps=steps, notes=notes, provenance=made
                ),
                on_progress=lambda done: self._die("row") if done == 250 else None,
            )

    def _say(self, on_event, task, kind, **facts):
        on_event(task, Event(kind, facts))
        self._die(kind)

    def _die(self, kind):
        if self.deaths and kind == self.deaths[0]:
            self.deaths.pop(0)
            raise Killed


SEEDED = """
    import gymnasium
    import numpy as np
    from softbellman.envs.checks import episode_seed

    GAMES = {
        episode_seed(seed, training=True, env=0, episode=game): (seed, game)
        for seed in range(1, 6)
        for game in range(41)
    }

    class Seeded(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.moments, self.game = 0, GAMES.get(seed, (0, 0))
            return np.zeros(4, np.float32), {}

        def step(self, action):
            self.moments += 1
            if self.game == (3, 15):
                raise RuntimeError("the simulator is gone")
            if self.game == (4, 25):
                DIE
            reward = 3e38 if self.game == (5, 12) else 1.0
            return np.full(4, self.moments / 10, np.float32), reward, self.moments == 10, False, {}

    gymnasium.register("Seeded-v0", Seeded)
"""


def seeded(tmp_path, monkeypatch, die):
    (tmp_path / "seeded.py").write_text(textwrap.dedent(SEEDED).replace("DIE", die))
    monkeypatch.syspath_prepend(tmp_path)
    return comparison(OPERATORS[:1], (1, 3, 4, 5, 2), environments=("gym/seeded:Seeded-v0",))


def assert_two_of_five(study, module_file):
    assert [read_status(run) for run in study.runs] == ["finished", "failed", "failed", "diverged", "finished"]
    frame = pd.DataFrame(study.metrics()).query("seed in (1, 2)")
    assert frame["agent_steps"].tolist() == [200, 400] * 2
    reasons = [json.loads((run.path / "status.json").read_text()).get("reason") for run in study.runs]
    fault = f"gym/seeded:Seeded-v0 fails in step: RuntimeError: the simulator is gone ({module_file}, line 24)"
    assert reasons[1] == fault
    assert "the loss was not finite at agent step" in reasons[3]
    assert "in step" in (study.runs[1].path / "error.txt").read_text()
    (line,) = outcome(study)
    assert f"2 of 5 runs finished; seed 3 failed: {fault} (" in line
    assert f"seed 4 failed: {reasons[2]} ({study.runs[2].path / 'error.txt'}); seed 5 diverged: the loss" in line
    return reasons[2]


def test_l17_of_five_runs_the_two_that_are_well_finish_whatever_the_others_do(tmp_path, monkeypatch):
    """In one process, where a run can't be killed, so that the fourth leaves by another way than an exception."""
    planned = seeded(tmp_path, monkeypatch, "raise BaseException('killed')")
    study = train_comparison(planned, tmp_path / "study", TWO._replace(engine=InThisProcess()), quiet=True)
    file = tmp_path / "seeded.py"
    assert assert_two_of_five(study, file) == f"BaseException: killed ({file}, line 26)"


@pytest.mark.slow
def test_l17_the_same_in_processes_one_of_which_is_killed(tmp_path, monkeypatch):
    planned = seeded(tmp_path, monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    study = train_comparison(planned, tmp_path / "study", TWO, quiet=True)
    assert assert_two_of_five(study, tmp_path / "seeded.py") == "its process was killed by SIGKILL"


# --------------------------------------------------------------------------------------------- two at the same moment


def test_l17_l34_a_study_is_trained_by_one_process_at_a_time(compared):
    with compared.locked(), pytest.raises(ValueError, match=rf"trained by another process \(process {os.getpid()} on "):
        trained(compared.path)


def test_l17_of_two_that_make_one_directory_at_the_same_moment_one_is_refused(tmp_path):
    barrier, config = Barrier(8), configured()

    def create(seed):
        barrier.wait()
        try:
            Study.create(tmp_path / "study", CARTPOLE, OPERATORS, [seed], config, {}, [])
            return seed
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        came = list(pool.map(create, range(8)))
    made = [each for each in came if isinstance(each, int)]
    assert len(made) == 1 and Study(tmp_path / "study").seeds == made
    assert all("is there already and nothing is overwritten" in each for each in came if isinstance(each, str))
    assert {path.name[:6] for path in (tmp_path / "study").iterdir()} == {"study.", ".lock."}


def test_the_same_comparison_has_the_same_directory_whatever_its_seeds_and_another_has_another():
    names = {
        str(each.default_out)
        for each in (
            comparison(),
            comparison(seeds=(5,)),
            comparison(OPERATORS[:1]),
            comparison(values=SMALL | {"learner.gamma": 0.5}),
        )
    }
    assert len(names) == 3 and all(re.fullmatch(r"runs/compare-gym-CartPole-v1-[0-9a-f]{8}", name) for name in names)


# ------------------------------------------------------------------------------------------------ checked beforehand


@dataclasses.dataclass(frozen=True)
class Homeless(type(ops.maximum())):
    """An operator in a place that no spec names."""

    def __str__(self):
        return "__main__:Homeless()"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operators": []}, "one operator or several different ones, and was given none"),
        ({"operators": [ops.softmax(5.0), ops.softmax(5)]}, r"was given softmax\(5\) twice"),
        ({"environments": (CARTPOLE, CARTPOLE)}, "was given gym/CartPole-v1 twice"),
        ({"environments": ()}, "one environment or several different ones, and was given none"),
        ({"environments": (CARTPOLE, "gym/CartPol-v1")}, "did you mean CartPole-v1"),
        ({"seeds": ()}, "seeds must be different integers in 0 .. 4294967295, got none"),
        ({"seeds": (1, 1)}, "got 1, 1"),
        ({"seeds": (2**32,)}, "got 4294967296"),
        ({"operators": [ops.maximum(), Homeless()]}, r"__main__:Homeless\(\) can't be found by the processes"),
        ({"values": SMALL | {"loop.steps": 90}}, "replay_start_steps"),
        ({"values": SMALL | {"learner.batch_size": 64, "learner.replay_capacity": 32}}, "is larger than"),
    ],
)
def test_l32_what_can_be_known_to_be_wrong_is_refused_before_any_work(changes, message):
    with pytest.raises(ValueError, match=message):
        comparison(**changes)


def test_each_operator_is_tried_with_each_environment(monkeypatch):
    tried = []
    monkeypatch.setattr(
        comparison_module, "check_in_training", lambda operator, actions: tried.append((str(operator), actions))
    )
    comparison(environments=(CARTPOLE, "gym/Acrobot-v1"))
    assert set(tried) == {("max", 2), ("softmax(5)", 2), ("max", 3), ("softmax(5)", 3)}


def created(folder, planned):
    asked = (planned.environments, planned.arms, planned.seeds, planned.config, planned.facts, [])
    return Study.create(folder, *asked).path


def test_the_memory_is_that_of_the_groups_that_train_at_once(tmp_path, monkeypatch):
    planned = comparison(seeds=range(4))
    found = planned.work(tmp_path, Resources(1, 1))
    assert [len(runs) for runs in found.groups] == [2] * 4 and not any(tmp_path.iterdir())
    one = planned.plans[0].replay_bytes
    assert [planned.replay_bytes(found, workers) for workers in (1, 3, 9)] == [2 * one, 6 * one, 8 * one]
    monkeypatch.setattr(Local, "process_bytes", 1_000)
    monkeypatch.setattr(comparison_module, "available_memory", lambda: 6 * one + 2_000)
    assert planned.work(tmp_path, Resources(2, 1))
    with pytest.raises(MemoryError, match=f"{6 * one + 3_000:,} bytes needed .* lower --workers, learner.replay_cap"):
        planned.work(tmp_path, Resources(3, 1))
    monkeypatch.setattr(comparison_module, "available_memory", lambda: 1)
    begun = created(tmp_path / "begun", planned)
    papers = planned._replace(
        only=frozenset((CARTPOLE, spec, seed) for spec in planned.specs for seed in planned.seeds)
    )
    for asked, out, workers, remedy in (
        (planned, tmp_path / "new", 1, "lower learner.replay_capacity or loop.block_width, to "),
        (planned, begun, 1, "free some, or take a machine with more.$"),
        (planned, begun, 2, "lower --workers, to "),
        (papers, tmp_path / "new", 2, "lower --workers, to "),
        (papers, tmp_path / "new", 1, "free some, or take a machine with more.$"),
    ):
        with pytest.raises(MemoryError, match=rf"GiB\): {remedy}"):
            asked.work(out, Resources(workers, 1))
    text = " ".join(f"{label} {line}" for label, line in planned.summary(found, TWO))
    assert "runs 8, of which 8 are left to train, in 4 groups at once 2 of these, 2 threads each frames" in text
    assert f"memory {4 * one:,} bytes for the replays of the groups that train at once" in text


def test_frames_that_are_not_as_many_steps_everywhere_are_refused(monkeypatch):
    monkeypatch.setattr(comparison_module, "plan", lambda name, *_, frames, **__: plans[name])
    plans = {}
    for number, name in enumerate(("gym/A", "gym/B"), start=1):
        config = configs.replaced(configured(), "loop.steps", 4_000 // number)
        plans[name] = Plan(name, config, {"num_actions": 2}, 1, "mlp", 1)
    with pytest.raises(ValueError, match="4,000 frames are 4,000 of gym/A, 2,000 of gym/B agent steps; give --steps"):
        prepare(["gym/A", "gym/B"], OPERATORS[:1], [0], configured(), frames=4_000)


def test_l27_what_a_comparison_was_begun_with_it_goes_on_with(compared, monkeypatch):
    monkeypatch.setattr("softbellman.running.engines.contract.available_cores", lambda: 8)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    assert resources_for(15) == Resources(8, 1)
    assert resources_for(15, begun=compared) == Resources(4, 2)
    with monkeypatch.context() as patched:
        patched.setattr("jax.default_backend", lambda: "gpu")
        assert resources_for(15) == Resources(1, 8)
    assert resources_for(15, 2, 3, compared, deterministic=True).variables == {
        "NPROC": "3",
        "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
    }


@pytest.mark.parametrize("engine", ["here", Here()], ids=["name", "object"])
def test_this_process_has_the_threads_that_jax_has(engine, monkeypatch):
    monkeypatch.setenv("NPROC", "2")
    assert resources_for(3, engine=engine)[:2] == resources_for(3, 1, 2, engine=engine)[:2] == (1, 2)
    begun = SimpleNamespace(record={"provenance": {"threads": "7", "xla_flags": None}})
    assert resources_for(3, begun=begun, engine=engine).threads == 2
    wrong = r"^threads \(3\): engine here .* JAX has 2; set NPROC=3 before Python starts, or take engine 'local'$"
    for threads, message in ((3, wrong), (1, r"set NPROC=1"), (0, r"^threads \(0\) must be"), (-1, r"^threads \(-1\)")):
        with pytest.raises(ValueError, match=message):
            resources_for(3, threads=threads, engine=engine)
    with pytest.raises(ValueError, match=r"^workers \(0\) must be at least 1"):
        resources_for(3, workers=0, engine=engine)
    for nproc in ("many", "0", "-2", "1.5"):
        monkeypatch.setenv("NPROC", nproc)
        with pytest.raises(
            ValueError, match=rf"^the variable NPROC \({nproc}\) must be a number of threads, 1 or more"
        ):
            resources_for(3, engine=engine)


def test_a_study_trained_here_records_the_threads_that_its_checkpoints_record(monkeypatch):
    monkeypatch.setattr("softbellman.study.provenance.available_cores", lambda: 5)
    for given, found in (("3", "3"), (None, "5"), ("", "5")):
        monkeypatch.delenv("NPROC") if given is None else monkeypatch.setenv("NPROC", given)
        assert str(resources_for(1, engine="here").threads) == provenance()["threads"] == found


# -------------------------------------------------------------------------------------------------------- from Python


def test_compare_in_python(compared, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Local, "train", lambda _, *asked: InThisProcess().train(*asked))
    monkeypatch.chdir(tmp_path)
    values = {name: value for name, value in SMALL.items() if name != "loop.steps"}
    study = sb.compare(CARTPOLE, ["max", ops.softmax(5.0)], [0, 3], 400, settings=values, threads=2, workers=2)
    assert isinstance(study, sb.Study) and study.path.parent.name == "runs"
    pd.testing.assert_frame_equal(rows(study), rows(compared), check_exact=True)
    table = pd.DataFrame(study.table())
    assert table["operator"].tolist() == study.operators and table["counted"].tolist() == [2, 2]
    assert table["final"].notna().all() and pd.isna(table["difference"][0]) and table["difference_seeds"][1] == 2
    *_, ended, chance = capsys.readouterr().out.splitlines()
    assert ended.startswith("gym/CartPole-v1, softmax(5), seed 3: finished")
    assert chance == "the random policy plays gym/CartPole-v1, for the score of chance"
    with pytest.raises(ValueError, match=r"unknown field 'learner\.gama'; did you mean learner\.gamma"):
        sb.compare(CARTPOLE, ["max"], settings={"learner.gama": 1})
    with pytest.raises(ValueError, match=r"different presets \(classic-control for gym/X, paper-atari for atari/Y\)"):
        sb.compare(["gym/X", "atari/Y"], ["max"])


def test_words_and_numbers_of_numpy_say_what_lists_and_ints_say(tmp_path, monkeypatch):
    engine = InThisProcess()
    monkeypatch.setattr(Local, "train", lambda _, *asked: engine.train(*asked))
    monkeypatch.setenv("HOME", str(tmp_path))
    values = {name: value for name, value in SMALL.items() if name != "loop.steps"}
    of_numpy = {name: np.int64(value) for name, value in values.items()} | {"learner.gamma": np.float32(0.9)}
    numbers = {"workers": np.int64(2), "threads": 2.0, "quiet": True}
    study = sb.compare(CARTPOLE, ops.maximum(), np.int64(1), 4e2, out="~/study", settings=of_numpy, **numbers)
    assert study.path == tmp_path / "study" and len(engine.trained) == 1
    record = json.loads((study.path / "study.json").read_text())
    assert (record["operators"], record["seeds"]) == (["max"], [0])
    assert (record["config"]["learner"]["gamma"], record["config"]["loop"]["steps"]) == (0.9, 400)
    lists = {"settings": values | {"learner.gamma": 0.9}, "workers": 2, "threads": 2, "quiet": True}
    for operators, seeds, out in (
        ("max", 1, str(study.path)),
        (["max"], np.array([0]), study.path),
        (("max",), range(1), "~/study"),
        (iter([ops.maximum()]), iter([np.uint8(0)]), Path("~/study")),
    ):
        again = sb.compare([CARTPOLE], operators, seeds, 400, out=out, **lists)
        assert again.path == study.path and len(engine.trained) == 1  # the same, and nothing is left to train
    assert sb.Study(str(study.path)).runs == sb.Study("~/study").runs == study.runs
    grown = sb.compare(CARTPOLE, "max", np.arange(2), 400, out="~/study", **lists)
    assert grown.seeds == [0, 1] and engine.trained == [("max", 0), ("max", 1)]


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"operators": ops.maximum}, TypeError, "is no operator; call it"),
        ({"operators": ["max", 5]}, TypeError, "5 is no operator"),
        ({"seeds": True}, ValueError, r"seeds \(True\) must be a whole number"),
        ({"seeds": [0, 1.5]}, ValueError, r"seeds \(1\.5\) must be a whole number"),
        ({"steps": 10.5}, ValueError, r"steps \(10\.5\) must be a whole number"),
        ({"workers": "2"}, ValueError, r"workers \('2'\) must be a whole number"),
        ({"settings": {"loop.steps": np.float64(1e3) + 0.5}}, ValueError, r"loop\.steps .* must be a whole number"),
        ({"out": "~no_such_user_of_this_machine/x"}, ValueError, "~no_such_user_of_this_machine/x"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_with_their_name(arguments, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=message):
        sb.compare(**{"environments": CARTPOLE, "operators": "max"} | arguments)
    assert not any(tmp_path.iterdir())


def test_what_a_users_code_raises_before_training_names_its_line(tmp_path, monkeypatch):
    source = "from softbellman import operators as ops\nimport gymnasium\n@ops.operator\nclass Crash(ops.Operator):\n"
    source += "    def policy(self, row):\n        return row.zz\nclass NoSimulator(gymnasium.Env):\n"
    source += "    def __init__(self):\n        raise KeyError('port')\n"
    (tmp_path / "faulty.py").write_text(f"{source}gymnasium.register('NoSimulator-v0', NoSimulator)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    for environment, operator, line in ((CARTPOLE, "faulty:Crash", 6), ("gym/faulty:NoSimulator-v0", "max", 9)):
        with pytest.raises(ValueError, match=rf"\(.*/faulty.py, line {line}\)$") as caught:
            sb.compare(environment, operator)
        assert caught.value.__cause__ is not None and str(caught.value).count("faulty.py") == 1
    assert not (tmp_path / "runs").exists()


def test_train_in_python_is_a_comparison_of_one_in_this_process(compared, tmp_path):
    values = {name: value for name, value in SMALL.items() if name != "loop.steps"}
    study = sb.train(CARTPOLE, ops.softmax(5.0), [3], 400, settings=values, out=tmp_path / "study", quiet=True)
    assert study.record["engine"] == "here" and study.operators == ["softmax(5)"]
    same = rows(compared).query("operator == 'softmax(5)' and seed == 3").reset_index(drop=True)
    pd.testing.assert_frame_equal(rows(study), same, check_exact=True)


class Backwards:
    """An engine of a user's own: the last group first, each told of in words of its own."""

    spec, process_bytes = "mine:Backwards", 0

    def __init__(self, capacity=1):
        self.capacity, self.trained = capacity, []

    def train(self, tasks, on_event, check):
        for task in reversed(tasks):
            self.trained.append(task.group)
            Here().train([task], on_event, check)


def test_an_engine_of_ones_own_is_passed_in(compared, tmp_path):
    engine, values = Backwards(), {name: value for name, value in SMALL.items() if name != "loop.steps"}
    options = {"settings": values, "out": tmp_path / "study", "quiet": True}
    study = sb.compare(CARTPOLE, OPERATORS, [0, 3], 400, engine=engine, **options)
    assert study.record["engine"] == "mine:Backwards" and study.record["launches"][0]["workers"] == 1
    assert engine.trained == sorted(engine.trained, reverse=True) and len(engine.trained) == 2
    pd.testing.assert_frame_equal(rows(study), rows(compared), check_exact=True)


def test_an_engine_is_found_by_its_words(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "class Nothing:\n    def __init__(self, capacity):\n        pass\n\n"
        "class Half(Nothing):\n    capacity = 1\n\n    def train(self, tasks, on_event, check):\n        pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for spec, said in (
        ("cloud", "unknown engine 'cloud'; there are local, here, ray, slurm, and module:function"),
        ("nowhere:Engine", "engine nowhere:Engine: cannot import nowhere"),
        ("mine:Missing", "engine mine:Missing: mine has no Missing"),
        ("mine:Nothing", "engine mine:Nothing makes a Nothing, which has no train"),
        ("mine:Half", "engine mine:Half makes a Half, which has no process_bytes, spec"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            sb.compare(CARTPOLE, "max", 1, engine=spec, out=tmp_path / "study")


def test_train_declares_the_arguments_of_compare_that_it_passes_on():
    own = ("environments", "operators", "seeds", "steps", "arms")
    passed_on = [name for name in inspect.signature(sb.compare).parameters if name not in own]
    assert list(Options.__annotations__) == passed_on


def test_train_takes_an_arm_as_its_operator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"train takes one arm, as its operator: operator=sb.arm\(\.\.\.\)"):
        sb.train(CARTPOLE, arms=[sb.arm("max", returns=3)])
