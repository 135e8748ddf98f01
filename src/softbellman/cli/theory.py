"""Commands `solve` and `simulate`."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from softbellman import operators as ops
from softbellman import simulation
from softbellman.cli.commands import Solve
from softbellman.cli.simulations import SimulateBias, SimulateComparison, SimulateTemperature
from softbellman.cli.tables import print_lines, print_table
from softbellman.extras import MissingExtra, missing
from softbellman.gaps import NoGap, as_gap
from softbellman.study.place import require_directory, require_file

_STATES_SHOWN = 20
_ACTIONS_SHOWN = 3
_FIXED_POINTS_SHOWN = 4
_ROWS_OF_A_CURVE = 6
_MOST_POINTS = 100_000
_MOST_ACTIONS = 10_000_000


def solve(command: Solve) -> int:
    """Prints the fixed points that were found and what is known of them; the exit code is 1 if there is none."""
    from softbellman import tabular
    from softbellman.tabular.named import named_mdp

    operator, gap = ops.parse(command.operator), as_gap(command.gap)
    if command.out is not None:
        require_file(command.out)
    mdp = named_mdp(command.target, command.gamma)
    solution = tabular.solve(
        mdp,
        operator,
        method=command.method,
        tolerance=command.tolerance,
        max_iterations=command.max_iterations,
        gap=gap,
    )
    reached = f"{solution.iterations:,} iterations of {solution.method}, residual {solution.residual:.2g}"
    with_gap = "" if gap == NoGap() else f" with {gap}"
    size = f"{mdp.num_states:,} states, {mdp.num_actions:,} actions, gamma {mdp.gamma:g}"
    print_lines(
        [
            ("solved" if solution.converged else "not solved", f"{command.target}, {operator}{with_gap}: {size}"),
            ("by", reached),
            ("unique", solution.unique),
        ]
    )
    if mdp.num_states > _STATES_SHOWN:
        print_lines([("shown", f"{_STATES_SHOWN} of {mdp.num_states:,} states; --out FILE.csv writes all")])
    gaps = [] if gap == NoGap() else [_gap(mdp, solution, state) for state in range(mdp.num_states)]
    headers = ("state", "value", "policy", "q", "lower", "upper", *(["gap"] if gaps else []))
    print_table(headers, _abridged(mdp.num_states, lambda state: _row(mdp, solution, state) + gaps[state : state + 1]))
    print_lines([("q, lower, upper", "of the likeliest action; every fixed point lies between the bounds")])
    if gaps:
        print_lines([("gap", "best minus second-best q of the state's actions")])
    if len(solution.fixed_points) > 1:
        points = [mdp.value(operator, q) for q in solution.fixed_points[:_FIXED_POINTS_SHOWN]]
        headers = ("state", *(f"value {number}" for number in range(1, len(points) + 1)))
        print_lines([("fixed points", f"{len(solution.fixed_points)} were found; the values of the states at each:")])
        rows = _abridged(mdp.num_states, lambda state: [f"{point[state]:z.6f}" for point in points])
        print_table(headers, rows)
    print_lines(("note", note) for note in solution.notes)
    if command.out is not None:
        print_lines([("table", str(_write_solution(mdp, solution, command.out)))])
    return 0 if solution.converged else 1


def simulate_bias(command: SimulateBias) -> int:
    """Prints how much operators overestimate, and writes it as CSV and as Figure 2."""
    operators = [ops.parse(spec) for spec in command.operators]
    if not operators:
        raise ValueError("name at least one operator, such as --operators max")
    require_directory(command.out)
    if command.values is not None:
        problems = [np.array(command.values)]
    else:
        problems = [simulation.one_better(actions, command.distance) for actions in _positive(command.actions)]
    cells = [
        cell
        for true_values in problems
        for cell in simulation.measure(
            operators,
            true_values,
            noise=getattr(simulation, command.noise),
            scale=command.scale,
            trials=command.trials,
            seed=command.seed,
        )
    ]
    cells.sort(key=lambda cell: operators.index(cell.operator))
    print_lines([("overestimation", f"operator minus the largest true value, {command.trials:,} trials each")])
    rows = [(str(cell.operator), f"{cell.actions:,}", *_numbers(cell.overestimation)) for cell in cells]
    print_table(("operator", "actions", "mean", "one trial's std", "standard error"), rows)
    table = simulation.write_csv(cells, command.out / "bias.csv")
    print_lines(
        [
            ("table", str(table)),
            _drawn(lambda figures: figures.draw_bias, cells, command.out / f"bias.{command.picture}"),
        ]
    )
    return 0


def _drawn(drawing: Callable[[Any], Callable[[Any, Path], Path]], what: Any, path: Path) -> tuple[str, str]:
    """Draws a picture by a drawing of `paper.figures.simulations`, and says where it is.

    That module is imported here: where it lacks a package this says which, which is no fault of the numbers.
    """
    try:
        from softbellman.paper.figures import simulations

        return "picture", str(drawing(simulations)(what, path))
    except ModuleNotFoundError as error:
        return "picture", f"not drawn: {missing(error)}"
    except MissingExtra as error:
        return "picture", f"not drawn: {error}"


def simulate_comparison(command: SimulateComparison) -> int:
    """Prints both errors at a few parameters, and writes all as CSV and as Figure 7."""
    if not 2 <= command.points <= _MOST_POINTS:
        raise ValueError(f"points ({command.points}) must be from 2 to {_MOST_POINTS:,}")
    if not math.isfinite(command.stop - command.start):
        raise ValueError(f"start ({command.start}) and stop ({command.stop}) must be finite, as their difference must")
    if not command.families:
        raise ValueError('name at least one family, such as --families "softmax(*)"')
    require_directory(command.out)
    families = {spec.replace("(*)", ""): _family(spec) for spec in command.families}
    parameters = [float(f"{value:.12g}") for value in np.linspace(command.start, command.stop, command.points)]
    curves = [
        curve
        for actions in _positive(command.actions)
        for curve in simulation.compare(
            families,
            parameters,
            actions,
            noise=getattr(simulation, command.noise),
            trials=command.trials,
            seed=command.seed,
        )
    ]
    shown = np.unique(np.rint(np.geomspace(1, command.points, _ROWS_OF_A_CURVE)).astype(int) - 1)
    rows = [
        (
            curve.family,
            f"{curve.actions:,}",
            f"{curve.parameters[index]:g}",
            *_numbers(curve.cells[index].approximation_error)[::2],
            *_numbers(curve.cells[index].overestimation)[::2],
        )
        for curve in curves
        for index in shown
    ]
    told = f"{command.trials:,} trials each; {len(shown)} of {command.points:,} parameters, the CSV has all"
    print_lines([("to max", "the largest value minus the operator"), ("over", "operator minus 0, the true value")])
    print_lines([("means over", told)])
    print_table(("family", "actions", "parameter", "to max", "s.e.", "over", "s.e."), rows)
    table = simulation.write_csv((cell for curve in curves for cell in curve.cells), command.out / "comparison.csv")
    picture = command.out / f"comparison.{command.picture}"
    print_lines([("table", str(table)), _drawn(lambda figures: figures.draw_comparison, curves, picture)])
    return 0


def simulate_temperature(command: SimulateTemperature) -> int:
    """Prints the taus without bias and those that are chosen, and writes them as CSV and as a picture."""
    from softbellman import temperature

    require_directory(command.out)
    found = temperature.temperatures(
        command.values,
        command.sigma,
        command.correlation,
        kappa=command.kappa,
        trials=command.trials,
        seed=command.seed,
    )
    print_lines(
        [
            ("tau", f"of softmax, times sigma; bias: its value minus the largest true one, {command.trials:,} trials"),
            ("unbiased", "the tau of bias 0; the others are what a controller chooses"),
        ]
    )
    headers = ("corr.", "sigma", "unbiased", "noise", "bias", "match", "bias", "max", "double(max)")
    print_table(headers, [temperature_row(each) for each in found])
    table = temperature.write_temperatures(found, command.out / "temperature.csv")
    picture = command.out / f"temperature.{command.picture}"
    print_lines([("table", str(table)), _drawn(lambda figures: figures.draw_temperatures, found, picture)])
    return 0


def temperature_row(found: Any) -> list[str]:
    """Writes a row of the table of temperatures: taus times sigma, and biases."""
    scaled = [
        "none" if choice is None else f"{choice.tau * found.sigma:.2f}"
        for choice in (found.unbiased, found.noise, found.match)
    ]
    noise, match, largest = (f"{choice.bias:+.3f}" for choice in (found.noise, found.match, found.max))
    sizes = [f"{found.correlation:g}", f"{found.sigma:g}"]
    return [*sizes, scaled[0], scaled[1], noise, scaled[2], match, largest, f"{found.double:+.3f}"]


def show_table() -> int:
    """Prints the paper's Table 3, derived from the operators' laws."""
    from softbellman.paper.figures import table3

    print_table(("operator", "B.O.", "tuning", "O.R.", "P.R.", "D.Q."), table3.table())
    print_lines(
        [
            ("B.O.", "Bellman optimality: its fixed point is Q*"),
            ("O.R.", "overestimation reduction: it is never above the max"),
            ("P.R.", "policy representation: it averages with a policy, op.weights"),
            ("D.Q.", "double Q-learning: double(op) takes that policy from another estimate"),
            ("corrections", "mellowmax's policy is that of largest entropy among those that average to its value"),
        ]
    )
    return 0


def _family(spec: str) -> Callable[[float], ops.Operator]:
    if "*" not in spec:
        raise ValueError(f"family {spec!r} has no *, which stands for the parameter: such as softmax(*)")
    return lambda parameter: ops.parse(spec.replace("*", repr(parameter)))


def _positive(actions: Sequence[int]) -> Sequence[int]:
    if not actions or min(actions) < 1 or max(actions) > _MOST_ACTIONS or len(set(actions)) < len(actions):
        given, allowed = " ".join(map(str, actions)), f"each from 1 to {_MOST_ACTIONS:,}"
        raise ValueError(f"actions ({given}) must be different numbers, {allowed}")
    return actions


def _numbers(summary: simulation.Summary) -> list[str]:
    return [f"{summary.mean:+.4f}", f"{summary.std:.4f}", f"{summary.standard_error:.4f}"]


def _row(mdp: Any, solution: Any, state: int) -> list[str]:
    """Writes a state's value, its policy, and the likeliest action's `q` with its bounds."""
    weights = solution.policy[state]
    likeliest = np.argsort(-weights, kind="stable")[:_ACTIONS_SHOWN]
    shares = [f"{action} ({weights[action]:.0%})" for action in likeliest if weights[action] >= 0.005]
    policy = "end" if mdp.terminal[state] else str(likeliest[0]) if weights[likeliest[0]] > 0.995 else " ".join(shares)
    bounded = (array[state, likeliest[0]] for array in (solution.q, solution.lower, solution.upper))
    return [f"{solution.values[state]:z.6f}", policy, *(f"{number:z.6f}" for number in bounded)]


def _gap(mdp: Any, solution: Any, state: int) -> str:
    """Writes how much better a state's best action is than its second-best."""
    q = np.sort(solution.q[state][mdp.legal[state]])
    return f"{q[-1] - q[-2]:z.6f}" if len(q) > 1 and not mdp.terminal[state] else ""


def _abridged(states: int, row: Callable[[int], list[str]]) -> list[list[str]]:
    """Makes the rows of a table; where there are many states, a gap stands for those in the middle."""
    if states <= _STATES_SHOWN:
        return [[str(state), *row(state)] for state in range(states)]
    half = _STATES_SHOWN // 2
    rows = [[str(state), *row(state)] for state in [*range(half), *range(states - half, states)]]
    return [*rows[:half], [""] * len(rows[0]), *rows[half:]]


def _write_solution(mdp: Any, solution: Any, path: Path) -> Path:
    """Writes a line for each state and legal action, every number in full."""
    from softbellman.report.tables import write_table

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"q": solution.q, "lower": solution.lower, "upper": solution.upper, "policy": solution.policy}
    rows = (
        {"state": state, "action": action, "value": solution.values[state]}
        | {name: array[state, action] for name, array in arrays.items()}
        for state, action in np.argwhere(mdp.legal)
    )
    write_table(path, rows)
    return path
