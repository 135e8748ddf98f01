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
