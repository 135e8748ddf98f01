"""Controllers: each rule against numbers made by hand, its limits, its refusals, and its cost."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.learning import learner
from softbellman.learning.networks import minatar_cnn
from softbellman.learning.parts import controllers
from softbellman.learning.parts.controllers import Controller, Fixed, Loop, Match, Noise, Signals, State
from softbellman.learning.parts.table import ROLES, part
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import UpdateSettings
from softbellman.temperature import VALUES, noise_variance, temperatures

SOFTMAX = ops.softmax(5.0)


def signals_of(ahead, online, updates=0, here=None, taken=0.0, returns=None, goes_on=None, legal=None):
    ahead, online = jnp.asarray(ahead, jnp.float32), jnp.asarray(online, jnp.float32)
    here = ahead if here is None else jnp.asarray(here, jnp.float32)
    goes_on = jnp.ones(len(ahead), bool) if goes_on is None else jnp.asarray(goes_on)
    legal = None if legal is None else jnp.asarray(legal)
    return Signals(jnp.int32(updates), here, legal, ahead, legal, goes_on, online, jnp.float32(taken), returns)


def moved(controller, signals, operator=SOFTMAX, state=None):
    state = controller.init(operator) if state is None else state
    return controller.update(state, signals, controller.applied(state, operator))


EMPTY = signals_of(np.zeros((16, 3)), np.zeros((1, 3)))

# ----------------------------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("cooling", lambda k: math.log(k + 2)),
        ("cooling(0.5, 3)", lambda k: math.log(k + 4) / 0.5),
        ("power", lambda k: (k + 1) ** 2),
        ("power(0.001, 1.5)", lambda k: 0.001 * (k + 1) ** 1.5),
    ],
)
def test_a_schedule_is_a_function_of_the_updates_alone(spec, rule):
    controller = part("controller", spec)
    assert float(controller.init(SOFTMAX).parameter) == pytest.approx(rule(0), rel=1e-5)
    for made in (0, 1, 6, 999, 50_000_000):
        state = moved(controller, EMPTY._replace(updates=jnp.int32(made)))
        assert float(state.parameter) == pytest.approx(min(rule(made + 1), controllers.LARGEST), rel=1e-4)


def test_the_authors_cooling_is_theirs_where_theirs_is_sound():
    """Variance 2/3 over three values and 2 over two legal ones, mean 4/3; on average 2.5 actions."""
    here, legal = [[1.0, 2.0, 3.0], [8.0, 99.0, 8 + 8**0.5]], np.array([[True] * 3, [True, False, True]])
    state = None
    for made in (7, 8, 403):
        state = moved(part("controller", "spread_cooling(0.5)"), signals_of(here, here, made, legal=legal))
        theirs = 0.5 * math.floor(math.log(made + 1)) * math.sqrt(2.5 / (4 / 3))
        assert float(state.parameter) == pytest.approx(theirs, rel=1e-5)


def test_the_authors_cooling_has_not_their_three_defects():
    """Theirs is -inf at update 0, 0 at 1 and 2, and infinite where all values are equal."""
    controller, here = part("controller", "spread_cooling"), [[1.0, 2.0, 3.0]]
    assert float(controller.init(SOFTMAX).parameter) == 5.0
    for made in (0, 1):
        assert float(moved(controller, signals_of(here, here, made)).parameter) == pytest.approx(math.sqrt(3 / (2 / 3)))
    for equal in ([[0.0, 0.0, 0.0]], [[7.0, 7.0, 7.0]]):
        assert float(moved(controller, signals_of(equal, equal, 999)).parameter) == 5.0
    one_legal = np.array([[False, True, False]])
    assert float(moved(controller, signals_of(here, here, 999, legal=one_legal)).parameter) == 5.0


# ----------------------------------------------------------------------------------------------------- noise and match


def test_noise_is_kappa_over_the_smoothed_disagreement():
    """Rows disagree by (0, 0, 3), squares around the mean 6 in all, and by a shift: of 4 degrees of freedom, halved."""
    q, online = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 2.0, 0.0], [14.0, 15.0, 16.0]]
    controller = Noise(0.75, 0.25)
    state = moved(controller, signals_of(q, online))
    before, seen = (0.75 / 5) ** 2, 6 / 8
    assert float(state.memory) == pytest.approx(before + 0.25 * (seen - before), rel=1e-6)
    assert float(state.parameter) == pytest.approx(0.75 / math.sqrt(before + 0.25 * (seen - before)), rel=1e-6)
    state = moved(Noise(3.0, 1.0), signals_of(q, online), state=state)
    assert float(state.parameter) == pytest.approx(3 / math.sqrt(0.75), rel=1e-6)


def test_noise_sees_nothing_behind_ends_and_in_illegal_actions():
    q, online = [[1.0, 2.0, 3.0], [np.nan, 0.0, 9.0], [1.0, np.inf, 2.0]], [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1, 0, 4]]
    legal = np.array([[True] * 3, [True] * 3, [True, False, True]])
    signals = signals_of(q, online, goes_on=[True, False, True], legal=legal)
    state = moved(Noise(1.0, 1.0), signals)
    assert float(state.memory) == pytest.approx((6 + 2) / (2 * 3), rel=1e-6)
    for nothing in (
        signals._replace(goes_on=jnp.zeros(3, bool)),
        signals._replace(ahead_legal=jnp.asarray([[True, False, False]] * 3), goes_on=jnp.array([True, False, False])),
    ):
        state = moved(Noise(1.0, 1.0), nothing)
        assert float(state.parameter) == pytest.approx(5.0, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-10, 1e-3, 1.0, 1e6, 1e9])
def test_noise_and_match_have_no_unit(scale):
    rng = np.random.default_rng(0)
    q, online = rng.normal(size=(2, 32, 4))
    for controller in (Noise(0.75, 1.0), Match(1.0)):
        plain, scaled = (
            many(controller, signals_of(c * q, c * online[:2]), ops.softmax(5.0 / c), 60) for c in (1.0, scale)
        )
        assert scaled * scale == pytest.approx(plain, rel=1e-3)


def many(controller, signals, operator, updates):
    state = None
    step = jax.jit(lambda state: moved(controller, signals, operator, state))
    for _ in range(updates):
        state = step(controller.init(operator) if state is None else state)
    return float(state.parameter)


@pytest.mark.parametrize("values", [0.0, 1e30, -1e30, 3e38])
@pytest.mark.parametrize("parameter", [0.0, 5.0, 1e30])
def test_a_parameter_stays_within_its_range_whatever_the_values(values, parameter):
    q = np.full((16, 3), values, np.float32)
    q[:, 1] *= 0.5
    signals = signals_of(q, np.roll(q[:1], 1, axis=1), 10, taken=values, returns=(np.full(2, 1e38), np.ones(2, int)))
    for spec in ("noise(0.75, 1)", "match(1)", "loop(0.75, 1, 1)", "spread_cooling", "power(1e9, 9)", "cooling(1e-30)"):
        controller, operator = part("controller", spec), ops.softmax(parameter)
        state = controller.init(operator)
        for _ in range(3):
            assert np.float32(controllers.SMALLEST) <= state.parameter <= np.float32(controllers.LARGEST), spec
            assert state.parameter.dtype == jnp.float32
            state = moved(controller, signals, operator, state)


@pytest.mark.parametrize("operator", [ops.softmax(5.0), ops.mellowmax(2.0), ops.softmax(0.01)], ids=str)
def test_match_finds_where_the_operator_is_as_low_as_double_max(operator):
    q, noise = np.random.default_rng(1).normal(size=(2, 16, 4)).astype(np.float32)
    online = q + noise
    signals = signals_of(q, online)
    found = many(Match(1.0), signals, operator, 20)
    aim = float(ops.double(ops.maximum())(q, online).mean())
    own = jax.tree.unflatten(jax.tree.structure(operator), [found])
    assert float(own(q).mean()) == pytest.approx(aim, abs=1e-4)


def test_match_begins_where_the_operator_has_it_and_heeds_masks_and_ends():
    q, noise = np.random.default_rng(2).normal(size=(2, 16, 4)).astype(np.float32)
    online = q + noise
    legal, goes_on = np.ones((16, 4), bool), np.arange(16) % 3 > 0
    legal[:, 2], q[:, 2], q[::3] = False, 1e6, np.nan
    signals = signals_of(q, online, goes_on=goes_on, legal=legal)
    first = moved(Match(1e-6), signals)
    assert float(first.parameter) == pytest.approx(5.0, rel=1e-3)
    found = many(Match(1.0), signals, SOFTMAX, 20)
    q, online = q[goes_on][:, [0, 1, 3]], online[goes_on][:, [0, 1, 3]]
    aim = float(ops.double(ops.maximum())(q, online).mean())
    assert float(ops.softmax(found)(q).mean()) == pytest.approx(aim, abs=1e-4)
    nothing = moved(Match(1.0), signals._replace(goes_on=jnp.zeros(16, bool)))
    assert [float(each) for each in (nothing.parameter, *nothing.memory)] == [5.0, 0.0, 0.0]


def test_match_goes_to_the_max_where_both_networks_agree_and_comes_back():
    q = np.random.default_rng(3).normal(size=(16, 4)).astype(np.float32)
    controller, state = Match(0.5), None
    for _ in range(60):
        state = moved(controller, signals_of(q, q), SOFTMAX, state)
    assert float(ops.softmax(float(state.parameter))(q).mean()) == pytest.approx(float(q.max(1).mean()), abs=1e-4)
    for _ in range(60):
        state = moved(controller, signals_of(q, -q), SOFTMAX, state)
    far = q.max(1).mean() - q.mean()  # double(max) is the least value here, and softmax at least the mean
    value = float(ops.softmax(float(state.parameter))(q).mean())
    assert value == pytest.approx(q.mean() + 0.01 * far, abs=1e-4)


@pytest.mark.parametrize(("sigma", "correlation"), [(0.5, 0.0), (2.0, 0.9)])
def test_noise_and_match_settle_where_the_simulation_says(sigma, correlation):
    values, trials = np.array(VALUES), 20_000
    (found,) = temperatures(values, sigma, correlation, trials=trials)
    one, other = np.random.default_rng(4).standard_normal((2, trials, len(values)))
    q = values + sigma * one
    online = values + sigma * (correlation * one + math.sqrt(1 - correlation**2) * other)
    signals = signals_of(q, online)
    assert many(Noise(0.75, 1.0), signals, SOFTMAX, 1) == pytest.approx(found.noise.tau, rel=0.02)
    assert many(Match(1.0), signals, SOFTMAX, 20) == pytest.approx(found.match.tau, rel=0.05)


# ---------------------------------------------------------------------------------------------------------------- loop


def test_the_loop_moves_log_kappa_by_the_difference_over_its_usual_size():
    """Returns of 12 over 4 steps and 2 over 1, mean 14/5, against predictions of 3.8, of 2.8 and of 2.3."""
    controller, q, online = Loop(0.75, 0.1, 0.5), [[1.0, 2.0, 3.0]], [[1.0, 2.0, 0.0]]
    returns = (np.array([12.0, 2.0], np.float32), np.array([4, 1], np.int32))
    state, variance = None, (0.75 / 5) ** 2
    for taken, size, log_kappa in ((3.8, 1.0, -0.1), (2.8, 0.5, -0.1), (2.3, 0.5, 0.0)):
        state = moved(controller, signals_of(q, online, taken=taken, returns=returns), SOFTMAX, state)
        variance += 0.5 * (1.5 - variance)
        assert [float(each) for each in state.memory] == pytest.approx([variance, log_kappa, size], abs=1e-5)
        assert float(state.parameter) == pytest.approx(0.75 * math.exp(log_kappa) / math.sqrt(variance), rel=1e-4)


def test_the_loop_waits_for_a_game_and_never_goes_astray():
    controller, q = Loop(0.75, 1.0, 0.5), [[1.0, 2.0, 3.0]]
    none = (np.zeros(2, np.float32), np.zeros(2, np.int32))
    assert [float(each) for each in moved(controller, signals_of(q, q, taken=9.0, returns=none)).memory[1:]] == [0, 0]
    state = None
    for _ in range(10):
        state = moved(controller, signals_of(q, q, taken=-9.0, returns=(np.ones(1), np.ones(1))), SOFTMAX, state)
    assert float(state.memory[1]) == pytest.approx(math.log(100))
    exact = moved(controller, signals_of(q, q, taken=1.0, returns=(np.ones(1), np.ones(1))))
    assert float(exact.memory[1]) == 0


# --------------------------------------------------------------------------------------------- refusals, and one's own


@dataclass(frozen=True)
class Halved(Controller):
    """A controller of one's own."""

    def update(self, state, signals, operator):
        return State(state.parameter / 2)


