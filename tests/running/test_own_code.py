"""Networks and parts of a user's own are made by their references, and refused before any work if they can't serve."""

import json
import sys
import textwrap

import jax
import pytest

from softbellman.config import Config, preset, with_settings
from softbellman.running.build import make_network

from ..studies import TINY, planned_study, trained

NETS = """
    import jax, jax.numpy as jnp, numpy as np
    from softbellman.learning.networks import Network
    from softbellman.learning.parts.heads import Output

    def linear(obs_shape, num_actions, scale):
        size = int(np.prod(obs_shape))
        def init(key):
            return {"q": {"w": 0.1 * jax.random.normal(key, (size, num_actions)), "b": jnp.zeros(num_actions)}}
        def apply(params, obs):
            x = obs.reshape(len(obs), -1) / jnp.reshape(jnp.asarray(scale, jnp.float32), (1, -1))
            return x @ params["q"]["w"] + params["q"]["b"][None]
        return Network(init, apply, "q")

    def changed(**parts):
        return lambda obs_shape, num_actions, scale: linear(obs_shape, num_actions, scale)._replace(**parts)

    def one_value(obs_shape, num_actions, scale): return linear(obs_shape, 1, scale)
    def pair(obs_shape, num_actions, scale): return tuple(linear(obs_shape, num_actions, scale))[:2]
    def two_arguments(obs_shape, num_actions): return linear(obs_shape, num_actions, 1.0)
    def failing(obs_shape, num_actions, scale): return {}["weights"]
    number = 3
    failing_init = changed(init=lambda key: {}["q"])
    failing_apply = changed(apply=lambda params, obs: params["p"])
    numpy_only = changed(apply=lambda params, obs: np.asarray(obs) @ np.asarray(params["q"]["w"]))
    no_batch = changed(apply=lambda params, obs: (obs @ params["q"]["w"])[0])
    integers = changed(apply=lambda params, obs: (obs @ params["q"]["w"]).astype(int))
    a_tuple = changed(apply=lambda params, obs: (obs @ params["q"]["w"],))
    other_layer = changed(last_layer="head")
    flat = changed(init=lambda key: {"q": jnp.zeros((4, 2))})
    deep = changed(init=lambda key: {"q": {"w": {"x": jnp.zeros((4, 2))}}})
    halves = changed(init=lambda key: {"q": {"w": jnp.zeros((4, 2), jnp.float16), "b": jnp.zeros(2)}})
    def duelling(obs_shape, num_actions, scale, outputs=(Output("q", is_centred=True), Output("state"))):
        size = int(np.prod(obs_shape))
        shapes = {"q": (size, num_actions), "state": (size, 1)}
        def init(key):
            return {
                name: {"w": 0.1 * jax.random.normal(key, each), "b": jnp.zeros(each[1])}
                for name, each in shapes.items()
            }
        def apply(params, obs):
            q, state = (obs.reshape(len(obs), -1) @ params[name]["w"] + params[name]["b"][None] for name in shapes)
            return state + q - q.mean(axis=1, keepdims=True)
        return Network(init, apply, "q", outputs=outputs)
    def duelling_unnamed(*given): return duelling(*given, outputs=())
    def duelling_misnamed(*given): return duelling(*given, outputs=(Output("value"),))
    unbiased = changed(
        init=lambda key: {"q": {"w": jnp.ones((4, 2))}}, apply=lambda params, obs: obs @ params["q"]["w"]
    )
    squashed = changed(apply=lambda params, obs: jnp.tanh(obs @ params["q"]["w"] + params["q"]["b"][None]))
    slashed = changed(init=lambda key: {"a/b": {"w": jnp.zeros((4, 2))}}, last_layer="a/b")
"""


