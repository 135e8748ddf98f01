# pyright: reportMissingImports=false
"""Trained networks in PyTorch: `load(path)` reads what `softbellman export RUN --to torch` writes.

This file needs PyTorch and safetensors alone, so that it can be copied into another project.
"""

import itertools
import json
import math
import os
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

FORMAT = "q-network 1"
CONVOLUTIONS = {
    "nature_cnn": {"conv_1": (32, 8, 4), "conv_2": (64, 4, 2), "conv_3": (64, 3, 1)},
    "minatar_cnn": {"conv": (16, 3, 1)},
    "mlp": {},
}
"""Filters, their side and stride, of the convolutions that a kind of network begins with."""


class QNetwork(nn.Module):
    """Action values `[B, A]` of raw observations `[B, *obs_shape]`: what they are divided by is inside.

    Args:
        kind: `nature_cnn`, `minatar_cnn` or `mlp`.
        obs_shape: shape of an observation; frames come first, planes last.
        actions: number of actions, `A`.
        hidden: widths of the hidden layers, by name.
        duelling: a stream for the state's value stands beside that of the advantages.
        estimate: what outputs stand for: `value`, `mean`, `min` or `median` of several, `categorical` or `transformed`.
        outputs: of each action.
        slope: that of the transformed values.
    """

    def __init__(
        self,
        kind: str,
        obs_shape: list[int],
        actions: int,
        hidden: dict[str, int],
        duelling: bool,
        estimate: str,
        outputs: int,
        slope: float,
    ) -> None:
        super().__init__()
        self.obs_shape, self.actions, self.outputs = tuple(obs_shape), actions, outputs
        self.estimate, self.slope, self.hidden, self.duelling = estimate, slope, tuple(hidden), duelling
        self.planes_last, self.convolutions = kind == "minatar_cnn", tuple(CONVOLUTIONS[kind])
        self.register_buffer("scale", torch.ones(self.obs_shape))
        self.register_buffer("support", torch.zeros(outputs))
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("factor", torch.ones(()))
        self.layers = nn.ModuleDict()
        features = math.prod(obs_shape)
        if self.convolutions:
            channels, *sides = (obs_shape[-1], *obs_shape[:-1]) if self.planes_last else obs_shape
            for name, (filters, side, stride) in CONVOLUTIONS[kind].items():
                self.layers[name] = nn.Conv2d(channels, filters, side, stride)
                channels, sides = filters, [(length - side) // stride + 1 for length in sides]
            features = channels * math.prod(sides)
        streams = {"": actions * outputs} | ({"value_": outputs} if duelling else {})
        for prefix, last in streams.items():
            widths = [features, *hidden.values(), last]
            for name, (entering, leaving) in zip([*hidden, "q"], itertools.pairwise(widths), strict=True):
                self.layers[prefix + name] = nn.Linear(entering, leaving)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Computes the action values `[B, A]`."""
        x = obs.to(self.scale.dtype) / self.scale
        x = x.movedim(-1, 1) if self.planes_last else x
        for name in self.convolutions:
            x = torch.relu(self.layers[name](x))
        x = x.flatten(1)
        out = self._stream("", x)
        if self.duelling:
            out = self._stream("value_", x) + out - out.mean(dim=1, keepdim=True)
        out = self.factor * out + self.shift
        if self.estimate == "min":
            return out.amin(dim=-1)
        if self.estimate == "median":
            ordered = out.sort(dim=-1).values
            return (ordered[..., (self.outputs - 1) // 2] + ordered[..., self.outputs // 2]) / 2
        if self.estimate == "categorical":
            return out.softmax(dim=-1) @ self.support
        out = out.mean(dim=-1) if self.estimate == "mean" else out[..., 0]
        return self._unsquashed(out) if self.estimate == "transformed" else out

    def _stream(self, prefix: str, x: torch.Tensor) -> torch.Tensor:
        for name in self.hidden:
            x = torch.relu(self.layers[prefix + name](x))
        return self.layers[prefix + "q"](x).unflatten(1, (-1, self.outputs))

    def _unsquashed(self, x: torch.Tensor) -> torch.Tensor:
        """Computes the inverse of `h(x) = sign(x) (sqrt(|x| + 1) - 1) + slope x`."""
        y = x.abs()
        root = torch.sqrt(1.0 + 4.0 * self.slope * (1.0 + self.slope + y))
        share = 2.0 / (root + 1.0 + 2.0 * self.slope)
        return x * share * (y * share + 2.0)


def load(path: str | os.PathLike[str]) -> QNetwork:
    """Reads a network from a file that `softbellman export` wrote, onto the CPU, for evaluation.

    Raises:
        ValueError: there is no such file, or it is another one or damaged.
    """
    try:
        with open(os.path.expanduser(path), "rb"):  # says why a file can't be read, in the system's own words
            pass
        with safe_open(os.path.expanduser(path), "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    except OSError as error:
        raise _other(path, f"can't be read ({error.strerror or error})") from None
    except SafetensorError as error:
        raise _other(path, f"is no whole safetensors file ({error})") from None
    form = metadata.get("softbellman")
    if form != FORMAT:
        raise _other(
            path, f"is of the form {form}, not {FORMAT}" if form else "is a safetensors file of something else"
        )
    try:
        network = QNetwork(**json.loads(metadata["network"]))
        network.load_state_dict(tensors)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise _other(path, f"describes a network that its numbers do not fit ({reason})") from None
    return network.eval()


def _other(path: Any, fault: str) -> ValueError:
    return ValueError(f"{path} {fault}; run `softbellman export RUN --to torch` and give the file that it names")
