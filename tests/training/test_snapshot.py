"""A loop that is saved, thrown away, made anew and restored goes on bit for bit; what can't be exact is said."""

from dataclasses import replace
from functools import cache, partial

import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.envs import make
from softbellman.envs.gym import GymEnv
from softbellman.learning.networks import mlp
from softbellman.learning.parts.table import part
from softbellman.learning.recipe import Recipe
from softbellman.learning.settings import LearnerSettings
from softbellman.training import checkpoint, measurement
from softbellman.training.checkpoint import Checkpoint, Damaged
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.loop import Diverged
from softbellman.training.settings import LoopSettings

from .probes import counts, envs, replays

LEARNER = LearnerSettings(
    optimizer="adam",
    learning_rate=1e-3,
    batch_size=16,
    update_period_steps=4,
    target_period_updates=7,
    replay_capacity=120,  # the ring turns over within the tests
    replay_start_steps=40,
    epsilon_decay_steps=150,
)
LOOP = LoopSettings(
    steps=400, epoch_steps=150, test_steps=60, held_out_states=32, gradient_batches=2, num_envs=1, block_width=1
)
SOFTMAX = ops.softmax(5.0)
SMALL = {"optimizer": "adam", "replay_capacity": 400, "batch_size": 8, "update_period_steps": 16}


def cartpole(seed, training, num_envs=1):
    return GymEnv("CartPole-v1", seed=seed, num_envs=num_envs if training else 1, training=training)


@cache
def network(obs_shape, num_actions):
    """The same object each time, so that nothing is compiled twice."""
    return mlp(obs_shape, num_actions, (16,))


def make_loop(*, operators=(SOFTMAX,), loop=LOOP, learner=LEARNER, make_env=None, **parts):
    runs = [Run(operator, seed) for seed, operator in enumerate(operators)]
    make_env = make_env or partial(cartpole, num_envs=loop.num_envs)
    return host_loop(runs, make_env, lambda *shape: Recipe(network(*shape), learner.update, **parts), learner, loop)


def breakout_loop(learner=LEARNER, loop=LOOP):
    def environment(seed, training):
        return make("atari/breakout", seed=seed, num_envs=loop.num_envs if training else 1, training=training)

    return make_loop(make_env=environment, learner=replace(learner, **SMALL), loop=loop)


def everything(loop):
    """All that the future of a loop depends on, and all that it has counted."""
    for stage in loop.stages:
        stage.settle()
    stored = [replay.filled() | {"written": replay.written} for replay in replays(loop)]
    return {
        "states": jax.tree.map(np.array, loop.learners),
        "replays": [{name: [np.array(part) for part in parts] for name, parts in arrays.items()} for arrays in stored],
        "counts": [jax.tree.map(np.array, counts(loop, index)) for index in range(len(loop.runs))],
        "clock": loop.clock,
        "games": [
            [(tape.game, tape.seed, tape.actions.tolist(), tape.checksum) for tape in env.tape] for env in envs(loop)
        ],
        "obs": [np.array(obs) for stage in loop.stages for obs in stage.obs],
        "ages": [np.array(ages) for stage in loop.stages for ages in stage.ages],
        "held out": loop.held_out,
        "diverged": loop.diverged,
    }


def assert_same(one, other):
    for kind, value in one.items():
        leaves, structure = jax.tree.flatten(value)
        others, other_structure = jax.tree.flatten(other[kind])
        assert structure == other_structure, kind
        for leaf, other_leaf in zip(leaves, others, strict=True):
            assert np.asarray(leaf).dtype == np.asarray(other_leaf).dtype, kind
            np.testing.assert_array_equal(leaf, other_leaf, err_msg=kind)


def trained(loop, saves=(), folder=None, anew=None):
    """Trains to the end, with tests, through a file and a new loop at each step of `saves`; gives the rows too.

    Each file says that the run has taken a thousand seconds more.
    """
    rows, saves, seconds = [], sorted(saves), 0.0
    while loop.agent_steps < loop.loop.steps or loop.test_is_due:
        if saves and loop.agent_steps == saves[0]:  # also where a test is due
            saves.pop(0)
            file = folder / f"{loop.agent_steps}.safetensors"
            state, seconds = loop.snapshot(), seconds + 1_000.0
            state.facts["seconds"] += 1_000.0
            checkpoint.save(file, state)
            before = everything(loop)
            loop.close()
            loop = anew()
            assert loop.restore(Checkpoint(file)) == []
            assert_same(before, everything(loop))
        if loop.test_is_due:
            tested = [row for row, _ in loop.test().values()]
            assert all(row["seconds"] > seconds for row in tested)
            rows.append([row | {"seconds": 0.0} for row in tested])
            continue
        ends = [loop.loop.epoch_steps * (loop.clock.epoch + 1), loop.loop.steps, *saves]
        loop.advance(min(ends) - loop.agent_steps)
    end = everything(loop)
    loop.close()
    return rows, end


