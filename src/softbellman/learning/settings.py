"""Learner settings: numbers of the update, the replay and exploration; specs of the parts. Loads no JAX."""

from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """The numbers that an update is compiled with: a new value of one is a new program.

    Attributes:
        gamma: discount factor, in `[0, 1)`.
        learning_rate: step size of the optimiser.
        optimizer: `rmsprop` (centred, epsilon inside the root: DeepMind's), `rmsprop-torch` (outside), or `adam`.
        rmsprop_decay: decay of both moments of RMSProp.
        optimizer_epsilon: the optimiser's epsilon.
        huber_delta: where the Huber loss turns linear; one beyond all errors, such as 1e30, leaves the squared loss.
        loss_reduction: `sum` or `mean` over the minibatch.
        reward_scale: rewards are multiplied by it; scores are not.
        reward_clip: rewards, so multiplied, are clipped to `+-reward_clip`; None leaves them.
    """

    gamma: float = 0.99
    learning_rate: float = 0.00025
    optimizer: Literal["rmsprop", "rmsprop-torch", "adam"] = "rmsprop"
    rmsprop_decay: float = 0.95
    optimizer_epsilon: float = 0.01
    huber_delta: float = 1.0
    loss_reduction: Literal["sum", "mean"] = "sum"
    reward_scale: float = 1.0
    reward_clip: float | None = 1.0

    def seen(self, reward: Any, xp: Any) -> Any:
        """Returns raw rewards as they are learned from, each by itself; `xp` is NumPy or `jax.numpy`."""
        if self.reward_scale != 1:
            reward = reward * xp.asarray(self.reward_scale, dtype=reward.dtype)
        return reward if self.reward_clip is None else xp.clip(reward, -self.reward_clip, self.reward_clip)

    @property
    def rewards(self) -> str:
        """Says how rewards are learned from."""
        changes = [f"times {self.reward_scale:g}"] if self.reward_scale != 1 else []
        changes += [] if self.reward_clip is None else [f"clipped to ±{self.reward_clip:g}"]
        return ", then ".join(changes) or "as they are"


@dataclass(frozen=True, kw_only=True)
class LearnerSettings(UpdateSettings):
    """How the learner learns: its updates, their minibatches and periods, the replay, and exploration.

    The defaults are the authors' (their `run_nature.py`), step for step.

    Attributes:
        batch_size: transitions in a minibatch.
        update_period_steps: agent steps from one update to the next.
        target_period_updates: updates from one copy of the target network to the next. Deviation D32.
        replay_capacity: frames that the replay holds, in each run.
        replay_start_steps: agent steps with uniformly random actions before the first update. Deviation D36.
        epsilon_start: exploration rate until replay starts.
        epsilon_end: exploration rate after its decay.
        epsilon_decay_steps: agent steps over which epsilon falls linearly, counted from `replay_start_steps`.
    """

    batch_size: int = 32
    update_period_steps: int = 4
    target_period_updates: int = 2_500
    replay_capacity: int = 1_000_000
    replay_start_steps: int = 50_000
    epsilon_start: float = 1.0
    epsilon_end: float = 0.1
    epsilon_decay_steps: int = 1_000_000

    @property
    def update(self) -> UpdateSettings:
        """The numbers of an update alone: what its compiled program depends on."""
        return UpdateSettings(**{field.name: getattr(self, field.name) for field in fields(UpdateSettings)})


@dataclass(frozen=True, kw_only=True)
class RecipeSettings:
    """The parts of a learner beside its operator, each by its spec; see `learning.parts`.

    Attributes:
        returns: steps of reward before the bootstrap: the n of n-step returns. They end with their episode, or with
            the newest step.
        gap: part of the action gap that a reward loses, such as `gap(0.9)`: advantage learning and its relatives.
        target: target networks: `latest`, or `past(10, mean)` and `past(10, min)` of the last copies.
        estimate: quantity that the network's outputs for an action stand for: `value`, `quantiles(51)`,
            `categorical(51, -10, 10)`, or heads that are trained together, as in `ensemble(5, mean)`.
        head: last layers of the network: `linear` or `duelling`.
        noise: noise on the weights of the head: `none` or `noisy(0.5)`.
        scale: units in which the network learns: `raw`, or `popart(0.0003)`.
        sampling: choice of transitions to learn from: `uniform`, or `prioritised(0.6, 0.4, 1, 100000)`: the exponent of
            priorities, and that of the weights which make up for them, from the first update to the 100,000th.
        tightening: penalty for values outside of bounds from the trajectory: `none`, or `tightening(4, 4)`: bounds from
            up to 4 steps beyond the next and before the last, and the penalty's weight.
        exploration: policy of training: `epsilon`, `boltzmann(5)`, or `policy(mellowmax(5))`.
        risk: measure by which the best action is chosen: `neutral` or `cvar(0.25)`.
        controller: rule that sets the operator's tau or omega: `fixed`; schedules `cooling(1)`, `spread_cooling(1)` and
            `power(1, 2)`; `noise(0.75)`, over the noise of the values; `match`, as far below the max as `double(max)`;
            or `loop(0.75)`, by the returns of training.
    """

    returns: int = 1
    gap: str = "none"
    target: str = "latest"
    estimate: str = "value"
    head: str = "linear"
    noise: str = "none"
    scale: str = "raw"
    sampling: str = "uniform"
    tightening: str = "none"
    exploration: str = "epsilon"
    risk: str = "neutral"
    controller: str = "fixed"
