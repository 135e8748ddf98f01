"""An operator of a user's own is tried on ordinary values wherever it is used, and one of ours is not."""

import numpy as np
import pytest

from softbellman import operators as ops
from softbellman.operators import contract
from softbellman.operators.contract import require_contract, require_shapes

from .test_laws import First


class Averaging(ops.Operator):
    """The mean, unless a subclass says otherwise."""

    def policy(self, row):
        return ops.mean().policy(row)


@ops.operator
class Sound(Averaging):
    laws = ops.Laws.of_an_average(at_least_mean=True)


@ops.operator
class OneWeight(Averaging):
    def policy(self, row):
        return row.z[..., :1]


@ops.operator
class WeightOfEachRow(Averaging):
    def policy(self, row):
        return row.normalise(row.xp.ones_like(row.z)).T

    def offset(self, row):
        return row.xp.zeros_like(row.best)


@ops.operator
class NoAxis(Averaging):
    def __call__(self, q, selector=None, where=None):
        return q.sum()


@ops.operator
class KeepsTheAxis(Averaging):
    def __call__(self, q, selector=None, where=None):
        return q.mean(-1, keepdims=True)


@ops.operator
class WrongAxis(Averaging):
    def __call__(self, q, selector=None, where=None):
        return q.mean(0)


@ops.operator
class WrongGradient(Averaging):
    def gradient(self, q, selector=None, where=None):
        return self(q)


@ops.operator
class NoValue(Averaging):
    def __call__(self, q, selector=None, where=None):
        return None


@ops.operator
class Complex(Averaging):
    def policy(self, row):
        return row.normalise(row.xp.ones_like(row.z)) + 0j


@ops.operator
class NanAtTies(Averaging):
    def policy(self, row):
        return row.normalise(row.z / row.spread + 1)


@ops.operator
class InfiniteValue(Averaging):
    def __call__(self, q, selector=None, where=None):
        return q.mean(-1) / 0.0 if isinstance(q, np.ndarray) else q.mean(-1) / (q.mean(-1) * 0)


@ops.operator
class TooHeavy(Averaging):
    laws = ops.Laws.of_an_average(at_least_mean=True)

    def policy(self, row):
        return 1.01 * ops.mean().policy(row)


@ops.operator
class Negative(Averaging):
    laws = ops.Laws.of_an_average()

    def policy(self, row):
        return 2 * ops.mean().policy(row) - ops.maximum().policy(row)


@ops.operator
class ClaimsNothing(Averaging):
    def policy(self, row):
        return 2 * ops.mean().policy(row)


@ops.operator
class PowerMean(Averaging):
    """The square mean root, for values that are not negative."""

    def __call__(self, q, selector=None, where=None):
        return (q**0.5).mean(-1) ** 2


@ops.operator
class ForThree(Averaging):
    def policy(self, row):
        return row.normalise(row.z * 0 + row.xp.asarray([[0.5, 0.25, 0.25]], dtype=row.z.dtype))


class Undecorated(Averaging):
    pass


SHAPES = [
    (OneWeight, 4, r"weights of shape \((\d), 1\) for action values of shape \(\1, 4\); the right shape is \(\1, 4\)"),
    (WeightOfEachRow, 3, r"weights of shape \(3, (\d)\) for action values of shape \(\1, 3\)"),
    (NoAxis, 4, r"a value of shape \(\) for action values of shape \((\d), 4\); the right shape is \(\1,\)"),
    (KeepsTheAxis, 4, r"a value of shape \((\d), 1\)"),
    (WrongAxis, 3, r"a value of shape \(3,\)"),
    (WrongAxis, 4, r"a value of shape \(4,\)"),
    (WrongAxis, 5, r"a value of shape \(5,\)"),
    (WrongGradient, 4, r"a gradient of shape \((\d),\) for action values of shape \(\1, 4\)"),
]


@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.parametrize(("kind", "actions", "message"), SHAPES)
def test_a_wrong_shape_is_refused_with_the_right_one(kind, actions, message, library):
    pytest.importorskip("jax")
    for op in (kind(), ops.double(kind())) if "value" not in message and "gradient" not in message else (kind(),):
        with pytest.raises(ValueError, match=rf"operator .*{kind.__name__}.* gives {message}"):
            require_contract(op, actions, library)
    with pytest.raises(ValueError, match=message.replace(f"{actions}\\)", r"\d+\)").replace(f"({actions}", r"(\d+")):
        ops.check_operator(kind())


