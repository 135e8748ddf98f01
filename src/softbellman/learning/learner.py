"""Learner: state, acting, loss and update as pure functions of a recipe; the operator enters in the loss alone.

`init` makes the state, `act` chooses actions, and `learn_step` moves the state on by one update. All operators and all
recipes share them, and both training loops; but the loop on the host acts by the parts of `act`: it draws ahead and
asks the network less often.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from softbellman.learning.networks import Params
from softbellman.learning.parts.controllers import Signals, looked_at
from softbellman.learning.parts.estimates import Value
from softbellman.learning.parts.exploration import greedy
from softbellman.learning.recipe import Recipe
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings, UpdateSettings
from softbellman.learning.target import folded, worth
from softbellman.operators.core import Operator


class LearnerState(NamedTuple):
    """All that the learner carries from update to update.

    Attributes:
        params: the online network, which acts and learns.
        target_params: the target network, a copy of `params` made every `target_period_updates`.
        opt_state: the optimiser's accumulators.
        updates: number of updates made, int32.
        key: data of a random key, uint32, into which `updates` is folded; None where a recipe needs no random numbers.
        control: the state of the controller; None where the operator's parameter is fixed.
    """

    params: Params
    target_params: Params
    opt_state: optax.OptState
    updates: jax.Array
    key: jax.Array | None = None
    control: Any = None


class UpdateMetrics(NamedTuple):
    """Metrics of one update.

    Attributes:
        loss: the loss, as the optimiser sees it.
        q_taken: mean of `Q(s, a)` over the minibatch.
        priority: `[B]`, the transitions' new priorities; None where sampling knows none.
        signals: for the controller; None where there is none, and after the update.
    """

    loss: jax.Array
    q_taken: jax.Array
    priority: jax.Array | None = None
    signals: Signals | None = None


def make_optimizer(settings: UpdateSettings) -> optax.GradientTransformation:
    """Builds the centred RMSProp of DeepMind's DQN, or PyTorch's.

    One decay for both moments, accumulators from zero, no momentum:
    `step = lr g / sqrt(E[g^2] - E[g]^2 + eps)` with epsilon inside the root (Mnih et al. 2015, the authors),
    `step = lr g / (sqrt(E[g^2] - E[g]^2) + eps)` with epsilon outside it (PyTorch, MinAtar's example).
    """
    if settings.optimizer == "adam":
        return optax.adam(settings.learning_rate, eps=settings.optimizer_epsilon)
    return optax.rmsprop(
        settings.learning_rate,
        decay=settings.rmsprop_decay,
        eps=settings.optimizer_epsilon,
        centered=True,
        eps_in_sqrt=settings.optimizer == "rmsprop",
        initial_scale=0.0,
    )


def init(recipe: Recipe, key_init: jax.Array, operator: Any = None) -> LearnerState:
    """Makes the first state; the target network is a copy of the online one. The key is consumed.

    A controller begins with the parameter of `operator`.
    """
    own_key = jax.random.key_data(jax.random.fold_in(key_init, 1)) if recipe.is_random else None
    params = recipe.network.init(key_init)
    opt_state = make_optimizer(recipe.update).init(params)
    control = recipe.controller.init(operator)
    return LearnerState(params, recipe.target.first(params), opt_state, jnp.zeros((), jnp.int32), own_key, control)


def act(
    recipe: Recipe, params: Params, obs: jax.Array, key_act: jax.Array, epsilon: jax.Array, legal: Any = None
) -> jax.Array:
    """Chooses the actions of training; never depends on the operator. Ties go to the lowest index. Deviation D11.

    Args:
        recipe: the recipe.
        params: the online parameters.
        obs: `[E, *obs_shape]`.
        key_act: a key, consumed.
        epsilon: probability of an action drawn uniformly from the legal ones.
        legal: `[E, A]` bool, the legal actions; None: all.

    Returns:
        Actions `[E]` int32.
    """
    q = _acting_q(recipe, params, obs, key_act)
    chance, random_action = exploration(key_act, *q.shape, legal=legal)
    return jnp.where(chance < epsilon, random_action, _chosen(recipe, q, chance, epsilon, legal))


def choose(
    recipe: Recipe, params: Params, obs: jax.Array, key_act: jax.Array, chance: Any, epsilon: Any, legal: Any = None
) -> jax.Array:
    """Chooses actions as `act` does where none is to be random: where `chance` `[E]` is not below epsilon."""
    return _chosen(recipe, _acting_q(recipe, params, obs, key_act), chance, epsilon, legal)


def _acting_q(recipe: Recipe, params: Params, obs: jax.Array, key_act: jax.Array) -> jax.Array:
    """Computes the values to act by, under the noise of a step; its key is derived from that of the action."""
    return recipe.acting_q(recipe.perturbed(params, jax.random.fold_in(key_act, 1)), obs)


def _chosen(recipe: Recipe, q: jax.Array, chance: Any, epsilon: Any, legal: Any) -> jax.Array:
    """Chooses by what a chance above epsilon is beyond that: uniform in `[0, 1)`."""
    return recipe.exploration.actions(q, (chance - epsilon) / (1.0 - epsilon), legal)


def act_greedily(
    recipe: Recipe, params: Params, obs: jax.Array, key_act: jax.Array, epsilon: jax.Array, legal: Any = None
) -> tuple[jax.Array, jax.Array]:
    """Chooses the actions of a test, without noise: the best one, but for a share `epsilon`; gives the best values too.

    As `act`; returns actions `[E]` int32 and `max_a Q` `[E]`.
    """
    out = recipe.network.apply(params, obs)
    q = recipe.risk.values(recipe.estimate, out)
    chance, random_action = exploration(key_act, *q.shape, legal=legal)
    actions = jnp.where(chance < epsilon, random_action, greedy(q, legal))
    values = recipe.estimate.values(out)
    return actions, (values if legal is None else jnp.where(legal, values, -jnp.inf)).max(axis=-1)


def exploration(key_act: jax.Array, num_envs: int, num_actions: int, legal: Any = None) -> tuple[jax.Array, jax.Array]:
    """Draws a chance in `[0, 1)` and a random legal action for each environment, `[E]` each; consumes the key.

    An environment takes the action where its chance is below the exploration rate.
    """
    chance, number = chances(key_act, num_envs)
    if legal is None:
        return chance, jnp.floor(number * num_actions).astype(jnp.int32)
    return chance, random_legal(number, legal)


def chances(key_act: jax.Array, num_envs: int) -> jax.Array:
    """Draws two numbers in `[0, 1)` for each environment, `[2, E]`, in one draw: two would cost twice."""
    return jax.random.uniform(key_act, (2, num_envs))


def random_legal(number: Any, legal: Any) -> Any:
    """Chooses among the legal actions, all alike, by numbers in `[0, 1)`, in NumPy or JAX.

    Takes `[E]` numbers and `[E, A]` bool; returns `[E]` int32.
    """
    place = (number * legal.sum(axis=-1).astype(number.dtype)).astype("int32")  # among the legal ones, from 0
    return (legal.cumsum(axis=-1) > place[..., None]).argmax(axis=-1).astype("int32")


def td_loss(
    params: Params,
    target_params: Params,
    operator: Operator,
    batch: Transition,
    recipe: Recipe,
    key: jax.Array | None = None,
    updates: Any = 0,
) -> tuple[jax.Array, UpdateMetrics]:
    """Computes the loss of the temporal-difference error, and the metrics of the minibatch.

    It is Huber's, where the paper's Eq. 1 has the square: Deviation D31.
    Rewards are clipped here and nowhere else. No gradient flows through the target. The pass of the online network
    over `next_obs` is dropped by the compiler for operators that do not use it.

    Args:
        params: the online network's parameters, by which the loss is differentiated.
        target_params: the target network's parameters.
        operator: the Bellman operator.
        batch: `B` transitions; `obs` `[B, *obs_shape]`, `action` `[B]`, `reward` `[B]` raw, `discount` `[B]`; rewards
            and discounts are `[B, n]` for returns of n steps.
        recipe: the recipe.
        key: a key for the random numbers of the update, consumed; None leaves them out.
        updates: updates made so far.

    Returns:
        The scalar loss, and the metrics.

    Raises:
        ValueError: if an array of the batch is not of its shape; nothing is broadcast.
    """
    key_online, key_target, key_estimate = [None] * 3 if key is None else jax.random.split(key, 3)
    estimate, params = recipe.estimate, recipe.perturbed(params, key_online)
    if key_estimate is not None:
        estimate = estimate.drawn(key_estimate)
    out = recipe.network.apply(params, batch.obs)
    steps = out.shape[:1] if recipe.returns == 1 else (len(out), recipe.returns)
    if batch.action.shape != out.shape[:1] or batch.reward.shape != steps or batch.discount.shape != steps:
        raise ValueError(
            f"action {batch.action.shape}, reward {batch.reward.shape} and discount {batch.discount.shape} must have "
            f"the shapes {out.shape[:1]}, {steps} and {steps}: one entry for each observation and step of its return"
        )
    taken = estimate.taken(out, batch.action)
    target, out_next = _target(params, target_params, operator, batch, recipe, estimate, key_target)
    unit = recipe.scale.unit(params)
    losses, errors = estimate.losses(taken, target, recipe.update.huber_delta, unit)

    def values(obs: jax.Array) -> jax.Array:
        flat = obs.reshape(-1, *batch.obs.shape[1:])
        q = estimate.values(recipe.target_outputs(target_params, flat, key_target))
        return q.reshape(*obs.shape[:2], -1)

    window = batch.window
    if window is not None:
        reward, past_reward = (recipe.update.seen(each, jnp) for each in (window.reward, window.past_reward))
        window = window._replace(reward=reward, past_reward=past_reward)
    losses = recipe.tightening.tightened(losses, estimate.values(taken), window, values, unit)
    weights = recipe.sampling.weights(batch.density, updates)
    if weights is not None:
        losses = weights * losses
    loss = jnp.sum(losses) if recipe.update.loss_reduction == "sum" else jnp.mean(losses)
    metrics = UpdateMetrics(loss, jnp.mean(estimate.values(taken)), recipe.sampling.priority(errors))
    if recipe.controller.moves:
        metrics = metrics._replace(signals=_signals(params, batch, recipe, estimate, out, out_next, updates))
    return loss, metrics


def _signals(
    params: Params, batch: Transition, recipe: Recipe, estimate: Value, out: Any, out_next: Any, updates: Any
) -> Signals:
    """Collects what a controller may look at; see `Signals`. The compiler drops what it does not."""
    params, out, out_next = jax.lax.stop_gradient((params, out, out_next))
    here, goes_on = estimate.values(out), batch.discount > 0
    values = estimate.taken(here, batch.action)
    weights = jnp.ones_like(values) if batch.density is None else 1 / batch.density
    return Signals(
        updates,
        here,
        batch.legal,
        estimate.values(out_next),
        batch.next_legal,
        goes_on if goes_on.ndim == 1 else goes_on.all(axis=-1),
        estimate.values(recipe.network.apply(params, batch.next_obs[: looked_at(len(here))])),
        jnp.sum(weights * values) / jnp.sum(weights),
    )


def _target(
    params: Params,
    target_params: Params,
    operator: Operator,
    batch: Transition,
    recipe: Recipe,
    estimate: Value,
    key_target: jax.Array | None = None,
) -> tuple[Any, jax.Array]:
    """Computes the targets of a minibatch, or their laws, and the target network's outputs ahead; see `td_loss`."""
    reward, discount = folded(recipe.update.seen(batch.reward, jnp), batch.discount)

    def gap(obs: Any, legal: Any) -> jax.Array:
        q = estimate.values(recipe.target_outputs(target_params, obs, key_target))
        online = estimate.values(recipe.network.apply(params, obs))
        size = worth(operator, q, online, legal) - estimate.taken(q, batch.action)
        return size if legal is None else jnp.where(estimate.taken(legal, batch.action), size, recipe.gap.where_illegal)

    penalty = recipe.gap.penalty(
        lambda: gap(batch.obs, batch.legal), lambda: gap(batch.next_obs, batch.next_legal), discount
    )
    if penalty is not None:
        reward = reward - penalty
    out_next = recipe.target_outputs(target_params, batch.next_obs, key_target)
    q_next_online = estimate.values(recipe.network.apply(params, batch.next_obs))
    target = estimate.target(operator, reward, discount, out_next, q_next_online, batch.next_legal)
    return jax.lax.stop_gradient(target), out_next


def learn_step(
    state: LearnerState, operator: Operator, batch: Transition, recipe: Recipe, returns: Any = None
) -> tuple[LearnerState, UpdateMetrics]:
    """Makes one update of the online network; the target network stays (`copy_target` moves it).

    A controller sets the operator's parameter, and moves on; `returns` are for those that need them, see `Signals`.
    """
    operator = recipe.controller.applied(state.control, operator)
    key = None
    if state.key is not None:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key, impl="threefry2x32"), state.updates)
    params = recipe.scale.adapted(
        state.params,
        recipe.network,
        lambda: recipe.estimate.mean(
            _target(state.params, state.target_params, operator, batch, recipe, recipe.estimate)[0]
        ),
    )
    gradient, metrics = jax.grad(td_loss, has_aux=True)(
        params, state.target_params, operator, batch, recipe, key, state.updates
    )
    steps, opt_state = make_optimizer(recipe.update).update(gradient, state.opt_state, params)
    params = optax.apply_updates(params, steps)
    control, signals = state.control, metrics.signals
    if signals is not None:
        control = recipe.controller.update(control, signals._replace(returns=returns), operator)
    state = state._replace(params=params, opt_state=opt_state, updates=state.updates + 1, control=control)
    return state, metrics._replace(signals=None)


