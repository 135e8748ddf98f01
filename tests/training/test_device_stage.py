"""The compiled loop: one learner with the host's, no result that depends on chunks, company or tests, exact resume."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.training import checkpoint, device_program
from softbellman.training.checkpoint import Checkpoint, Damaged
from softbellman.training.loop import Diverged

from .device_probes import LEARNER, LOOP, device_loop

ONE = [(ops.softmax(5.0), 0)]


def same(first, second):
    """Tells if two trees of arrays are equal, bit for bit."""
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in leaves)


def whole(loop):
    """The whole state of a group."""
    return loop.learners, [stage.world for stage in loop.stages]


def rows(measured):
    return {index: row | {"seconds": 0.0} for index, (row, _) in measured.items()}


def test_l16_the_target_is_copied_before_updates_0_p_2p():
    loop = device_loop(ONE)
    copies = []
    for _ in range(300):
        before = loop.state(0)
        loop.advance(1)
        after = loop.state(0)
        if loop.updates > int(before.updates):
            copied = same(after.target_params, before.params)
            assert copied or same(after.target_params, before.target_params)
            if copied:
                copies.append(int(before.updates))
    assert copies == list(range(0, loop.updates, LEARNER.target_period_updates))
    assert len(copies) > 5


def test_updates_are_made_where_they_are_due():
    """After step 42, replay's start, at each multiple of 4: the first at step 44."""
    loop = device_loop(ONE)
    made = []
    for step in range(1, 61):
        updates = loop.updates
        loop.advance(1)
        made += [step] * (loop.updates - updates)
    assert made == [44, 48, 52, 56, 60]


def test_chunks_leave_no_trace():
    together, parts = device_loop(ONE), device_loop(ONE)
    together.advance(603)
    for steps in (1, 40, 2, 7, 150, 3, 399, 1):
        parts.advance(steps)
    assert parts.agent_steps == 603
    assert same(whole(together), whole(parts))


def test_several_environments_take_every_step_that_is_counted():
    """Three do not divide the longest chunk, which lies before the first update."""
    settings = replace(LEARNER, replay_capacity=3_000, replay_start_steps=2_500, update_period_steps=6)
    loop = device_loop(ONE, settings, replace(LOOP, num_envs=3))
    loop.advance(2_502)
    replay = loop.stages[0].world.replay
    assert loop.agent_steps == 2_502 and loop.updates == 1
    assert (np.asarray(replay.obs)[:2_502].reshape(2_502, -1) != 0).any(axis=-1).all()
    assert not np.asarray(replay.obs)[2_502:].any()
    with pytest.raises(ValueError, match="7 agent steps can't be shared among 3 environments"):
        loop.stages[0].play(loop.learners[0], loop.clock, 7)


def test_l40_tests_do_not_touch_training():
    tested, not_tested = device_loop(ONE), device_loop(ONE)
    not_tested.advance(400)
    tested.advance(200)
    tested.test()
    tested.advance(200)
    assert same(tested.state(0), not_tested.state(0))
    assert same(tested.stages[0].world.replay, not_tested.stages[0].world.replay)
    assert same(tested.stages[0].world.games, not_tested.stages[0].world.games)


def test_l5_seeds_differ_and_repeat():
    loops = [device_loop([(ops.maximum(), seed)]) for seed in (0, 1, 2, 1)]
    for loop in loops:
        loop.advance(300)
    actions = [np.asarray(loop.stages[0].world.replay.action)[:100].tolist() for loop in loops]
    assert len({tuple(taken) for taken in actions}) == 3
    assert same(whole(loops[1]), whole(loops[3]))
    assert not same(loops[0].params(0), loops[1].params(0))


def test_company_changes_nothing():
    """A run trained alone, or with runs of other seeds and parameters, is the same run."""
    alone, together = device_loop([(ops.softmax(2.0), 7)]), device_loop([(ops.softmax(5.0), 1), (ops.softmax(2.0), 7)])
    for loop in (alone, together):
        loop.advance(400)
    assert same(alone.state(0), together.state(1))
    assert rows(alone.test())[0] == rows(together.test())[1]


