"""Simulations, Table 3 and exact solutions on the command line."""

import re
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from softbellman import operators as ops
from softbellman import simulation, tabular, temperature
from softbellman.tabular.examples import EXAMPLES

SMALL = ["--actions", "2", "4", "--trials", "50"]


def values(table):
    return table.groupby("state")["value"].first().tolist()


def test_an_example_is_solved_printed_and_written(softbellman, tmp_path):
    code, out, errors = softbellman("solve", "forest", "--gamma", "0.96", "--out", "a/forest.csv")
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "solved forest, max: 3 states, 2 actions, gamma 0.96" in " ".join(out.split())
    for state, value in enumerate([74.6496, 78.1056, 82.1056]):
        assert re.search(rf"^ *{state} +{value:.6f} +0(?: +{value:.6f}){{3}} *$", out, re.MULTILINE), out
    table = pd.read_csv(tmp_path / "a/forest.csv")
    assert values(table) == pytest.approx([74.6496, 78.1056, 82.1056], abs=1e-9)
    assert table.groupby("state")["policy"].sum().tolist() == [1, 1, 1]
    assert np.all(table["lower"] <= table["q"]) and np.all(table["q"] <= table["upper"])


def test_a_gap_is_solved_with(softbellman, tmp_path):
    code, out, errors = softbellman(
        "solve", "doors", "--operator", "softmax:0.5", "--gap", "gap(0.9)", "--out", "a.csv"
    )
    assert (code, errors) == (0, "")
    assert "doors, softmax(0.5) with gap(0.9): 4 states" in " ".join(out.split())
    assert "The greedy policy is optimal" in " ".join(out.split())
    table = pd.read_csv(tmp_path / "a.csv")
    assert len(table) == 9  # what is illegal has no line
    best = table.groupby("state")["q"].nlargest(2).groupby("state").agg(lambda q: q.iloc[0] - q.iloc[-1])
    rows = [line.split() for line in out.splitlines() if line.split()[:1] in (["0"], ["1"], ["2"])]
    assert [row[-1] for row in rows] == [f"{gap:.6f}" for gap in best[:3]]
    assert values(table) == pytest.approx(tabular.solve(EXAMPLES["doors"](), "softmax(5)").values.tolist(), abs=1e-8)
    for spec, message in (("gap(1)", "no fixed point"), ("gap(2)", "alpha"), ("gop(0.9)", "did you mean gap")):
        code, out, errors = softbellman("solve", "doors", "--gap", spec)
        assert (code, out) == (2, "") and message in errors


@pytest.mark.parametrize("method", ["newton", "iteration"])
@pytest.mark.parametrize("spec", ["max", "mellowmax:5", "softmax:0.1"])
def test_both_methods_give_the_same(softbellman, tmp_path, method, spec):
    code, _, errors = softbellman("solve", "small", "--operator", spec, "--method", method, "--out", "a.csv")
    assert (code, errors) == (0, "")
    mdp = EXAMPLES["small"]()
    expected = tabular.solve(mdp, ops.parse(spec)).values
    assert values(pd.read_csv(tmp_path / "a.csv")) == pytest.approx(list(expected), abs=1e-8)


def test_an_environment_of_gymnasium_is_solved(softbellman, tmp_path):
    pytest.importorskip("gymnasium")
    code, out, errors = softbellman("solve", "FrozenLake-v1", "--out", "lake.csv")
    assert (code, errors) == (0, "")
    assert "16 states, 4 actions, gamma 0.99" in " ".join(out.split())
    mdp = tabular.FiniteMDP.from_gymnasium("FrozenLake-v1", 0.99)
    expected = tabular.solve(mdp, ops.maximum()).values
    assert expected[0] == pytest.approx(0.542026, abs=1e-6)
    found = pd.read_csv(tmp_path / "lake.csv").groupby("state")["value"].first()
    assert found.to_numpy() == pytest.approx(expected[found.index], abs=1e-9)
    assert softbellman("solve", "FrozenLake-v1", "--gamma", "0.5")[1].count("gamma 0.5") == 1


WALK = """{"states": ["here", "there"], "actions": 2, "gamma": 0.9,
 "transitions": [["here", 0, "there", 1.0, -1.0], ["there", 1, null, 1.0, 10.0, true]]}"""


