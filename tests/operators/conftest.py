"""Arrays of every library that operators take, one parameter each."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest


class Library(NamedTuple):
    """How to make an array, and how exact its arithmetic is."""

    name: str
    dtype: Any
    eps: float

    def array(self, values) -> Any:
        values = np.asarray(values)
        if self.name == "jax":
            import jax.numpy as jnp

            return jnp.asarray(values, dtype=self.dtype)
        if self.name == "torch":
            import torch

            return torch.tensor(values, dtype=getattr(torch, self.dtype))
        return values.astype(self.dtype)

    def mask(self, values) -> Any:
        return Library(self.name, "bool", 0.0).array(values)

    def gradient(self, function, q, *, again=False) -> Any:
        """Differentiate by the library's own automatic differentiation; what it gives can be differentiated `again`."""
        if self.name == "jax":
            import jax

            return jax.grad(lambda q: function(q).sum())(q)
        import torch

        q = q.clone().requires_grad_()
        return torch.autograd.grad(function(q).sum(), q, create_graph=again)[0]


NUMPY = [
    pytest.param(Library("numpy", "float64", 2**-52), id="numpy-float64"),
    pytest.param(Library("numpy", "float32", 2**-23), id="numpy-float32"),
]
DIFFERENTIABLE = [
    pytest.param(Library("jax", "float32", 2**-23), id="jax-float32"),
    pytest.param(Library("torch", "float64", 2**-52), id="torch-float64", marks=pytest.mark.torch),
    pytest.param(Library("torch", "float32", 2**-23), id="torch-float32", marks=pytest.mark.torch),
]
IN_FLOAT64 = [pytest.param(Library("jax", "float64", 2**-52), id="jax-float64"), DIFFERENTIABLE[1]]


@pytest.fixture(params=NUMPY + DIFFERENTIABLE)
def library(request) -> Library:
    return request.param


@pytest.fixture(params=DIFFERENTIABLE)
def differentiable(request) -> Library:
    return request.param


@pytest.fixture(params=[*DIFFERENTIABLE, IN_FLOAT64[0]])
def of_any_precision(request) -> Iterator[Library]:
    """Every library that differentiates, in float32 and float64."""
    yield from _with_precision(request.param)


@pytest.fixture(params=IN_FLOAT64)
def in_float64(request) -> Iterator[Library]:
    yield from _with_precision(request.param)


def _with_precision(library: Library) -> Iterator[Library]:
    if library.name == "jax":
        import jax

        with jax.enable_x64(library.dtype == "float64"):
            yield library
    else:
        yield library