def test_a_block_of_several_runs_is_those_runs():
    """Wider blocks are for other devices; on a CPU their bits differ, and nothing else."""
    runs = [(ops.softmax(tau), seed) for seed, tau in enumerate((1.0, 5.0, 10.0))]
    narrow, wide = device_loop(runs), device_loop(runs, loop=replace(LOOP, block_width=2))
    told = []
    for loop in (narrow, wide):
        loop.advance(100)
        told.append([row for row, _ in loop.test().values()])
    assert [len(stage.world.counts.episodes) for stage in wide.stages] == [2, 2]
    for index in range(3):
        for ours, theirs in zip(
            jax.tree.leaves(wide.params(index)), jax.tree.leaves(narrow.params(index)), strict=True
        ):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-6)
    columns = ("episodes", "train_return", "test_return", "loss", "held_out_value", "gradient_norm", "test_seed")
    assert len(told[1]) == len({row["train_return"] for row in told[1]}) == 3
    for one, other in zip(*told, strict=True):
        assert [other[name] for name in columns] == pytest.approx([one[name] for name in columns], rel=1e-3)


def test_minibatches_are_of_what_a_full_replay_holds():
    loop = device_loop([(ops.softmax(5.0), 0)])
    loop.advance(1_200)
    drawn = loop.stages[0].minibatch(0, loop.clock, np.arange(1_200, dtype=np.uint32))
    held = loop.stages[0].world.replay
    for name in ("action", "reward", "discount"):
        np.testing.assert_array_equal(getattr(drawn, name), np.resize(np.asarray(getattr(held, name)), 1_200))


@pytest.mark.parametrize("at", [30, 42, 333, 1_203])  # before learning, at its start, inside an epoch, replay full
def test_it_goes_on_bit_for_bit(tmp_path, at):
    runs = [(ops.softmax(tau), seed) for seed, tau in enumerate((1.0, 5.0))]
    going, stopped = device_loop(runs), device_loop(runs)
    for loop in (going, stopped):
        loop.advance(min(at, 200))
        if at > 200:
            loop.test()
            loop.advance(at - 200)
    checkpoint.save(tmp_path / "state", stopped.snapshot())
    resumed = device_loop(runs)
    assert resumed.restore(Checkpoint(tmp_path / "state")) == []
    for loop in (going, resumed):
        loop.advance(1_400 - at)
    assert same(whole(going), whole(resumed))
    assert going.clock == resumed.clock
    assert rows(going.test()) == rows(resumed.test())


def test_l22_only_what_is_filled_is_saved(tmp_path):
    loop = device_loop(ONE)
    loop.advance(100)
    with_replay, without = loop.snapshot(), loop.snapshot(with_replay=False)
    assert with_replay.arrays["stages/0/replay/action"][0].shape == (100,)
    assert not any(name.startswith("stages/0/replay/") for name in without.arrays)
    checkpoint.save(tmp_path / "state", without)
    resumed = device_loop(ONE)
    (note,) = resumed.restore(Checkpoint(tmp_path / "state"))
    assert "replay was not saved" in note
    resumed.advance(42)
    assert resumed.updates == loop.updates  # the new replay is being filled
    resumed.advance(10)
    assert resumed.updates > loop.updates
    held = resumed.stages[0].minibatch(0, resumed.clock, np.arange(52, dtype=np.uint32))  # each of its slots
    assert (np.asarray(held.obs).sum(axis=-1) == 1).all()  # an empty one holds no state
    assert np.isfinite(np.asarray(resumed.stages[0].world.counts.loss_sum)).all()


