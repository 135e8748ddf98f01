"""Studies for tests: small ones to train, synthetic ones that nobody trained, and those of the paper's scales."""

import csv
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from softbellman import config as configs
from softbellman import operators as ops
from softbellman import report
from softbellman.analysis.findings import find_all
from softbellman.analysis.records import Records
from softbellman.operators.spec import plain
from softbellman.paper import results
from softbellman.paper.arms import needed
from softbellman.paper.grid import Scale, plan_runs
from softbellman.running.build import make_recipe
from softbellman.running.comparison import Comparison
from softbellman.running.group_training import train_group
from softbellman.running.plan import plan
from softbellman.study.files import save_params, write_atomically
from softbellman.study.groups import OVER, Group, open_groups
from softbellman.study.runs import RunPath, read_status
from softbellman.study.store import Study
from softbellman.study.writer import RunWriter, write_error, write_status
from softbellman.training.metrics import Row, columns

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


def planned_study(environment, preset, operator, seeds, values):
    config = configs.preset(preset).config
    for name, value in values.items():
        config = configs.replaced(config, name, value)
    return plan(environment, ops.parse(operator), seeds[0], config)


def created(folder, environment, preset, operator, seeds, values):
    planned = planned_study(environment, preset, operator, seeds, values)
    facts = {environment: planned.facts}
    return Study.create(folder, environment, [ops.parse(operator)], seeds, planned.config, facts, ["train"])


def train(study, *, on_note=lambda text: None, **options):
    """Trains all runs of a study in this process as one group, from where it stands to its end."""
    with study.locked() as lease:
        for each in lease.notes:
            on_note(each)
        group = next(iter(open_groups(study)), None)
        if all(read_status(run) in OVER for run in study.runs):
            return
        group = group or Group.create(study, study.runs)

        def record(agent_steps, *more):
            study.record_resumption({group.path.name: agent_steps}, *more)

        train_group(study, group, on_note=on_note, on_resumed=record, **options)


def trained(folder, *of):
    study, rows = created(folder, *of), []
    train(study, on_row=lambda index, row, phase: rows.append((index, row, phase)))
    return study, rows


def untrained(study, env):
    study.runs[0].path.mkdir(parents=True)
    recipe = make_recipe(study.config, env.obs_scale, env.obs_shape, env.num_actions)
    params = recipe.network.init(jax.random.key(0))
    save_params(study.runs[0].path / "best.safetensors", params, 0, 0.0)
    env.close()
    return study


EPOCH = 50_000  # agent steps between test phases


