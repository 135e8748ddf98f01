"""The loop on the host: its order and its clocks, groups, what rows say, and what must not make a difference."""

import copy
import random
import re
import types
from dataclasses import replace
from functools import partial

import chex
import jax
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.envs.atari.env import AtariEnv
from softbellman.learning import learner
from softbellman.learning.networks import Network, mlp
from softbellman.learning.parts.table import part
from softbellman.learning.recipe import Recipe
from softbellman.training import host_stage, measurement, streams
from softbellman.training.evaluation import greedy_policy, play
from softbellman.training.host_stage import host_loop
from softbellman.training.lanes import Run
from softbellman.training.streams import Role

from .probes import LEARNER, LOOP, ScriptedEnv, TableEnv, corridor, counts, envs, make_loop, make_recipe, replays

LIVES = [(7.0, "life"), (-3.0, "life"), (100.0, "over")]
SOFTMAX = ops.softmax(5.0)
STATIC = "recipe"
UNIFORM = replace(LEARNER, epsilon_end=1.0)


def snapshot(tree):
    """A copy of arrays that the next update would consume."""
    return jax.tree.map(np.array, tree)


def same(one, other):
    """Tells if two trees are equal bit for bit."""
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def tape(loop, index=0):
    return np.array(envs(loop)[index].actions)[:, 0].tolist()


def replayed(replay):
    """Every array of a replay."""
    return {name: value for name, value in vars(replay).items() if isinstance(value, np.ndarray)}


# -------------------------------------------------------------------------------------- the order of one agent step


@pytest.mark.parametrize("operator", [SOFTMAX, ops.double(ops.maximum())], ids=str)
def test_l16_the_target_is_copied_before_updates_0_p_2p_and_at_no_other_time(operator):
    period = 3
    settings = replace(LEARNER, target_period_updates=period, replay_start_steps=40)
    loop, learn = make_loop(operator, learner=settings), jax.jit(learner.learn_step, static_argnames=STATIC)
    initial = snapshot(loop.state(0))
    loop.advance(40)
    assert loop.updates == 0 and same(loop.state(0), initial)  # not before the start, and not at it
    for update in range(10):
        before = snapshot(loop.state(0))
        assert same(before.params, before.target_params) == (update == 0)
        loop.advance(3)
        assert loop.updates == update and same(loop.state(0), before)  # an update comes with every fourth step
        loop.advance(1)
        after = snapshot(loop.state(0))
        copied = update % period == 0
        assert same(after.target_params, before.params if copied else before.target_params)
        assert not same(after.params, before.params)
        # The copy comes before the update, which draws from a replay that holds this very step.
        start = before._replace(target_params=before.params) if copied else before
        key = jax.random.fold_in(streams.key(0, Role.REPLAY), update)
        batch = replays(loop)[0].sample(np.asarray(streams.words(key, settings.batch_size)))
        expected, _ = learn(start, operator, batch, recipe=loop.recipe)
        chex.assert_trees_all_close(expected, after, rtol=1e-5, atol=1e-7)
        assert after.updates == loop.updates == update + 1 and loop.agent_steps == 44 + 4 * update


def test_an_update_copies_neither_accumulators_nor_parameters():
    """On an Atari network, two copies of the accumulators would take a tenth of an update."""
    loop = make_loop(SOFTMAX, hidden=(113,))
    loop.advance(8)
    state, batch = loop.state(0), replays(loop)[0].sample(np.arange(32, dtype=np.uint32))
    words = (loop.recipe, 1, state._replace(opt_state=()), state.opt_state, SOFTMAX, batch)
    program = host_stage._learn.lower(*words).compile().as_text()
    assert re.search(r"f32\[\d+,113\]\S* fusion\(", program)
    assert not re.search(r"f32\[\d+,113\]\S* copy\(", program)


def test_the_replay_holds_each_step_and_what_was_done():
    loop = make_loop(SOFTMAX)
    loop.advance(300)
    replay, env = replays(loop)[0], envs(loop)[0]
    assert len(replay) == 300 == len(env.actions)
    stored = replay.gather(np.flatnonzero(replay.valid))
    np.testing.assert_array_equal(stored.action, tape(loop))
    here, there = stored.obs.argmax(-1), stored.next_obs.argmax(-1)
    np.testing.assert_array_equal(stored.reward, env.reward[here, stored.action])
    np.testing.assert_array_equal(there, env.successor[here, stored.action])
    ended = env.terminal[here, stored.action]
    np.testing.assert_allclose(stored.discount, LEARNER.gamma * (1 - ended), rtol=1e-6)
    assert counts(loop).episodes == replay.written[0] - 301 > ended.sum() > 0  # some were cut, not ended