PARTS = """
    from dataclasses import dataclass
    import jax, jax.numpy as jnp, numpy as np
    from softbellman.gaps import Gap
    from softbellman.learning.parts.controllers import Controller
    from softbellman.learning.parts.copies import Latest
    from softbellman.learning.parts.estimates import Value
    from softbellman.learning.parts.exploration import Greedy
    from softbellman.learning.parts.sampling import Uniform

    @dataclass(frozen=True)
    class Half(Gap):
        share: float = 0.5
        def penalty(self, here, after, discount):
            return self.share * here()

    class Absent(Gap):
        pass

    class Failing(Gap):
        def penalty(self, here, after, discount):
            return {}["gap"]

    class Concrete(Gap):
        def penalty(self, here, after, discount):
            return 0.5 if float(here().mean()) > 0 else None

    class Wide(Gap):
        def penalty(self, here, after, discount):
            return here()[:3]

    class Slow(Latest):
        def copied(self, target_params, params):
            return jax.tree.map(lambda old, new: jnp.float16(old + 0.1 * (new - old)), target_params, params)

    class Odd(Greedy):
        def actions(self, q, chance, legal=None):
            return q.best()

    class First(Uniform):
        def draw(self, memory, words, stored, xp):
            return words[:0, None] % xp.uint32(stored), None

    @dataclass(frozen=True)
    class Still(Controller):
        def update(self, state, signals, operator):
            return state._replace(parameter=signals.here.mean(axis=-1))
"""


