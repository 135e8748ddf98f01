"""Recipes in training: both stages alike, exact resume, and the probes solved."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.config import NetworkSettings
from softbellman.gaps import AdvantageGap, PersistentAdvantageGap
from softbellman.learning.parts import controllers, schedules
from softbellman.learning.parts.copies import Past
from softbellman.learning.parts.estimates import Categorical, Ensemble, Quantiles
from softbellman.learning.parts.exploration import Policy
from softbellman.learning.parts.heads import Duelling, Noisy
from softbellman.learning.parts.risks import CVaR
from softbellman.learning.parts.sampling import Prioritised
from softbellman.learning.parts.scales import PopArt
from softbellman.learning.parts.tightening import Tightening
from softbellman.learning.parts.transformed import Transformed
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import LearnerSettings
from softbellman.running.build import make_network
from softbellman.training import measurement
from softbellman.training.checkpoint import Checkpoint, save
from softbellman.training.device_stage import device_loop
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run

from . import device_probes, probes

RECIPES = {
    "plain": {},
    "munchausen": {"gap": AdvantageGap(0.9, 1.0)},
    "persistent": {"gap": PersistentAdvantageGap(0.5)},
    "averaged": {"target": Past(3, "mean")},
    "lowest of copies": {"target": Past(3, "min")},
    "maxmin": {"estimate": Ensemble(3, "min")},
    "mix": {"estimate": Ensemble(3, "mix")},
    "quantiles": {"estimate": Quantiles(11)},
    "categorical": {"estimate": Categorical(41, -2.0, 6.0)},
    "transformed": {"estimate": Transformed()},
    "duelling": {"head": Duelling()},
    "noisy": {"noise": Noisy(0.5)},
    "popart": {"scale": PopArt(0.01)},
    "policy": {"exploration": Policy(ops.mellowmax(5.0))},
    "risk": {"estimate": Quantiles(11), "risk": CVaR(0.25)},
    "three steps": {"returns": 3},
    "prioritised": {"sampling": Prioritised(0.6, 0.4, 1.0, 100)},
    "tightened": {"tightening": Tightening(2, 1.0)},
    "cooling": {"controller": schedules.Cooling(2.0)},
    "spread cooling": {"controller": schedules.SpreadCooling(0.5)},
    "power": {"controller": schedules.Power(0.01, 1.5)},
    "noise": {"controller": controllers.Noise(0.75, 0.05)},
    "match": {"controller": controllers.Match(0.05)},
    "loop": {"controller": controllers.Loop(0.75, 0.05, 0.05)},
    "rainbow": {
        "returns": 3,
        "sampling": Prioritised(0.5, 0.4, 1.0, 100),
        "estimate": Categorical(41, -2.0, 6.0),
        "head": Duelling(),
        "noise": Noisy(0.5),
    },
    "together": {
        "estimate": Quantiles(5),
        "head": Duelling(),
        "noise": Noisy(0.5),
        "target": Past(2, "mean"),
        "gap": AdvantageGap(0.3),
        "exploration": Policy(ops.softmax(3.0)),
    },
}


def recipe_of(settings: LearnerSettings, obs_shape, num_actions, *, head=None, noise=None, **parts) -> Recipe:
    plain = Recipe(None, settings.update, **parts)
    more = {name: part for name, part in (("head", head), ("noise", noise)) if part is not None}
    kind = NetworkSettings(kind="mlp", hidden=(8,))
    network = make_network(kind, 1.0, obs_shape, num_actions, units=plain.scale, outputs=plain.estimate.outputs, **more)
    return replace(plain, network=network)


ROUNDED = ("quantiles", "duelling", "risk", "rainbow", "together")
"""Recipes whose sums XLA fuses differently in the two stages' programs, so that they agree to float32 rounding."""


FAST = ("munchausen", "maxmin", "categorical", "noisy", "prioritised", "rainbow")
"""Recipes that are tested each time; the others are marked slow."""


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES]
)
def test_both_stages_move_a_recipe_on_alike_and_it_goes_on_where_it_was_stopped(name, tmp_path):
    """Over copies of the target network, in a block of two: bit for bit, but for the sums of some."""
    settings = replace(device_probes.LEARNER, replay_capacity=2_000)
    loop, env = replace(device_probes.LOOP, block_width=2), device_probes.Corridor()
    build = ops.softmax if name == "match" else lambda tau: ops.double(ops.softmax(tau))
    runs = [Run(build(2.0), 0), Run(build(9.0), 1)]
    make_env, make_recipe = partial(device_probes.hosted, env, loop), partial(recipe_of, settings, **RECIPES[name])

    def on_device():
        return device_loop(runs, env, make_env, make_recipe, settings, loop)

    first, on_host = on_device(), host_loop(runs, make_env, make_recipe, settings, loop)
    for each in (first, on_host):
        each.advance(400)
        each.check_losses()
        assert each.stages[0].minibatch(0, each.clock, np.arange(5, dtype=np.uint32)).density is None  # of measures
    assert first.updates > 80
    if "controller" in RECIPES[name]:
        taus = [float(first.state(index).control.parameter) for index in (0, 1)]
        assert taus != [2.0, 9.0] and all(np.isfinite(taus))
    assert_alike(first, on_host, 2e-4 if name in ROUNDED else 0.0)
    save(tmp_path / "state.safetensors", first.snapshot())
    again = on_device()
    assert again.restore(Checkpoint(tmp_path / "state.safetensors")) == []
    for each in (first, again):
        each.advance(200)
    assert_alike(first, again)
    moved = [np.asarray(leaf) for leaf in jax.tree.leaves(first.params(0))]
    assert all(np.isfinite(leaf).all() for leaf in moved)