def test_the_replay_of_an_atari_game_holds_what_was_acted_on_and_what_came_of_it(monkeypatch):
    """Over lost lives and ends of games, with stacks of frames."""
    pytest.importorskip("ale_py")
    loop = make_loop(SOFTMAX, lambda: AtariEnv("breakout", seed=0), learner=UNIFORM, hidden=())
    (env,), (replay,), acted_on, steps = envs(loop), replays(loop), [], []
    advance = env.step
    monkeypatch.setattr(env, "step", lambda actions: steps.append((actions, advance(actions))) or steps[-1][1])
    for _ in range(600):
        acted_on.append(loop.stages[0].obs[0][0].copy())
        loop.advance(1)
    actions, came = zip(*steps, strict=True)
    stored = replay.gather(np.flatnonzero(replay.valid))
    np.testing.assert_array_equal(stored.obs, acted_on)
    np.testing.assert_array_equal(stored.next_obs, [step.next_obs[0] for step in came])
    np.testing.assert_array_equal(stored.action, np.concatenate(actions))
    np.testing.assert_array_equal(stored.reward, np.concatenate([step.reward for step in came]))
    ended = np.concatenate([step.terminated for step in came])
    np.testing.assert_array_equal(stored.discount, np.where(ended, 0, np.float32(LEARNER.gamma)))
    assert ended.sum() > sum(step.game_ended.sum() for step in came) > 1 and stored.reward.any()
    assert not np.array_equal(stored.obs[:, 2], stored.obs[:, 3])  # a stack is not one frame four times


@pytest.mark.parametrize("pieces", [[300], [100, 200], [1] * 300, [44, 3, 5, 248]])
def test_it_makes_no_difference_how_advance_is_called(pieces):
    whole, pieced = (
        make_loop(SOFTMAX, loop=replace(LOOP, epoch_steps=150), budget_cut_terminates=True) for _ in range(2)
    )
    whole.advance(300)
    for steps in pieces:
        pieced.advance(steps)
    assert tape(whole) == tape(pieced) and same(whole.learners, pieced.learners)
    assert same(replayed(replays(whole)[0]), replayed(replays(pieced)[0]))


def test_progress_is_told_after_every_step():
    heard = []
    loop = make_loop(SOFTMAX, lambda: corridor(num_envs=2), loop=replace(LOOP, num_envs=2))
    loop.advance(6, heard.append)
    assert heard == [2, 4, 6]
    with pytest.raises(ValueError, match=r"steps \(7\) must be a multiple of loop.num_envs \(2\)"):
        loop.advance(7)


def test_an_environment_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"4 copies, but loop.num_envs is 1"):
        make_loop(SOFTMAX, lambda: corridor(num_envs=4))


# ----------------------------------------------------------------------------------------------------------- acting


def test_acting_is_the_same_for_every_operator():
    """Up to the first update the actions are equal; and of equal parameters they are equal for ever."""
    settings = replace(LEARNER, replay_start_steps=16, epsilon_decay_steps=0, epsilon_end=0.3, update_period_steps=200)
    tapes = []
    for operator in (ops.maximum(), SOFTMAX, ops.mellowmax(0.5), ops.double(ops.mean())):
        loop = make_loop(operator, learner=settings)
        loop.advance(199)  # 183 of them with a third at random
        assert loop.updates == 0
        tapes.append(tape(loop))
    assert tapes == tapes[:1] * 4
    assert {0, 1} == set(tapes[0])


