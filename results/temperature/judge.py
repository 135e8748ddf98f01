"""Choices and verdicts of the studies of temperature, by the rules of docs/claims.md and README.md beside this file.

.venv/bin/python results/temperature/judge.py rate      # the learning rate of sharp-minatar, from learning-rate/
.venv/bin/python results/temperature/judge.py choose    # arms of the last study, from scale/, others/ and screen/
.venv/bin/python results/temperature/judge.py power     # how often its claims about the best tau would be supported
.venv/bin/python results/temperature/judge.py verdict   # its three claims, from final/
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tables import FINAL, with_interval

from softbellman.analysis.records import Records
from softbellman.analysis.scores import collect
from softbellman.analysis.statistics import (
    Interval,
    bootstrap_interval,
    interquartile_mean,
    simultaneous_differences,
    spreads_differ,
)
from softbellman.paper.verdicts import estimate
from softbellman.study.store import Study

HERE = Path(__file__).parent
MARGIN = -0.05  # of best tau minus random: so much less is as good
NEAR = -0.1  # of the same, averaged over games: so much less is near
CHOSEN_ON, SCREENED_ON, JUDGED_ON = range(10, 15), range(40, 45), range(50, 60)  # seeds
TAUS = tuple(f"softmax({tau})" for tau in (3, 10, 30, 100, 300, 1000))
RULES = (
    *(f"keep({rho})" for rho in (0.02, 0.05, 0.1, 0.2)),
    *(f"softmax(100), controller={controller}" for controller in ("noise", "match", "loop")),
)
GAMES = tuple(f"minatar/{game}" for game in FINAL)
SCREENED = GAMES[:3]


class Game(NamedTuple):
    """Final scores of a study in one game: the mean of the last test phases of each run.

    Attributes:
        scores: `[seed]` by arm; NaN: the run has not ended. One that diverged has the random policy's score.
        random: the random policy's mean score; NaN: it is not known.
        seeds: those of the scores.
    """

    scores: dict[str, np.ndarray]
    random: float
    seeds: tuple[int, ...] = ()

    def mean(self, arm: str) -> float:
        """Averages the scores of an arm."""
        return float(self.scores[arm].mean())


Games = Mapping[str, Game]


class Choices(NamedTuple):
    """Arms of the last study.

    Attributes:
        best: the best tau of each game.
        one: the one tau.
        rules: the first and the second rule.
    """

    best: dict[str, str]
    one: str
    rules: tuple[str, str]

    def arms(self, game: str) -> tuple[str, ...]:
        """Returns the arms of a game, each once."""
        return tuple(dict.fromkeys(("max", "double(max)", self.best[game], self.one, *self.rules)))

    def __str__(self) -> str:
        """Writes them line by line, with the command of each game."""
        lines = [f"one tau: {self.one}", *(f"rule: {rule}" for rule in self.rules)]
        for game, tau in self.best.items():
            arms, seeds = " ".join(f'"{arm}"' for arm in self.arms(game)), " ".join(map(str, JUDGED_ON))
            asked = f"softbellman compare {game} --preset sharp-minatar --seeds {seeds} --arms {arms}"
            lines += [f"{game}, best tau: {tau}", f"{asked} --out results/temperature/final/{_folder(game)}"]
        return "\n".join(lines)


class Verdict(NamedTuple):
    """Verdict on a claim about a rule: supported, not supported or undecided, and the intervals behind it.

    That a rule wins, by the first two claims, is written likewise: yes or no.
    """

    claim: str
    rule: str
    state: str
    shown: tuple[str, ...]

    def __str__(self) -> str:
        """Writes it, and its intervals below."""
        return "\n    ".join([f"{self.claim}, {self.rule}: {self.state}", *self.shown])


def read(study: Study) -> dict[str, Game]:
    """Reads the final scores of a study."""
    records = Records.read(study)
    final, games = collect(records, "final"), {}
    for place, name in enumerate(final.games):
        played = records.random[name]
        random = np.nan if played is None else float(played.mean())
        scores = np.where(final.states[place] == "diverged", random, final.values[place])
        games[name] = Game(dict(zip(final.operators, scores, strict=True)), random, final.seeds)
    return games


def require(games: Games, names: Iterable[str], arms: Sequence[str]) -> None:
    """Refuses to go on without all runs of some arms in some games, and the random policy's score there.

    Raises:
        ValueError: if one is not there or has not ended.
    """
    for name in names:
        for arm in arms:
            if name not in games or arm not in games[name].scores:
                raise ValueError(f"there is no {arm} in {name}")
        if np.isnan(games[name].random):
            raise ValueError(f"{name}: the random policy was not played, or finished no game; see the study's page")
        for arm in arms:
            if missing := int(np.isnan(games[name].scores[arm]).sum()):
                raise ValueError(f"{arm} in {name}: {missing} runs have no final score")


def require_seeds(games: Games, names: Iterable[str], seeds: Sequence[int]) -> None:
    """Refuses a study on other seeds than those of docs/claims.md.

    Raises:
        ValueError: if a game has others.
    """
    for name in names:
        if games[name].seeds != tuple(seeds):
            asked = f"{seeds[0]} to {seeds[-1]}"
            raise ValueError(f"{name} has the seeds {', '.join(map(str, games[name].seeds))}; its seeds are {asked}")


def merit(games: Games, names: Iterable[str], arm: str) -> float:
    """Averages the mean scores of an arm over games, each divided by the game's scale.

    A scale is that of the game's best arm, so all of its runs must be there.
    """
    scales = {name: unit(name, games[name], max(games[name].scores, key=games[name].mean)) for name in names}
    return float(np.mean([games[name].mean(arm) / scale for name, scale in scales.items()]))


def unit(name: str, game: Game, arm: str) -> float:
    """Returns by how much an arm's mean score is above the random policy's, of which differences are shares.

    Raises:
        ValueError: if it is not above: shares would have another sign, or none.
    """
    above = game.mean(arm) - game.random
    if above <= 0:
        raise ValueError(f"{name}: {arm} scores no more than random actions, so nothing is a share of the difference")
    return above


def rate(games: Games) -> str:
    """Says if another learning rate takes the place of 0.0003."""
    of = {"max": "max", "double": "double(max)"}
    others = ("1e-4", "1e-3")
    require(games, SCREENED, [*of.values(), *(f"{name} {other}" for name in of for other in others)])
    lines, better = [], []
    for other in others:
        gains = []
        for game in SCREENED:
            scores = games[game].scores
            scale = max(each.mean() for each in scores.values())
            gains += [(scores[f"{name} {other}"] - scores[arm]) / scale for name, arm in of.items()]
        found = estimate(np.array(gains), 0.95)
        assert found.interval is not None and found.mean is not None
        lines.append(f"{other} minus 3e-4: {with_interval(found.mean, found.interval)} of a game's best")
        better += [(found.mean, other)] if found.interval[0] > 0 else []
    return "\n".join([*lines, f"chosen: {max(better)[1] if better else '3e-4, as it was'}"])


def choose(taus: Games, screen: Games) -> Choices:
    """Chooses the arms of the last study from those before it, which must have all their runs.

    The other arms have a part in the scales of games: with a run missing, the choice could change later.
    """
    require(taus, GAMES, TAUS)
    require(screen, SCREENED, RULES)
    for games in (taus, screen):
        for name, game in games.items():
            require(games, [name], tuple(game.scores))
    best = {name: max(TAUS, key=taus[name].mean) for name in GAMES}
    first, second, *_ = sorted(RULES, key=lambda rule: -merit(screen, SCREENED, rule))
    return Choices(best, max(TAUS, key=lambda tau: merit(taus, GAMES, tau)), (first, second))


def judge(games: Games, choices: Choices) -> list[Verdict]:
    """Judges the claims for both rules; where a best tau plays no better than chance, none is decided.

    A rule wins if the first two are supported for it.
    """
    for name in GAMES:
        require(games, [name], choices.arms(name))
    scales = {name: unit(name, games[name], choices.best[name]) for name in GAMES}
    as_good = [_against_best(games[name], choices.best[name], choices.rules, scales[name]) for name in GAMES]
    found = []
    for place, rule in enumerate(choices.rules):
        each = [differences[place] for differences in as_good]
        shown = tuple(
            f"{name}: {with_interval(*told)}{_unlike(games[name], (choices.best[name], *choices.rules))}"
            for name, told in zip(GAMES, each, strict=True)
        )
        found.append(Verdict("rule-as-good", rule, _state([interval for _, interval in each], MARGIN), shown))
        mean, interval = _above_one_tau(games, rule, choices.one, scales)
        found.append(Verdict("rule-above-one-tau", rule, _state([interval], 0.0), (with_interval(mean, interval),)))
        near = _near_best(games, choices.best, rule, scales)
        found.append(Verdict("rule-near-best", rule, _state([near[1]], NEAR), (with_interval(*near),)))
        wins = all(verdict.state == "supported" for verdict in found[-3:-1])
        found.append(Verdict("wins", rule, "yes" if wins else "no", ()))
    return found


def _against_best(game: Game, best: str, rules: Sequence[str], scale: float) -> list[tuple[float, Interval]]:
    """Compares the rules with the best tau of a game, over best tau minus random."""
    found = []
    for each in simultaneous_differences([game.scores[arm] for arm in (best, *rules)], 1 - 0.05 / len(GAMES)):
        assert each.mean is not None and each.interval is not None
        found.append((each.mean / scale, (each.interval[0] / scale, each.interval[1] / scale)))
    return found


def _unlike(game: Game, arms: Sequence[str]) -> str:
    """Warns that arms have not one spread, which Dunnett's intervals take them to have."""
    scores = [game.scores[arm] for arm in arms]
    differ = spreads_differ([len(each) for each in scores], [float(each.std(ddof=1)) for each in scores])
    return ", of arms whose spreads differ" if differ else ""


