"""Claims of docs/claims.md, registered before their runs: name, saying, difference, margin."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from softbellman.paper.arms import OPERATORS, Arm, candidates
from softbellman.paper.results import Results

Pick = Callable[[str], Arm]
"""Gives an arm by name, its parameter chosen in one way."""


class Part(NamedTuple):
    """One difference of a claim: what it is of, and a function to `[game, seed]`; the reading limits its grid."""

    label: str
    difference: Callable[[Results, Pick, str], np.ndarray]


class Claim(NamedTuple):
    """A claim.

    Attributes:
        name: its name.
        says: what the paper says.
        side: on which side of the margin the whole interval is to lie.
        margin: the margin.
        parts: the differences, one or two.
        needs: the arms that must have run; all operators for a score, since the best of them makes its scale.
        games: the games it is about; empty: all.
    """

    name: str
    says: str
    side: Literal[">", "<"]
    margin: float
    parts: tuple[Part, ...]
    needs: tuple[str, ...] = OPERATORS
    games: tuple[str, ...] = ()

    @property
    def claimed(self) -> str:
        """Claimed side and margin of the differences, as the page has it."""
        margin = "log 2" if self.margin == math.log(2) else f"{self.margin:g}"
        return f"{'both ' if len(self.parts) > 1 else ''}{self.side} {margin}"


def _score(summary: str, first: str, second: str) -> Part:
    """Compare scores of two arms."""

    def difference(results: Results, pick: Pick, _: str) -> np.ndarray:
        scores = getattr(results, summary)
        return (pick(first).of(scores) - pick(second).of(scores)) / results.score_scale[:, None]

    return Part(f"{summary} score, {first} minus {second}".replace("learning score", "learning"), difference)


def _above_smallest(results: Results, pick: Pick, _: str) -> np.ndarray:
    smallest = results.of("double(softmax(1))", results.final)
    return (pick("S-DDQN").of(results.final) - smallest) / results.score_scale[:, None]


def _share_of_taus(results: Results, _: Pick, reading: str) -> np.ndarray:
    baseline = results.of("double(max)", results.final)
    scores = np.array([results.of(spec, results.final) for spec in candidates(results.scale, "S-DDQN", reading)])
    known = ~np.isnan(scores).any(axis=0) & ~np.isnan(baseline)
    return np.where(known, (scores > baseline).mean(axis=0) - 0.5, np.nan)


def _value(name: str) -> Part:
    def difference(results: Results, pick: Pick, _: str) -> np.ndarray:
        values = results.late(results.columns["held_out_value"])
        return (pick("DQN").of(values) - pick(name).of(values)) / results.value_scale[:, None]

    return Part(f"value, DQN minus {name}", difference)


def _distance(name: str) -> Part:
    def distances(results: Results, arm: Arm) -> np.ndarray:
        values = arm.of(results.late(results.columns["held_out_value"])) / results.value_scale[:, None]
        medians = [np.median(known) if (known := row[~np.isnan(row)]).size else np.nan for row in values]
        return np.abs(values - np.array(medians)[:, None])

    def difference(results: Results, pick: Pick, _: str) -> np.ndarray:
        return distances(results, pick("DQN")) - distances(results, pick(name))

    return Part(f"distance of value from the arm's median, DQN minus {name}", difference)


def logarithm(values: np.ndarray) -> np.ndarray:
    """Take logarithms; that of 0 is -inf, with which no claim is decided."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _with_tau(column: str) -> Callable[[Results, Pick, str], np.ndarray]:
    """Compute Kendall's tau-b between tau and a quantity; DDQN's tau is infinite, and ranks are all that matters."""

    def difference(results: Results, _: Pick, reading: str) -> np.ndarray:
        specs = (*candidates(results.scale, "S-DDQN", reading), "double(max)")
        values = results.columns[column]
        late = results.late(logarithm(values) if column.startswith("gradient") else values)
        quantity = np.stack([results.of(spec, late) for spec in specs], axis=-1)
        found = np.full(quantity.shape[:-1], np.nan)
        for cell in np.ndindex(*found.shape):
            if np.isfinite(quantity[cell]).all():
                found[cell] = stats.kendalltau(np.arange(len(specs)), quantity[cell])[0]
        return found

    return difference


def _underestimation(results: Results, _: Pick, __: str) -> np.ndarray:
    over = results.late(results.of("double(softmax(1))", results.columns["overestimation"]))
    return over / results.value_scale[:, None]


def _gradient(first: str, second: str) -> Part:
    def difference(results: Results, pick: Pick, _: str) -> np.ndarray:
        norms = results.late(logarithm(results.columns["gradient_norm"]))
        return pick(first).of(norms) - pick(second).of(norms)

    return Part(f"gradient norm, {first} minus {second}", difference)


def _growth(results: Results, pick: Pick, _: str) -> np.ndarray:
    norms = logarithm(results.columns["gradient_norm"])
    growth = results.late(norms) - results.early(norms)
    return pick("DQN").of(growth) - pick("S-DQN").of(growth)