@pytest.mark.parametrize("first_actions", [0, 3])
def test_the_first_actions_of_a_game_are_random_where_the_protocol_says_so(first_actions):
    settings = replace(LEARNER, replay_start_steps=16, epsilon_decay_steps=0, epsilon_end=0.0)
    loop = make_loop(SOFTMAX, learner=settings, random_first_actions=first_actions)
    key, ages, matched = streams.key(0, Role.ACT), [], 0
    for moment in range(150):
        obs, age, params = loop.stages[0].obs[0], int(envs(loop)[0].age[0]), snapshot(loop.params(0))
        loop.advance(1)
        key_moment = jax.random.fold_in(key, moment)
        by_chance = int(learner.exploration(key_moment, 1, 2)[1][0])
        greedy = int(np.argmax(loop.recipe.network.apply(params, obs)[0]))
        assert tape(loop)[-1] == (by_chance if moment < 16 or age < first_actions else greedy)
        ages.append(age)
        matched += by_chance == greedy
    assert min(ages) == 0 and max(ages) > 3 and 30 < matched < 120
    # In tests too, counted from the start of each game; the exploration rate is 0 otherwise.
    policy = greedy_policy(loop.recipe, snapshot(loop.params(0)), 5, 0.0, first_actions)
    obs = np.eye(4, dtype=np.float32)[[0]]
    same_moment = [policy(obs, moment, np.array([age]))[0][0] for age in (0, 2, 3, 9) for moment in range(20)]
    early, late = set(same_moment[:40]), set(same_moment[40:])
    assert len(late) == 1 and len(early) == (2 if first_actions else 1)


def test_first_actions_are_counted_from_what_training_sees_as_an_end():
    script = [*[(0.0, "")] * 4, (0.0, "life"), *[(0.0, "")] * 5]
    settings = replace(LOOP, steps=20, epoch_steps=8)
    loop = make_loop(
        SOFTMAX, lambda: ScriptedEnv(script), loop=settings, random_first_actions=2, budget_cut_terminates=True
    )
    ages = []
    for _ in range(20):
        ages.append(int(loop.stages[0].ages[0][0]))
        loop.advance(1)
    assert ages == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 0, 0, 1, 2, 3]


def test_tests_have_the_random_first_actions_of_training(monkeypatch):
    given = []
    monkeypatch.setattr(host_stage, "greedy_policy", lambda *of: given.append(of) or greedy_policy(*of))
    loop = make_loop(SOFTMAX, random_first_actions=3)
    loop.advance(100)
    loop.test()
    assert given[0][3:] == (LOOP.test_epsilon, 3)


def test_a_network_is_drawn_under_the_role_of_its_own():
    loop = make_loop(SOFTMAX)
    expected = jax.jit(learner.init, static_argnames="recipe")(loop.recipe, streams.key(0, Role.INIT), SOFTMAX)
    jax.tree.map(np.testing.assert_array_equal, loop.state(0).params, expected.params)


@pytest.mark.parametrize("width", [1, 2])
def test_an_action_that_is_random_anyway_asks_no_network(width, monkeypatch):
    settings = replace(LEARNER, replay_start_steps=16, epsilon_decay_steps=0, epsilon_end=0.5)
    loop = make_loop(SOFTMAX, seeds=(0, 1), learner=settings, loop=replace(LOOP, block_width=width))
    asked, expected, greedy = [], [], host_stage._choose
    monkeypatch.setattr(host_stage, "_choose", lambda *given: asked.append(loop.agent_steps) or greedy(*given))
    loop.advance(60)
    for moment in range(16, 60):
        keys = [jax.random.fold_in(streams.key(seed, Role.ACT), moment) for seed in (0, 1)]
        must_ask = [float(learner.exploration(key, 1, 2)[0][0]) >= 0.5 for key in keys]
        expected += [moment] * (sum(must_ask) if width == 1 else any(must_ask))
    assert asked == expected and len(asked) > 20


def test_exploration_is_a_function_of_the_run_and_the_moment_however_many_are_drawn_at_once():
    loop = make_loop(SOFTMAX, lambda: corridor(num_envs=2), seeds=(0, 1), loop=replace(LOOP, num_envs=2))
    for moment in (0, 1, 1023, 1024, 2050, 7):
        for seed, stage in enumerate(loop.stages):
            key = jax.random.fold_in(streams.key(seed, Role.ACT), moment)
            for ours, alone in zip(stage._exploration.at(moment), learner.exploration(key, 2, 2), strict=True):
                np.testing.assert_array_equal(ours[0], alone)