def test_a_file_is_solved(softbellman, tmp_path):
    (tmp_path / "walk.json").write_text(WALK)
    code, out, errors = softbellman("solve", "walk.json", "--out", "a.csv")
    assert (code, errors) == (0, "")
    assert "gamma 0.9" in out
    table = pd.read_csv(tmp_path / "a.csv")
    assert list(zip(table["state"], table["action"], table["q"], strict=True)) == [(0, 0, 8.0), (1, 1, 10.0)]
    assert softbellman("solve", "walk.json", "--gamma", "0.5", "--out", "a.csv")[0] == 0
    assert values(pd.read_csv(tmp_path / "a.csv")) == [4.0, 10.0]


def test_l35_a_file_with_a_fault_is_named_with_it(softbellman, tmp_path):
    (tmp_path / "walk.json").write_text(WALK.replace("1.0, -1.0", "0.5, -1.0"))
    code, out, errors = softbellman("solve", "walk.json")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"softbellman: walk\.json: .*state 0.*action 0.*0\.5.*\n", errors), errors
    assert "no example, no file and no Gymnasium id" in softbellman("solve", "absent.json")[2]


def test_many_states_are_abridged(softbellman, tmp_path):
    pytest.importorskip("gymnasium")
    from gymnasium import registry

    taxi = next(name for name in registry if name.startswith("Taxi-"))
    code, out, _ = softbellman("solve", taxi, "--gamma", "0.9", "--out", "taxi.csv")
    assert code == 0
    assert len(out.splitlines()) < 40
    assert re.search(r"^ *499 ", out, re.MULTILINE)
    assert "20 of 500 states" in " ".join(out.split())
    assert pd.read_csv(tmp_path / "taxi.csv")["state"].max() == 499


def test_l20_all_fixed_points_are_told(softbellman):
    """Softmax has three fixed points there, one of them unstable."""
    code, out, errors = softbellman("solve", "two-fixed-points", "--operator", "softmax:17")
    assert (code, errors) == (0, "")
    found = [float(number) for number in re.findall(r"0\.\d{6,}", out)]
    for value in (0.607769820648, 0.876888712437, 0.691909222412):
        assert min(abs(number - value) for number in found) < 1e-6
    assert re.search(r"unique +no", out)
    assert re.search(r"value 1 +value 2 +value 3", out)
    assert "moves away from fixed point 3" in " ".join(out.split())


def test_l20_a_cycle_is_told(softbellman):
    code, out, _ = softbellman("solve", "period-two", "--operator", "softmax:1", "--method", "iteration")
    assert code == 1
    assert "not solved" in out
    assert re.search(r"cycle|period", out)


def test_l19_a_solver_that_stops_early_says_so(softbellman):
    options = ["--gamma", "0.99", "--method", "iteration", "--max-iterations", "3"]
    code, out, _ = softbellman("solve", "forest", *options)
    assert code == 1
    assert "not solved" in out
    assert "3 iterations" in out
    assert re.search(r"residual \d", out)
    assert re.search(r"^note ", out, re.MULTILINE)


def test_what_a_double_operator_comes_to_is_said(softbellman):
    code, out, _ = softbellman("solve", "small", "--operator", "double:softmax:5")
    assert code == 0
    assert "double(softmax(5)) equals softmax(5) here" in " ".join(out.split())


def test_simulated_bias_is_printed_written_and_drawn(softbellman, tmp_path):
    code, out, errors = softbellman("simulate", "bias", *SMALL, "--operators", "max", "double:softmax:5", "--seed", "3")
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    operators = [ops.maximum(), ops.double(ops.softmax(5))]
    table = pd.read_csv(tmp_path / "runs/simulations/bias.csv")
    assert list(table["operator"]) == ["max", "max", "double(softmax(5))", "double(softmax(5))"]
    for actions in (2, 4):
        for cell in simulation.measure(operators, np.zeros(actions), trials=50, seed=3):
            row = table[(table["operator"] == str(cell.operator)) & (table["actions"] == actions)]
            assert row["overestimation_mean"].item() == cell.overestimation.mean
            spec = re.escape(str(cell.operator))
            assert re.search(rf"{spec} +{actions} +{re.escape(f'{cell.overestimation.mean:+.4f}')}", out)
    assert (tmp_path / "runs/simulations/bias.png").read_bytes().startswith(b"\x89PNG")
    assert "runs/simulations/bias.csv" in out
    assert "runs/simulations/bias.png" in out


