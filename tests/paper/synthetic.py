"""Studies of a scale of the paper that nobody trained: runs whose measurements are functions of what they are."""

import csv
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from softbellman import operators as ops
from softbellman.operators.spec import plain
from softbellman.paper.grid import Scale
from softbellman.study.store import RunPath, Study, write_atomically
from softbellman.study.writer import write_status
from softbellman.training.metrics import MetricsRow

from ..study.synthetic import row

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
        operators: by default all of the scale's.
        states: how runs stand, by game, operator and seed, that did not finish.
        seconds: what each run took.
    """
    chosen = [ops.parse(spec) for spec in scale.operators if operators is None or spec in operators]
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
            rows.append(plain._replace(agent_steps=phase * scale.config.loop.epoch_steps, **values))
        _write(run, rows, state)
    for environment in scale.environments:
        _random(study, environment)
    return study


def _write(run: RunPath, rows: Collection[MetricsRow], state: str) -> None:
    run.path.mkdir(parents=True)
    with (run.path / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(MetricsRow._fields)
        writer.writerows(["" if value is None else value for value in each] for each in rows)
    write_status(run, state)


def _random(study: Study, environment: str) -> None:
    phase = {"random": {"scores": [RANDOM, RANDOM], "unfinished": False}}
    file = study.path / "random" / f"{plain(environment)}.json"
    file.parent.mkdir(exist_ok=True)
    write_atomically(file, json.dumps({"policies": phase}))
