"""A run's faults are found before it starts, and its plan says what it will be."""

import textwrap
from dataclasses import replace

import pytest

from softbellman import operators as ops
from softbellman.config import NetworkSettings, preset, replaced
from softbellman.envs.atari import MACHADO_ATARI, PAPER_ATARI
from softbellman.running import build
from softbellman.running.build import network_kind
from softbellman.running.plan import check_in_training, plan


def planned(environment="gym/CartPole-v1", operator="max", preset_name=None, steps=None, frames=None, **values):
    config = preset(preset_name or ("classic-control" if environment.startswith("gym/") else "paper-atari")).config
    for name, value in values.items():
        config = replaced(config, name.replace("__", "."), value)
    return plan(environment, ops.parse(operator), 0, config, steps=steps, frames=frames)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 5_000, "frames": 5_000}, r"--steps \(5000\) or --frames \(5000\), not both"),
        ({"learner__batch_size": 64, "learner__replay_capacity": 32}, r"batch_size \(64\).*replay_capacity \(32\)"),
        ({"steps": 900}, r"replay_start_steps \(1,000\) is not below the budget of 900"),
        ({"steps": 1_050}, r"target_period_updates \(\d+\) can't fire"),
        ({"protocol": MACHADO_ATARI}, "does not heed the fields of protocol"),
        (
            {"network__kind": "nature_cnn"},
            r"nature_cnn takes observations of shape \(4, 84, 84\), not \(4,\); try auto",
        ),
        ({"recipe__returns": 0}, r"recipe\.returns \(0\) must be in 1 \.\. 1000"),
        ({"recipe__returns": 10**6}, r"recipe\.returns \(1000000\) must be in 1 \.\. 1000"),
        (
            {"recipe__sampling": "prioritised(2)"},
            r"recipe\.sampling 'prioritised\(2\)': alpha \(2\) must be in 0 \.\. 1",
        ),
        ({"recipe__sampling": "priority"}, r"there is no 'priority'; did you mean prioritised"),
        ({"recipe__tightening": "tightening(0)"}, r"recipe\.tightening 'tightening\(0\)': steps \(0\)"),
        (
            {"recipe__tightening": "tightening", "recipe__estimate": "quantiles(5)"},
            r"recipe\.tightening tightening does not go with recipe\.estimate .*: it needs values in the rewards",
        ),
        (
            {"recipe__tightening": "tightening(2, 1)", "recipe__estimate": "transformed"},
            r"recipe\.tightening tightening\(2, 1\) does not go with recipe\.estimate transformed: it needs values in",
        ),
        (
            {"recipe__scale": "popart(0.1)", "recipe__estimate": "transformed(0.01)"},
            r"recipe\.scale popart\(0\.1\) does not go with recipe\.estimate transformed\(0\.01\): it needs values in",
        ),
        ({"recipe__controller": "noise(-1)"}, r"recipe\.controller 'noise\(-1\)': kappa \(-1\) must be above 0"),
        ({"recipe__controller": "noise", "operator": "max"}, r"recipe\.controller noise sets .* and max has none"),
        (
            {"recipe__estimate": "categorical(5, -2, 2)", "operator": "deviation(2)"},
            r"estimate categorical\(5, -2, 2\) mixes .* of deviation\(2\) are no policy: .* recipe\.estimate value$",
        ),
        (
            {"recipe__estimate": "quantiles(5)", "operator": "double(deviation(2))"},
            r"double\(deviation\(2\)\) are no pol",
        ),
        ({"recipe__exploration": "policy(deviation(2))"}, r"recipe\.exploration 'policy.*deviation\(2\), which are no"),
        (
            {"recipe__exploration": "policy(fixed(0.2, 0.3, 0.5))"},
            r"recipe\.exploration policy\(fixed\(0\.2, 0\.3, 0\.5\)\): operator .* is for 3 actions, and there are 2$",
        ),
        ({"recipe__controller": "match", "operator": "double(softmax(5))"}, r"match needs an operator on one set"),
        (
            {"recipe__controller": "loop", "recipe__gap": "gap(0.9)", "operator": "softmax(5)"},
            r"recipe\.controller loop holds values against returns, and with recipe\.gap gap\(0\.9\)",
        ),
        ({"environment": "gym/Pendulum-v1"}, r"action space Box\(-2\.0, 2\.0.*Discrete"),
        ({"environment": "gym/CartPol-v1"}, "did you mean CartPole-v1"),
    ],
)
def test_what_could_not_run_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        planned(**wrong)


def test_l4_a_replay_larger_than_memory_is_refused_with_the_field():
    with pytest.raises(MemoryError, match=r"bytes needed.*available.*lower learner\.replay_capacity"):
        planned(learner__replay_capacity=10**12)


