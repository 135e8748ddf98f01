"""Common needs of the tests of integrations: the operators tried, and their values by formulas of NumPy alone."""

import importlib.util
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from softbellman import operators as ops

TRIED = ["softmax(5)", "double(mellowmax(5))"]


def example(name):
    """The module of a file of examples/."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_example(name):
    """Has an example learn CartPole, and refuse what it can't use."""
    module = example(name)
    _, returns = module.main(module.Args(operator="double(mellowmax(5))", steps=4_000))
    assert np.mean(returns[-5:]) > np.mean(returns[:10])
    for options, message in (
        ({"operator": "softmx(5)"}, "Did you mean softmax"),
        ({"env_id": "Pendulum-v1"}, "discrete"),
    ):
        with pytest.raises(ValueError, match=message):
            module.main(module.Args(**options))


def bootstrap(spec, q, selector):
    """The value of one of `TRIED`, or of the library's own rules, `[B]`, in float64, without the operators."""
    q, selector = np.asarray(q, np.float64), np.asarray(selector, np.float64)
    if spec == "max":
        return q.max(axis=-1)
    if spec == "double(max)":
        return q[np.arange(len(q)), selector.argmax(axis=-1)]
    return (_policy(spec, q, selector) * q).sum(axis=-1)


def _policy(spec, q, selector):
    return _boltzmann(5.0, q) if spec == "softmax(5)" else _boltzmann(_rate(5.0, selector), selector)


def _boltzmann(rate, q):
    weights = np.exp(rate * (q - q.max(axis=-1, keepdims=True)))
    return weights / weights.sum(axis=-1, keepdims=True)


def _rate(omega, q):
    """The rates `[B, 1]` at which softmax is mellowmax, as Asadi and Littman say: between 0 and omega, by halving."""
    low, high = np.zeros((len(q), 1)), np.full((len(q), 1), omega)
    goal = np.log(np.mean(np.exp(omega * q), axis=-1, keepdims=True)) / omega
    for _ in range(60):
        middle = (low + high) / 2
        below = (_boltzmann(middle, q) * q).sum(axis=-1, keepdims=True) < goal
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


@ops.operator
class Tilted(ops.Operator):
    """One of a user's own: it fails where values are PyTorch's."""

    def policy(self, row):
        return row.normalise(row.z.astype("float32") + 1)


@ops.operator
class Between(ops.Operator):
    """One of a user's own that heeds the selector, and is no `Pair`."""

    def __call__(self, q, selector=None, where=None):
        return super().__call__((q + selector) / 2, None, where)

    def policy(self, row):
        return row.boltzmann(1.0)


def same(first, second):
    """Asserts that two modules have the same parameters to the last bit."""
    pairs = list(zip(first.named_parameters(), second.named_parameters(), strict=True))
    assert pairs
    for (name, one), (other, two) in pairs:
        assert name == other
        np.testing.assert_array_equal(one.detach().numpy(), two.detach().numpy(), err_msg=name)


def shown(heading, place=0):
    """A block of Python that docs/integrations.md shows under a heading, the first if no other is asked for."""
    page = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)[place]


def needs(*libraries):
    """Skips a module of tests unless these are installed; networks so small are the quickest in one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their own, of what loads them
        for library in libraries:
            pytest.importorskip(library)
    import torch

    torch.set_num_threads(1)