@pytest.mark.parametrize(
    ("operators", "loop"),
    [
        ((ops.double(ops.mellowmax(3.0)),), LOOP),
        ((ops.softmax(1.0), ops.softmax(5.0), ops.softmax(9.0)), replace(LOOP, block_width=2, num_envs=2)),
    ],
    ids=["one run", "a padded group"],
)
def test_l3_a_resumed_run_is_the_undisturbed_one_bit_for_bit(operators, loop, tmp_path):
    """Stops at 20 random moments: mid-episode, mid-update-period, before a test and, by chance, in a row."""
    anew = partial(make_loop, operators=operators, loop=loop)
    rows, end = trained(anew())
    moments = np.random.default_rng(3).choice(np.arange(1, 200), size=18, replace=False) * 2
    resumed_rows, resumed_end = trained(anew(), {*moments.tolist(), 150, 300}, tmp_path, anew)
    assert resumed_rows == rows and len(rows) == 3
    assert_same(end, resumed_end)


def test_l3_an_atari_run_is_too_also_when_the_next_game_starts_late(tmp_path, monkeypatch):
    """The spare emulator's thread is held up by random times: no result depends on when it is ready."""
    pytest.importorskip("ale_py")
    import time

    from softbellman.envs.atari import env as atari

    loop = replace(LOOP, steps=400, epoch_steps=200, test_steps=20)
    anew = partial(breakout_loop, loop=loop)
    monkeypatch.setattr(measurement, "COMMON_STRIDE", 1)  # to find common states costs more than all else here
    rows, end = trained(anew())
    reset, rng = atari._reset, np.random.default_rng(5)

    def late(*arguments):
        time.sleep(rng.uniform(0, 0.05))
        return reset(*arguments)

    monkeypatch.setattr(atari, "_reset", late)
    moments = np.random.default_rng(4).choice(np.arange(1, 400), size=3, replace=False).tolist()
    resumed_rows, resumed_end = trained(anew(), moments, tmp_path, anew)
    assert resumed_rows == rows
    assert_same(end, resumed_end)


def test_what_is_saved_is_only_what_is_filled(tmp_path):
    loop = make_loop(learner=replace(LEARNER, replay_capacity=100_000))
    loop.advance(60)
    checkpoint.save(tmp_path / "state.safetensors", loop.snapshot())
    frames = Checkpoint(tmp_path / "state.safetensors").array("stages/0/0/replay/frames")
    assert len(frames) == replays(loop)[0].num_frames < 80


def test_l22_without_the_replay_a_test_that_is_due_is_made_without_gradients(tmp_path):
    loop = make_loop()
    loop.advance(150)
    checkpoint.save(tmp_path / "state.safetensors", loop.snapshot(with_replay=False))
    resumed = make_loop()
    resumed.restore(Checkpoint(tmp_path / "state.safetensors"))
    (row, _), (resumed_row, _) = loop.test()[0], resumed.test()[0]
    assert row["gradient_norm"] is not None and resumed_row["gradient_norm"] is None
    assert (resumed_row["test_return"], resumed_row["held_out_value"]) == (row["test_return"], row["held_out_value"])


def test_l22_without_the_replay_learning_waits_for_a_new_one_and_that_is_said(tmp_path):
    loop = make_loop()
    loop.advance(100)
    checkpoint.save(tmp_path / "state.safetensors", loop.snapshot(with_replay=False))
    resumed = make_loop()
    (note,) = resumed.restore(Checkpoint(tmp_path / "state.safetensors"))
    assert "not exact: the replay was not saved" in note and "after 40 more agent steps" in note
    before = resumed.updates
    resumed.advance(40)
    assert resumed.updates == before and len(replays(resumed)[0]) == 40
    resumed.advance(4)
    assert resumed.updates == before + 1
    # Saved whole from here on, it goes on exactly again: also that learning waits is in the state.
    checkpoint.save(tmp_path / "again.safetensors", resumed.snapshot())
    third = make_loop()
    assert third.restore(Checkpoint(tmp_path / "again.safetensors")) == []
    assert_same(everything(resumed), everything(third))


class Forgetful(GymEnv):
    """An environment with randomness of its own, which no seed fixes: its games can't be played again."""

    rng = np.random.default_rng(0)

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        taken = self._observations.taken
        self._observations.taken = lambda obs: taken(obs) + self.rng.normal(size=4).astype(np.float32)


