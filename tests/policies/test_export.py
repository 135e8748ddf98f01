"""Exported networks: what they give is what the policy gives, to float32's rounding, on raw observations."""

import contextlib
import importlib.util
import json
import logging
import subprocess
import sys
import types
import warnings
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
    path = export(study, run, "torch", network="final", out=tmp_path / "final.safetensors")
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


REMEDY = "; run `softbellman export RUN --to torch` and give the file that it names"


@pytest.fixture
def wrong_files(cartpole, tmp_path, torch):
    """A function that makes a file, or none, of each kind that is no exported network."""
    from safetensors.torch import load_file, save, save_file

    study, _ = cartpole
    right = export(study, study.runs[0], "torch", out=tmp_path / "right.safetensors")
    facts = {"softbellman": "q-network 1", "network": json.dumps({"kind": "mlp"})}

    def network(**changes):
        from safetensors import safe_open

        with safe_open(right, "pt") as file:
            described = json.loads(file.metadata()["network"])
        return {**facts, "network": json.dumps(described | changes)}

    files = {
        "a run's own": lambda path: path.write_bytes((study.runs[0].path / "best.safetensors").read_bytes()),
        "another model's": lambda path: save_file({"a": torch.zeros(2)}, path),
        "a later version's": lambda path: save_file({"a": torch.zeros(2)}, path, {"softbellman": "q-network 2"}),
        "a pickle": lambda path: torch.save({"a": torch.zeros(2)}, path),
        "a text": lambda path: path.write_text("# A card"),
        "empty": lambda path: path.touch(),
        "cut short": lambda path: path.write_bytes(save({"a": torch.zeros(2)})[:-3]),
        "a directory": lambda path: path.mkdir(),
        "missing": lambda path: None,
        "without a description": lambda path: save_file({"a": torch.zeros(2)}, path, {"softbellman": "q-network 1"}),
        "half described": lambda path: save_file({"a": torch.zeros(2)}, path, facts),
        "of other layers": lambda path: save_file({"a": torch.zeros(2)}, path, network()),
        "of other widths": lambda path: save_file(load_file(right), path, network(hidden={"dense_1": 3})),
        "described by a list": lambda path: save_file(load_file(right), path, network(hidden=[64, 64])),
    }

    def made(kind):
        files[kind](tmp_path / "wrong")
        return tmp_path / "wrong"

    return made


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("a run's own", "is a safetensors file of something else"),
        ("another model's", "is a safetensors file of something else"),
        ("a later version's", "is of the form q-network 2, not q-network 1"),
        ("a pickle", "is no whole safetensors file ("),
        ("a text", "is no whole safetensors file ("),
        ("empty", "is no whole safetensors file ("),
        ("cut short", "is no whole safetensors file ("),
        ("a directory", "can't be read (Is a directory)"),
        ("missing", "can't be read (No such file or directory)"),
        ("without a description", "describes a network that its numbers do not fit (KeyError: 'network')"),
        ("half described", "describes a network that its numbers do not fit (TypeError"),
        ("of other layers", "describes a network that its numbers do not fit (RuntimeError"),
        ("of other widths", "describes a network that its numbers do not fit (RuntimeError"),
        ("described by a list", "describes a network that its numbers do not fit (AttributeError"),
    ],
)
def test_a_file_that_is_no_exported_network_is_refused_in_one_line(kind, fault, wrong_files):
    from softbellman.integrations.torch_network import load

    path = wrong_files(kind)
    for given in (path, str(path)):
        with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
            load(given)
        assert str(caught.value).startswith(f"{path} {fault}")
        assert str(caught.value).endswith(REMEDY)
    with pytest.raises(TypeError, match="not NoneType"):
        load(None)


def test_the_home_directory_is_found(cartpole, tmp_path, monkeypatch, torch):
    from softbellman.integrations.torch_network import load

    study, _ = cartpole
    export(study, study.runs[0], "torch", out=tmp_path / "network.safetensors")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("~/network.safetensors").actions == 2


def test_the_command_prints_its_own_lines_alone(tmp_path):
    """In a process of its own, since PyTorch logs to a screen that it found when it was imported."""
    pytest.importorskip("onnxscript")
    study = drawn(tmp_path, "gym/CartPole-v1")
    words = ["export", str(study.path), "--to", "onnx", "--out", str(tmp_path / "network.onnx")]
    command = [sys.executable, "-m", "softbellman", *words]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    assert [line.split()[0] for line in process.stdout.splitlines()] == ["network", "file"]


@pytest.mark.parametrize("fails", [False, True])
def test_of_the_exporters_words_errors_alone_are_passed_on(fails, cartpole, tmp_path, monkeypatch, torch, capsys):
    pytest.importorskip("onnxscript")
    study, _ = cartpole
    kept, names = [], ("torch.onnx", "onnxscript.optimizer", "onnx_ir", "any")
    handler = logging.Handler()
    handler.emit = lambda record: kept.append((record.name, record.levelname))

    def noisy(*given, **more):
        print("[torch.onnx] Run decompositions...")
        warnings.warn("a pattern was not found", UserWarning, stacklevel=1)
        for name in names:
            logging.getLogger(name).warning("skipped")
            logging.getLogger(name).error("wrong")
        if fails:
            raise RuntimeError("no such operator")
        return types.SimpleNamespace(model_proto=types.SimpleNamespace(SerializeToString=lambda: b"onnx"))

    monkeypatch.setattr(torch.onnx, "export", noisy)
    for name in names:
        monkeypatch.setattr(logging.getLogger(name), "handlers", [handler])
        monkeypatch.setattr(logging.getLogger(name), "propagate", False)
    place = tmp_path / "network.onnx"
    with pytest.raises(RuntimeError, match="no such operator") if fails else contextlib.nullcontext():
        export(study, study.runs[0], "onnx", out=place)
    assert place.exists() is not fails
    assert kept == [(name, "ERROR") for name in names]
    assert capsys.readouterr() == ("", "")
    logging.getLogger("any").warning("again")
    assert kept[-1] == ("any", "WARNING")
