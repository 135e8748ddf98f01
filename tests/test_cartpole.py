"""The whole learns: CartPole with three operators and with Rainbow, three seeds each. Under five minutes a run.

    make test-slow PYTEST_ARGS="tests/test_cartpole.py"

prints the scores of the network that a run's test phases found best and of its final one.
"""

import pytest

from softbellman.config import preset
from softbellman.config.arms import as_arm
from softbellman.running import play
from softbellman.running.plan import plan
from softbellman.study.files import read_metrics
from softbellman.study.store import Study

from .studies import train as train_study

SEEDS = [0, 1, 2]
RAINBOW = (
    "rainbow=double(max), returns=3, estimate=categorical(51, 0, 100), head=duelling, noise=noisy, "
    "sampling=prioritised(0.5, 0.4, 1, 30000), learner.epsilon_end=0"
)
SOLVED = 475.0  # of 500, the threshold that CartPole-v1 is registered with


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["max", "softmax(5)", "double(mellowmax(5))", RAINBOW])
def test_cartpole_is_learned(spec, tmp_path, capsys):
    arm = as_arm(spec)
    planned = plan("gym/CartPole-v1", arm.made(), SEEDS[0], arm.config(preset("classic-control").config))
    study = Study.create(tmp_path, planned.environment, [arm.made()], SEEDS, planned.config, planned.facts, [])
    train_study(study)
    best, final = (
        [play.evaluate(study, run, network=which, epsilon=0.0, episodes=20).mean for run in study.runs]
        for which in ("best", "final")
    )
    seconds = read_metrics(study.runs[0].path / "metrics.csv")["seconds"][-1]
    with capsys.disabled():
        print(f"\n{arm.name}, {seconds:.0f} s for {len(SEEDS)} runs; mean score of 20 new games, epsilon 0")
        for seed, best_score, final_score in zip(SEEDS, best, final, strict=True):
            print(f"  seed {seed}: best network {best_score:6.2f}, final network {final_score:6.2f}")
    assert min(best) >= SOLVED