def test_l22_without_the_replay_a_test_that_is_due_is_made_without_gradients(tmp_path):
    loop = device_loop(ONE)
    loop.advance(loop.loop.epoch_steps)
    checkpoint.save(tmp_path / "state", loop.snapshot(with_replay=False))
    resumed = device_loop(ONE)
    resumed.restore(Checkpoint(tmp_path / "state"))
    (row, _), (resumed_row, _) = loop.test()[0], resumed.test()[0]
    assert row["gradient_norm"] is not None and resumed_row["gradient_norm"] is None
    assert (resumed_row["test_return"], resumed_row["held_out_value"]) == (row["test_return"], row["held_out_value"])


def test_another_runs_checkpoint_is_refused(tmp_path):
    loop = device_loop(ONE)
    checkpoint.save(tmp_path / "state", loop.snapshot())
    with pytest.raises(Damaged, match="another network, optimiser or number of runs"):
        device_loop([*ONE, (ops.softmax(1.0), 1)]).restore(Checkpoint(tmp_path / "state"))


def spoil_rewards(stage):
    replay = stage.world.replay
    stage.world = stage.world._replace(replay=replay._replace(reward=replay.reward * np.nan))


def test_l17_a_run_that_diverges_takes_no_other_with_it():
    """A wild tau is no cause; a learning rate is shared, so the reward is what differs: one run's rewards are NaN."""
    runs = [(ops.softmax(1.0), 0), (ops.softmax(1.0), 1)]
    loop, alone = device_loop(runs), device_loop(runs[:1])
    for each in (loop, alone):
        each.advance(100)
    spoil_rewards(loop.stages[1])
    for each in (loop, alone):
        each.advance(300)
    assert loop.diverged == {1: 104}
    assert set(loop.test()) == {0}
    assert same(loop.state(0), alone.state(0))
    spoil_rewards(loop.stages[0])
    with pytest.raises(Diverged):
        loop.advance(4)


def test_a_new_parameter_or_length_is_no_new_program():
    device_loop([(ops.mellowmax(1.0), 0)]).advance(100)
    compiled = device_program.learn._cache_size()
    for omega, steps in ((2.0, 80), (30.0, 130), (0.0, 97)):
        device_loop([(ops.mellowmax(omega), 1)]).advance(steps)
    assert device_program.learn._cache_size() == compiled


def test_another_exploration_is_no_new_program():
    device_loop([(ops.mellowmax(1.0), 0)]).advance(100)
    compiled = device_program.learn._cache_size(), device_program.play._cache_size()
    for change in ({"epsilon_end": 0.7}, {"epsilon_start": 0.5, "epsilon_decay_steps": 9}, {"replay_start_steps": 60}):
        device_loop([(ops.mellowmax(1.0), 0)], replace(LEARNER, **change)).advance(100)
    assert (device_program.learn._cache_size(), device_program.play._cache_size()) == compiled


def test_a_row_says_what_happened():
    loop = device_loop(ONE, loop=replace(LOOP, num_envs=2))
    loop.advance(200)
    counts = loop.stages[0].counts(0)
    expected = float(counts.return_sum) / int(counts.finished)
    (row, phase), episodes = loop.test()[0], int(counts.episodes)
    assert (row["epoch"], row["agent_steps"], row["env_frames"], row["updates"]) == (1, 200, 200, 40)
    assert row["episodes"] == episodes > 0
    assert row["train_return"] == pytest.approx(expected)
    assert row["train_clipped_return"] < row["train_return"]  # a corridor pays up to 10 a step, and the learner sees 1
    assert row["test_return"] == phase.mean and row["test_episodes"] == len(phase.scores) <= 8
    assert row["operator_parameter"] == 5.0 and row["held_out_value"] is not None and row["gradient_norm"] > 0
    loop.advance(200)
    assert loop.test()[0][0]["epoch"] == 2
    assert loop.test_is_due is False


def test_operators_of_two_kinds_are_refused():
    with pytest.raises(ValueError, match="one structure"):
        device_loop([(ops.maximum(), 0), (ops.softmax(1.0), 1)])


def test_the_number_of_test_games_must_be_given():
    with pytest.raises(ValueError, match=r"loop\.test_episodes must be given"):
        device_loop(ONE, loop=replace(LOOP, test_episodes=None))