@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NanAtTies, r"NanAtTies gives (a value|weights) of \[nan.*\] for the action values \[1\. 1\. 1\.\]"),
        (InfiniteValue, r"InfiniteValue gives a value of \[inf\] for the action values \[1\.  1\.5 2\. \]"),
        (TooHeavy, r"weights of .*, of sum 1\.01, for the action values.*claims that they are a policy"),
        (Negative, r"weights of \[.*-0\.3.*\], of sum 1, .*claims that they are a policy"),
    ],
)
def test_numbers_that_are_none_or_no_policy_are_refused_with_the_values(kind, message, library):
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match=message):
        require_contract(kind(), 3, library)


@ops.operator
class TakesNoMask(Averaging):
    laws = ops.Laws.of_an_average()

    def __call__(self, q, selector=None):
        return super().__call__(q)


@pytest.mark.parametrize("library", ["numpy", "jax", pytest.param("torch", marks=pytest.mark.torch)])
def test_what_matters_behind_a_mask_is_refused_where_the_contrary_is_claimed(library):
    pytest.importorskip(library)
    with pytest.raises(ValueError, match=r"First gives a value of nan .* where the first is not legal"):
        require_contract(First(), 3, library)
    with pytest.raises(ValueError, match=r"TakesNoMask does not run"):
        require_contract(TakesNoMask(), 3, library)
    require_contract(First(), 1, library)
    require_contract(Sound(), 3, library)


def test_what_gives_no_real_numbers_is_refused():
    with pytest.raises(ValueError, match="gives a value of dtype object"):
        require_contract(NoValue(), 3)
    with pytest.raises(ValueError, match="gives a value of dtype complex128"):
        require_contract(Complex(), 3)


@pytest.mark.parametrize("actions", [1, 2, 3, 4, 5, 6, 100])
def test_a_sound_operator_is_taken_for_any_number_of_actions(actions):
    for op in (Sound(), ClaimsNothing(), PowerMean(), Undecorated(), ops.double(Sound())):
        require_contract(op, actions)


def test_what_only_some_uses_need_is_asked_there_alone():
    pytest.importorskip("jax")
    require_contract(ForThree(), 3)
    require_contract(ForThree(), 3, "jax")
    with pytest.raises(
        ValueError, match=r"ForThree does not run on NumPy arrays: ValueError: .*test_contract.py, line"
    ):
        require_contract(ForThree(), 4)
    require_contract(PowerMean(), 3)  # the values of an MDP may all be positive, and those of a network are not
    with pytest.raises(
        ValueError, match=r"PowerMean gives a value of \[nan\] for the action values \[-1\.  0\.  1\.\]"
    ):
        require_contract(PowerMean(), 3, "jax")
    with pytest.raises(ValueError, match=r"does not know the class of .*Undecorated: decorate it with"):
        require_contract(Undecorated(), 3, "jax")
    with pytest.raises(ValueError, match=r"does not know the class of .*Undecorated: decorate it with"):
        Undecorated().gradient(np.zeros((2, 3)))


def test_a_gradient_that_would_be_derived_is_not_asked_for_on_numpy_arrays(monkeypatch):
    monkeypatch.setattr("softbellman.operators.core.differentiate", None)
    assert require_shapes(Sound(), 3)[1].gradient is None


def test_ours_cost_nothing(monkeypatch):
    monkeypatch.setattr(contract, "require_shapes", None)
    for spec in ("max", "mean", "softmax(5)", "mellowmax(5)", "double(max)", "double(mellowmax(5))"):
        require_contract(ops.parse(spec), 4)
        require_contract(ops.parse(spec), 4, "jax")
    with pytest.raises(TypeError):
        require_contract(ops.double(Sound()), 4)


class Flat(Averaging):
    def policy(self, row):
        return row.xp.ones_like(row.z[..., 0])


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_a_policy_that_fits_nothing_is_refused_with_the_right_shape(library):
    pytest.importorskip("jax")
    for op in (Flat(), ops.double(Flat())):
        with pytest.raises(ValueError, match=r"gives a policy of shape \((\d),\) .* the right shape is \(\1, 3\)"):
            require_contract(op, 3, library)


@pytest.mark.torch
def test_a_mask_comes_to_the_device_of_the_values():
    torch = pytest.importorskip("torch")
    q = torch.zeros(4, 3, device="meta")  # a device without numbers, which every machine has
    for mask in (np.array([True, False, True]), [True, False, True], torch.ones(4, 3, dtype=torch.bool)):
        assert ops.softmax(5.0)(q, where=mask).device.type == "meta"