def test_a_controller_of_ones_own_is_found_and_moves():
    controller = part("controller", f"{__name__}:Halved")
    state = moved(controller, EMPTY)
    assert controller.applied(state, ops.double(SOFTMAX)) == ops.double(ops.softmax(2.5))


@pytest.mark.parametrize("spec", ["softmax(5)", "mellowmax(5)", "logsumexp(5)", "double(mellowmax(5))", "sparsemax(2)"])
def test_operators_with_one_tau_or_omega_are_taken(spec):
    for name, factory in ROLES["controller"].factories.items():
        if name != "match":
            factory().check(ops.parse(spec))


@pytest.mark.parametrize(
    ("controller", "operator", "message"),
    [
        ("noise", "max", "and max has none"),
        ("cooling", "double(max)", "and double(max) has none"),
        ("loop", "keep(0.1)", "and keep(0.1) has rho"),
        ("power", "sm2(1, 5)", "and sm2(1, 5) has alpha, omega"),
        ("noise", "weighted_double(1)", "has c"),
        ("noise", "kl_prior(5, 0.5, 0.5)", "has tau, prior, prior"),
        ("match", "max", "max has none"),
        ("match", "double(softmax(5))", "double(softmax(5)) does not"),
        ("match", "logsumexp(5)", "logsumexp(5) does not"),
    ],
)
def test_an_operator_without_one_parameter_is_refused(controller, operator, message):
    with pytest.raises(ValueError, match=r"recipe\.controller") as told:
        part("controller", controller).check(ops.parse(operator))
    assert message in str(told.value) and "take " in str(told.value) and "\n" not in str(told.value)
    Fixed().check(ops.parse(operator))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("noise(0)", "kappa (0) must be above 0, and finite"),
        ("noise(inf)", "kappa (inf)"),
        ("noise(nan)", "kappa (nan)"),
        ("noise(1, 0)", "rate (0) must be above 0 and at most 1"),
        ("match(1.5)", "rate (1.5)"),
        ("loop(-1)", "kappa (-1)"),
        ("loop(1, 2)", "rate (2)"),
        ("loop(1, 1, 0)", "smoothing (0)"),
        ("cooling(0)", "scale (0)"),
        ("cooling(1, 0.5)", "k0 (0.5) must be finite, and 1 or more"),
        ("power(1, -2)", "p (-2)"),
        ("spread_cooling(0)", "eta (0)"),
        ("nois(1)", "did you mean noise"),
    ],
)
def test_numbers_out_of_range_are_refused(spec, message):
    with pytest.raises(ValueError, match=r"recipe\.controller") as told:
        part("controller", spec)
    assert message in str(told.value)


