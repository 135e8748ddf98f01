"""The page docs/simulations.md is true: its examples run, its commands parse, its tables hold."""

import csv
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman import simulation
from softbellman.cli import arguments
from softbellman.temperature import temperatures

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "simulations.md").read_text()
COMMANDS = [
    line.partition("  #")[0]
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def parsed(command):
    _, simulate, kind, *options = shlex.split(command)
    return arguments.parse(f"{simulate} {kind}", options)


def test_the_examples_give_the_values_in_their_comments():
    names, checked = {}, 0
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        exec(block, names)
        for line in block.splitlines():
            code, _, comment = line.partition("  # ")
            if promised := re.match(r"\d+\.\d{4}", comment):
                assert eval(code, names) == pytest.approx(float(promised[0]), abs=0.01), line
                checked += 1
    assert checked == 3
    assert abs(names["cells"][0].overestimation.mean - 1.0294) < 4 * names["cells"][0].overestimation.standard_error


def test_the_commands_parse():
    assert [shlex.split(command)[2] for command in COMMANDS] == ["bias", "comparison", "bias", "bias", "temperature"]
    for command in COMMANDS:
        assert parsed(command).trials in (100, 20_000, 100_000)


@pytest.mark.parametrize("distance", [0.0, 1.0])
def test_the_tables_hold(distance):
    """Against fewer trials of another seed."""
    (command,) = [c for c in map(parsed, COMMANDS[2:4]) if c.distance == distance]
    section = PAGE.split(f"--distance {distance:g} ")[1].split("```bash")[0].split("## ")[0]
    rows = re.findall(r"^\| `(\S+)`, (mean|standard deviation) \| (.*) \|$", section, re.MULTILINE)
    assert {spec for spec, _, _ in rows} == {str(ops.parse(spec)) for spec in command.operators}
    for number, actions in enumerate(command.actions):
        true_values = simulation.one_better(actions, distance)
        cells = simulation.measure([ops.parse(spec) for spec, _, _ in rows], true_values, trials=10_000, seed=1)
        for (spec, statistic, numbers), cell in zip(rows, cells, strict=True):
            shown, found = float(numbers.split(" | ")[number]), cell.overestimation
            if statistic == "mean":
                error = math.hypot(found.standard_error, found.standard_error / math.sqrt(10))
                assert abs(found.mean - shown) < 4.5 * error, (spec, actions)
            else:
                assert found.std == pytest.approx(shown, rel=0.04), (spec, actions)


def test_the_panels_are_those_of_the_figure():
    command = parsed("softbellman simulate bias")
    parameters = {simulation.parameter(ops.parse(spec)) for spec in command.operators}
    assert parameters == {None, ("tau", 1.0), ("tau", 5.0), ("tau", 10.0)}
    assert command.actions == tuple(2 ** np.arange(1, 11))


def kept(name):
    with (ROOT / "results" / "simulations" / name).open(newline="") as file:
        return {(row["operator"], int(row["actions"])): row for row in csv.DictReader(file)}


def test_the_results_that_are_kept_are_those_of_the_commands():
    bias, comparison = parsed("softbellman simulate bias"), parsed("softbellman simulate comparison")
    found = kept("bias.csv"), kept("comparison.csv")
    assert len(found[0]) == len(bias.operators) * len(bias.actions)
    assert len(found[1]) == len(comparison.families) * len(comparison.actions) * comparison.points
    for rows, actions in zip(found, (16, 10), strict=True):
        operators = [ops.parse(spec) for spec, number in rows if number == actions]
        for cell in simulation.measure(operators, np.zeros(actions), trials=100):
            row = rows[str(cell.operator), actions]
            for quantity in ("overestimation", "approximation_error"):
                numbers = [float(row[f"{quantity}_{name}"]) for name in simulation.Summary._fields]
                assert numbers == pytest.approx(list(getattr(cell, quantity)), rel=1e-9, abs=1e-12)


def test_the_temperatures_are_those_of_the_command():
    """The page shows what is kept; what is kept is near to fewer trials of another seed."""
    command = parsed("softbellman simulate temperature")
    with (ROOT / "results" / "simulations" / "temperature.csv").open(newline="") as file:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    section = PAGE.split("## Which tau has no bias?")[1].split("\n## ")[0]
    shown = re.findall(r"^\| (0(?:\.9)?) \| (\S+) \| (.*) \|$", section, re.MULTILINE)
    assert [(float(rho), float(sigma)) for rho, sigma, _ in shown] == [
        (rho, sigma) for rho in command.correlation for sigma in command.sigma
    ]
    found = temperatures(command.values, command.sigma, command.correlation, trials=4_000, seed=1)
    for (_, _, numbers), row, each in zip(shown, rows, found, strict=True):
        choices = [f"{row[f'{name}_tau'] * row['sigma']:.2f}" for name in ("unbiased", "noise", "match")]
        biases = [f"{row[f'{name}_bias']:+.3f}" for name in ("noise", "match", "max", "double")]
        assert numbers.split(" | ") == [choices[0], choices[1], biases[0], choices[2], *biases[1:]]
        taus = each.unbiased.tau, each.noise.tau, each.match.tau
        assert taus == pytest.approx([row[f"{name}_tau"] for name in ("unbiased", "noise", "match")], rel=0.15)
        assert each.max.bias == pytest.approx(row["max_bias"], rel=0.1)
    ratios = [row[f"{name}_bias"] / row["max_bias"] for row in rows[6:] for name in ("noise", "match")]
    assert f"{min(ratios):.0%} to {max(ratios):.0%} of the bias of max" in " ".join(section.split())