CLAIMS = (
    Claim(
        "maximum-dqn",
        "S-DQN reaches higher maximum scores than DQN (Fig. 1)",
        *(">", 0),
        (_score("maximum", "S-DQN", "DQN"),),
    ),
    Claim(
        "maximum-ddqn",
        "S-DDQN reaches higher maximum scores than DDQN (Fig. 1)",
        *(">", 0),
        (_score("maximum", "S-DDQN", "DDQN"),),
    ),
    Claim("faster-dqn", "S-DQN learns faster than DQN (Fig. 1)", ">", 0, (_score("learning", "S-DQN", "DQN"),)),
    Claim("faster-ddqn", "S-DDQN learns faster than DDQN (Fig. 1)", ">", 0, (_score("learning", "S-DDQN", "DDQN"),)),
    Claim("above-ddqn", "S-DQN outperforms DDQN (Fig. 1)", ">", 0, (_score("final", "S-DQN", "DDQN"),)),
    Claim(
        "most-taus",
        "S-DDQN scores more than DDQN for most tau (Table 1)",
        *(">", 0),
        (Part("share of tau that score more than DDQN, minus 1/2", _share_of_taus),),
        ("S-DDQN", "DDQN"),
    ),
    Claim(
        "both-ends-hurt",
        "too small and too large a tau both hurt (Table 1)",
        *(">", 0),
        (Part("final score, S-DDQN minus double(softmax(1))", _above_smallest), _score("final", "S-DDQN", "DDQN")),
    ),
    Claim("softmax-above-max", "softmax scores more than max (Table 2)", ">", 0, (_score("final", "S-DQN", "DQN"),)),
    Claim(
        "mellowmax-above-max",
        "mellowmax scores more than max (Table 2)",
        *(">", 0),
        (_score("final", "mellowmax", "DQN"),),
    ),
    Claim(
        "not-below-mellowmax",
        "softmax scores about as much as mellowmax or more (Table 2)",
        *(">", -0.1),
        (_score("final", "S-DQN", "mellowmax"),),
    ),
    Claim(
        "smaller-values",
        "S-DQN and S-DDQN have smaller values than DQN (Fig. 3)",
        *(">", 0),
        (_value("S-DQN"), _value("S-DDQN")),
        ("DQN", "S-DQN", "S-DDQN"),
    ),
    Claim(
        "steadier-values",
        "values of DQN vary more (Fig. 3)",
        *(">", 0),
        (_distance("S-DQN"), _distance("S-DDQN")),
        ("DQN", "S-DQN", "S-DDQN"),
    ),
    Claim(
        "values-grow",
        "values grow with tau (Fig. 4)",
        *(">", 0),
        (Part("Kendall's tau-b between tau and value", _with_tau("held_out_value")),),
        ("S-DDQN", "DDQN"),
    ),
    Claim(
        "small-tau-underestimates",
        "a very small tau underestimates (Fig. 4)",
        *("<", 0),
        (Part("overestimation of double(softmax(1))", _underestimation),),
        ("DQN", "double(softmax(1))"),
    ),
    Claim(
        "smaller-gradients",
        "gradient norms are smaller than those of the max counterpart (Fig. 5)",
        *(">", 0),
        (_gradient("DQN", "S-DQN"), _gradient("DDQN", "S-DDQN")),
        ("DQN", "DDQN", "S-DQN", "S-DDQN"),
    ),
    Claim(
        "gradients-grow",
        "gradients grow with tau (Fig. 6)",
        *(">", 0),
        (Part("Kendall's tau-b between tau and gradient variance", _with_tau("gradient_variance")),),
        ("S-DDQN", "DDQN"),
    ),
    Claim(
        "out-of-bounds",
        "DQN's gradient grows out of bounds, softmax's does not (Fig. 5, Asterix)",
        *(">", math.log(2)),
        (Part("gradient growth, DQN minus S-DQN", _growth),),
        ("DQN", "S-DQN"),
        games=("asterix",),
    ),
    Claim(
        "cooling",
        "logarithmic cooling of tau gains nothing (section 4)",
        *("<", 0.1),
        (_score("final", "cooled softmax", "S-DQN"),),
        (*OPERATORS, "cooled softmax"),
    ),
    Claim(
        "not-exploration",
        "the gain comes from the target, not from exploration (sections 4 and 5)",
        *(">", 0),
        (_score("final", "S-DQN", "exploring max"),),
        (*OPERATORS, "exploring max"),
    ),
    Claim(
        "mellowmax-exploration",
        "exploring by mellowmax's policy does much worse (footnote 5)",
        *(">", 0.1),
        (_score("final", "mellowmax", "exploring mellowmax"),),
        (*OPERATORS, "exploring mellowmax"),
    ),
)
"""All claims, in the order of the page."""

LEVEL = 1 - 0.05 / len(CLAIMS)
"""The nominal level of each interval; docs/claims.md tells how far it holds."""