def test_l38_without_exploration_a_policy_is_a_function():
    loop = make_loop(SOFTMAX)
    policy = greedy_policy(loop.recipe, loop.params(0), 1, 0.0)
    obs = np.eye(4, dtype=np.float32)[[2]]
    actions = {int(policy(obs, moment, np.array([moment]))[0][0]) for moment in range(100)}
    assert len(actions) == 1
    values = policy(obs, 0, np.zeros(1))[1]
    np.testing.assert_allclose(values, loop.recipe.network.apply(loop.params(0), obs).max(-1), rtol=1e-6)


# ------------------------------------------------------------------------------------------------------------ seeds


def test_l5_seeds_differ_and_a_seed_repeats():
    loops = {name: make_loop(SOFTMAX, seeds=(seed,)) for name, seed in (("0", 0), ("1", 1), ("2", 2), ("again", 0))}
    kinds = {"params": {}, "actions": {}, "minibatch": {}, "minibatches of one replay": {}, "end": {}}
    for name, loop in loops.items():
        kinds["params"][name] = snapshot(loop.params(0))
        loop.advance(100)
        kinds["actions"][name] = np.array(tape(loop))
        first = np.asarray(streams.words(jax.random.fold_in(streams.key(loop.runs[0].seed, Role.REPLAY), 0), 16))
        kinds["minibatch"][name] = replays(loop)[0].sample(first)
        kinds["minibatches of one replay"][name] = replays(loops["0"])[0].sample_indices(first)
        kinds["end"][name] = snapshot(loop.state(0))
    for kind, found in kinds.items():
        assert same(found["0"], found["again"]), kind
        for one, other in (("0", "1"), ("0", "2"), ("1", "2")):
            assert not same(found[one], found[other]), kind


# ----------------------------------------------------------------------------------------------------------- groups

TAUS, GROUP_SEEDS = (1.0, 5.0, 10.0), (0, 1, 2)


@pytest.fixture(scope="module")
def alone():
    """Three runs, each in a loop of its own, with their rows."""
    found = []
    for tau, seed in zip(TAUS, GROUP_SEEDS, strict=True):
        loop = make_loop(ops.softmax(tau), seeds=(seed,))
        loop.advance(400)
        found.append((tape(loop), counts(loop).episodes, snapshot(loop.state(0)), loop.test()[0][0]))
    return found


@pytest.mark.parametrize("width", [1, 2, 3])
def test_runs_of_a_group_are_what_they_are_alone(width, alone):
    """With blocks of 2 the last one is padded. Adding a seed does not change the others."""
    group = make_loop([ops.softmax(tau) for tau in TAUS], seeds=GROUP_SEEDS, loop=replace(LOOP, block_width=width))
    lanes = {1: [(), (), ()], 2: [(2,), (2,)], 3: [(3,)]}  # a block of one has no axis of its own
    assert [state.updates.shape for state in group.learners] == lanes[width]
    group.advance(400)
    episodes = [counts(group, index).episodes for index in range(3)]
    rows = [row for row, _ in group.test().values()]
    for index, (actions, games, state, row) in enumerate(alone):
        assert tape(group, index) == actions and episodes[index] == games
        if width == 1:
            assert same(group.state(index), state)
        else:
            chex.assert_trees_all_close(group.state(index), state, rtol=1e-3, atol=1e-5)
        together = rows[index] | {"seconds": row["seconds"]}
        assert together["operator_parameter"] == TAUS[index] and together["episodes"] == games
        had, due = ({name: value for name, value in each.items() if value is not None} for each in (together, row))
        assert together == row if width == 1 else had == pytest.approx(due, rel=1e-2, abs=1e-4)
    assert len({str(state.params) for _, _, state, _ in alone}) == 3


def test_operators_of_another_structure_are_another_group():
    with pytest.raises(ValueError, match=r"one structure .* got max, softmax\(5\)"):
        make_loop([ops.maximum(), SOFTMAX], seeds=(0, 1))
    with pytest.raises(ValueError, match="one structure"):
        make_loop([SOFTMAX, ops.double(SOFTMAX)], seeds=(0, 1))
    with pytest.raises(ValueError, match="got no run"):
        make_loop([], seeds=())


# ------------------------------------------------------------------------------------------------------ compilation


