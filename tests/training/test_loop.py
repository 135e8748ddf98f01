"""One loop on two stages: the same draws, transitions and minibatches, and so the same parameters, bit for bit."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.envs.hosted import HostedEnv
from softbellman.training.host_stage import host_loop

from .device_probes import LEARNER, LOOP, Corridor, device_loop

SOFTMAX = ops.softmax(5.0)
LONG = replace(LEARNER, replay_capacity=2_000)  # holds all there is


def on_both(operators, env, settings, loop, host_capacity=None):
    """The same runs on both stages; `host_capacity` is that of the host's replay, which counts frames."""
    on_device = device_loop([(operator, seed) for seed, operator in enumerate(operators)], settings, loop, env)

    def make_env(seed, training):
        return HostedEnv(env, seed=seed, num_envs=loop.num_envs if training else 1, training=training)

    on_host_settings = replace(settings, replay_capacity=host_capacity or settings.replay_capacity)
    on_host = host_loop(on_device.runs, make_env, lambda *_: on_device.recipe, on_host_settings, loop)
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
    ],
    ids=["max", "three operators", "two environments", "time limits", "all of it"],
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
