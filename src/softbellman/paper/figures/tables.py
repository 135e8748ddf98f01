"""Tables 1, 2 and A1, and of exploration: scores by tau, by operator, the best tau, ours beside the paper's.

Where the paper is silent both readings are given: `mean sd` is the deviation of the runs' means over seeds, `sd all`
that of all last phases of all seeds; `mean` is of the last phases, `best` of each run's best phase.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from softbellman.analysis.statistics import known_mean
from softbellman.operators.spec import numbers
from softbellman.paper.arms import ARMS, PAPERS, WHOLE, candidates, choose, readings, take
from softbellman.paper.expected import TABLE_1, TABLE_2, TABLE_A1, Score
from softbellman.paper.figures.panels import Panel
from softbellman.paper.results import Results, deviation
from softbellman.report.pictures import look

EXPLORATION = ("DQN", "S-DQN", "exploring max", "cooled softmax", "mellowmax", "exploring mellowmax")
"""The arms of the table on exploration, in its order."""

_BEST, _OTHERS = "best", "best by other seeds"
_NONE = (float("nan"), float("nan"))
_THEIRS = {"color": "0.45", "marker": "s", "markerfacecolor": "white"}


def table_1(results: Results) -> list[dict[str, Any]]:
    """Tabulate scores of S-DDQN by tau; an infinite tau is DDQN."""
    rows = []
    for game, name in enumerate(results.scale.games):
        for tau, spec in _taus(results, "S-DDQN", "double(max)"):
            theirs = TABLE_1[name].get(tau, _NONE)
            rows.append({"game": name, "tau": tau, **_scores(results, game, [spec] * _seeds(results), theirs)})
    return rows


def table_2(results: Results) -> list[dict[str, Any]]:
    """Tabulate scores of max, softmax and mellowmax, the parameter chosen as in the paper, which flatters, and not."""
    rows = []
    for game, name in enumerate(results.scale.games):
        for arm in ("DQN", "S-DQN", "mellowmax"):
            for grid, choice, picked in _choices(results, game, arm):
                operators = picked.described if picked else "none"
                specs = picked.operators if picked else ()
                theirs = TABLE_2[name][arm] if choice in ("", _BEST) else _NONE
                chosen = f"{choice} of {grid}" if grid else "-"
                label = {"game": name, "method": arm, "parameter": chosen, "operators": operators}
                rows.append(label | _scores(results, game, specs, theirs))
    return rows


def table_a1(results: Results) -> list[dict[str, Any]]:
    """Tabulate the tau with the highest mean score, and the choices that verdicts are given by."""
    rows = []
    for game, name in enumerate(results.scale.games):
        for arm in ("S-DQN", "S-DDQN"):
            row: dict[str, Any] = {"game": name, "method": arm}
            for reading, label in ((WHOLE, "best"), (PAPERS, "best of 1, 5, 10")):
                specs = candidates(results.scale, arm, reading)
                best = choose(results, game, specs).best.operators[0]
                row[label] = _tau(best)
            left_out = choose(results, game, candidates(results.scale, arm)).left_out
            row["best of other seeds"] = ", ".join(map(_tau, left_out.operators))
            rows.append(row | {"paper": TABLE_A1[arm][name]})
    return rows


def exploration(results: Results) -> list[dict[str, Any]]:
    """Tabulate scores of softmax and mellowmax in the target, in exploration instead, and of softmax cooled."""
    rows, arms = [], [take(results, name) for name in EXPLORATION]
    for game, name in enumerate(results.scale.games):
        for arm in arms:
            label = {"game": name, "method": arm.name, "operators": arm.described(game)}
            rows.append(label | _scores(results, game, arm.operators[game]))
    return rows


def panels(draw: Callable[[Results, int, Any], None], results: Results) -> list[list[Panel]]:
    """Make a panel for each game, which `draw` draws: it takes the results, the game's number and an axis."""
    return [[Panel(_called(name), partial(draw, results, game)) for game, name in enumerate(results.scale.games)]]


def draw_by_tau(results: Results, game: int, axis: Any) -> None:
    """Draw scores over tau."""
    taus = _taus(results, "S-DDQN", "double(max)")
    ticks = ["∞" if np.isinf(tau) else f"{tau:g}" for tau, _ in taus]
    scores = [results.of(spec, results.final)[game] for _, spec in taus]
    _errors(axis, np.arange(len(taus)), scores, "ours", look(0).line)
    if results.scale.is_atari:
        _theirs(axis, np.arange(len(taus)) + 0.15, [TABLE_1[results.scale.games[game]][tau] for tau, _ in taus])
    axis.set(xlabel="τ of S-DDQN; ∞ is DDQN", ylabel="test score, last phases")
    axis.set_xticks(np.arange(len(taus)), ticks)


