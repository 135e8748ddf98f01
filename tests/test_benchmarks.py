"""The benchmark of groups on an accelerator, at small size on a CPU: it runs, and what it writes is right."""

import argparse
import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.py"
WORDS = ("--small", "--minatar", "2", "--atari", "2")


def run(folder, *words):
    """Runs the benchmark of groups; returns its exit code, what it printed, its table and its JSON."""
    process = subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--out", str(folder)], capture_output=True, text=True, check=False
    )
    assert not process.stderr or process.returncode, process.stderr
    record = json.loads((folder / "gpu.json").read_text())
    return process.returncode, process.stdout, pd.read_csv(folder / "gpu.csv"), record


def test_the_peak_of_a_solver_is_its_own():
    """And not that of the process which started it."""
    np.ones(60_000_000)  # 0.45 GiB
    words = [sys.executable, "-c", "import mdp_solver; print(mdp_solver.peak_gib())"]
    process = subprocess.run(words, cwd=SCRIPT.parent / "peers", capture_output=True, text=True, check=True)
    assert 0.01 < float(process.stdout) < 0.3


@pytest.mark.slow
def test_groups_are_measured_beside_what_bounds_them(tmp_path):
    pytest.importorskip("ale_py")
    code, printed, table, record = run(tmp_path, *WORDS)
    assert code == 0 and table["left_out"].isna().all()
    assert list(zip(table["environment"], table["runs"], strict=True)) == [
        ("minatar/breakout", 2),
        ("atari/breakout", 2),
    ]
    minatar, atari = table.iloc[0], table.iloc[1]
    assert minatar["flops_per_step"] == pytest.approx(42.8e6 / 4 + 0.34e6, rel=0.01)  # an update of 32, and acting
    assert 0.5e9 < atari["flops_per_step"] < 0.7e9
    for row in (minatar, atari):
        assert row["steps"] == 4 * row["updates"] and row["steps"] % row["runs"] == 0
        assert row["steps_per_second"] == pytest.approx(row["steps"] / row["seconds"])
        assert row["arithmetic_steps_per_second"] == pytest.approx(row["matrix_flops"] / row["flops_per_step"])
        for name in ("arithmetic", "parts"):
            assert row[f"of_{name}"] == pytest.approx(row["steps_per_second"] / row[f"{name}_steps_per_second"])
        assert f"{row['steps_per_second']:,.0f} agent steps/s" in printed
    together = minatar["step_seconds"] + minatar["update_seconds"] / 4
    assert minatar["parts_steps_per_second"] == pytest.approx(1 / together)
    slower = max(atari["step_seconds"], atari["update_seconds"] / 4)
    assert atari["parts_steps_per_second"] == pytest.approx(1 / slower)
    assert record["device"]["platform"] == "cpu" and record["command"].endswith("--small")
    assert len(record["groups"]) == 2


def test_a_group_for_which_no_time_is_left_is_left_out_with_a_line(tmp_path):
    code, printed, table, record = run(tmp_path, *WORDS, "--seconds", "2")
    assert code == 1 and printed.count("left out: ") == 2
    assert table["left_out"].str.fullmatch(r"\d of 2 seconds are left").all()
    assert record["device"] is None


def test_a_group_that_fails_says_why(tmp_path):
    code, printed, table, _ = run(tmp_path, "--small", "--minatar", "2", "--atari", "--game", "pong")
    assert code == 1 and "unknown environment 'minatar/pong'" in table["left_out"][0]
    assert "minatar/pong, 2 runs: left out: ValueError: unknown environment" in printed


def test_a_group_that_takes_over_its_time_is_ended(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    gpu = importlib.import_module("gpu")
    group, began = gpu.Group("minatar/breakout", 1), time.monotonic()
    found = gpu.measure(group, argparse.Namespace(small=True), 0.2)
    assert found == {"left_out": "it took over its 0.2 seconds"} and time.monotonic() - began < 10
    row = gpu.row_of(group, found)
    assert (row["environment"], row["runs"]) == ("minatar/breakout", 1) and set(row) <= set(gpu.COLUMNS)


@pytest.mark.parametrize("words", [("--minatar", "0"), ("--atari", "-1"), ("--seconds", "0.5")])
def test_numbers_that_are_none_are_refused(words):
    process = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, check=False)
    assert process.returncode == 2 and "must be at least 1" in process.stderr
