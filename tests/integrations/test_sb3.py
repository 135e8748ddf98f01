"""Operators in Stable-Baselines3: the target that its DQN learns from is ours, and all else is its own."""

import copy
import inspect

import numpy as np
import pytest

from softbellman import operators as ops

from .probes import TRIED, Between, Tilted, bootstrap, needs, same, shown

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*:UserWarning:stable_baselines3"),
]
needs("torch", "stable_baselines3")

import torch  # noqa: E402
from stable_baselines3 import DQN, PPO  # noqa: E402
from stable_baselines3.dqn import dqn as library  # noqa: E402

from softbellman.integrations.sb3 import use_operator  # noqa: E402

FEW = {"learning_starts": 100, "target_update_interval": 250, "buffer_size": 2_000, "seed": 3, "device": "cpu"}


def model(**options):
    return DQN("MlpPolicy", "CartPole-v1", **FEW | {"learning_rate": 1e-3} | options)


class Watched:
    """The targets that a model learns from, beside what they have to be."""

    def __init__(self, model, spec, monkeypatch):
        self.model, self.spec, self.used, self.due, self.by_max = model, spec, [], [], []
        self.sample, self.loss = model.replay_buffer.sample, library.F.smooth_l1_loss
        monkeypatch.setattr(model.replay_buffer, "sample", self.sampled)
        monkeypatch.setattr(library.F, "smooth_l1_loss", self.learned)

    def sampled(self, *given, **more):
        self.batch = self.sample(*given, **more)
        return self.batch

    def learned(self, values, targets):
        batch, policy = self.batch, self.model.policy
        with torch.no_grad():
            q, selector = (net(batch.next_observations) for net in (policy.q_net_target, policy.q_net))
        rewards, discounts = batch.rewards[:, 0].numpy(), self.model.gamma * (1 - batch.dones[:, 0].numpy())
        self.used.append(targets[:, 0].numpy())
        self.due.append(rewards + discounts * bootstrap(self.spec, q, selector))
        self.by_max.append(rewards + discounts * bootstrap("max", q, selector))
        return self.loss(values, targets)


@pytest.mark.parametrize("spec", TRIED)
def test_the_target_that_is_learned_from_is_ours(spec, monkeypatch):
    learner = use_operator(model(), ops.parse(spec))
    watched = Watched(learner, spec, monkeypatch)
    learner.learn(2_000)
    assert len(watched.used) == 475  # an update every 4 steps after the first 100
    np.testing.assert_allclose(watched.used, watched.due, rtol=1e-5, atol=1e-5)
    assert np.abs(np.subtract(watched.used, watched.by_max)).max() > 1e-2


HAS_N_STEPS = "n_steps" in inspect.signature(DQN).parameters  # from 2.7 on
OPTIONS = [{}, {"tau": 0.5, "target_update_interval": 10}, *[{"n_steps": 3}] * HAS_N_STEPS]


@pytest.mark.parametrize("options", OPTIONS)
def test_with_max_the_numbers_are_the_librarys_own(options):
    plain, ours = model(**options).learn(1_000), use_operator(model(**options), "max").learn(1_000)
    same(plain.policy, ours.policy)
    assert plain.num_timesteps == ours.num_timesteps == 1_000


def test_twice_is_the_last_one_alone(monkeypatch):
    twice = use_operator(use_operator(model(), "double(softmax(1))"), "softmax(5)")
    watched = Watched(twice, "softmax(5)", monkeypatch)
    twice.learn(600)
    np.testing.assert_allclose(watched.used, watched.due, rtol=1e-5, atol=1e-5)
    once = use_operator(model(), "softmax(5)").learn(600)
    same(once.policy, twice.policy)
    same(model().learn(600).policy, use_operator(use_operator(model(), "mean"), "max").learn(600).policy)


def test_the_target_network_is_the_librarys_and_moves_towards_the_online_one():
    learner = use_operator(model(tau=0.25), "double(max)")
    own = learner.policy.q_net_target
    assert [id(each) for each in learner.q_net_target.parameters()] == [id(each) for each in own.parameters()]
    learner.learn(251)
    assert not torch.equal(next(own.parameters()), next(learner.q_net.parameters()))


def test_a_model_is_saved_as_without_and_goes_on_as_if_never_saved(tmp_path, monkeypatch):
    names = {name for name, _ in model().policy.state_dict().items()}
    learner = use_operator(model(), "double(mellowmax(5))").learn(500)
    learner.save(tmp_path / "model.zip")
    loaded = DQN.load(tmp_path / "model.zip", env=learner.get_env())
    same(learner.policy, loaded.policy)
    assert {name for name, _ in loaded.policy.state_dict().items()} == names
    obs = np.zeros((1, 4), np.float32)
    assert loaded.predict(obs, deterministic=True)[0] == learner.predict(obs, deterministic=True)[0]
    assert loaded.q_net_target is loaded.policy.q_net_target  # with the maximum, until it is told again
    watched = Watched(use_operator(loaded, "softmax(5)"), "softmax(5)", monkeypatch)
    loaded.learn(200)
    np.testing.assert_allclose(watched.used, watched.due, rtol=1e-5, atol=1e-5)