def _near_best(games: Games, best: Mapping[str, str], rule: str, scales: Mapping[str, float]) -> tuple[float, Interval]:
    """Averages over games the score of a rule minus that of the best tau, over best tau minus random."""
    shares = [(games[name].scores[rule] - games[name].scores[best[name]]) / scales[name] for name in GAMES]
    found = estimate(np.array(shares), 1 - 0.05 / 2)
    assert found.mean is not None and found.interval is not None
    return found.mean, found.interval


def power(taus: Games, studies: int = 10_000) -> str:
    """Writes a table: how often claims about the best tau come out supported, for rules that are better by a share.

    Scores are normal, with the spread that each game has among the taus that score at least half as much as its best.
    """
    require(taus, GAMES, TAUS)
    spreads = []
    for name in GAMES:
        game, top = taus[name], max(TAUS, key=taus[name].mean)
        learned = [game.scores[tau] for tau in TAUS if game.mean(tau) >= game.mean(top) / 2]
        spreads.append(float(np.sqrt(np.mean([each.var(ddof=1) for each in learned])) / unit(name, game, top)))
    told = ", ".join(f"{_folder(name)} {spread:.3f}" for name, spread in zip(GAMES, spreads, strict=True))
    lines = [f"spread of a score over best tau minus random: {told}", ""]
    lines += ["| a rule is better by | rule-as-good | rule-near-best |", "|---|---|---|"]
    rng = np.random.default_rng(0)
    best: dict[str, str] = dict.fromkeys(GAMES, "best")
    scales: dict[str, float] = dict.fromkeys(GAMES, 1.0)
    for advantage in (-0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.3):
        good = near = 0
        for scores in rng.normal(size=(studies, len(GAMES), 3, len(JUDGED_ON))):
            drawn = {
                name: Game({"best": s[0] * spread, "rule": s[1] * spread + advantage, "other": s[2] * spread}, -1.0)
                for name, s, spread in zip(GAMES, scores, spreads, strict=True)
            }
            intervals = [_against_best(drawn[name], "best", ("rule", "other"), 1.0)[0][1] for name in GAMES]
            good += _state(intervals, MARGIN) == "supported"
            near += _state([_near_best(drawn, best, "rule", scales)[1]], NEAR) == "supported"
        lines.append(f"| {advantage:+.2f} | {good / studies:.4f} | {near / studies:.3f} |")
    return "\n".join(lines)


