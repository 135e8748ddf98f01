"""The examples run, at a size of seconds."""

import importlib.util
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
TINY = {
    "loop.epoch_steps": 100, "loop.test_steps": 100, "loop.held_out_states": 32, "loop.gradient_batches": 1,
    "learner.replay_start_steps": 64,
}  # fmt: skip


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_search_gives_trials_up_and_judges_the_best_by_other_seeds(tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna")
    example = loaded("optuna_search")
    asked = []

    def should_prune(trial):
        asked.append(trial.number)
        return trial.number == 1

    monkeypatch.setattr(optuna.Trial, "should_prune", should_prune)
    searched, judged = example.search("gym/CartPole-v1", 3, 2, tmp_path, steps=300, settings=TINY)
    assert [trial.state.name for trial in searched.trials] == ["COMPLETE", "PRUNED", "COMPLETE"]
    assert asked == [0, 0, 0, 1, 2, 2, 2]  # once a test phase, when both seeds have come to it
    assert [sorted(trial.intermediate_values) for trial in searched.trials] == [[100, 200, 300], [100], [100, 200, 300]]
    assert judged.seeds == [2, 3] and judged.operators[0] == "max" and len(judged.operators) == 2
    assert [row["counted"] for row in judged.table()] == [2, 2]
    for trial in (0, 2):
        study = example.sb.Study(tmp_path / f"trial-{trial}")
        assert searched.trials[trial].value == example.score(study)


def test_a_search_begins_in_a_place_of_its_own(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    (tmp_path / "trial-0").mkdir()
    monkeypatch.setattr(sys, "argv", ["optuna_search.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        loaded("optuna_search").main()
    assert "holds the trials of a search already; name another directory" in capsys.readouterr().err