def test_a_new_parameter_or_seed_compiles_nothing_anew():
    traced = []
    plain = mlp((4,), 2, (8,))

    def apply(params, obs):
        traced.append(obs.shape)
        return plain.apply(params, obs)

    counted = Network(plain.init, apply, plain.last_layer)

    def train(tau, seed, **change):
        loop = host_loop(
            [Run(ops.double(ops.softmax(tau)), seed)],
            lambda *_: corridor(),
            lambda *_: Recipe(counted, replace(LEARNER, **change).update),
            replace(LEARNER, **change),
            LOOP,
        )
        loop.advance(100)
        assert loop.updates == 15
        loop.test()
        return len(traced)

    first = train(5.0, 0)
    assert 0 < first < 30
    assert train(0.5, 1) == train(1e6, 2) == first
    assert train(5.0, 0, epsilon_end=0.7, epsilon_decay_steps=9, replay_capacity=900) == first


@pytest.mark.parametrize("spec", ["cooling", "noise(0.75, 0.1)", "match", "loop(0.75, 0.1)"])
def test_a_parameter_that_a_controller_moves_compiles_nothing_anew(spec):
    """Nor does another one to begin with; the plain recipe's program is another."""
    traced = []
    plain = mlp((4,), 2, (8,))

    def apply(params, obs):
        traced.append(obs.shape)
        return plain.apply(params, obs)

    counted = Network(plain.init, apply, plain.last_layer)
    recipe = Recipe(counted, LEARNER.update, controller=part("controller", spec))

    def train(tau, seed):
        loop = host_loop([Run(ops.softmax(tau), seed)], lambda *_: corridor(), lambda *_: recipe, LEARNER, LOOP)
        seen = []
        for _ in range(3):
            loop.advance(60)
            seen.append((len(traced), float(loop.state(0).control.parameter)))
        (row, _), *_ = loop.test().values()
        assert row["operator_parameter"] == seen[-1][1]
        return [number for number, _ in seen], {parameter for _, parameter in seen}, len(traced)

    (first, *later), parameters, in_all = train(5.0, 0)
    assert later == [first, first] and len(parameters) == 3
    for tau, seed in ((0.5, 1), (1e6, 2)):
        assert train(tau, seed)[2] == in_all


# --------------------------------------------------------------------------------- scores, counts, and what rows say


def test_l8_the_learner_sees_clipped_rewards_and_the_score_is_raw_and_whole():
    loop = make_loop(SOFTMAX, lambda: ScriptedEnv(LIVES), learner=UNIFORM)
    loop.advance(3)
    stored = replays(loop)[0].gather(np.flatnonzero(replays(loop)[0].valid))
    assert stored.reward.tolist() == [7.0, -3.0, 100.0] and stored.discount.tolist() == [0.0] * 3
    zeros = jax.tree.map(np.zeros_like, snapshot(loop.params(0)))
    sums = replace(UNIFORM, loss_reduction="sum")
    loss = jax.jit(jax.value_and_grad(learner.td_loss, has_aux=True), static_argnames=STATIC)
    (seen, _), gradient = loss(zeros, zeros, SOFTMAX, stored, replace(loop.recipe, update=sums))
    assert seen == 1.5 and gradient["q"]["b"].sum() == -1.0  # errors of 1, -1 and 1
    (seen_raw, _), _ = loss(zeros, zeros, SOFTMAX, stored, replace(loop.recipe, update=replace(sums, reward_clip=None)))
    assert seen_raw == 6.5 + 2.5 + 99.5
    assert counts(loop)[:4] == (1, 1, 104.0, 1.0)
    row, phase = loop.test()[0]
    assert (row["train_return"], row["train_clipped_return"], row["episodes"]) == (104.0, 1.0, 1)
    assert row["test_return"] == 104.0 and phase.lengths.tolist() == [3] * 13
    # The next epoch counts anew; a game under way counts when it ends, whole.
    loop.advance(2)
    row, _ = loop.test()[0]
    assert (row["train_return"], row["train_clipped_return"], row["episodes"]) == (None, None, 1)
    loop.advance(4)
    row, _ = loop.test()[0]
    assert (row["train_return"], row["train_clipped_return"], row["episodes"]) == (104.0, 1.0, 3)