def draw_by_operator(results: Results, game: int, axis: Any) -> None:
    """Draw scores by operator."""
    names, places = ("DQN", "S-DQN", "mellowmax"), np.arange(3)
    for number, label in enumerate((_BEST, _OTHERS)):
        scores = []
        for arm in names:
            picks = {choice: pick for grid, choice, pick in _choices(results, game, arm) if grid in ("", WHOLE)}
            pick = picks.get(label) or picks.get("")
            scores.append(pick.scores if pick else np.full(1, np.nan))
        _errors(axis, places + 0.15 * number, scores, f"parameter: {label}", look(number).line)
    if results.scale.is_atari:
        _theirs(axis, places + 0.3, [TABLE_2[results.scale.games[game]][arm] for arm in names])
    axis.set(ylabel="test score, last phases", xlim=(-0.4, 2.7))
    axis.set_xticks(places, ("max", "softmax", "mellowmax"))


def draw_both_by_tau(results: Results, game: int, axis: Any) -> None:
    """Draw mean scores over tau for S-DQN and S-DDQN, whose maximum is the tau chosen."""
    for number, arm in enumerate(("S-DQN", "S-DDQN")):
        scores = [results.of(spec, results.final)[game] for spec in candidates(results.scale, arm)]
        places = np.arange(len(scores)) + 0.1 * number
        _errors(axis, places, scores, arm, look(2 + number).line)
    axis.set(xlabel="τ", ylabel="test score, last phases")
    axis.set_xticks(np.arange(len(results.scale.parameters)), [f"{tau:g}" for tau in results.scale.parameters])


def draw_exploration(results: Results, game: int, axis: Any) -> None:
    """Draw scores of the arms of the table on exploration."""
    places, scores = np.arange(len(EXPLORATION)), [take(results, name).of(results.final)[game] for name in EXPLORATION]
    _errors(axis, places, scores, "ours", look(0).line)
    axis.set(ylabel="test score, last phases", xlim=(-0.5, len(places) - 0.5))
    axis.set_xticks(places, EXPLORATION, fontsize="small", rotation=30, ha="right")


def _errors(axis: Any, x: np.ndarray, scores: Sequence[np.ndarray], label: str, line: dict[str, Any]) -> None:
    means = np.array([float(known_mean(each)) for each in scores])
    spreads = np.array([deviation(each) for each in scores])
    if np.isfinite(means).any():
        style = {"color": line["color"], "marker": "o", "linestyle": "none", "capsize": 3, "label": label}
        axis.errorbar(x, means, np.nan_to_num(spreads), **style)


def _theirs(axis: Any, x: np.ndarray, scores: Sequence[Score]) -> None:
    means, spreads = np.array(scores).T
    axis.errorbar(x, means, spreads, **_THEIRS, linestyle="none", capsize=3, label="paper")


def _taus(results: Results, arm: str, limit: str) -> list[tuple[float, str]]:
    specs = candidates(results.scale, arm)
    return [*zip(results.scale.parameters, specs, strict=True), (float("inf"), limit)]


def _choices(results: Results, game: int, arm: str) -> list[tuple[str, str, Any]]:
    """List how an arm's operator can be chosen: the grid, the choice, and what was picked."""
    if "{" not in ARMS[arm]:
        return [("", "", choose(results, game, candidates(results.scale, arm)).best)]
    rows = []
    for reading in [each for each in readings(results.scale) if each in (WHOLE, PAPERS)]:
        chosen = choose(results, game, candidates(results.scale, arm, reading))
        rows += [(reading, _BEST, chosen.best), (reading, _OTHERS, chosen.left_out)]
    return rows


def _scores(results: Results, game: int, specs: Iterable[str | None], theirs: Score | None = None) -> dict[str, Any]:
    """Summarise the runs of a row, one arm for each seed, beside the paper's mean and deviation if it is given."""
    phases = results.columns["test_return"][..., -results.scale.final_phases :]
    phases = np.where(results.diverged[..., None], results.random[:, None, None, None], phases)
    cells = [(game, results.scale.arms.index(spec), seed) for seed, spec in enumerate(specs) if spec is not None]
    final, best = (np.array([values[cell] for cell in cells]) for values in (results.final, results.maximum))
    return {
        "runs": int((~np.isnan(final)).sum()),
        "mean": float(known_mean(final)),
        "mean sd": deviation(final),
        "sd all": deviation(np.array([phases[cell] for cell in cells])),
        "best": float(known_mean(best)),
        "best sd": deviation(best),
        **({} if theirs is None else {"paper": theirs[0], "paper sd": theirs[1]}),
    }


def _tau(spec: str | None) -> str:
    """Return the parameter in a spec, a dash where there is no operator."""
    return "-" if spec is None else ", ".join(numbers(spec)) or spec


def _called(game: str) -> str:
    return game.replace("_", " ")


def _seeds(results: Results) -> int:
    return len(results.scale.seeds)
