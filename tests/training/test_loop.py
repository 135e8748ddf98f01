"""One loop on two stages: the same draws, transitions and minibatches, and so the same parameters, bit for bit."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning.parts.sampling import Prioritised
from softbellman.learning.parts.tightening import Tightening
from softbellman.training import checkpoint
from softbellman.training.checkpoint import Checkpoint
from softbellman.training.host_stage import host_loop

from .device_probes import LEARNER, LOOP, Corridor, device_loop, hosted

SOFTMAX = ops.softmax(5.0)
LONG = replace(LEARNER, replay_capacity=2_000)  # holds all there is


PARTS = {
    "three steps": {"returns": 3},
    "prioritised": {"sampling": Prioritised()},
    "tightened": {"tightening": Tightening()},
    "all": {"returns": 2, "sampling": Prioritised(0.9, 0.2, 0.8, 50), "tightening": Tightening(2, 1.0)},
}


def on_both(operators, env, settings, loop, host_capacity=None, parts=None):
    """The same runs on both stages; `host_capacity` is that of the host's replay, which counts frames."""
    runs = [(operator, seed) for seed, operator in enumerate(operators)]
    on_device = device_loop(runs, settings, loop, env, parts)
    on_host_settings = replace(settings, replay_capacity=host_capacity or settings.replay_capacity)
    on_host = host_loop(on_device.runs, partial(hosted, env, loop), lambda *_: on_device.recipe, on_host_settings, loop)
    return on_device, on_host


def assert_equal(on_device, on_host):
    on_host.check_losses()
    assert on_device.clock == on_host.clock and on_device.updates > 0
    for index, run in enumerate(on_device.runs):
        pairs = [(loop.state(index), loop.stages[index].counts(0)) for loop in (on_device, on_host)]
        for ours, theirs in zip(*(jax.tree.leaves(pair) for pair in pairs), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs), err_msg=str(run))


@pytest.mark.parametrize(
    ("operators", "env", "num_envs"),
    [
        ([ops.maximum()], Corridor(), 1),
        ([SOFTMAX, ops.softmax(0.5), ops.softmax(50.0)], Corridor(), 1),
        ([ops.double(ops.mellowmax(5.0))], Corridor(), 2),
        ([SOFTMAX], Corridor(max_steps=7), 1),
        ([ops.mellowmax(2.0), ops.mellowmax(9.0)], Corridor(max_steps=7), 4),
        ([SOFTMAX, ops.softmax(0.5)], Corridor(sticky_probability=0.25), 2),
    ],
    ids=["max", "three operators", "two environments", "time limits", "all of it", "sticky actions"],
)
def test_both_stages_reach_the_same_parameters(operators, env, num_envs):
    on_device, on_host = on_both(operators, env, LONG, replace(LOOP, num_envs=num_envs, held_out_states=5))
    for steps in (100, 300):
        on_device.advance(steps)
        on_host.advance(steps)
        assert_equal(on_device, on_host)
    assert all(stage.counts(0).episodes > 0 for stage in on_host.stages)


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("limit", [None, 9], ids=["without an end", "time limits"])
def test_both_stages_reach_the_same_parameters_after_their_replays_have_wrapped(limit, num_envs):
    """Where both hold the same transitions: the host's needs a frame more for each end, and for the one acted on next.

    Games that all have nine steps have ten frames each, so that a ring of `10 k + 1` frames always holds `9 k`.
    """
    steps = 90
    frames = steps + 1 if limit is None else steps // limit * (limit + 1) + 1
    settings = replace(LEARNER, replay_capacity=steps * num_envs)
    env, loop = Corridor(max_steps=limit, ends=False), replace(LOOP, num_envs=num_envs)
    on_device, on_host = on_both([SOFTMAX, ops.softmax(1.0)], env, settings, loop, frames * num_envs)
    for moment in (60 * num_envs, 200 * num_envs, 500 * num_envs):
        for each in (on_device, on_host):
            each.advance(moment - each.agent_steps)
        assert_equal(on_device, on_host)
    for stage in on_host.stages:
        assert len(stage.replays[0]) == settings.replay_capacity and stage.replays[0].written[0] > 5 * steps


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
@pytest.mark.parametrize(("limit", "num_envs"), [(None, 1), (9, 2)])
def test_both_stages_gather_and_draw_alike_for_every_recipe(parts, limit, num_envs):
    """Before and after their replays have wrapped."""
    steps = 90
    frames = steps + 1 if limit is None else steps // limit * (limit + 1) + 1
    settings = replace(LEARNER, replay_capacity=steps * num_envs)
    env, loop = Corridor(max_steps=limit, ends=False), replace(LOOP, num_envs=num_envs)
    on_device, on_host = on_both([SOFTMAX, ops.softmax(1.0)], env, settings, loop, frames * num_envs, parts)
    for moment in (60 * num_envs, 200 * num_envs, 500 * num_envs):
        for each in (on_device, on_host):
            each.advance(moment - each.agent_steps)
        assert_equal(on_device, on_host)