def test_l26_rows_count_steps_frames_updates_and_episodes():
    loop = make_loop(SOFTMAX, lambda: corridor(num_envs=2, frames_per_step=4), loop=replace(LOOP, num_envs=2))
    for epoch in (1, 2):
        loop.advance(250)
        row, _ = loop.test()[0]
        steps = 250 * epoch
        assert (row["epoch"], row["agent_steps"], row["env_frames"]) == (epoch, steps, 4 * steps)
        assert row["updates"] == loop.updates == loop.state(0).updates == steps // 4 - 40 // 4
        games = sum(int(games) - copy for copy, games in enumerate(envs(loop)[0].games))
        assert row["episodes"] == counts(loop).episodes == games > 0
    assert row["epsilon"] == 0.1 and row["test_epsilon"] == LOOP.test_epsilon and row["operator_parameter"] == 5.0
    assert row["test_seed"] == streams.derived_seed(0, Role.TEST, 2)


def test_a_row_before_any_update_has_empty_cells_and_no_nan():
    loop = make_loop(ops.maximum(), lambda: ScriptedEnv([(1.0, "")]), loop=replace(LOOP, gradient_batches=0))
    loop.advance(20)
    row, phase = loop.test()[0]
    assert {row[name] for name in ("loss", "gradient_norm", "train_return", "operator_parameter")} == {None}
    assert row["test_unfinished"] == 1 and row["test_episodes"] == 1 and row["test_return"] == 40.0 and phase.unfinished
    assert not [name for name, value in row.items() if isinstance(value, float) and value != value]


def test_the_loss_of_a_row_is_the_mean_of_the_epochs_updates(monkeypatch):
    loop, losses, learn = make_loop(SOFTMAX), [], host_stage._learn

    def recorded(*given):
        found = learn(*given)
        losses.append(float(found[2].loss))
        return found

    monkeypatch.setattr(host_stage, "_learn", recorded)
    for updates in (15, 25):
        loop.advance(100)
        assert len(losses) == updates and loop.test()[0][0]["loss"] == pytest.approx(np.mean(losses))
        losses.clear()


def test_l29_a_lost_life_is_an_end_for_learning_and_the_game_goes_on():
    loop = make_loop(
        SOFTMAX, lambda: ScriptedEnv([(0.0, ""), (1.0, "life"), (0.0, ""), (2.0, "over")]), learner=UNIFORM
    )
    loop.advance(8)
    stored = replays(loop)[0].gather(np.flatnonzero(replays(loop)[0].valid))
    np.testing.assert_allclose(stored.discount, [0.8, 0.0, 0.8, 0.0] * 2, rtol=1e-6)
    assert stored.obs[:, 0].tolist() == [0, 1, 2, 3] * 2
    assert counts(loop).episodes == 2 and counts(loop).return_sum == 6.0


def test_budget_cut_terminates_marks_the_last_transition_of_each_epoch():
    def discounts(**options):
        env = lambda: TableEnv([[1, 1]], [[0, 0]], [[False, False]])  # noqa: E731
        loop = make_loop(SOFTMAX, env, learner=UNIFORM, loop=replace(LOOP, steps=25, epoch_steps=10), **options)
        loop.advance(25)
        return replays(loop)[0].discount[:25]

    np.testing.assert_allclose(discounts(), 0.8, rtol=1e-6)
    cut = discounts(budget_cut_terminates=True)
    assert np.flatnonzero(cut == 0).tolist() == [9, 19, 24]  # the last epoch is a short one


# --------------------------------------------------------------------------------------- tests do not touch training