def _above_one_tau(games: Games, rule: str, one: str, scales: Mapping[str, float]) -> tuple[float, Interval]:
    """Compares interquartile means of normalised scores of a rule and of the one tau, drawn anew seed by seed."""

    def normalised(arm: str) -> np.ndarray:
        return np.stack([(games[name].scores[arm] - games[name].random) / scales[name] for name in GAMES])

    ours, theirs = normalised(rule), normalised(one)

    def difference(drawn: np.ndarray, axis: int) -> np.ndarray:
        place = drawn.astype(np.intp)
        return np.asarray(
            interquartile_mean(ours.ravel()[place], axis=axis) - interquartile_mean(theirs.ravel()[place], axis=axis)
        )

    places = np.arange(ours.size, dtype=np.float64).reshape(ours.shape)
    interval = bootstrap_interval(places, difference, level=1 - 0.05 / 2)
    assert interval is not None
    return float(difference(places.ravel(), -1)), interval


def _state(intervals: Sequence[Interval], margin: float) -> str:
    """Says how intervals lie that are claimed to be above a margin."""
    if all(low > margin for low, _ in intervals):
        return "supported"
    return "not supported" if any(high < margin for _, high in intervals) else "undecided"


def _folder(game: str) -> str:
    return game.partition("/")[2]


def _games(*names: str) -> dict[str, Game]:
    return {name: game for each in names for name, game in read(Study(HERE / each)).items()}


def main(words: Sequence[str]) -> str:
    """Does what the first word says, and returns what is to be printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("rate", "choose", "power", "verdict"))
    step = parser.parse_args(words).step
    if step == "rate":
        return rate(_games("learning-rate"))
    taus = _games("scale", "others")
    require_seeds(taus, GAMES, CHOSEN_ON)
    if step == "power":
        return power(taus)
    screen = _games("screen")
    require_seeds(screen, SCREENED, SCREENED_ON)
    choices = choose(taus, screen)
    if step == "choose":
        merits = [f"{rule}: {merit(screen, SCREENED, rule):.3f}" for rule in RULES]
        return "\n".join(["mean over games of the final score over the game's scale", *merits, str(choices)])
    final = _games(*(f"final/{_folder(name)}" for name in GAMES))
    require_seeds(final, GAMES, JUDGED_ON)
    return "\n".join(map(str, judge(final, choices)))


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"judge.py: {error}")
