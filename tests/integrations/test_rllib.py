"""Operators in RLlib's new API stack: the target that its learner uses is ours, and all else is its own."""

from functools import partial
from unittest import mock

import numpy as np
import pytest

from softbellman import operators as ops

from .probes import TRIED, Tilted, bootstrap, needs, shown

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore::Warning")]  # the library's own
needs("torch", "ray.rllib")

import ray  # noqa: E402
import torch  # noqa: E402
from ray.rllib.algorithms.dqn import DQNConfig  # noqa: E402
from ray.rllib.algorithms.dqn.dqn_learner import QF_NEXT_PREDS, QF_PREDS, QF_TARGET_NEXT_PREDS  # noqa: E402
from ray.rllib.algorithms.dqn.torch import dqn_torch_learner as library  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402
from ray.rllib.utils.torch_utils import FLOAT_MIN  # noqa: E402

from softbellman.integrations.rllib import OperatorLearner, use_operator  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def config(**training):
    made = DQNConfig().environment("CartPole-v1").env_runners(num_env_runners=0).debugging(seed=0)
    made = made.rl_module(model_config={"fcnet_hiddens": [32], "head_fcnet_hiddens": [32]})
    few = {"num_steps_sampled_before_learning_starts": 100, "target_network_update_freq": 200, "gamma": 0.9}
    return made.training(**few | {"double_q": False} | training).reporting(min_sample_timesteps_per_iteration=500)


def trained(config, iterations):
    np.random.seed(0)  # noqa: NPY002  its replay draws with NumPy's legacy generator
    torch.manual_seed(0)
    algorithm = config.build_algo()
    for _ in range(iterations):
        algorithm.train()
    algorithm.stop()


@pytest.mark.parametrize("spec", TRIED)
def test_the_target_that_is_learned_from_is_ours(spec, monkeypatch):
    used, due = [], []
    given, kind = OperatorLearner.compute_loss_for_module, torch.nn.HuberLoss

    class Seen(kind):
        def forward(self, values, targets):
            used.append(targets.detach().numpy())
            return super().forward(values, targets)

    def compute(self, *, batch, fwd_out, **rest):
        q = fwd_out[QF_TARGET_NEXT_PREDS].detach()
        selector = fwd_out[QF_NEXT_PREDS].detach() if spec.startswith("double") else q
        ended = batch[Columns.TERMINATEDS].numpy().astype(bool)
        worth = np.where(ended, 0.0, bootstrap(spec, q, selector))
        due.append(batch[Columns.REWARDS].numpy() + 0.9 ** batch["n_step"].numpy() * worth)
        return given(self, batch=batch, fwd_out=fwd_out, **rest)

    monkeypatch.setattr(library.nn, "HuberLoss", Seen)
    monkeypatch.setattr(OperatorLearner, "compute_loss_for_module", compute)
    trained(use_operator(config(), ops.parse(spec)), 4)
    assert len(used) > 100
    np.testing.assert_allclose(np.concatenate(used), np.concatenate(due), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "double"), [("max", False), ("double(max)", True)])
def test_the_librarys_own_rules_are_two_operators(op, double, monkeypatch):
    """Of each minibatch that is drawn, which the library does without a seed, loss and gradient are the same."""
    given, own, updates = OperatorLearner.compute_loss_for_module, library.DQNTorchLearner.compute_loss_for_module, []

    def compute(self, *, fwd_out, config, **rest):
        assert config.double_q is double
        losses = [given(self, fwd_out=fwd_out, config=config, **rest)]
        with mock.patch.object(self, "metrics"):  # it would log each error twice
            losses.append(own(self, fwd_out=fwd_out, config=config, **rest))
        slopes = [torch.autograd.grad(loss, fwd_out[QF_PREDS], retain_graph=True)[0] for loss in losses]
        alike = partial(torch.allclose, rtol=1e-6) if double else torch.equal
        updates.append(alike(*losses) and alike(*slopes) and bool(slopes[0].any()))
        return losses[0]

    monkeypatch.setattr(OperatorLearner, "compute_loss_for_module", compute)
    trained(use_operator(config(double_q=not double), op), 1)
    assert len(updates) > 20
    assert all(updates)


