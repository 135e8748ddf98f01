"""The rule of results/sharp-atari by which a tau follows from action gaps."""

import importlib.util
from pathlib import Path

import pytest

from softbellman.analysis.records import Record
from softbellman.config import as_arm
from softbellman.study.runs import RunPath

FILE = Path(__file__).parents[1] / "results" / "sharp-atari" / "tau.py"
_spec = importlib.util.spec_from_file_location("tau", FILE)
assert _spec is not None and _spec.loader is not None
rule = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rule)


def run_of(folder, gaps):
    """A run whose test phases, 50,000 agent steps apart, had these action gaps."""
    rows = [f"{50_000 * (phase + 1)},{gap}" for phase, gap in enumerate(gaps)]
    (folder / "metrics.csv").write_text("\n".join(["agent_steps,action_gap", *rows]) + "\n")
    return Record(RunPath(folder, "atari/breakout", as_arm("max"), 0), "running", "")


def test_phases_from_100_000_to_500_000_steps_count(tmp_path):
    run = run_of(tmp_path, [9.0, 0.01, *[0.02] * 7, 0.03, 9.0])
    assert rule.mean_gap(run) == pytest.approx(0.02)


def test_a_run_that_is_not_so_far_is_refused(tmp_path):
    with pytest.raises(ValueError, match="up to 500,000"):
        rule.mean_gap(run_of(tmp_path, [0.02] * 9))


@pytest.mark.parametrize(("gap", "tau"), [(1.5, 1), (0.05, 20), (0.0474, 50), (0.011, 100), (0.4, 5), (0.0163, 100)])
def test_tau_is_rounded_on_a_logarithmic_scale(gap, tau):
    assert rule.tau_for(gap) == tau
