"""Code and numbers of docs/theory.md are true."""

import math
import re
import shlex

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.cli import arguments
from softbellman.tabular import bounds, theorems
from softbellman.tabular.examples import EXAMPLES

from ..pages import read_page, run_page

PAGE, BLOCKS = read_page("theory.md")


@pytest.fixture(scope="module")
def names():
    """Everything that the page defines."""
    with run_page(BLOCKS, "theory_page", tolerance=5.1e-5) as (defined, promises):
        assert promises == 45
        yield defined


def rows(first_cell: str) -> list[list[str]]:
    """The table whose head starts with this cell, its head included."""
    table = PAGE[PAGE.index(f"| {first_cell} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table if not row.startswith("|---")]


def test_the_page_runs(names):
    assert names["climbing"].gamma == 0.9


def test_the_table_of_statements_is_that_of_the_code():
    said = {row[0].strip(): row[1] for row in rows("statement")[1:]}
    assert list(said) == [statement.name for statement in theorems.STATEMENTS]
    texts = {
        theorems.ALWAYS: "always",
        theorems.NEVER: "never: it is false",
        theorems.SIGNS: r"$R_\min \le 0 \le R_\max$",
        theorems.GAINS: r"$R_\max \ge -R_\min \ge 0$",
        theorems.CLOSE: r"spread at most $2 Q_\max$",
    }
    for statement in theorems.STATEMENTS:
        assert said[statement.name].startswith(texts[statement.premise]), statement.name


def test_tables_of_constants():
    head, gaps = rows("$m$")
    for actions, value in zip(head[1:], gaps[1:], strict=True):
        assert bounds.largest_gap(1.0, int(actions)) == pytest.approx(float(value), abs=6e-9)
    start = PAGE.index("| $m$ |", PAGE.index("| $m$ |") + 1)
    table = [[cell.strip() for cell in row.strip("|").split("|")] for row in PAGE[start:].split("\n\n")[0].splitlines()]
    for actions, constant, inverse in zip(table[0][1:], table[2][1:], table[3][1:], strict=True):
        assert bounds.softmax_lipschitz(int(actions)) == pytest.approx(float(constant), abs=6e-8)
        assert 1 / bounds.softmax_lipschitz(int(actions)) == pytest.approx(float(inverse), abs=6e-6)


@pytest.mark.parametrize("command", re.findall(r"^softbellman (.*)$", PAGE, flags=re.MULTILINE))
def test_commands_parse(command):
    name, *options = shlex.split(command)
    read = arguments.parse(name, options)
    assert read.target in EXAMPLES
    assert str(ops.parse(read.operator)) == read.operator


@pytest.mark.parametrize(
    ("alpha", "q", "value", "policy"),
    [
        (1.0, (0.0, 0.0), 0.25, (0.5, 0.5)),
        (1.0, (0.0, 0.5), 0.5625, (0.25, 0.75)),
        (1.0, (0.0, 1.0), 1.0, (0.0, 1.0)),
        (1.0, (0.0, 0.2, 0.3), 0.523333333, (0.16667, 0.36667, 0.46667)),
        (1.0, (0.1,) * 4, 0.475, (0.25,) * 4),
        (0.5, (0.0, 0.2, 0.3), 0.38, (0.0, 0.4, 0.6)),
    ],
)
def test_sparsemax(names, alpha, q, value, policy):
    op = names["Sparsemax"](alpha)
    assert op(q) == pytest.approx(value, abs=1e-9)
    assert op.weights(q) == pytest.approx(policy, abs=5e-6)
    masked = op([*q, 99.0], where=np.array([True] * len(q) + [False]))
    assert masked == pytest.approx(value, abs=1e-9)


def test_sparsemax_is_above_the_maximum_within_its_bound(names):
    rng = np.random.default_rng(0)
    for alpha in (0.1, 1.0, 10.0):
        op = names["Sparsemax"](alpha)
        q = rng.normal(size=(5000, 5)) * rng.uniform(0, 3, size=(5000, 1))
        above = op(q) - q.max(axis=-1)
        assert op(q) == pytest.approx(ops.sparsemax(1 / alpha)(q), abs=1e-12)
        p = op.weights(q)
        assert op(q) == pytest.approx((p * q).sum(-1) + alpha / 2 * (1 - (p * p).sum(-1)), abs=1e-12)
        assert np.all((above >= -1e-12) & (above <= ops.sparsemax(1 / alpha).largest_excess(5) + 1e-12))
        assert op(np.zeros(5)) == pytest.approx(ops.sparsemax(1 / alpha).largest_excess(5))


def test_sparsemax_is_short():
    (example,) = (block for block in BLOCKS if "class Sparsemax" in block)
    code = [line for line in example[example.index("@ops.operator") :].splitlines() if line.strip()]
    assert len(code) <= 20


def test_how_fast_the_reduction_falls_for_normal_noise():
    """Two actions: the distance is half-normal with variance 2, whose density at 0 is `1 / sqrt(pi)`."""
    tau, d = 400.0, np.linspace(0, 0.2, 200_001)
    density = np.exp(-(d**2) / 4) / math.sqrt(math.pi)
    less = d - ops.softmax(tau)(np.stack([np.zeros_like(d), d], axis=-1))
    reduction = np.trapezoid(less * density, d)
    assert tau**2 * reduction == pytest.approx(math.pi**1.5 / 12, rel=1e-4)
