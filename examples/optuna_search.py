"""Search over operators and their parameters with Optuna; trials that fall behind end early.

    pip install "softbellman[train]" optuna
    python examples/optuna_search.py --environment minatar/breakout --trials 30 --steps 600000

The score that chose a parameter flatters it: the last line is of seeds that chose nothing, beside `max`.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna

import softbellman as sb

RANGES = {"softmax": (0.1, 100.0), "mellowmax": (0.1, 100.0), "keep": (0.01, 1.0)}


def score(study: sb.Study) -> float:
    """Return the mean over runs of their final scores, as the report has them."""
    return float(np.mean([row["final"] for row in study.table()]))


def objective_for(environment: str, seeds: int, out: Path, **options: Any) -> Any:
    """Return the function that a trial calls: it trains an operator with several seeds in this process."""

    def objective(trial: optuna.Trial) -> float:
        name = trial.suggest_categorical("operator", list(RANGES))
        parameter = trial.suggest_float(name, *RANGES[name], log=True)
        phases = defaultdict(list)

        def on_phase(row: dict[str, Any], policy: Any) -> None:
            """Tell Optuna the mean of all seeds, once each has come so far, and stop if it has seen enough."""
            phases[row["agent_steps"]].append(row["test_return"])
            if len(phases[row["agent_steps"]]) == seeds:
                trial.report(float(np.mean(phases[row["agent_steps"]])), row["agent_steps"])
                if trial.should_prune():
                    raise StopIteration

        # The seeds train side by side, so that none is far ahead when a trial is given up.
        settings = {"loop.block_width": seeds} | options.get("settings", {})
        place = {"out": out / f"trial-{trial.number}", "quiet": True, "on_phase": on_phase}
        study = sb.train(environment, f"{name}({parameter:.4g})", seeds, **options | place | {"settings": settings})
        if not finished(study):
            raise optuna.TrialPruned
        return score(study)

    return objective


def finished(study: sb.Study) -> bool:
    """Say whether every run of a study has come to its end."""
    return all('"finished"' in (run.path / "status.json").read_text() for run in study.runs)


def search(environment: str, trials: int, seeds: int, out: Path, **options: Any) -> tuple[optuna.Study, sb.Study]:
    """Search, then train the best operator and `max` with as many seeds that chose nothing.

    Args:
        environment: the environment.
        trials: operators to try.
        seeds: runs of each.
        out: directory of the studies, one for each trial.
        options: for `softbellman.train`, such as `steps` and `settings`.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=min(5, trials // 2))
    searched = optuna.create_study(direction="maximize", pruner=pruner, sampler=optuna.samplers.TPESampler(seed=0))
    searched.optimize(objective_for(environment, seeds, out, **options), n_trials=trials)
    name = searched.best_params["operator"]
    best = f"{name}({searched.best_params[name]:.4g})"
    fresh = list(range(seeds, 2 * seeds))
    judged = sb.compare(environment, ["max", best], fresh, out=out / "judged", quiet=True, **options)
    return searched, judged


def main() -> None:
    """Read the command line, search, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environment", default="gym/CartPole-v1")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/optuna"))
    given = parser.parse_args()
    if any(given.out.glob("trial-*")):
        parser.error(f"--out {given.out} holds the trials of a search already; name another directory")
    searched, judged = search(given.environment, given.trials, given.seeds, given.out, steps=given.steps)
    pruned = sum(trial.state == optuna.trial.TrialState.PRUNED for trial in searched.trials)
    print(f"{len(searched.trials)} trials, {pruned} given up early")
    print(f"best: {searched.best_params}, {searched.best_value:.2f}")
    for row in judged.table():
        score = "no run has a score" if row["final"] is None else f"{row['final']:.2f}"
        print(f"on seeds that chose nothing: {row['operator']} {score}")


if __name__ == "__main__":
    main()
