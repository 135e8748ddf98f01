"""Operators in Tianshou 2: the target that its DQN learns from is ours, and all else is its own."""

import numpy as np
import pytest

from softbellman import operators as ops

from .probes import TRIED, Tilted, bootstrap, needs, require_example, same, shown

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore::Warning")]  # the library's own
needs("torch", "tianshou")

import gymnasium  # noqa: E402
import torch  # noqa: E402
from tianshou.algorithm.modelfree.c51 import C51  # noqa: E402
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy  # noqa: E402
from tianshou.algorithm.modelfree.qrdqn import QRDQN, QRDQNPolicy  # noqa: E402
from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: E402
from tianshou.data import Batch, Collector, VectorReplayBuffer  # noqa: E402
from tianshou.env import DummyVectorEnv  # noqa: E402
from tianshou.utils.net.common import Net  # noqa: E402

from softbellman.integrations.tianshou import use_operator  # noqa: E402


def algorithm(kind=DQN, policy=DiscreteQLearningPolicy, **options):
    torch.manual_seed(0)
    env = gymnasium.make("CartPole-v1")
    net = Net(state_shape=4, action_shape=2, hidden_sizes=[32, 32])
    made = policy(model=net, action_space=env.action_space, observation_space=env.observation_space, eps_training=0.3)
    options = {"gamma": 0.9, "target_update_freq": 50} | options
    return kind(policy=made, optim=AdamOptimizerFactory(lr=1e-3), **options)


def trained(algorithm, steps=2_000, update_every=5):
    np.random.seed(0)  # noqa: NPY002  Tianshou explores with NumPy's legacy generator
    torch.manual_seed(1)
    envs = DummyVectorEnv([lambda: gymnasium.make("CartPole-v1")])
    envs.seed(0)
    buffer = VectorReplayBuffer(2_000, 1)
    collector = Collector(algorithm, envs, buffer)
    collector.reset(gym_reset_kwargs={"seed": 0})
    from tianshou.utils.torch_utils import policy_within_training_step

    with policy_within_training_step(algorithm.policy):
        for _ in range(steps // update_every):
            collector.collect(n_step=update_every)
            algorithm.update(buffer=buffer, sample_size=32)
    return algorithm


class Watched:
    """The targets that an algorithm learns from, beside what they have to be."""

    def __init__(self, algorithm, spec, monkeypatch):
        self.used, self.due, given = [], [], algorithm._preprocess_batch

        def preprocessed(batch, buffer, indices):
            with torch.no_grad():
                following = torch.as_tensor(batch.obs_next)
                q, selector = (model(following)[0] for model in (algorithm.model_old, algorithm.policy.model))
            worth = np.where(batch.terminated, 0.0, bootstrap(spec, q, selector))
            self.due.append(batch.rew + algorithm.gamma * worth)
            made = given(batch, buffer, indices)
            self.used.append(made.returns.numpy().flatten())
            return made

        monkeypatch.setattr(algorithm, "_preprocess_batch", preprocessed)


@pytest.mark.parametrize("spec", TRIED)
def test_the_target_that_is_learned_from_is_ours(spec, monkeypatch):
    learner = use_operator(algorithm(), ops.parse(spec))
    watched = Watched(learner, spec, monkeypatch)
    trained(learner)
    assert len(watched.used) == 400
    np.testing.assert_allclose(watched.used, watched.due, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("max", {"is_double": False}),
        ("double(max)", {"is_double": True}),
        ("max", {"is_double": False, "target_update_freq": 0}),
        ("max", {"is_double": False, "n_step_return_horizon": 3}),
    ],
)
def test_the_librarys_own_rules_are_two_operators(op, options):
    same(trained(algorithm(**options), 400), trained(use_operator(algorithm(**options), op), 400))


def test_twice_is_the_last_one_alone():
    twice = use_operator(use_operator(algorithm(), "double(softmax(1))"), "softmax(5)")
    same(trained(twice, 200), trained(use_operator(algorithm(), "softmax(5)"), 200))


def test_what_is_saved_is_as_without(tmp_path):
    learner, other = use_operator(algorithm(), "softmax(5)"), algorithm()
    torch.save(trained(learner, 100).state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    same(learner, other)
    torch.save(learner, tmp_path / "whole.pt")
    again = torch.load(tmp_path / "whole.pt", weights_only=False)
    assert again._target_q.args[0] is again
    assert again._target_q.args[1] == ops.softmax(5.0)


def test_masks_are_heeded_but_where_nothing_is_legal():
    learner = use_operator(algorithm(), "mean")
    following = Batch(obs=np.ones((3, 4), np.float32), mask=np.array([[True, False], [True, True], [False, False]]))
    values = _of(learner, following)
    q = learner.policy(Batch(obs=following.obs, info=[None] * 3), model=learner.model_old).logits.detach()
    torch.testing.assert_close(values, torch.stack([q[0, 0], q[1].mean(), q[2].mean()]))


def _of(learner, following):
    class Buffer:
        def __getitem__(self, indices):
            return Batch(obs_next=following)

    with torch.no_grad():
        return learner._target_q(Buffer(), np.arange(len(following.obs)))


@pytest.mark.parametrize(
    ("made", "op", "error", "message"),
    [
        (lambda: algorithm(QRDQN, QRDQNPolicy), "max", TypeError, "not QRDQN"),
        (lambda: C51, "max", TypeError, "takes a tianshou DQN"),
        (algorithm, "owa(0.5, 0.3, 0.2)", ValueError, "is for 3 actions, and there are 2"),
        (algorithm, 5, TypeError, "5 is no operator"),
        (algorithm, Tilted(), ValueError, "does not run on PyTorch tensors: .*probes.py"),
    ],
)
def test_what_cannot_be_is_refused(made, op, error, message):
    with pytest.raises(error, match=message):
        use_operator(made(), op)


def test_what_the_page_shows_runs():
    names = {"policy": algorithm().policy, "optim": AdamOptimizerFactory(lr=1e-3)}
    exec(shown("Tianshou"), names)
    trained(names["algorithm"], 50)


def test_the_example_learns_and_refuses_what_it_can_not_use():
    require_example("tianshou_dqn")