def test_l40_training_is_the_same_however_often_it_is_tested():
    loops = {every: make_loop(SOFTMAX) for every in (50, 200, 400)}
    rows = {}
    for every, loop in loops.items():
        for _ in range(400 // every):
            loop.advance(every)
            rows[every] = loop.test()[0][0]
    for every in (50, 200):
        assert tape(loops[every]) == tape(loops[400]) and same(loops[every].learners, loops[400].learners)
        assert same(replayed(replays(loops[every])[0]), replayed(replays(loops[400])[0]))
        for column in ("agent_steps", "env_frames", "updates", "episodes", "held_out_value_common", "epsilon"):
            assert rows[every][column] == rows[400][column], column
    assert rows[50]["epoch"] == 8


def test_l40_a_test_repeats_and_its_seed_is_in_the_row():
    ends = []
    for _ in range(2):
        loop = make_loop(SOFTMAX)
        loop.advance(200)
        ends.append([loop.test()[0], loop.test()[0]])
    (first, phase), (second, _) = ends[0]
    assert first | {"seconds": 0} == ends[1][0][0] | {"seconds": 0}
    assert second | {"seconds": 0} == ends[1][1][0] | {"seconds": 0}
    assert first["test_seed"] != second["test_seed"]
    policy = greedy_policy(loop.recipe, loop.params(0), first["test_seed"], first["test_epsilon"])
    again = play(policy, corridor(), max_steps=LOOP.test_steps, update=LEARNER)
    np.testing.assert_array_equal(again.scores, phase.scores)
    assert again.realised_return == first["realised_return"] and again.overestimation == first["overestimation"]


def test_each_gradient_is_measured_on_a_minibatch_of_its_own(monkeypatch):
    """It is that of no other test phase, nor the held-out states."""
    loop, drawn = make_loop(SOFTMAX), []
    loop.advance(100)
    (stage,) = loop.stages
    minibatch = stage.minibatch

    def noted(lane, clock, words):
        drawn.append(np.asarray(words).tolist())
        return minibatch(lane, clock, words)

    monkeypatch.setattr(stage, "minibatch", noted)
    rows = [loop.test()[0][0] for _ in range(2)]
    firsts = {words[0] for words in drawn}
    assert len(firsts) == len(drawn) == 1 + 2 * LOOP.gradient_batches
    assert all(row["gradient_variance"] > 0 for row in rows)


def test_a_test_is_played_in_an_environment_of_its_own_and_closes_it():
    made = []

    def make_env(seed, training):
        made.append((seed, training, corridor()))
        return made[-1][-1]

    loop = host_loop([Run(SOFTMAX, 7)], make_env, partial(make_recipe, LEARNER), LEARNER, LOOP)
    loop.advance(100)
    row, _ = loop.test()[0]
    loop.test()
    assert [(seed, training) for seed, training, _ in made] == [
        (7, True),
        (measurement.COMMON_SEED, True),  # the states that all runs share, once
        (row["test_seed"], False),
        (streams.derived_seed(7, Role.TEST, 2), False),
    ]
    assert [env.closed for *_, env in made] == [False, True, True, True]
    loop.close()
    assert made[0][-1].closed


def test_the_common_states_are_the_same_for_all_runs_and_the_held_out_ones_stay():
    loops = [make_loop(SOFTMAX, seeds=(seed,)) for seed in (0, 1)]
    for loop in loops:
        loop.advance(100)
        loop.test()
    np.testing.assert_array_equal(loops[0]._ruler.common.obs, loops[1]._ruler.common.obs)
    several = make_loop(SOFTMAX, lambda: corridor(num_envs=2), loop=replace(LOOP, num_envs=2))
    np.testing.assert_array_equal(loops[0]._ruler.common.obs, several._ruler.common.obs)
    held_out = copy.deepcopy(loops[0].held_out)
    assert held_out[0].obs.shape == (LOOP.held_out_states, 4) and not same(held_out, loops[1].held_out)
    loops[0].advance(100)
    loops[0].test()
    assert same(held_out, loops[0].held_out)


# ------------------------------------------------------------------------------------------------- the state of it


def hidden_state(value, seen=None):
    """Yields what could not be saved as arrays and numbers: generators, iterators, locks of any depth."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, np.random.Generator | np.random.RandomState | random.Random | types.GeneratorType | map | zip):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from hidden_state(part, seen)
    elif isinstance(value, list | tuple | set):
        for part in value:
            yield from hidden_state(part, seen)
    elif type(value).__module__.startswith("softbellman") and hasattr(value, "__dict__"):
        yield from hidden_state(vars(value), seen)


def test_the_state_is_arrays_and_numbers():
    loop = make_loop([SOFTMAX, ops.softmax(1.0)], seeds=(0, 1), loop=replace(LOOP, block_width=2))
    loop.advance(100)
    loop.test()
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(loop.learners))
    assert list(hidden_state(loop)) == []
    assert list(hidden_state({"a": [np.random.default_rng(0)]})) != []  # it would be found