@pytest.mark.parametrize("environment", ["gym/CartPole-v1", "minatar/breakout"])
def test_bytes_are_those_of_the_recipe(environment):
    plain = planned(environment, preset_name=None if environment.startswith("gym/") else "sharp-minatar")
    capacity = plain.config.learner.replay_capacity

    def more(**values):
        name = None if environment.startswith("gym/") else "sharp-minatar"
        return planned(environment, preset_name=name, **values).replay_bytes - plain.replay_bytes

    ends = capacity * environment.startswith("minatar/")
    assert more(recipe__returns=3) == more(recipe__tightening="tightening") == ends
    assert 4 * capacity <= more(recipe__sampling="prioritised") <= 5 * capacity


def test_l26_a_budget_in_frames_is_one_in_steps():
    pytest.importorskip("ale_py")
    few = {"learner__replay_capacity": 60_000, "learner__replay_start_steps": 100, "learner__target_period_updates": 10}
    breakout = planned("atari/breakout", frames=4_000, **few)
    assert breakout.config.loop.steps == 1_000
    assert dict(breakout.run_lines())["budget"].startswith("1,000 agent steps, 4,000 frames, 225 updates")
    with pytest.raises(ValueError, match="multiple of the 4 frames"):
        planned("atari/breakout", frames=4_002, **few)


def test_l7_the_environment_is_told_in_one_sentence():
    pytest.importorskip("ale_py")
    few = {"learner__replay_capacity": 60_000}
    breakout = planned("atari/breakout", **few)
    paper = dict(breakout.environment_lines({}))
    assert paper["environment"] == (
        "atari/breakout: 4 actions (minimal), frame skip 4, repeat probability 0, 0 to 30 no-ops, "
        "a lost life ends an episode in training, no time limit; rewards enter learning clipped to ±1"
    )
    assert dict(breakout.run_lines())["frames per step"] == "4"
    machado = dict(planned("atari/breakout", preset_name="machado-atari", **few).environment_lines({}))
    assert machado["environment"] == (
        "atari/breakout: 18 actions (full), frame skip 4, repeat probability 0.25, no no-ops, "
        "lost lives end nothing, games cut after 108,000 frames; rewards enter learning clipped to ±1"
    )
    forest = dict(planned("mdp/forest", preset_name="classic-control").environment_lines({}))
    assert forest["environment"] == (
        "mdp/forest: 2 actions, games start in any state that is no end, cut after 100 steps; "
        "rewards enter learning as they are"
    )
    cartpole = dict(planned().environment_lines({}))
    assert cartpole["environment"] == (
        "gym/CartPole-v1: 2 actions, no frame skip, cut after 500 steps; rewards enter learning as they are"
    )


def test_l33_epsilon_is_told_at_the_corners_of_its_schedule():
    short = dict(planned(steps=20_000).run_lines())["epsilon"]
    assert short == "1 at 0, 1 at 1,000, 0.525 at 6,000, 0.05 at 11,000, 0.05 at 20,000 agent steps; 0 in tests"
    jump = dict(planned(steps=20_000, learner__epsilon_decay_steps=0).run_lines())["epsilon"]
    assert jump.startswith("1 at 0, 0.05 at 1,000")
    cut = dict(planned(steps=4_000).run_lines())["epsilon"]
    assert cut.startswith("1 at 0, 1 at 1,000, 0.715 at 4,000 agent steps")


def test_fields_without_effect_are_not_listed():
    pytest.importorskip("ale_py")
    cartpole = dict(planned().settings())
    assert not [name for name in cartpole if name.startswith("protocol.")]
    assert "learner.rmsprop_decay" not in cartpole
    assert cartpole["network.hidden"] == (128, 128)
    breakout = dict(planned("atari/breakout", learner__replay_capacity=60_000).settings())
    assert "network.hidden" not in breakout
    assert breakout["protocol.noop_max"] == 30


def test_a_protocol_that_was_changed_does_not_keep_its_name():
    pytest.importorskip("ale_py")
    few = {"learner__replay_capacity": 60_000}
    assert planned("atari/breakout", **few).config.protocol.name == "paper-atari"
    changed = planned("atari/breakout", protocol__noop_max=5, **few)
    assert changed.config.protocol.name == changed.facts["name"] == "paper-atari, changed"
    mine = replace(MACHADO_ATARI, name="mine", noop_max=5)
    assert planned("atari/breakout", protocol=mine, **few).config.protocol == mine


