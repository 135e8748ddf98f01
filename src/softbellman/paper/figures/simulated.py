"""Views of Figures 2 and 7 and Table 3: measured in seconds, checked statement by statement."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from softbellman import operators as ops
from softbellman.operators import Operator
from softbellman.paper.figures import table3
from softbellman.paper.verdicts import Verdict
from softbellman.simulation import Cell, Curve, compare, measure

ACTIONS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TAUS = (1.0, 5.0, 10.0)
TRIALS = 100  # the paper's
FEW = 4.0  # standard errors within which a mean is no other than 0
_COMPARED = (2, 10, 100)  # actions of Figure 7


def measure_bias() -> list[Cell]:
    """Measure Figure 2: max and softmax, single and double, equal true values."""
    taus = [kind for tau in TAUS for kind in (ops.softmax(tau), ops.double(ops.softmax(tau)))]
    operators: list[Operator] = [ops.maximum(), ops.double(ops.maximum()), *taus]
    return [cell for actions in ACTIONS for cell in measure(operators, np.zeros(actions), trials=TRIALS)]


def measure_comparison() -> list[Curve]:
    """Measure Figure 7: softmax and mellowmax over a linear grid of 100 parameters from 0.01 to 100."""
    families: dict[str, Callable[[float], Operator]] = {"softmax": ops.softmax, "mellowmax": ops.mellowmax}
    grid = [float(f"{value:.12g}") for value in np.linspace(0.01, 100.0, 100)]
    return [curve for actions in _COMPARED for curve in compare(families, grid, actions, trials=TRIALS)]


def bias_rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Tabulate Figure 2."""
    return [
        {
            "operator": str(cell.operator),
            "actions": cell.actions,
            "mean": cell.overestimation.mean,
            "mean sd": cell.overestimation.std,
            "standard error": cell.overestimation.standard_error,
        }
        for cell in cells
    ]


def comparison_rows(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Tabulate Figure 7 at a few of its parameters."""
    shown = (0, 1, 4, 9, 29, 99)
    return [
        {
            "family": curve.family,
            "actions": curve.actions,
            "parameter": curve.parameters[place],
            "below max": curve.cells[place].approximation_error.mean,
            "overestimation": curve.cells[place].overestimation.mean,
        }
        for curve in curves
        for place in shown
    ]


def check_bias(cells: Sequence[Cell]) -> list[Verdict]:
    """Check what the paper says of Figure 2."""
    over = {(str(cell.operator), cell.actions): cell.overestimation for cell in cells}
    single = [[over["max", m].mean - over[str(ops.softmax(tau)), m].mean for tau in TAUS] for m in ACTIONS]
    gaps = [
        (
            over["double(max)", m].mean - over[spec, m].mean,
            np.hypot(over["double(max)", m].standard_error, over[spec, m].standard_error),
        )
        for m in ACTIONS
        for spec in (str(ops.double(ops.softmax(tau))) for tau in TAUS)
    ]
    least, most = min(map(min, single)), max(map(max, single))
    smaller = sum(gap > 0 for gap, _ in gaps)
    clear = sum(gap > FEW * error for gap, error in gaps)
    cells_said = f"{len(ACTIONS)} numbers of actions and {len(TAUS)} tau"
    shrinks = all(left > right for row in single for left, right in pairwise(row))
    return [
        _verdict(
            "softmax-below-max",
            "softmax overestimates less than max, at each number of actions and tau (Fig. 2)",
            least > 0,
            f"max minus softmax is {least:+.4f} to {most:+.4f}, over {cells_said}",
        ),
        _verdict(
            "gap-shrinks",
            "the gap to max becomes smaller when tau increases (Fig. 2)",
            shrinks,
            "it does at each number of actions" if shrinks else "it does not at each number of actions",
        ),
        Verdict(
            "double-below-double-max",
            "double softmax overestimates less than double max (Fig. 2)",
            "",
            "supported" if clear == len(gaps) else "not supported" if not clear else "undecided",
            f"the mean is smaller in {smaller} of {len(gaps)} cells, in {clear} by more than {FEW:g} standard errors: "
            "the expected error of both is 0, for a double operator's weights do not depend on its values",
        ),
    ]


def check_comparison(curves: Sequence[Curve]) -> list[Verdict]:
    """Check what the paper says of Figure 7."""
    pairs = [
        (soft, mellow)
        for one, other in zip(curves[::2], curves[1::2], strict=True)
        for soft, mellow in zip(one.cells, other.cells, strict=True)
    ]
    nearer = sum(s.approximation_error.mean <= m.approximation_error.mean for s, m in pairs)
    less = sum(m.overestimation.mean <= s.overestimation.mean for s, m in pairs)
    return [
        _verdict(
            "softmax-nearer-to-max",
            "softmax approaches max faster than mellowmax (Fig. 7)",
            nearer == len(pairs),
            f"it is nearer, or as near, at {nearer} of {len(pairs)} parameters and numbers of actions",
        ),
        _verdict(
            "mellowmax-overestimates-less",
            "mellowmax reduces overestimation further (Fig. 7)",
            less == len(pairs),
            f"it overestimates no more than softmax at {less} of {len(pairs)} parameters and numbers of actions",
        ),
    ]


def answers() -> dict[str, table3.Row]:
    """Derive Table 3."""
    return {name: table3.derive(operator) for name, operator in table3.OPERATORS.items()}


def answer_rows(found: dict[str, table3.Row]) -> list[dict[str, Any]]:
    """Tabulate the answers of Table 3, ours and the paper's."""
    words = {True: "yes", False: "no", None: "-"}
    return [
        {
            "operator": name,
            "criterion": criterion.replace("_", " "),
            "ours": words[answer],
            "paper": words[getattr(table3.PRINTED[name], criterion)],
        }
        for name, row in found.items()
        for criterion, answer in row._asdict().items()
    ]


def check_answers(found: dict[str, table3.Row]) -> list[Verdict]:
    """Check the answers of Table 3, an operator at a time."""
    verdicts = []
    for name, row in found.items():
        other = [
            criterion.replace("_", " ")
            for criterion, answer in row._asdict().items()
            if answer != getattr(table3.PRINTED[name], criterion)
        ]
        contrary = f"tested laws say otherwise of {' and '.join(other)}"
        reason = contrary if other else "all five follow from tested laws"
        verdicts.append(_verdict(f"answers-{name}", f"the five answers for {name} (Table 3)", not other, reason))
    return verdicts


def _verdict(name: str, says: str, holds: bool, reason: str) -> Verdict:
    return Verdict(name, says, "", "supported" if holds else "not supported", reason)