def test_parameters_that_are_set_are_those_of_the_target():
    learner, other = use_operator(model(), "softmax(5)"), model(seed=4)
    learner.set_parameters(other.get_parameters())
    obs = torch.zeros(2, 4)
    with torch.no_grad():
        q = other.policy.q_net_target(obs)
        torch.testing.assert_close(learner.q_net_target(obs)[:, 0], ops.softmax(5.0)(q))


def test_a_copy_has_networks_of_its_own():
    learner = use_operator(model(), "double(max)")
    twin = copy.deepcopy(learner.q_net_target)
    with torch.no_grad():
        next(learner.policy.q_net_target.parameters()).add_(1.0)
    assert not torch.equal(next(twin.parameters()), next(learner.q_net_target.parameters()))


def test_an_operator_of_ones_own_that_heeds_the_selector_is_given_it():
    learner = use_operator(model(), Between())
    obs = torch.ones(3, 4)
    with torch.no_grad():
        q, selector = learner.policy.q_net_target(obs) + 0.0, learner.q_net(obs)
        torch.testing.assert_close(learner.q_net_target(obs)[:, 0], ops.softmax(1.0)((q + selector) / 2))


def test_only_where_it_is_looked_at_the_online_network_is_computed(monkeypatch):
    learner, calls = model(), []
    learner.q_net.register_forward_hook(lambda *_: calls.append(1))
    use_operator(learner, "keep(0.1)").q_net_target(torch.zeros(1, 4))
    assert not calls
    use_operator(learner, "clipped_double(max)").q_net_target(torch.zeros(1, 4))
    assert calls


@pytest.mark.parametrize("policy", ["CnnPolicy", "MultiInputPolicy"])
def test_pictures_and_dictionaries_are_taken_as_the_library_takes_them(policy):
    import gymnasium
    from gymnasium import spaces

    picture = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    space = picture if policy == "CnnPolicy" else spaces.Dict(a=picture, b=spaces.Box(-1, 1, (2,), np.float32))

    class Seen(gymnasium.Env):
        observation_space, action_space = space, spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            if seed is not None:
                space.seed(seed)
            return space.sample(), {}

        def step(self, action):
            return space.sample(), float(action), False, bool(self.np_random.random() < 0.1), {}

    def made():
        return DQN(policy, Seen(), **FEW | {"learning_starts": 10, "buffer_size": 100, "batch_size": 4})

    same(made().learn(40).policy, use_operator(made(), "max").learn(40).policy)
    assert use_operator(made(), "double(mellowmax(5))").learn(40).num_timesteps == 40


@pytest.mark.parametrize(
    ("made", "op", "error", "message"),
    [
        (lambda: PPO("MlpPolicy", "CartPole-v1", device="cpu"), "max", TypeError, "takes a stable_baselines3.DQN.*PPO"),
        (lambda: "DQN", "max", TypeError, "takes a stable_baselines3.DQN.*str"),
        (model, "fixed(0.5, 0.3, 0.2)", ValueError, "is for 3 actions, and there are 2"),
        (model, ops.softmax, TypeError, "is no operator; call it"),
        (model, "softmx(5)", ValueError, "softmax"),
        (model, Tilted(), ValueError, "does not run on PyTorch tensors: .*probes.py"),
    ],
)
def test_what_cannot_be_is_refused(made, op, error, message):
    with pytest.raises(error, match=message) as caught:
        use_operator(made(), op)
    assert "\n" not in str(caught.value)


def test_a_model_with_a_rule_of_its_own_is_refused():
    class Own(DQN):
        def train(self, gradient_steps, batch_size=100):
            raise AssertionError

    with pytest.raises(TypeError, match=r"learns by DQN\.train, and Own does not"):
        use_operator(Own("MlpPolicy", "CartPole-v1", **FEW), "max")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_all_is_there():
    learner = use_operator(model(device="cuda"), "double(mellowmax(5))").learn(300)
    assert learner.q_net_target(torch.zeros(2, 4, device="cuda")).device.type == "cuda"


def test_what_the_page_shows_runs():
    names = {}
    exec(shown("Stable-Baselines3").replace("20_000", "200"), names)
    assert names["model"].num_timesteps == 200


def test_what_the_page_shows_of_a_saved_model_runs_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, save, load = (shown("Stable-Baselines3", place).replace("0_000", "00") for place in range(3))
    exec(first, before := {})
    exec(save, before)
    assert before["model"].num_timesteps == 200
    begin, goes_on = load.split("use_operator(loaded")
    exec(f"{first.split('model =')[0]}{begin}", after := {})
    loaded, model = after["loaded"], before["model"]
    same(loaded.policy, model.policy)
    assert loaded.replay_buffer.size() == 200
    watched = Watched(loaded, "softmax(5)", monkeypatch)
    exec(f"use_operator(loaded{goes_on}", after)
    assert loaded.num_timesteps == 300
    assert len(watched.used) == 25  # an update every 4 steps
    np.testing.assert_allclose(watched.used, watched.due, rtol=1e-5, atol=1e-5)
    # The library's target network is copied every 10,000 steps, so what bootstraps has not moved.
    same(loaded.policy.q_net_target, model.policy.q_net_target)