def test_without_matplotlib_there_are_the_numbers(softbellman, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, out, errors = softbellman("simulate", "bias", *SMALL, "--operators", "max", "--out", "a")
    assert (code, errors) == (0, "")
    told = 'not drawn: matplotlib is not installed; run: pip install "softbellman[train]"'
    assert told in " ".join(out.split())
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["bias.csv"]


@pytest.mark.parametrize("command", ["bias", "comparison", "temperature"])
def test_with_the_base_installation_there_are_the_numbers(command, tmp_path):
    program = f"""
        import sys
        class Hidden:
            def find_spec(name, *_):
                if name.partition(".")[0] in ("jax", "jaxlib", "optax", "gymnasium", "jinja2", "matplotlib", "imageio"):
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Hidden)
        sys.argv[1:] = ["simulate", {command!r}, "--trials", "20", "--out", {str(tmp_path / "a")!r}]
        from softbellman.cli import main
        main()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'is not installed; run: pip install "softbellman[train]"' in " ".join(done.stdout.split())
    assert [file.name for file in (tmp_path / "a").iterdir()] == [f"{command}.csv"]


def test_without_gymnasium_a_wrong_name_is_still_told(softbellman, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    code, _, errors = softbellman("solve", "forrest")
    assert code == 2 and "forrest is no example and no file; did you mean forest" in errors
    code, _, errors = softbellman("solve", "FrozenLake-v1")
    assert code == 2 and 'pip install "softbellman[train]"' in errors


def test_true_values_noise_and_picture_can_be_chosen(softbellman, tmp_path):
    options = ["--values", "0", "-0.5", "-1", "--noise", "uniform", "--scale", "0.5", "--picture", "svg", "--out", "a"]
    code, _, errors = softbellman("simulate", "bias", "--trials", "50", "--operators", "max", *options)
    assert (code, errors) == (0, "")
    (cell,) = simulation.measure([ops.maximum()], [0.0, -0.5, -1.0], noise=simulation.uniform, scale=0.5, trials=50)
    assert pd.read_csv(tmp_path / "a/bias.csv")["overestimation_mean"].item() == cell.overestimation.mean
    assert "<svg" in (tmp_path / "a/bias.svg").read_text()
    code, _, errors = softbellman("simulate", "bias", *SMALL, "--operators", "mean", "--distance", "2", "--out", "a")
    assert pd.read_csv(tmp_path / "a/bias.csv")["overestimation_mean"].to_numpy() == pytest.approx([-1, -1.5], abs=0.5)


def test_the_simulated_comparison_is_printed_written_and_drawn(softbellman, tmp_path):
    families = ["--families", "softmax(*)", "double(mellowmax(*))"]
    code, out, errors = softbellman("simulate", "comparison", *SMALL, *families, "--points", "12", "--out", "a")
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    table = pd.read_csv(tmp_path / "a/comparison.csv")
    assert len(table) == 2 * 2 * 12
    assert table["parameter"].iloc[[0, 11]].tolist() == [0.01, 100.0]
    (cell,) = simulation.measure([ops.softmax(100.0)], np.zeros(4), trials=50)
    row = table[(table["operator"] == "softmax(100)") & (table["actions"] == 4)]
    assert row["approximation_error_mean"].item() == cell.approximation_error.mean
    assert re.search(r"double\(mellowmax\) +4 +100 +[+-]\d", out)
    assert "6 of 12 parameters" in out
    assert (tmp_path / "a/comparison.png").read_bytes().startswith(b"\x89PNG")


def test_simulated_temperatures_are_printed_written_and_drawn(softbellman, tmp_path):
    options = ["--values", "1", "0", "-1", "--sigma", "0.5", "2", "--trials", "400", "--seed", "3", "--out", "a"]
    code, out, errors = softbellman("simulate", "temperature", *options)
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    table = pd.read_csv(tmp_path / "a/temperature.csv")
    found = temperature.temperatures([1.0, 0.0, -1.0], (0.5, 2.0), trials=400, seed=3)
    assert table[["correlation", "sigma"]].to_numpy().tolist() == [[0, 0.5], [0, 2], [0.9, 0.5], [0.9, 2]]
    for (_, row), each in zip(table.iterrows(), found, strict=True):
        assert (row["unbiased_tau"], row["noise_tau"], row["match_bias"]) == pytest.approx(
            (each.unbiased.tau, each.noise.tau, each.match.bias)
        )
        assert (row["seen"], row["double_bias"], row["max_bias"]) == pytest.approx(
            (each.seen, each.double, each.max.bias)
        )
        assert re.search(rf"{each.correlation:g} +{each.sigma:g} +{each.unbiased.tau * each.sigma:.2f} ", out)
    assert (tmp_path / "a/temperature.png").read_bytes().startswith(b"\x89PNG")


def test_table_3_is_printed_with_its_corrections(softbellman):
    code, out, errors = softbellman("operators", "--table")
    assert (code, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"mellowmax +no +yes +yes +yes \(paper: no\) +yes \(paper: no\)", out)
    assert re.search(r"max +yes +no +- +yes +yes", out)


BAD_INPUT = [
    ("solve", "Missing from softbellman solve: TARGET"),
    ("solve forrest", "forrest is no example, no file and no Gymnasium id; did you mean forest"),
    ("solve FrozenLak-v1", "did you mean FrozenLake-v1"),
    ("solve CartPole-v1", "has no table P of transitions"),
    ("solve forest --gamma 1", "gamma (1.0) must be at least 0 and below 1"),
    ("solve forest --operator softmx:5", "Unknown operator 'softmx'. Did you mean softmax"),
    ("solve forest --method policy", "invalid choice 'policy' for argument '--method'"),
    ("solve forest --operator softmax:5,controller=noise", "controller=noise is a setting of an arm"),
    ("solve forest --controller noise", "unknown option --controller"),
    ("solve forest --tau 5", "the parameter belongs to the operator: --operator 'softmax(5)'"),
    ("simulate bais", "did you mean simulate bias"),
    ("simulate bias --operators softmx:5", "Unknown operator 'softmx'. Did you mean softmax"),
    ("simulate bias --operator max", "unknown option --operator; did you mean --operators"),
    ("simulate bias --trials 1", "trials (1) must be at least 2"),
    ("simulate bias --seed -1", "seed (-1) must be at least 0"),
    ("simulate bias --actions 0", "actions (0) must be different numbers, each from 1 to 10,000,000"),
    (
        "simulate bias --actions 2 99999999999",
        "actions (2 99999999999) must be different numbers, each from 1 to 10,000,000",
    ),
    ("simulate bias --trials 99999999999999", "bytes needed"),
    ("simulate comparison --trials 99999999999999", "lower trials, to "),
    ("simulate bias --actions 2 2", "actions (2 2) must be different numbers"),
    ("simulate bias --values nan", "true values ([nan]) must be finite numbers"),
    ("simulate bias --noise gauss", "invalid choice 'gauss' for argument '--noise'"),
    ("simulate comparison --families softmax(5)", "family 'softmax(5)' has no *, which stands for the parameter"),
    ("simulate comparison --families softmax(*", "a parenthesis is not closed"),
    ("simulate comparison --start -1", "tau (-1.0) must be finite and at least 0"),
    ("simulate comparison --stop inf", "start (0.01) and stop (inf) must be finite"),
    ("simulate comparison --start=-1e308 --stop 1e308", "must be finite, as their difference must"),
    ("simulate comparison --start nan", "start (nan) and stop (100.0) must be finite"),
    ("simulate comparison --points 1", "points (1) must be from 2 to 100,000"),
    ("simulate temperature --sigma 0", "sigma (0.0) must be above 0, and finite"),
    ("simulate temperature --sigma 1 inf", "sigma (inf) must be above 0, and finite"),
    ("simulate temperature --correlation 1.5", "correlation (1.5) must be in 0 .. 1"),
    ("simulate temperature --correlation -0.5", "correlation (-0.5) must be in 0 .. 1"),
    ("simulate temperature --sigma", "name at least one sigma, such as 0.5"),
    ("simulate temperature --correlation --trials 2", "name at least one correlation, such as 0.9"),
    ("simulate temperature --kappa 0", "kappa (0.0) must be above 0, and finite"),
    ("simulate temperature --trials 1", "trials (1) must be at least 2"),
    ("simulate temperature --trials 99999999999999", "bytes needed"),
    ("simulate temperature --values 1 nan", "must be finite numbers"),
    ("simulate comparison --points 999999999", "points (999999999) must be from 2 to 100,000"),
]


@pytest.mark.parametrize(("line", "message"), BAD_INPUT, ids=[line for line, _ in BAD_INPUT])
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_nothing(softbellman, tmp_path, line, message):
    code, out, errors = softbellman(*line.split())
    assert (code, out) == (2, "")
    (complaint,) = errors.splitlines()
    assert message in complaint
    assert not any(tmp_path.iterdir())