def test_twice_is_the_last_one_alone():
    twice = use_operator(use_operator(config(), "double(softmax(1))"), "softmax(5)")
    assert twice.learner_config_dict == use_operator(config(), "softmax(5)").learner_config_dict
    assert twice.double_q is False


@pytest.mark.parametrize("low", [-float("inf"), FLOAT_MIN, torch.tensor(5.0) + FLOAT_MIN])  # as its modules mask
def test_masked_values_are_of_illegal_actions(low, monkeypatch):
    seen = {}
    base = OperatorLearner.__mro__[1]
    monkeypatch.setattr(base, "compute_loss_for_module", lambda self, **given: seen.update(given))
    learner = OperatorLearner.__new__(OperatorLearner)
    q = torch.tensor([[1.0, low], [1.0, 3.0], [low, low]])
    chosen = use_operator(config(), "mean")
    learner.compute_loss_for_module(fwd_out={QF_TARGET_NEXT_PREDS: q}, config=chosen, batch={}, module_id="one")
    assert seen["fwd_out"][QF_TARGET_NEXT_PREDS].tolist() == [[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]]
    for diverged in ([[float("nan"), 1.0]], [[float("nan"), float("nan")]]):
        given = {QF_TARGET_NEXT_PREDS: torch.tensor(diverged)}
        learner.compute_loss_for_module(fwd_out=given, config=chosen, batch={}, module_id="one")
        assert seen["fwd_out"][QF_TARGET_NEXT_PREDS].isnan().all()
    for op, message in (
        ("fixed(0.5, 0.3, 0.2)", "is for 3 actions, and there are 2"),
        (Tilted(), "does not run on PyTorch"),
    ):
        learner = OperatorLearner.__new__(OperatorLearner)
        with pytest.raises(ValueError, match=message):
            learner.compute_loss_for_module(
                fwd_out={QF_TARGET_NEXT_PREDS: q}, config=use_operator(config(), op), batch={}, module_id="one"
            )


class Own(library.DQNTorchLearner):
    """A learner of a user's own."""


class Derived(OperatorLearner):
    """A learner of a user's own that learns with operators."""


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (PPOConfig, TypeError, "takes a DQNConfig of RLlib, not PPOConfig"),
        (lambda: config(num_atoms=10), ValueError, r"num_atoms \(10\) must be 1"),
        (lambda: config().learners(learner_class=Own), TypeError, "derive Own from it, OperatorLearner"),
        (
            lambda: config().api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False),
            ValueError,
            "new API stack",
        ),
    ],
)
def test_what_cannot_be_is_refused(made, error, message):
    with pytest.raises(error, match=message):
        use_operator(made(), "max")


def test_a_learner_derived_from_it_stays():
    before = use_operator(config().learners(learner_class=Derived), "mean")
    after = use_operator(config(), "mean").learners(learner_class=Derived)
    for chosen in (before, after):
        assert chosen.learner_class is use_operator(chosen, "max").learner_class is Derived


def test_distributions_that_are_asked_for_afterwards_are_refused_with_the_first_update():
    chosen = use_operator(config(), "mean").training(num_atoms=51)
    learner = OperatorLearner.__new__(OperatorLearner)
    with pytest.raises(ValueError, match=r"^num_atoms \(51\) must be 1: an operator takes values, not distributions$"):
        learner.compute_loss_for_module(
            fwd_out={QF_TARGET_NEXT_PREDS: torch.zeros(2, 3)}, config=chosen, batch={}, module_id="one"
        )


def test_another_double_q_that_is_asked_for_afterwards_is_refused_with_the_first_update():
    chosen = use_operator(config(), "double(max)").training(double_q=False)
    learner = OperatorLearner.__new__(OperatorLearner)
    with pytest.raises(ValueError, match=r"^double_q must be True for double\(max\); call use_operator last"):
        learner.compute_loss_for_module(
            fwd_out={QF_TARGET_NEXT_PREDS: torch.zeros(2, 3)}, config=chosen, batch={}, module_id="one"
        )


def test_what_the_page_shows_is_a_configuration():
    names = {}
    exec(shown("RLlib").replace("algorithm = config.build_algo()\n", ""), names)
    assert names["config"].learner_class is OperatorLearner
