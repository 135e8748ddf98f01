# pyright: reportMissingImports=false
"""Export of a saved network: to PyTorch, as a safetensors file with its description, or to ONNX."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from softbellman.arguments import as_path
from softbellman.config import Config
from softbellman.envs.step import HostEnv, Scale
from softbellman.extras import require_extra
from softbellman.learning.networks import Params
from softbellman.learning.parts.estimates import Categorical, Ensemble, Quantiles, Value
from softbellman.learning.parts.heads import Duelling, Linear
from softbellman.learning.parts.risks import Neutral
from softbellman.learning.parts.scales import PopArt, Raw
from softbellman.learning.parts.transformed import Transformed
from softbellman.references import is_reference
from softbellman.running.build import make_env, network_kind, parts_of, recorded_scale
from softbellman.running.jax_settings import own_settings
from softbellman.running.play import saved
from softbellman.study.files import write_atomically
from softbellman.study.place import require_file
from softbellman.study.runs import RunPath, SavedNetwork, params_file
from softbellman.study.store import Study

Form = Literal["torch", "onnx"]
ENDINGS: dict[Form, str] = {"torch": ".safetensors", "onnx": ".onnx"}
_HIDDEN = {"nature_cnn": {"dense": 512}, "minatar_cnn": {"dense": 128}}


def export(
    study: Study, run: RunPath, form: Form, *, network: SavedNetwork = "best", out: str | Path | None = None
) -> Path:
    """Writes a run's saved network for PyTorch or ONNX, and returns the file's path.

    It takes observations `[B, *obs_shape]` as the environment gives them, laid out as in training, and gives `[B, A]`.

    Args:
        study: the run's study.
        run: the run.
        form: `torch`, which `softbellman.integrations.torch_network.load` reads, or `onnx`.
        network: the network that its test phases found best, or the last one.
        out: where to; by default `export/` in the run's directory.

    Raises:
        ValueError: before any work, for a network or parts that have no form there, or a place that can't be written;
            and if there is no saved network.
        MissingExtra: if PyTorch or what else it takes is not installed.
    """
    if form not in ENDINGS:
        raise ValueError(f"--to {form!r} must be one of {', '.join(ENDINGS)}")
    file, config = params_file(run, network), study.config_of(run)
    _refuse_what_has_no_form(run, config)
    path = as_path(out) if out is not None else run.path / "export" / file.with_suffix(ENDINGS[form]).name
    require_file(path)
    require_extra("torch")
    require_extra(form)
    module, example, facts = _network(study, run, config, network)
    content = _as_onnx(module, example) if form == "onnx" else _as_safetensors(module, facts)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return path


def _refuse_what_has_no_form(run: RunPath, config: Config) -> None:
    parts, settings = parts_of(config.recipe), config.recipe
    for role, fits in (
        ("head", type(parts["head"]) in (Linear, Duelling)),
        ("estimate", type(parts["estimate"]) in (Value, Ensemble, Quantiles, Categorical, Transformed)),
        ("scale", type(parts["scale"]) in (Raw, PopArt)),
    ):
        if not fits:
            spec = getattr(settings, role)
            raise ValueError(f"recipe.{role} {spec} of {run} is one of your own: it can't be exported")
    if parts["risk"] != Neutral():
        raise ValueError(
            f"{run} acts by recipe.risk {settings.risk}, and an exported network gives mean values: the best action by "
            "these is another; load it as a policy in Python instead"
        )
    if is_reference(config.network.kind):
        raise ValueError(f"network.kind {config.network.kind} of {run} is one of your own: it can't be exported")


@own_settings()
def _network(study: Study, run: RunPath, config: Config, network: SavedNetwork) -> tuple[Any, Any, dict[str, Any]]:
    """Returns the module, two observations to trace it with, and facts to store beside it."""
    import torch

    from softbellman.integrations.torch_network import QNetwork

    env = make_env(run.environment, config, seed=0, training=False)
    try:
        _, params, stored = saved(study, run, env, network)
        scale = recorded_scale(study.record["environment_facts"].get(run.environment, {}), str(env.obs_dtype))
    finally:
        env.close()
    description = _described(config, env)
    module = QNetwork(**description).eval()
    module.load_state_dict(_tensors(params, module.state_dict(), scale, config))
    facts = {"network": description, "run": str(run), "environment": run.environment, "obs_dtype": str(env.obs_dtype)}
    example = torch.zeros((2, *env.obs_shape), dtype=getattr(torch, str(env.obs_dtype)))
    return module, example, facts | {"agent_steps": stored["agent_steps"]}


def _described(config: Config, env: HostEnv) -> dict[str, Any]:
    """Describes a network by the arguments of `QNetwork`."""
    parts, kind = parts_of(config.recipe), network_kind(config.network, env.obs_shape)
    estimate = parts["estimate"]
    reduced = getattr(estimate, "reduce", "mean")
    words = {Value: "value", Quantiles: "mean", Ensemble: "mean" if reduced == "mix" else reduced}
    return {
        "kind": kind,
        "obs_shape": list(env.obs_shape),
        "actions": env.num_actions,
        "hidden": _HIDDEN.get(kind, {f"dense_{i + 1}": width for i, width in enumerate(config.network.hidden)}),
        "duelling": isinstance(parts["head"], Duelling),
        "estimate": words.get(type(estimate), estimate.name),
        "outputs": estimate.outputs or 1,
        "slope": getattr(estimate, "slope", 0.0),
    }


def _tensors(params: Params, wanted: dict[str, Any], scale: Scale, config: Config) -> dict[str, Any]:
    """Returns the module's tensors by name: weights in PyTorch's layout, without noise, and what is no weight."""
    import torch

    parts = parts_of(config.recipe)
    arrays = {name: tensor.numpy() for name, tensor in wanted.items() if not name.startswith("layers.")}
    entries = np.ravel(np.array(scale, np.float32))  # one for all, or each its own
    arrays["scale"] = np.resize(entries, arrays["scale"].shape)
    if isinstance(parts["estimate"], Categorical):
        arrays["support"] = parts["estimate"].support
    if isinstance(parts["scale"], PopArt):
        arrays["shift"], arrays["factor"] = map(np.asarray, parts["scale"].moments(params))
    for layer, own in params.items():
        if "w" in own:
            w = np.asarray(own["w"])
            arrays[f"layers.{layer}.weight"] = w.T if w.ndim == 2 else w.transpose(3, 2, 0, 1)
            arrays[f"layers.{layer}.bias"] = np.asarray(own["b"])
    return {name: torch.tensor(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _as_safetensors(network: Any, facts: dict[str, Any]) -> bytes:
    from safetensors.torch import save

    from softbellman.integrations.torch_network import FORMAT

    texts = {name: json.dumps(fact) for name, fact in facts.items()}
    return save(network.state_dict(), metadata={"format": "pt", "softbellman": FORMAT} | texts)


def _as_onnx(network: Any, example: Any) -> bytes:
    import torch

    batch = {0: torch.export.Dim("batch")}
    with _exporter_silent():
        program = torch.onnx.export(
            network,
            (example,),
            input_names=["obs"],
            output_names=["q"],
            dynamic_shapes=(batch,),
            dynamo=True,
            verbose=False,
        )
    return program.model_proto.SerializeToString()  # pyright: ignore[reportOptionalMemberAccess]


@contextlib.contextmanager
def _exporter_silent() -> Iterator[None]:
    """Keeps the exporter's words on its own insides off the screen; errors, raised or logged, pass."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