def synthetic(
    folder: Path,
    environments: Sequence[str] = ("minatar/breakout",),
    operators: Sequence[str] = ("max", "softmax(5)", "mellowmax(5)"),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    phases: int = 12,
    frames: int = 1,
    ends: Mapping[tuple[str, int], str] | None = None,
    values: Mapping[str, Any] | None = None,
    random: float | None = None,
    preset: str = "paper-atari",
) -> Study:
    """Makes a study whose operators score 4, 6, 8, ... a game in the end, with seeds half a point apart.

    Args:
        folder: where to; it must be new.
        environments: names of the environments; their scores are the same.
        operators: specs of the operators, or arms as text.
        seeds: the seeds.
        phases: test phases of a run that ends.
        frames: frames of an agent step.
        ends: how the run of an operator and a seed stands if it did not finish: it has half of the phases.
        values: columns of `metrics.csv` that are the same in each row.
        random: the random policy's score in every game; None: it was not played.
        preset: the preset that the study was trained with.
    """
    config = configs.preset(preset).config
    for name, value in (("loop.steps", phases * EPOCH), ("loop.epoch_steps", EPOCH)):
        config = configs.replaced(config, name, value)
    facts = {environment: {"environment": environment, "num_actions": 6} for environment in environments}
    command = ["compare", *environments, "--operators", *operators, "--seeds", str(len(seeds))]
    arms = [configs.as_arm(text) for text in operators]
    study = Study.create(folder, environments, arms, seeds, config, facts, command)
    for run in study.runs:
        number, end = study.operators.index(run.operator), (ends or {}).get((run.operator, run.seed), "finished")
        writer = RunWriter(run, columns())
        rows = [row(phase, phases, number, run.seed, frames) for phase in range(1, phases + 1)]
        for each in rows[: phases if end == "finished" else phases // 2]:
            writer.row(each | (values or {}))
        if end == "failed":
            write_error(run, "failed", "RuntimeError: the emulator is gone", "Traceback (most recent call last): ...\n")
        else:
            writer.status(end, **({"reason": "the loss was not finite"} if end == "diverged" else {}))
    for environment in environments if random is not None else ():
        _random(study, environment, random)
    return study


def report_of(study: Study, **options: Any) -> Path:
    """Writes the report of a study, with options that `study.report` does not have."""
    records = Records.read(study)
    return report.write(records, find_all(records), **options)


def row(phase: int, phases: int, number: int, seed: int, frames: int) -> Row:
    """A row of a run: its score grows to its end, and differs from that of the other seeds by halves of a point."""
    noise = np.random.default_rng([phase, number, seed]).normal(size=6) / 50
    done, steps = phase / phases, phase * EPOCH
    score = (4 + 2 * number) * done + seed / 2 + noise[0]
    over = 1.5 - 0.1 * number + noise[1]
    return {
        "epoch": phase,
        "agent_steps": steps,
        "env_frames": steps * frames,
        "updates": steps // 4,
        "episodes": phase * 100,
        "test_return": float(score),
        "test_episodes": 30,
        "test_unfinished": 0,
        "train_return": float(score),
        "train_clipped_return": float(score),
        "held_out_value": float(2 * done + over),
        "held_out_value_common": float(2 * done + over),
        "held_out_operator_value": float(2 * done),
        "realised_return": float(2 * done),
        "overestimation": float(over),
        "gradient_norm": float(3 - done + noise[2]),
        "gradient_variance": float((3 - done + noise[3]) * 1e-5),
        "gradient_mean": 0.0,
        "gradient_norm_of_mean": 0.5,
        "action_gap": float(0.2 * done + noise[4]),
        "policy_entropy": 0.7,
        "operator_gap": 0.02 * number,
        "operator_slope": float(0.99 + 0.01 * number * done + noise[5] / 10),
        "q_std": 0.3,
        **dict.fromkeys(("value_error", "value_bias", "policy_loss")),
        "loss": 0.1,
        "epsilon": 0.1,
        "operator_parameter": None,
        "test_epsilon": 0.05,
        "test_seed": 1,
        "seconds": 12.0 * phase,
    }


RANDOM = 0.5  # the random policy's score in every game


def paper_study(
    folder: Path,
    scale: Scale,
    measured: Callable[[str, str, int, float], Mapping[str, float]] = lambda game, spec, seed, done: {},
    *,
    operators: Collection[str] | None = None,
    states: Mapping[tuple[str, str, int], str] | None = None,
    seconds: float = 120.0,
) -> Study:
    """Makes a study.

    Args:
        folder: where to; it must be new.
        scale: the scale.
        measured: gives columns by game, operator, seed, and the part of the run that is done, in `(0, 1]`.
        operators: the arms, by default the scale's operators.
        states: how runs stand, by game, operator and seed, that did not finish.
        seconds: what each run took.
    """
    wanted = scale.operators if operators is None else operators
    chosen = [configs.as_arm(spec) for spec in scale.arms if spec in wanted]
    facts = {environment: {"environment": environment} for environment in scale.environments}
    study = Study.create(folder, scale.environments, chosen, scale.seeds, scale.config, facts, ["paper", "run"])
    for number, run in enumerate(study.runs):
        game = run.environment.partition("/")[2]
        state = (states or {}).get((game, run.operator, run.seed), "finished")
        if state == "not begun":
            continue
        rows = []
        for phase in range(1, scale.phases + 1):
            done = phase / scale.phases
            clock = {"seconds": (seconds + 10 * number) * done}  # no two of a family alike, as if none trained together
            plain = row(phase, scale.phases, study.operators.index(run.operator), run.seed, 1)
            values: dict[str, Any] = clock | dict(measured(game, run.operator, run.seed, done))
            rows.append(plain | values | {"agent_steps": phase * scale.config.loop.epoch_steps})
        _write(run, rows, state)
    for environment in scale.environments:
        _random(study, environment, RANDOM)
    return study


def results_of(scale: Scale, study: Study) -> results.Results:
    """Reads the results of a scale's study."""
    return results.read(scale, Records.read(study))


def planned_of(scale: Scale, specs: Sequence[str], study: Study | None = None) -> Comparison:
    """Plans all runs of some arms of a scale, given as a study has them."""
    return plan_runs(scale, needed(results.read(scale, None), specs), study)


def _write(run: RunPath, rows: Collection[Row], state: str) -> None:
    run.path.mkdir(parents=True)
    with (run.path / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns())
        writer.writerows(["" if each[name] is None else each[name] for name in columns()] for each in rows)
    write_status(run, state)


def _random(study: Study, environment: str, score: float) -> None:
    phase = {"random": {"scores": [score, score], "unfinished": False}}
    file = study.path / "random" / f"{plain(environment)}.json"
    file.parent.mkdir(exist_ok=True)
    write_atomically(file, json.dumps({"policies": phase}))