# ---------------------------------------------------------------------------------------------- in an update: its cost


def update_of(controller, batch_size=32):
    """Give a state and a minibatch of MinAtar's size, with the recipe."""
    recipe = Recipe(minatar_cnn((10, 10, 4), 6), UpdateSettings(), controller=controller)
    key = jax.random.key(0)
    obs, after = jax.random.bernoulli(key, 0.2, (2, batch_size, 10, 10, 4))
    zeros = jnp.zeros(batch_size)
    batch = Transition(obs, zeros.astype(jnp.int32), zeros, zeros + 0.99, after)
    return learner.init(recipe, key, SOFTMAX), batch, recipe


@pytest.mark.parametrize("name", ROLES["controller"].factories)
def test_a_controller_costs_at_most_three_hundredths_of_an_update(name):
    """Counted in operations: what a machine takes for them depends on what else it does."""
    returns = (jnp.ones(1), jnp.ones(1, jnp.int32))

    def counted(controller):
        state, batch, recipe = update_of(controller)
        step = jax.jit(lambda state, batch: learner.learn_step(state, SOFTMAX, batch, recipe, returns))
        return step.lower(state, batch).compile().cost_analysis()["flops"]

    plain, controlled = counted(Fixed()), counted(part("controller", name))
    assert 1e6 < plain <= controlled <= 1.03 * plain