@pytest.fixture
def own_parts(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(textwrap.dedent(PARTS))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_parts", None)


def planned_part(role, spec, environment="gym/CartPole-v1", **values):
    return planned_study(environment, "classic-control", "softmax(5)", [0], TINY | values | {f"recipe.{role}": spec})


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize("environment", ["gym/CartPole-v1", "minatar/breakout", "mdp/doors"])
@pytest.mark.parametrize(
    "more", [{}, {"recipe.returns": 3, "recipe.sampling": "prioritised", "recipe.target": "past(2)"}]
)
def test_a_part_of_ones_own_is_planned_with(environment, more):
    assert dict(planned_part("gap", "own_parts:Half(0.25)", environment, **more).settings())["recipe.gap"]


@pytest.mark.usefixtures("own_parts")
@pytest.mark.parametrize(
    ("role", "name", "fault"),
    [
        ("gap", "Absent", "an update fails: NotImplementedError: Absent must define penalty"),
        ("gap", "Failing", r"an update fails: KeyError: 'gap' \(.*own_parts.py, line \d+\)"),
        ("gap", "Concrete", r"an update fails: ConcretizationTypeError: .*own_parts.py, line \d+"),
        ("gap", "Wide", "an update fails: "),
        ("target", "Slow", "an update changes the shape or the dtype of what the learner carries"),
        ("exploration", "Odd", "an update fails: AttributeError: .*best"),
        ("sampling", "First", "an update fails: "),
        ("controller", "Still", "an update changes the shape or the dtype"),
    ],
)
def test_a_part_that_fails_is_refused_by_the_plan(role, name, fault):
    with pytest.raises(ValueError, match=fault) as refused:
        planned_part(role, f"own_parts:{name}")
    assert f"recipe.{role} own_parts:{name}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(textwrap.dedent(NETS))
    monkeypatch.syspath_prepend(tmp_path)
    import nets  # pyright: ignore

    yield nets
    make_network.cache_clear()
    sys.modules.pop("nets", None)


def planned(name, environment="gym/CartPole-v1", scale="raw"):
    values = TINY | {"network.kind": f"nets:{name}", "recipe.scale": scale}
    return planned_study(environment, "classic-control", "max", [0], values)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("environment", ["gym/CartPole-v1", "minatar/breakout", "mdp/forest"])
def test_a_network_of_ones_own_is_planned_with(environment):
    plan = planned("linear", environment)
    assert dict(plan.run_lines())["network"] == "nets:linear"
    settings = dict(plan.settings())
    assert settings["network.kind"] == "nets:linear" and "network.hidden" not in settings


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("environment", ["gym/CartPole-v1", "minatar/breakout"])
def test_it_is_trained_on_both_loops_and_recorded(environment, tmp_path):
    values = TINY | {"network.kind": "nets:linear", "loop.test_episodes": 2}
    study, rows = trained(tmp_path / "study", environment, "classic-control", "max", [0], values)
    assert rows[-1][1]["gradient_norm"] > 0 and rows[-1][1]["updates"] > 0
    assert json.loads((study.path / "study.json").read_text())["config"]["network"]["kind"] == "nets:linear"
    assert (study.runs[0].path / "final.safetensors").exists()


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("one_value", r"gives float32 of shape \(1, 1\) for 1 of 2 actions, and must give float32 of shape \(1, 2\)"),
        ("pair", "returns tuple, and must return a softbellman.learning.networks.Network"),
        ("two_arguments", r"must take \(obs_shape, num_actions, scale\): too many positional arguments"),
        ("failing", r"fails: KeyError: 'weights' \(.*nets.py, line \d+\)"),
        ("number", r"is of int, and must be a function of \(obs_shape"),
        ("failing_init", r"fails in init: KeyError: 'q' \(.*nets.py, line \d+\)"),
        ("failing_apply", r"fails in apply: KeyError: 'p' \(.*nets.py, line \d+\)"),
        ("numpy_only", "fails in apply: TracerArrayConversionError"),
        ("no_batch", r"gives float32 of shape \(2,\)"),
        ("integers", r"gives int32 of shape \(1, 2\)"),
        ("a_tuple", "gives no array"),
        ("other_layer", r"has the last layer 'head', in which there are no weights 'w' \(its layers: q\)"),
        ("flat", "gives parameters that are no dict of layers"),
        ("deep", "gives parameters that are no dict of layers"),
        ("halves", "gives parameters that are no dict of layers"),
        ("slashed", "gives parameters that are no dict of layers"),
        ("liner", "nets has no liner; did you mean linear"),
    ],
)
def test_what_could_not_be_learned_with_is_refused_by_the_plan(name, fault):
    with pytest.raises(ValueError, match=fault) as refused:
        planned(name)
    assert f"network.kind nets:{name}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("name", "scale", "fault"),
    [
        ("duelling_unnamed", "popart(0.5)", r"does not keep its values under recipe\.scale popart\(0\.5\); name the"),
        ("duelling_unnamed", "popart(0.0003)", r"does not keep its values under recipe\.scale popart\(0\.0003\); name"),
        ("squashed", "popart(0.5)", r"does not keep its values under recipe\.scale popart\(0\.5\); name the"),
        ("duelling_misnamed", "popart(0.5)", r"fails under recipe\.scale popart\(0\.5\): KeyError: 'value'"),
        ("unbiased", "popart(0.5)", r"fails under recipe\.scale popart\(0\.5\): KeyError: 'b'"),
    ],
)
def test_a_network_whose_values_a_scale_would_move_is_refused(name, scale, fault):
    planned(name)
    with pytest.raises(ValueError, match=rf"^network\.kind nets:{name} {fault}") as refused:
        planned(name, scale=scale)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("name", ["linear", "duelling"])
@pytest.mark.parametrize("scale", ["popart(0.5)", "popart(0.0003)", "popart(1)"])
@pytest.mark.parametrize("environment", ["gym/CartPole-v1", "minatar/breakout"])
def test_a_network_that_names_its_output_layers_is_taken_in_any_units(name, scale, environment):
    assert planned(name, environment, scale).network == f"nets:{name}"


def test_a_function_given_in_python_goes_by_its_reference(nets):
    assert with_settings(Config(), {"network.kind": nets.linear}).network.kind == "nets:linear"
    for given, why in ((nets.numpy_only, "a lambda"), (nets.linear((4,), 2, 1.0).init, "it is defined inside of")):
        with pytest.raises(ValueError, match=rf"network\.kind nets:.* can't be found again by .*{why}"):
            with_settings(Config(), {"network.kind": given})


def test_one_network_is_made_for_one_environment(nets):
    config = with_settings(preset("classic-control").config, {"network.kind": nets.linear})
    first, again = (make_network(config.network, 1.0, (4,), 2) for _ in range(2))
    assert first is again and jax.eval_shape(first.init, jax.random.key(0))["q"]["w"].shape == (4, 2)