def test_a_game_that_cant_be_played_again_needs_a_word_and_then_only_that_game_is_lost(tmp_path):
    def forgetful(seed, training):
        return Forgetful("CartPole-v1", seed=seed, training=training)

    anew = partial(make_loop, make_env=forgetful, controller=part("controller", "loop(0.75, 0.1)"))
    loop = anew()
    loop.advance(100)
    checkpoint.save(tmp_path / "state.safetensors", loop.snapshot())
    saved = Checkpoint(tmp_path / "state.safetensors")
    with pytest.raises(ValueError, match=r"does not end where it did.*resume --inexact"):
        anew().restore(saved)
    resumed = anew()
    (note,) = resumed.restore(saved, inexact=True)
    assert "not exact" in note and "a new game begins" in note
    assert len(replays(resumed)[0]) == len(replays(loop)[0]) and resumed.agent_steps == 100
    assert_same({"states": loop.learners}, {"states": resumed.learners})
    of_the_game = ("score", "clipped_score", "returns")
    had, fresh, own = (counts(each)._asdict() for each in (loop, anew(), resumed))
    assert had["score"] > 0 and had["returns"].steps > 0
    assert_same(had | {name: fresh[name] for name in of_the_game}, own)
    (stage,), (replay,) = resumed.stages, replays(resumed)
    assert loop.stages[0].ages[0] > 0 and stage.ages[0] == 0
    begins = stage.obs[0]
    resumed.advance(1)
    np.testing.assert_array_equal(replay.gather(replay.slots[[len(replay) - 1]]).obs, begins)  # none from game to game
    resumed.advance(49)
    assert len(replays(resumed)[0]) > len(replays(loop)[0]) and resumed.updates == loop.updates + 12


@pytest.mark.parametrize(
    "other",
    [
        {"operators": (ops.softmax(5.0), ops.softmax(6.0))},
        {"learner": replace(LEARNER, optimizer="rmsprop")},
        {"learner": replace(LEARNER, replay_capacity=60)},
    ],
    ids=["another number of runs", "another optimiser", "another replay"],
)
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, other):
    loop = make_loop()
    loop.advance(100)
    checkpoint.save(tmp_path / "state.safetensors", loop.snapshot())
    with pytest.raises(Damaged):
        make_loop(**other).restore(Checkpoint(tmp_path / "state.safetensors"))


# --------------------------------------------------------------------------------------------------------- divergence


class Rich(GymEnv):
    """CartPole, with a reward of 1e30 on one step of the run with seed 1: its loss overflows float32."""

    def step(self, actions):
        step = super().step(actions)
        self.moment = getattr(self, "moment", 0) + 1
        return step._replace(reward=step.reward * (1e30 if self.seed == 1 and self.moment == 60 else 1))


def rich(seed, training):
    return Rich("CartPole-v1", seed=seed, training=training)


UNCLIPPED = replace(LEARNER, reward_clip=None, huber_delta=1e20, replay_capacity=1000)


def test_a_run_whose_loss_is_not_finite_is_lost_and_the_others_are_as_without_it():
    group = make_loop(operators=(ops.maximum(),) * 2, make_env=rich, learner=UNCLIPPED)
    alone = make_loop(operators=(ops.maximum(),), make_env=rich, learner=UNCLIPPED)
    for loop in (group, alone):
        loop.advance(300)
    tested = group.test()
    assert list(tested) == [0] and list(group.diverged) == [1] and 60 < group.diverged[1] <= 300
    assert group.diverged[1] % LEARNER.update_period_steps == 0
    assert tested[0][0] | {"seconds": 0.0} == alone.test()[0][0] | {"seconds": 0.0}


def test_a_run_that_was_lost_is_lost_still_when_the_others_go_on(tmp_path):
    """Also where nothing is left to be done, and nobody would look again: it would count as finished."""
    anew = partial(make_loop, operators=(ops.maximum(),) * 2, make_env=rich, learner=UNCLIPPED)
    loop, again = anew(), anew()
    loop.advance(300)
    checkpoint.save(tmp_path / "300.safetensors", loop.snapshot())
    again.restore(Checkpoint(tmp_path / "300.safetensors"))
    assert list(loop.diverged) == [1] and again.diverged == loop.diverged


def test_a_loop_with_no_run_left_stops_and_no_lost_state_is_saved():
    def lost(seed, training):
        return Rich("CartPole-v1", seed=1, training=training)

    loop = make_loop(make_env=lost, learner=UNCLIPPED)
    with pytest.raises(Diverged):
        loop.advance(300)
    assert loop.agent_steps == loop.diverged[0] + LEARNER.update_period_steps  # seen before the next update
    with pytest.raises(Diverged):
        loop.snapshot()
    with pytest.raises(Diverged):
        loop.test()


def test_a_test_that_is_broken_off_leaves_no_trace():
    class Enough(Exception):
        pass

    def stop():
        raise Enough

    loop, undisturbed = make_loop(), make_loop()
    for either in (loop, undisturbed):
        either.advance(150)
    before = everything(undisturbed)
    with pytest.raises(Enough):
        loop.test(stop)
    held_out = {"held out": []}  # drawn by now, as they would be drawn again
    assert_same(before, everything(loop) | held_out)
    assert loop.test_is_due
    first, second = (either.test()[0][0] | {"seconds": 0.0} for either in (loop, undisturbed))
    assert first == second and not loop.test_is_due
