"""Films of each operator's best agent, kept beside the report."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from softbellman.analysis.records import Records
from softbellman.analysis.scores import collect
from softbellman.faults import reason_of
from softbellman.operators.spec import plain
from softbellman.study.files import load_params, write_atomically
from softbellman.study.runs import RunPath
from softbellman.study.store import Study

LONGEST = 1_500  # agent steps filmed at most


class Film(NamedTuple):
    """A film, or why there is none.

    Attributes:
        operator: whose agent plays.
        path: the film, or None.
        caption: what is seen, or why there is nothing to see.
    """

    operator: str
    path: Path | None
    caption: str

    @property
    def files(self) -> list[Path]:
        """Its files: the film, and beside it what it is of."""
        return [] if self.path is None else [self.path, self.path.with_suffix(".json")]


def film_best(records: Records, environment: str, folder: Path) -> list[Film]:
    """Films one game of each operator's best agent: the network that scored most in any test phase of its runs.

    A film that is there already, of the very same network file, is not made anew. A game that can't be filmed
    does no harm.

    Args:
        records: what the runs of a study left.
        environment: the environment.
        folder: where the films go.
    """
    study, best = records.study, collect(records, "best", partial=True)
    films = []
    for operator in best.operators:
        scores = best.of(operator, environment)
        if np.isnan(scores).all():
            films.append(Film(operator, None, "No run has a score."))
            continue
        seed = best.seeds[int(np.nanargmax(scores))]
        run = next(
            run for run in study.runs if (run.environment, run.operator, run.seed) == (environment, operator, seed)
        )
        try:
            films.append(_film(study, run, folder / plain(environment) / f"{plain(operator)}.mp4"))
        except Exception as error:  # a user's environment may fail to render in any way
            films.append(Film(operator, None, f"Not filmed: {reason_of(error)}."))
    return films


def _film(study: Study, run: RunPath, path: Path) -> Film:
    from softbellman.running.play import watch

    best = run.path / "best.safetensors"
    _, saved = load_params(best)
    epsilon, facts_file = study.config.loop.test_epsilon, path.with_suffix(".json")
    network = {"sha256": hashlib.sha256(best.read_bytes()).hexdigest(), "seed": run.seed, "epsilon": epsilon}
    facts = json.loads(facts_file.read_text()) if facts_file.exists() else {}
    if facts.get("network") != network or not (path.parent / facts["file"]).exists():
        made, phase, _ = watch(study, run, path, epsilon=epsilon, max_steps=LONGEST)
        facts = {
            "network": network,
            "file": made.name,
            "score": phase.mean,
            "steps": phase.steps,
            "over": not phase.unfinished,
        }
        write_atomically(facts_file, json.dumps(facts, indent=2) + "\n")
    played = "A game" if facts["over"] else f"The first {facts['steps']:,} agent steps of a game"
    return Film(
        run.operator,
        path.parent / facts["file"],
        f"{played}, score {facts['score']:g}. Seed {run.seed}, its network of agent step {saved['agent_steps']:,}, "
        f"epsilon {epsilon:g}.",
    )