def copy_target(state: LearnerState, recipe: Recipe) -> LearnerState:
    """Copies the online network into the target network; due before updates 0, P, 2P, ... of period P."""
    return state._replace(target_params=recipe.target.copied(state.target_params, state.params))


def epsilon_at(agent_steps: int, settings: LearnerSettings) -> float:
    """Computes the exploration rate at a step: `epsilon_start` until replay starts, then linear, then `epsilon_end`.

    Args:
        agent_steps: agent steps taken so far.
        settings: `replay_start_steps`, and the three numbers of epsilon; a decay over 0 steps is a jump to the end.

    Returns:
        The probability of a random action, never outside the two corner values.
    """
    start, end, decay = settings.epsilon_start, settings.epsilon_end, settings.epsilon_decay_steps
    since = agent_steps - settings.replay_start_steps
    return end if since >= decay else start if since <= 0 else start + since / max(decay, 1) * (end - start)


class Schedule(NamedTuple):
    """The exploration rate as arguments of a compiled program: another schedule compiles nothing anew.

    Attributes:
        start: the rate until `first`.
        end: the rate from `first + steps` on.
        slope: what one agent step between them adds to the rate.
        first: the agent step at which the decay begins.
        steps: agent steps of the decay.
    """

    start: Any
    end: Any
    slope: Any
    first: Any
    steps: Any

    @classmethod
    def of(cls, settings: LearnerSettings) -> "Schedule":
        """Returns the schedule of settings, in float32 and int32."""
        start, end, steps = settings.epsilon_start, settings.epsilon_end, settings.epsilon_decay_steps
        slope = np.float32(1) / np.float32(max(steps, 1)) * np.float32(end - start)
        first = np.int32(settings.replay_start_steps)
        return cls(np.float32(start), np.float32(end), slope, first, np.int32(steps))

    def at(self, agent_steps: jax.Array) -> jax.Array:
        """Computes what `epsilon_at` does, in float32, within a compiled program."""
        since = agent_steps - self.first
        between = self.start + since * self.slope
        return jnp.where(since >= self.steps, self.end, jnp.where(since <= 0, self.start, between))
