"""Learner: state, acting, loss and update as pure functions; the operator enters in the loss alone.

`init` makes the state, `act` chooses actions, `td_loss` is the only place that calls a Bellman operator, and
`learn_step` moves the state on by one update. All operators share them, and both training loops; but the loop on the
host acts by the parts of `act`, `exploration` and `greedy`: it draws ahead and asks the network less often.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from softbellman.learning.networks import Network, Params
from softbellman.learning.replay import Transition
from softbellman.learning.settings import LearnerSettings, UpdateSettings


class Operator(Protocol):
    """Bellman operator, as the learner needs it: a function from values `[..., A]` to `[...]`."""

    def __call__(self, q: Any, selector: Any = None) -> Any:
        """Evaluates `q`; `selector` `[..., A]` is where `double(op)` takes its weights from."""
        ...


class LearnerState(NamedTuple):
    """All that the learner carries from update to update.

    Attributes:
        params: the online network, which acts and learns.
        target_params: the target network, a copy of `params` made every `target_period_updates`.
        opt_state: the optimiser's accumulators.
        updates: number of updates made, int32.
    """

    params: Params
    target_params: Params
    opt_state: optax.OptState
    updates: jax.Array


class UpdateMetrics(NamedTuple):
    """Metrics of one update: the loss, as the optimiser sees it, and the mean of `Q(s, a)` over the minibatch."""

    loss: jax.Array
    q_taken: jax.Array


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


def init(network: Network, settings: UpdateSettings, key_init: jax.Array) -> LearnerState:
    """Makes the first state; the target network is a copy of the online one. The key is consumed."""
    params = network.init(key_init)
    opt_state = make_optimizer(settings).init(params)
    return LearnerState(params, jax.tree.map(jnp.copy, params), opt_state, jnp.zeros((), jnp.int32))


def act(network: Network, params: Params, obs: jax.Array, key_act: jax.Array, epsilon: jax.Array) -> jax.Array:
    """Chooses epsilon-greedy actions on Q; never depends on the operator. Ties go to the lowest index. Deviation D11.

    Args:
        network: the Q-network.
        params: the online parameters.
        obs: `[E, *obs_shape]`.
        key_act: a key, consumed.
        epsilon: probability of an action drawn uniformly from all `A`.

    Returns:
        Actions `[E]` int32.
    """
    q = network.apply(params, obs)
    chance, random_action = exploration(key_act, *q.shape)
    return jnp.where(chance < epsilon, random_action, greedy(q))


def greedy(q: jax.Array) -> jax.Array:
    """Returns the best actions `[...]` int32 by values `[..., A]`; ties go to the lowest index."""
    return jnp.argmax(q, axis=-1).astype(jnp.int32)


def exploration(key_act: jax.Array, num_envs: int, num_actions: int) -> tuple[jax.Array, jax.Array]:
    """Draws a chance in `[0, 1)` and a random action for each environment, `[E]` each; consumes the key.

    An environment takes the action where its chance is below the exploration rate.
    """
    chance, action = jax.random.uniform(key_act, (2, num_envs))  # one draw for both: two would cost twice
    return chance, jnp.floor(action * num_actions).astype(jnp.int32)


def td_target(
    operator: Operator, reward: jax.Array, discount: jax.Array, q_next: jax.Array, q_next_online: jax.Array
) -> jax.Array:
    """Computes `reward + discount * op(q_next, q_next_online)`, the target of the paper's Eq. 1 and of S-DDQN.

    Where the discount is 0 the bootstrap is left out, not multiplied: a NaN behind a terminal does no harm.

    Args:
        operator: the Bellman operator; `double(op)` takes its weights from `q_next_online`.
        reward: `[B]`, clipped already.
        discount: `[B]`, `gamma * (1 - terminated)`.
        q_next: `[B, A]`, the target network's values at the next observation.
        q_next_online: `[B, A]`, the online network's values there.

    Returns:
        Targets `[B]`.

    Raises:
        ValueError: if `reward`, `discount` or what the operator returns is not of shape `[B]`.
    """
    if reward.shape != q_next.shape[:-1] or discount.shape != reward.shape:
        raise ValueError(
            f"reward {reward.shape} and discount {discount.shape} must have the shape {q_next.shape[:-1]} of the values"
        )
    bootstrap = operator(q_next, q_next_online)
    if bootstrap.shape != reward.shape:
        raise ValueError(f"{operator} gave {bootstrap.shape} for values {q_next.shape}; it must give {reward.shape}")
    return reward + jnp.where(discount > 0, discount * jnp.where(discount > 0, bootstrap, 0.0), 0.0)


def huber(error: jax.Array, delta: float) -> jax.Array:
    """Computes `b^2 / 2 + b (|d| - b)` with `b = min(|d|, delta)`; its gradient is `d` clipped to `+-delta`.

    Where the second term counts, `b` is delta. So written, no delta is added to a gradient and taken away again, which
    would round an error to what float32 holds beside delta. An infinite delta gives the squared loss.
    """
    size = jnp.abs(error)
    bounded = jnp.where(size > delta, delta, size)  # a NaN stays one
    return bounded * (0.5 * bounded) + bounded * (size - bounded)


def td_loss(
    params: Params,
    target_params: Params,
    operator: Operator,
    batch: Transition,
    network: Network,
    settings: UpdateSettings,
) -> tuple[jax.Array, UpdateMetrics]:
    """Computes the Huber loss of the temporal-difference error (the paper's Eq. 1), and the metrics of the minibatch.

    Rewards are clipped here and nowhere else. No gradient flows through the target. The pass of the online network
    over `next_obs` is dropped by the compiler for operators that do not use it.

    Args:
        params: the online network's parameters, by which the loss is differentiated.
        target_params: the target network's parameters.
        operator: the Bellman operator.
        batch: `B` transitions; `obs` `[B, *obs_shape]`, `action` `[B]`, `reward` `[B]` raw, `discount` `[B]`.
        network: the Q-network.
        settings: reward clip, Huber's delta, sum or mean over the minibatch.

    Returns:
        The scalar loss, and the metrics.

    Raises:
        ValueError: if an array of the batch is not of its shape; nothing is broadcast.
    """
    q = network.apply(params, batch.obs)
    if batch.action.shape != q.shape[:1] or batch.reward.shape != q.shape[:1]:
        raise ValueError(
            f"action {batch.action.shape} and reward {batch.reward.shape} must have the shape {q.shape[:1]}: "
            "one entry for each observation"
        )
    q_taken = jnp.take_along_axis(q, batch.action[:, None], axis=-1)[:, 0]
    reward = batch.reward
    if settings.reward_clip is not None:
        reward = jnp.clip(reward, -settings.reward_clip, settings.reward_clip)
    q_next = network.apply(target_params, batch.next_obs)
    q_next_online = network.apply(params, batch.next_obs)
    target = jax.lax.stop_gradient(td_target(operator, reward, batch.discount, q_next, q_next_online))
    losses = huber(target - q_taken, settings.huber_delta)
    loss = jnp.sum(losses) if settings.loss_reduction == "sum" else jnp.mean(losses)
    return loss, UpdateMetrics(loss, jnp.mean(q_taken))


def learn_step(
    state: LearnerState, operator: Operator, batch: Transition, network: Network, settings: UpdateSettings
) -> tuple[LearnerState, UpdateMetrics]:
    """Makes one update of the online network; the target network stays (`copy_target` moves it)."""
    gradient, metrics = jax.grad(td_loss, has_aux=True)(
        state.params, state.target_params, operator, batch, network, settings
    )
    steps, opt_state = make_optimizer(settings).update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, steps)
    return state._replace(params=params, opt_state=opt_state, updates=state.updates + 1), metrics


def copy_target(state: LearnerState) -> LearnerState:
    """Copies the online network into the target network; due before updates 0, P, 2P, ... of period P."""
    return state._replace(target_params=jax.tree.map(jnp.copy, state.params))


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