def test_an_update_takes_the_parameter_that_the_updates_before_have_set():
    state, batch, recipe = update_of(Noise(0.75, 0.5))
    params = recipe.network.init(jax.random.key(1))
    state = state._replace(target_params=params)
    fixed = Recipe(recipe.network, recipe.update)
    plain = learner.init(fixed, jax.random.key(0))._replace(target_params=params)
    for _ in range(3):
        tau, online = float(state.control.parameter), recipe.q(state.params, batch.next_obs)
        state, metrics = learner.learn_step(state, SOFTMAX, batch, recipe)
        plain, expected = learner.learn_step(plain, ops.softmax(tau), batch, fixed)
        np.testing.assert_allclose(metrics.loss, expected.loss, rtol=1e-5)
        assert metrics.signals is None and float(state.control.parameter) != tau
        q = recipe.target_q(params, batch.next_obs)
        variance, _ = noise_variance(q[:2], online[:2])
        now = (0.75 / tau) ** 2
        assert float(state.control.memory) == pytest.approx(float(now + 0.5 * (variance - now)), rel=1e-4)
    for ours, theirs in zip(jax.tree.leaves(state.params), jax.tree.leaves(plain.params), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert learner.init(fixed, jax.random.key(0), SOFTMAX).control is None


def test_match_stays_near_where_values_are_all_but_equal_and_grow():
    """An operator near the mean to begin with, networks that agree but for a little, values that grow a hundredfold."""
    controller, operator, rng = Match(0.01), ops.mellowmax(30.0), np.random.default_rng(6)
    state = controller.init(operator)
    step = jax.jit(lambda state, q, online: moved(controller, signals_of(q, online), operator, state))
    for number in range(300):
        q = 0.02 * 100 ** (number / 300) * rng.normal(size=(32, 6))
        online = q[:2] * (1 + 0.1 * rng.normal(size=(2, 6)))
        state = step(state, q, online)
        assert 1e-3 < float(state.parameter) < 1e5
