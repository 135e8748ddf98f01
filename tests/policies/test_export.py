"""Exported networks: what they give is what the policy gives, to float32's rounding, on raw observations."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import softbellman as sb
from softbellman import envs
from softbellman.extras import MissingExtra
from softbellman.policies.export import export
from softbellman.study.files import load_params, save_params

from .studies import drawn

pytestmark = pytest.mark.torch
DEEP = {"recipe.head": "duelling", "recipe.noise": "noisy(0.5)", "recipe.estimate": "categorical(11, -3, 3)"}
RECIPES = [
    ("gym/CartPole-v1", {}),
    ("gym/CartPole-v1", {"network.hidden": ()}),
    ("gym/CartPole-v1", DEEP),
    ("gym/CartPole-v1", {"recipe.estimate": "quantiles(7)"}),
    ("gym/CartPole-v1", {"recipe.estimate": "ensemble(4, median)", "recipe.head": "duelling"}),
    ("gym/CartPole-v1", {"recipe.estimate": "ensemble(3, min)", "recipe.scale": "popart(0.1)"}),
    ("gym/CartPole-v1", {"recipe.estimate": "ensemble(3, mix)"}),
    ("gym/CartPole-v1", {"recipe.estimate": "transformed"}),
    ("gym/CartPole-v1", {"recipe.scale": "popart(0.1)", "recipe.head": "duelling"}),
    ("minatar/breakout", {}),
    ("minatar/seaquest", DEEP),
    ("mdp/forest", {}),
]


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def observed(environment, study, batch=5):
    """A few observations, as the environment gives them, not all alike."""
    protocol = getattr(study.config, envs.family_of(environment).section or "none", None)
    env = envs.make(environment, seed=0, num_envs=batch, protocol=protocol)
    obs = env.reset()
    for moment in range(12):
        actions = (np.arange(batch) + moment) % env.num_actions
        obs = env.step(actions.astype(np.int32)).obs
    env.close()
    return np.array(obs)  # PyTorch warns of arrays that can't be written


def unlike(study):
    """Gives a network parameters that are not as they begin: noise, and moments of targets, of other sizes."""
    path, rng = study.runs[0].path / "best.safetensors", np.random.default_rng(1)
    params, facts = load_params(path)
    for layer in params.values():
        for name, array in layer.items():
            layer[name] = (array + 0.05 * rng.normal(size=array.shape)).astype(np.float32)
    if "scale" in params:
        params["scale"] = {"mean": np.float32(1.5), "square": np.float32(6.0)}
    save_params(path, params, facts["agent_steps"], 0.0)


@pytest.mark.parametrize(("environment", "recipe"), RECIPES)
def test_the_module_gives_the_policys_values(environment, recipe, tmp_path, torch):
    from softbellman.integrations.torch_network import load

    preset = "demo-minatar" if environment.startswith("minatar") else "classic-control"
    study = drawn(tmp_path, environment, recipe, preset=preset)
    unlike(study)
    path = export(study, study.runs[0], "torch")
    assert path == study.runs[0].path / "export" / "best.safetensors"
    network, obs = load(path), observed(environment, study)
    assert len(np.unique(obs.reshape(len(obs), -1), axis=0)) > 1
    expected = sb.load(study.path).q(obs)
    for batch in (obs, obs[:1]):
        with torch.no_grad():
            given = network(torch.from_numpy(batch)).numpy()
        np.testing.assert_allclose(given, expected[: len(batch)], rtol=2e-5, atol=2e-5)
    assert np.ptp(expected) > 1e-3


def test_pixels_are_divided_inside(breakout, tmp_path, torch):
    from softbellman.integrations.torch_network import load

    network = load(export(breakout, breakout.runs[0], "torch", out=tmp_path / "new" / "one.safetensors"))
    obs = observed("atari/breakout", breakout, 2)
    assert obs.dtype == np.uint8
    assert obs.max() > 100
    with torch.no_grad():
        given = network(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(given, sb.load(breakout.path).q(obs), rtol=1e-4, atol=1e-5)
    assert network.layers["dense"].weight.shape == (512, 3136)


@pytest.mark.parametrize(
    ("environment", "recipe"), [RECIPES[0], RECIPES[2], RECIPES[4], RECIPES[7], ("minatar/breakout", {}), ("atari", {})]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the exporter's own insides
def test_onnx_gives_the_policys_values(environment, recipe, tmp_path, request):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    if environment == "atari":
        environment, study = "atari/breakout", request.getfixturevalue("breakout")
    else:
        preset = "demo-minatar" if environment.startswith("minatar") else "classic-control"
        study = drawn(tmp_path, environment, recipe, preset=preset)
    path = export(study, study.runs[0], "onnx", out=tmp_path / "network.onnx")
    session, obs = runtime.InferenceSession(path), observed(environment, study)
    expected = sb.load(study.path).q(obs)
    for batch in (obs, obs[:1], obs[:3]):  # of any size
        (given,) = session.run(["q"], {"obs": batch})
        np.testing.assert_allclose(given, expected[: len(batch)], rtol=1e-4, atol=2e-5)


def test_a_trained_run_is_exported_with_what_it_is(cartpole, tmp_path, torch):
    from safetensors import safe_open

    study, _ = cartpole
    run = study.runs[1]
    path = export(study, run, "torch", which="final", out=tmp_path / "final.safetensors")
    with safe_open(path, "pt") as file:
        facts = {
            name: json.loads(text) for name, text in file.metadata().items() if name not in ("format", "softbellman")
        }
    assert facts["run"] == str(run)
    assert facts["agent_steps"] == load_params(run.path / "final.safetensors")[1]["agent_steps"]
    assert facts["network"]["kind"] == "mlp"
    assert not list(tmp_path.glob(".*"))


def test_the_file_that_reads_it_stands_alone(cartpole, tmp_path, torch):
    """Copied into another project, it needs nothing of ours."""
    study, _ = cartpole
    export(study, study.runs[0], "torch", out=tmp_path / "network.safetensors")
    source = Path(importlib.util.find_spec("softbellman.integrations.torch_network").origin)
    (tmp_path / "copied.py").write_text(source.read_text())
    code = (
        "import sys, torch, copied; q = copied.load('network.safetensors')(torch.zeros(3, 4)); "
        "assert not any(name.startswith('softbellman') for name in sys.modules); print(*q.shape)"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout.split()) == (0, ["3", "2"]), process.stderr


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"recipe.estimate": "quantiles(5)", "recipe.risk": "cvar(0.5)"}, r"acts by recipe.risk cvar\(0.5\)"),
        ({"network.kind": "somebodys:network"}, "network.kind somebodys:network .* is one of your own"),
        ({"recipe.estimate": f"{__name__}:Own"}, "recipe.estimate .*Own .* is one of your own"),
    ],
)
def test_what_has_no_form_is_refused_before_any_work(recipe, message, tmp_path, cartpole, monkeypatch):
    from softbellman.config import replaced
    from softbellman.learning.parts.estimates import Value

    study, _ = cartpole
    config = study.config
    for name, value in recipe.items():
        config = replaced(config, name, value)
    if "Own" in str(recipe):

        class Own(Value):
            """An estimate of a user's own."""

        monkeypatch.setattr(
            "softbellman.policies.export.parts_of", lambda _: {**parts(study.config), "estimate": Own()}
        )
    monkeypatch.setattr(study, "config_of", lambda _: config, raising=False)
    with pytest.raises(ValueError, match=message):
        export(study, study.runs[0], "onnx", out=tmp_path / "there" / "file")
    assert not list(tmp_path.iterdir())


def parts(config):
    from softbellman.running.build import parts_of

    return parts_of(config.recipe)


def test_bad_places_and_forms_are_refused(cartpole, tmp_path, monkeypatch):
    study, _ = cartpole
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="--to 'jit' must be one of torch, onnx"):
        export(study, study.runs[0], "jit")
    with pytest.raises(ValueError, match=r"can't be written .*name another file with --out"):
        export(study, study.runs[0], "torch", out=tmp_path / "file" / "below")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r'onnx is not installed; run: pip install "softbellman\[onnx\]"'):
        export(study, study.runs[0], "onnx")


def test_a_file_of_another_kind_is_refused(cartpole, torch):
    from softbellman.integrations.torch_network import load

    study, _ = cartpole
    with pytest.raises(ValueError, match="is no network that `softbellman export RUN --to torch` wrote"):
        load(study.runs[0].path / "best.safetensors")