def test_so_few_steps_cannot_teach_an_atari_game():
    pytest.importorskip("ale_py")
    (note,) = planned("atari/breakout", preset_name="demo-atari").warnings()
    assert note.startswith("10,000 agent steps cannot teach an Atari game")
    assert planned("atari/breakout", preset_name="quick-atari", learner__replay_capacity=60_000).warnings() == []
    assert planned().warnings() == []


def test_the_network_follows_the_observations():
    auto = NetworkSettings()
    assert network_kind(auto, (4, 84, 84)) == "nature_cnn"
    assert network_kind(auto, (4,)) == "mlp"
    assert network_kind(replace(auto, kind="mlp"), (3, 210, 160)) == "mlp"
    with pytest.raises(ValueError, match=r"observations of shape \(3, 210, 160\).*--network\.kind mlp"):
        network_kind(auto, (3, 210, 160))


OPERATORS = """
    from dataclasses import dataclass
    import numpy as np
    from softbellman import operators as ops

    @ops.operator
    class HalfGreedy(ops.Operator):
        share: float = 0.5
        def policy(self, row):
            return self.share * ops.maximum().policy(row) + (1 - self.share) * ops.mean().policy(row)

    half_greedy = HalfGreedy(0.25)

    @ops.operator
    class OfTheWholeBatch(HalfGreedy):
        laws = ops.Softmax.laws
        def policy(self, row):
            weights = row.xp.exp(row.z)
            return weights / weights.sum()

    @ops.operator
    class NumPyOnly(HalfGreedy):
        def __call__(self, q, selector=None, where=None): return np.sort(np.asarray(q))[..., -1]

    @ops.operator
    class KeepsTheAxis(HalfGreedy):
        def __call__(self, q, selector=None, where=None): return q.max(-1, keepdims=True)

    @ops.operator
    class OneWeight(ops.Operator):
        def policy(self, row): return row.z[..., :1]

    @ops.operator
    class NotANumber(HalfGreedy):
        def __call__(self, q, selector=None, where=None): return (q ** 0.5).mean(-1)

    @ops.operator
    class Crash(ops.Operator):
        def policy(self, row): return row.zz

    @dataclass(frozen=True)
    class NoPytree(ops.Operator):
        def policy(self, row): return ops.mean().policy(row)

    def local():
        @ops.operator
        class Hidden(HalfGreedy):
            pass
        return Hidden()
"""


@pytest.fixture
def my_operators(tmp_path, monkeypatch):
    (tmp_path / "my_operators.py").write_text(textwrap.dedent(OPERATORS))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("my_operators")
def test_an_operator_of_ones_own_is_tried_before_training():
    for name in ("HalfGreedy", "HalfGreedy(0.75)", "half_greedy"):
        check_in_training(ops.parse(f"my_operators:{name}"), 4)
    for name, message in (
        ("NumPyOnly", "does not run in training, on JAX arrays"),
        ("NoPytree", "does not run in training, on JAX arrays: .*decorate it with softbellman.operators.operator"),
        ("KeepsTheAxis", r"gives a value of shape \(5, 1\) for action values of shape \(5, 4\)"),
        ("OneWeight", r"gives weights of shape \(5, 1\).*the right shape is \(5, 4\)"),
        ("NotANumber", r"gives a value of \[nan\] for the action values"),
        ("Crash", r"AttributeError: 'Row' object has no attribute 'zz' \(.*my_operators.py, line \d+\)$"),
        ("local", "cannot read"),
    ):
        with pytest.raises(ValueError, match=message):
            check_in_training(ops.parse(f"my_operators:{name}"), 4)


@pytest.mark.usefixtures("my_operators")
def test_an_operator_of_ones_own_to_explore_by_is_tried_before_training():
    with pytest.raises(
        ValueError, match=r"^recipe\.exploration policy\(my_.*\): .* weights of .*, and claims that they"
    ):
        planned(recipe__exploration="policy(my_operators:OfTheWholeBatch)")


def test_known_operators_can_be_trained_with():
    for spec in ("max", "mean", "softmax(5)", "mellowmax(5)", "double(max)", "double(mellowmax(5))"):
        check_in_training(ops.parse(spec), 3)


def test_a_plan_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planned()
    assert not any(tmp_path.iterdir())


def test_the_accidents_of_a_protocol_reach_the_loop(monkeypatch):
    given = {}
    monkeypatch.setattr(build, "host_loop", lambda *of, **more: given.update(more))
    protocol = replace(PAPER_ATARI, random_first_actions=4, budget_cut_terminates=True)
    build.make_loop("atari/breakout", replaced(preset("paper-atari").config, "protocol", protocol), [], 255.0)
    assert given == {"random_first_actions": 4, "budget_cut_terminates": True}
