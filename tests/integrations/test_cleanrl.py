"""The example in the manner of CleanRL: it runs, learns, and its target is ours."""

import numpy as np
import pytest

from .probes import TRIED, bootstrap, example, needs, same

pytestmark = pytest.mark.torch
needs("torch")

import torch  # noqa: E402


@pytest.fixture(scope="module", name="example")
def _example():
    return example("cleanrl_dqn")


def args(example, spec, steps):
    return example.Args(operator=spec, total_timesteps=steps, learning_starts=200, target_network_frequency=100)


@pytest.mark.parametrize("spec", TRIED)
def test_the_target_that_is_learned_from_is_ours(example, spec, monkeypatch):
    given, used, due = example.td_target, [], []

    def seen(op, batch, target_network, q_network, gamma):
        with torch.no_grad():
            q, selector = target_network(batch.next_obs), q_network(batch.next_obs)
        worth = np.where(batch.terminated.numpy() == 1, 0.0, bootstrap(spec, q, selector))
        due.append(batch.rewards.numpy() + gamma * worth)
        used.append(given(op, batch, target_network, q_network, gamma))
        return used[-1]

    monkeypatch.setattr(example, "td_target", seen)
    _, returns = example.main(args(example, spec, 3_000))
    assert len(used) == 700
    np.testing.assert_allclose(np.stack([target.numpy() for target in used]), due, rtol=1e-5, atol=1e-5)
    assert np.mean(returns[-5:]) > np.mean(returns[:10])


def test_max_is_the_maximum(example, monkeypatch):
    ours, _ = example.main(args(example, "max", 800))

    def plain(op, batch, target_network, q_network, gamma):
        with torch.no_grad():
            return batch.rewards + gamma * (1 - batch.terminated) * target_network(batch.next_obs).max(dim=1).values

    monkeypatch.setattr(example, "td_target", plain)
    same(ours, example.main(args(example, "max", 800))[0])


def test_an_operator_for_other_actions_is_refused_before_training(example):
    with pytest.raises(ValueError, match="is for 3 actions, and there are 2"):
        example.main(args(example, "fixed(0.5, 0.3, 0.2)", 10))


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_any_flat_box_will_do(example, dtype, monkeypatch):
    import gymnasium

    class Counting(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-9, 9, (2,), dtype)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, dtype), {}

        def step(self, action):
            return np.ones(2, dtype), 1.0, False, False, {}

    monkeypatch.setitem(gymnasium.registry, "Counting-v0", gymnasium.envs.registration.EnvSpec("Counting-v0", Counting))
    options = example.Args(env_id="Counting-v0", total_timesteps=50, learning_starts=10, start_e=0.0, end_e=0.0)
    network, _ = example.main(options)
    assert network[0].in_features == 2
