"""Operators in TorchRL: the target that `OperatorDQNLoss` uses is ours, and all else is `DQNLoss`'s own."""

import numpy as np
import pytest

from softbellman import operators as ops

from .probes import TRIED, Tilted, bootstrap, needs, require_example, same, shown

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore::Warning")]  # the library's own
needs("torch", "torchrl.collectors", "torchrl.objectives")

import torch  # noqa: E402
from tensordict import TensorDict  # noqa: E402
from tensordict.nn import TensorDictModule, TensorDictSequential  # noqa: E402
from torchrl import collectors  # noqa: E402
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer  # noqa: E402
from torchrl.envs import GymEnv, StepCounter, TransformedEnv  # noqa: E402
from torchrl.modules import EGreedyModule, QValueActor, QValueModule  # noqa: E402
from torchrl.objectives import DQNLoss, SoftUpdate, ValueEstimators  # noqa: E402

from softbellman.integrations.torchrl import OperatorDQNLoss  # noqa: E402


def network(actions=2, spec=None):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, actions))
    return QValueActor(layers, in_keys=["observation"], spec=spec or OneHot(actions))


def test_an_action_of_several_choices_is_refused():
    with pytest.raises(ValueError, match=r"one_hot or categorical, and not mult_one_hot"):
        OperatorDQNLoss(network(), operator="max", action_space="mult_one_hot")


def trained(actor, loss, steps=2_000, per_batch=20):
    """Trains as TorchRL's own examples do; gives the loss."""
    loss.make_value_estimator(gamma=0.9)
    torch.manual_seed(1)
    env = TransformedEnv(GymEnv("CartPole-v1"), StepCounter())
    env.set_seed(0)
    explore = EGreedyModule(env.action_spec, eps_init=0.5, eps_end=0.1, annealing_num_steps=steps)
    kind = getattr(collectors, "Collector", None) or collectors.SyncDataCollector
    collector = kind(env, TensorDictSequential(actor, explore), frames_per_batch=per_batch, total_frames=steps)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(2_000), batch_size=32)
    optimiser, updater = torch.optim.Adam(loss.parameters(), 1e-3), SoftUpdate(loss, eps=0.9)
    for data in collector:
        buffer.extend(data)
        for _ in range(3):
            loss(buffer.sample())["loss"].backward()
            optimiser.step()
            optimiser.zero_grad()
            updater.step()
    collector.shutdown()
    return loss


@pytest.mark.parametrize("spec", TRIED)
def test_the_target_that_is_learned_from_is_ours(spec, monkeypatch):
    from torchrl.objectives import dqn

    actor = network()
    loss, used, due = OperatorDQNLoss(actor, operator=spec), [], []
    distance, given = dqn.distance_loss, loss.forward

    def seen(values, targets, *rest):
        used.append(targets.detach().numpy())
        return distance(values, targets, *rest)

    def forward(batch):
        following = batch["next", "observation"]
        first, second = (
            {name.partition("0.")[2]: value.data for name, value in params.flatten_keys(".").items()}
            for params in (loss.target_value_network_params, loss.value_network_params)
        )
        layers = actor.module[0].module
        keys = list(layers.state_dict())
        q, selector = (
            torch.func.functional_call(layers, dict(zip(keys, _ordered(values, keys), strict=True)), (following,))
            for values in (first, second)
        )
        reward, terminated = (batch["next", name][:, 0].numpy() for name in ("reward", "terminated"))
        worth = bootstrap(spec, q.detach(), selector.detach())
        due.append(reward + 0.9 * np.where(terminated, 0.0, worth))
        return given(batch)

    def _ordered(values, keys):
        return [next(value for name, value in values.items() if name.endswith(key)) for key in keys]

    monkeypatch.setattr(dqn, "distance_loss", seen)
    monkeypatch.setattr(loss, "forward", forward)
    trained(actor, loss)
    assert len(used) == 300
    np.testing.assert_allclose(used, due, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "double"), [("max", False), ("double(max)", True)])
def test_the_librarys_own_rules_are_two_operators(op, double):
    plain, ours = network(), network()
    trained(plain, DQNLoss(plain, double_dqn=double, delay_value=True), 500)
    trained(ours, OperatorDQNLoss(ours, operator=op), 500)
    same(plain, ours)


def test_an_estimator_that_is_chosen_later_is_told_the_operators_values():
    actor = network()
    loss = OperatorDQNLoss(actor, operator="softmax(5)")
    batch = _batch()
    values = []
    for kind in (ValueEstimators.TD0, ValueEstimators.TDLambda):
        loss.make_value_estimator(kind, gamma=0.5)
        values.append(float(loss(batch.clone())["loss"]))
    assert loss.value_estimator.gamma == 0.5
    loss.operator = ops.mean()
    assert float(loss(batch.clone())["loss"]) != values[-1]


def _batch(**more):
    following = TensorDict(
        {
            "observation": torch.ones(3, 4),
            "reward": torch.ones(3, 1),
            **dict.fromkeys(("done", "terminated"), torch.zeros(3, 1, dtype=torch.bool)),
            **more,
        },
        [3],
    )
    action = torch.nn.functional.one_hot(torch.zeros(3, dtype=torch.long), 2)
    return TensorDict({"observation": torch.zeros(3, 4), "action": action, "next": following, **more}, [3])


def test_masked_values_are_of_illegal_actions():
    layers = TensorDictModule(torch.nn.Linear(4, 2), in_keys=["observation"], out_keys=["action_value"])
    value = QValueModule(spec=OneHot(2), action_mask_key="action_mask")
    actor = TensorDictSequential(layers, value)
    loss = OperatorDQNLoss(actor, operator="mean", action_space="one-hot")
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    with torch.no_grad():
        q = layers.module(torch.ones(3, 4))
        following = loss.next_value(_batch(action_mask=mask))[:2, 0]
    torch.testing.assert_close(following, torch.stack([q[0, 0], q[1].mean()]))


def test_values_that_are_no_numbers_are_no_illegal_actions():
    """A run that diverged shows it."""
    actor = network()
    for parameter in actor.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    assert OperatorDQNLoss(actor, operator="mean").next_value(_batch()).isnan().all()


def test_parameters_are_saved_as_without():
    names = list(DQNLoss(network(), delay_value=True).state_dict())
    assert list(OperatorDQNLoss(network(), operator="double(max)").state_dict()) == names


@pytest.mark.parametrize(
    ("op", "options", "error", "message"),
    [
        ("max", {"double_dqn": True}, TypeError, "in place of double_dqn"),
        ("double(max)", {"delay_value": False}, ValueError, "leave delay_value at True"),
        (max, {}, TypeError, "is no operator"),
        ("softmx(5)", {}, ValueError, "softmax"),
    ],
)
def test_what_cannot_be_is_refused(op, options, error, message):
    with pytest.raises(error, match=message):
        OperatorDQNLoss(network(), operator=op, **options)


@pytest.mark.parametrize(
    ("op", "message"),
    [("fixed(0.5, 0.3, 0.2)", "is for 3 actions, and there are 2"), (Tilted(), "does not run on PyTorch tensors")],
)
def test_with_the_first_loss_an_operator_is_refused_that_cannot_be_used(op, message):
    loss = OperatorDQNLoss(network(), operator=op)
    with pytest.raises(ValueError, match=message):
        loss(_batch())


def test_what_the_page_shows_runs():
    names = {"actor": network()}
    exec(shown("TorchRL"), names)
    assert float(names["loss"](_batch())["loss"]) > 0


def test_the_example_learns_and_refuses_what_it_can_not_use():
    require_example("torchrl_dqn")