def assert_alike(one, other, tolerance=0.0):
    for index, run in enumerate(one.runs):
        for ours, theirs in zip(jax.tree.leaves(one.state(index)), jax.tree.leaves(other.state(index)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=str(run))


LEARNED = {
    name: parts
    for name, parts in RECIPES.items()
    if name not in ("plain", "munchausen", "persistent", "risk", "three steps", "rainbow", "together")
    and "controller" not in parts
}


def value_ahead(name, operator):
    """The operator's of 0 and 1, discounted; quantiles within Huber's bound are means of the mixture, weighted."""
    if name != "quantiles":
        return probes.GAMMA * float(operator(np.array([0.0, 1.0])))
    low, high = operator.weights(np.array([0.0, 1.0]))
    middle = (np.arange(11) + 0.5) / 11
    return probes.GAMMA * np.mean(high * middle / (high * middle + low * (1 - middle)))


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        pytest.param(name, operator, id=f"{name}, {operator}")
        for name in LEARNED
        for operator in (ops.maximum(), ops.softmax(1.0))
        if name != "tightened" or operator == ops.maximum()  # bounds are of optimal values
    ],
)
def test_every_part_learns_its_fixed_point(name, operator):
    """Two steps, the second of which pays 0 or 1; the plain recipe's are in `test_probes.py`."""
    tables = {"successor": [[1, 1], [0, 0]], "terminal": [[False, False], [True, True]]}
    env = probes.TableEnv([[0, 0], [0, 1]], **tables, num_envs=8)
    settings = replace(probes.LEARNER, epsilon_end=0.5, update_period_steps=8, target_period_updates=25)
    loop = replace(probes.LOOP, num_envs=8, steps=8_000, epoch_steps=8_000)
    make_recipe = partial(recipe_of, settings, **RECIPES[name])
    trained = host_loop([Run(operator, 0)], lambda *_: env, make_recipe, settings, loop)
    trained.advance(4_000)
    q, ahead = trained.recipe.q(trained.params(0), np.eye(2, dtype=np.float32)), value_ahead(name, operator)
    np.testing.assert_allclose(q, [[ahead, ahead], [0, 1]], atol=0.05 if "noise" in RECIPES[name] else 0.02)


def test_a_controller_moves_alike_on_both_stages_by_the_returns_of_several_environments(tmp_path):
    """Rewards that are no whole numbers, unclipped; windows of two steps, priorities, several copies; then resumed."""
    settings = replace(device_probes.LEARNER, replay_capacity=2_000, reward_clip=None, update_period_steps=8)
    loop = replace(device_probes.LOOP, num_envs=4)
    env, runs = device_probes.Corridor(rewards=(0.3, 1.7, -0.45)), [Run(ops.softmax(2.0), 0)]
    make_env = partial(device_probes.hosted, env, loop)
    more = {"returns": 2, "sampling": Prioritised(0.6, 0.4, 1.0, 100), "target": Past(2, "mean")}
    make_recipe = partial(recipe_of, settings, controller=controllers.Loop(0.75, 0.05, 0.05), **more)

    def made():
        on_device = device_loop(runs, env, make_env, make_recipe, settings, loop)
        return [on_device, host_loop(runs, make_env, make_recipe, settings, loop)]

    both = made()
    for each in both:
        each.advance(800)
        each.check_losses()
    assert_alike(*both)
    on_device, on_host = (each.stages[0].counts(0).returns for each in both)
    for ours, theirs in zip(on_device, on_host, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert on_host.sum.dtype == np.float32 and (on_host.steps > 0).all()
    _, moved, size = both[0].state(0).control.memory
    assert size > 0 and moved != 0
    for number, (one, again) in enumerate(zip(both, made(), strict=True)):
        save(tmp_path / f"{number}.safetensors", one.snapshot())
        assert again.restore(Checkpoint(tmp_path / f"{number}.safetensors")) == []
        for each in (one, again):
            each.advance(203 * loop.num_envs)
            each.check_losses()
        assert_alike(one, again)
        for ours, theirs in zip(one.stages[0].counts(0).returns, again.stages[0].counts(0).returns, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert_alike(*both)


def test_rows_tell_the_parameter_of_the_moment_and_measure_with_it(monkeypatch):
    measure, seen = measurement.diagnostics.gradient_statistics, []

    def measured(state, operator, *given):
        seen.append(float(operator.tau))
        return measure(state, operator, *given)

    monkeypatch.setattr(measurement.diagnostics, "gradient_statistics", measured)
    settings, env = replace(device_probes.LEARNER, replay_capacity=2_000), device_probes.Corridor()
    make_env = partial(device_probes.hosted, env, device_probes.LOOP)

    def train(controller):
        make_recipe = partial(recipe_of, settings, controller=controller)
        loop = device_loop([Run(ops.softmax(1e-6), 0)], env, make_env, make_recipe, settings, device_probes.LOOP)
        loop.advance(200)
        (row, _), *_ = loop.test().values()
        return loop, row

    loop, row = train(schedules.Power(1e6, 1.0))
    assert row["operator_parameter"] == pytest.approx(1e6 * (loop.updates + 1)) and seen == [row["operator_parameter"]]
    assert row["operator_gap"] == pytest.approx(0, abs=1e-6) and row["policy_entropy"] == pytest.approx(0, abs=1e-4)
    _, plain = train(controllers.Fixed())
    assert plain["operator_parameter"] == pytest.approx(1e-6)
    assert plain["operator_gap"] > 1e-3 and plain["policy_entropy"] > 0.6