def test_both_stages_gather_and_draw_alike_where_games_end():
    loop = replace(LOOP, num_envs=4)
    on_device, on_host = on_both([SOFTMAX], Corridor(max_steps=7), LONG, loop, parts=PARTS["all"])
    for each in (on_device, on_host):
        each.advance(400)
    assert_equal(on_device, on_host)
    assert on_host.stages[0].counts(0).episodes > 0


def test_what_sampling_keeps_in_mind_is_the_same_on_both_stages():
    env, settings = Corridor(ends=False), replace(LEARNER, replay_capacity=300)
    on_device, on_host = on_both([SOFTMAX], env, settings, LOOP, 301, PARTS["prioritised"])
    for each in (on_device, on_host):
        each.advance(400)
    on_host.check_losses()
    ours, theirs = on_device.stages[0].world.memory, on_host.stages[0].memories[0]
    assert float(ours.largest) == float(theirs.largest) != 1.0
    np.testing.assert_array_equal(np.asarray(ours.tree.leaves).reshape(-1)[:300], theirs.tree.leaves.reshape(-1)[:300])
    assert len(set(theirs.tree.leaves.reshape(-1)[:300].tolist())) > 5


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_every_recipe_goes_on_bit_for_bit_on_both_stages(parts, tmp_path):
    env, settings = Corridor(max_steps=7), replace(LEARNER, replay_capacity=90)

    def both():
        return on_both([SOFTMAX, ops.softmax(1.0)], env, settings, replace(LOOP, epoch_steps=2_000), 101, parts)

    going = both()
    for loop in going:
        loop.advance(301)
    stopped = both()
    for moment in (30, 45, 150, 201):  # before learning, just behind an update, with a replay that has wrapped
        for loop in stopped:
            loop.advance(moment - loop.agent_steps)
        resumed = both()
        for number, (loop, other) in enumerate(zip(stopped, resumed, strict=True)):
            file = tmp_path / f"{moment}-{number}"
            checkpoint.save(file, loop.snapshot())
            assert other.restore(Checkpoint(file)) == []
        stopped = resumed
    for loop, other in zip(going, stopped, strict=True):
        other.advance(301 - other.agent_steps)
        for ours, theirs in zip(loop.snapshot().arrays.items(), other.snapshot().arrays.items(), strict=True):
            assert ours[0] == theirs[0]
            for one, another in zip(ours[1], theirs[1], strict=True):
                np.testing.assert_array_equal(one, another, err_msg=ours[0])


def test_without_the_replay_nothing_is_kept_in_mind_of_it(tmp_path):
    loops, resumed = (on_both([SOFTMAX], Corridor(), LONG, LOOP, parts=PARTS["all"]) for _ in range(2))
    for number, (loop, other) in enumerate(zip(loops, resumed, strict=True)):
        loop.advance(200)
        checkpoint.save(tmp_path / str(number), loop.snapshot(with_replay=False))
        (note,) = other.restore(Checkpoint(tmp_path / str(number)))
        assert "replay was not saved" in note
        other.advance(120)
        other.check_losses()
        assert other.updates > loop.updates and not other.diverged
    device, host = resumed[0].stages[0].world.memory, resumed[1].stages[0].memories[0]
    assert int(host.known) == 120 and int(device.known) <= 120
    assert np.count_nonzero(host.tree.leaves) == 120


def test_several_runs_in_a_block_are_those_runs_for_every_recipe():
    """On both stages; wider blocks differ in their last bits."""
    loop = replace(LOOP, block_width=2)
    narrow = on_both([SOFTMAX, ops.softmax(1.0)], Corridor(max_steps=7), LONG, LOOP, parts=PARTS["all"])
    wide = on_both([SOFTMAX, ops.softmax(1.0)], Corridor(max_steps=7), LONG, loop, parts=PARTS["all"])
    for one, other in zip(narrow, wide, strict=True):
        for each in (one, other):
            each.advance(100)
        for index in range(2):
            pairs = zip(jax.tree.leaves(one.params(index)), jax.tree.leaves(other.params(index)), strict=True)
            for ours, theirs in pairs:
                np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-3, atol=1e-5)


def test_rows_of_both_stages_have_the_same_measurements_of_training():
    """Test phases are played differently; all else of a row is measured alike."""
    on_device, on_host = on_both([SOFTMAX], Corridor(max_steps=7), LONG, LOOP)
    rows = []
    for loop in (on_device, on_host):
        loop.advance(200)
        row, _ = loop.test()[0]
        rows.append(row)
    differ = {name for name, value in rows[0].items() if value != rows[1][name]}
    played = {"test_return", "test_episodes", "test_unfinished", "realised_return", "overestimation", "seconds"}
    assert differ <= played and rows[0]["loss"] is not None and rows[0]["gradient_norm"] is not None
