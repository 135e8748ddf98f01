"""A row of action values, measured from the best legal one: what every operator computes with.

The distance `z = q - max(q) <= 0` cannot overflow an exponential, and values of 1e12 lose nothing but the bits that
float32 cannot hold. Values that are not legal are replaced before use: they never matter, and their derivative
is exactly 0, also by automatic differentiation.
"""

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import array_api_compat
import numpy as np

from softbellman.operators.arrays import lost_meaning
from softbellman.operators.pytrees import register_pytrees, require_pytree

compat: Any = array_api_compat  # whose own types name libraries that need not be installed
Array = Any  # of NumPy, JAX or PyTorch: no one class stands for all three
Number = Any  # a Python number, or a scalar array or tracer of the library in use


class Row(NamedTuple):
    """Action values, measured from the best legal one.

    Attributes:
        xp: the array namespace of the values.
        best: `[..., 1]`, the largest legal value.
        z: `[..., A]`, `q - best`: at most 0, and 0 where the action is not legal.
        legal: `[..., A]` bool.
    """

    xp: Any
    best: Array
    z: Array
    legal: Array

    @property
    def spread(self) -> Array:
        """The distance from the best action to the worst: `[..., 1]`."""
        return -self.xp.min(self.z, axis=-1, keepdims=True)

    @property
    def size(self) -> Array:
        """How many actions are legal: `[..., 1]`."""
        return self.sum(self.xp.ones_like(self.z))

    @property
    def unit(self) -> Array:
        """The spread, or 1 where it is 0: `[..., 1]`."""
        return self.xp.where(self.spread > 0, self.spread, 1.0)

    @property
    def place(self) -> Array:
        """The index of each action: `[..., A]`, with leading axes of length 1."""
        place = self.xp.arange(self.z.shape[-1], dtype=self.z.dtype, device=compat.device(self.z))
        return self.xp.reshape(place, (1,) * (self.z.ndim - 1) + place.shape)

    @property
    def rank(self) -> Array:
        """The number of actions that come before each: the better ones, and of equal ones those before: `[..., A]`."""
        z, place = self.z, self.place
        before = place[..., None, :] < place[..., :, None]
        better = (z[..., None, :] > z[..., :, None]) | ((z[..., None, :] == z[..., :, None]) & before)
        return self.xp.sum(self.xp.astype(better & self.legal[..., None, :], z.dtype), axis=-1)

    def sum(self, terms: Array) -> Array:
        """Add `terms` `[..., A]` over the legal actions: `[..., 1]`."""
        return self.xp.sum(self.xp.where(self.legal, terms, 0.0), axis=-1, keepdims=True)

    def mean(self, terms: Array) -> Array:
        """Average `terms` `[..., A]` over the legal actions: `[..., 1]`."""
        return self.sum(terms) / self.size

    def legally(self, terms: Array) -> Array:
        """Give `terms` `[..., A]`, exactly 0 where not legal, NaN where nothing is or a value is NaN."""
        return self.xp.where(self.legal, terms, 0.0) + 0 * self.best

    def normalise(self, mass: Array) -> Array:
        """Scale `mass` `[..., A]` to a policy: exactly 0 where not legal, NaN where nothing is or a value is NaN."""
        with np.errstate(invalid="ignore"):  # a NaN among the values is reason enough for 0 / 0
            return self.legally(mass) / self.sum(mass)

    def boltzmann(self, rate: Array) -> Array:
        """Weigh each legal action by `exp(rate z)`, normalised; `rate` is a scalar or `[..., 1]`."""
        return self.normalise(self.xp.exp(scaled(rate, self.z)))

    def vector(self, numbers: Sequence[Number]) -> Array:
        """Give a number for each action the dtype of the values: `[..., A]`.

        Raises:
            ValueError: there are more or fewer of them than actions.
        """
        if len(numbers) != self.z.shape[-1]:
            raise ValueError(f"{len(numbers)} numbers are given, one for each action, and there are {self.z.shape[-1]}")
        return self.xp.concat([self.constant(number) for number in numbers], axis=-1)

    def constant(self, number: Number) -> Array:
        """Give a parameter the dtype of the values, cut where what is done with it would overflow: `[..., 1]`."""
        xp, dtype = self.xp, self.z.dtype
        largest = float(xp.finfo(dtype).max) * 1e-6
        if isinstance(number, int | float):
            return xp.full_like(self.best, min(number, largest))
        number = xp.zeros_like(self.best) + xp.astype(number, dtype)
        return xp.where(number > largest, largest, number)

    def positive(self, number: Number) -> Array:
        """Give a parameter that is not 0 as `constant` does, and no smaller than what has an inverse: `[..., 1]`."""
        number, least = self.constant(number), 1e6 / float(self.xp.finfo(self.z.dtype).max)
        return self.xp.where(number < least, least, number)


def centre(q: Array, where: Array | None = None) -> Row:
    """Measure action values from the best legal one.

    Args:
        q: `[..., A]` values. Integers become the default float of their library. -inf counts as not legal.
        where: bool, broadcast to `q`: the legal actions; all by default.

    Returns:
        A row for each; a NaN among legal values makes its whole row NaN.

    Raises:
        TypeError: `q` is not of real numbers or has fewer than 32 bits, or `where` is not bool.
        ValueError: `q` has no axis, or `where` does not fit it; or a row has no legal action. Under tracing nobody can
            look; there such a row gives NaN.

    Example:
        >>> centre([1.0, 3.0, 2.0]).z.tolist()
        [-2.0, 0.0, -1.0]
    """
    register_pytrees()
    q = real(q)
    xp = compat.array_namespace(q)
    legal = legal_actions(q, where)
    best = xp.max(xp.where(legal, q, -math.inf), axis=-1, keepdims=True)
    best = xp.where(best == -math.inf, math.nan, best)  # nothing is legal: seen here only under tracing
    return Row(xp, best, xp.where(legal, q, best) - best, legal)


def best_sums(row: Row, *terms: Array) -> tuple[Array, ...]:
    """Add `terms`, `[..., A]` each, over the actions that are no worse than each: `[..., A]` each."""
    xp = row.xp
    no_worse = (row.z[..., None, :] >= row.z[..., :, None]) & row.legal[..., None, :]
    return tuple(xp.sum(xp.where(no_worse, term[..., None, :], 0.0), axis=-1) for term in terms)


def real(q: Array) -> Array:
    """Make an array of floats: integers, and Python sequences of them, become the default float.

    Raises:
        TypeError: it holds something else, or more than NumPy would keep.
    """
    if lost := lost_meaning(q):
        raise TypeError(f"action values are {lost}.")
    if not compat.is_array_api_obj(q):
        q = np.asarray(q)
    xp = compat.array_namespace(q)
    if xp.isdtype(q.dtype, "real floating"):
        if xp.finfo(q.dtype).bits >= 32:
            return q
        raise TypeError(f"q has dtype {q.dtype}, which has no room for powers and sums; convert it to float32 first.")
    if not xp.isdtype(q.dtype, "integral") or getattr(q.dtype, "kind", "") == "m":  # spans of time count as integers
        raise TypeError(f"q has dtype {q.dtype}; action values must be real numbers, such as float32 or float64.")
    return xp.astype(q, xp.asarray(0.0).dtype)


def legal_actions(q: Array, where: Array | None) -> Array:
    """Mark the actions that the mask allows and that are not -inf: `[..., A]` bool."""
    xp = compat.array_namespace(q)
    if q.ndim == 0:
        raise ValueError(f"q is a single number, {q}; it must have an axis of actions, the last.")
    legal = q != -math.inf
    if where is not None:
        if lost := lost_meaning(where):
            raise TypeError(f"where is {lost}.")
        allowed = xp.asarray(where, device=q.device) if compat.is_torch_array(q) else xp.asarray(where)
        if not xp.isdtype(allowed.dtype, "bool"):
            raise TypeError(f"where has dtype {allowed.dtype}; it must be a bool mask, True for a legal action.")
        try:
            allowed = xp.broadcast_to(allowed, q.shape)
        except (ValueError, RuntimeError):  # RuntimeError of PyTorch
            shapes = f"where has shape {tuple(allowed.shape)} and q {tuple(q.shape)}"
            raise ValueError(f"{shapes}; where must broadcast to q, with the actions last.") from None
        legal = legal & allowed
    if _surely(~xp.all(xp.any(legal, axis=-1))):
        raise ValueError("a row of q has no legal action: each is -inf or masked. Leave such rows out.")
    return legal


def _surely(flag: Array) -> bool:
    try:
        return bool(flag)
    except (TypeError, RuntimeError):  # a tracer of JAX, a batched tensor of torch.vmap
        return False


def scaled(rate: Array, z: Array) -> Array:
    """Multiply, without a warning where the product is -inf: its exponential is the right 0."""
    with np.errstate(over="ignore"):
        return rate * z


def erf(x: Array) -> Array:
    """Give the error function, which the array API lacks."""
    if compat.is_jax_array(x):
        return _jax().scipy.special.erf(x)
    if compat.is_torch_array(x):
        return importlib.import_module("torch").special.erf(x)
    special: Any = importlib.import_module("scipy.special")
    return special.erf(x)


def stop_gradient(x: Array) -> Array:
    """Hold an array constant under automatic differentiation."""
    if compat.is_jax_array(x):
        return _jax().lax.stop_gradient(x)
    return x.detach() if compat.is_torch_array(x) else x


def with_slope(value: Array, number: Array, slope: Callable[[Array, Array], Array]) -> Array:
    """Give a value that is constant in a number the derivative `slope(value, number)` in it.

    For a function whose derivative is lost to rounding when it is taken operation by operation. The slope is asked for
    twice, the second time of a value that has a derivative already: so the second derivative is right too.

    Args:
        value: of any shape.
        number: of the same shape.
        slope: a function of both, differentiable in both.
    """
    if compat.is_numpy_array(value):
        return value
    if compat.is_jax_array(value):
        attach, point = _attach_as_rule(), number
    else:  # of a product, each factor gives half of the second derivative
        attach, point = _attach_as_product, (number + number.detach()) / 2
    first = attach(value, point, slope(value, point))
    return attach(value, number, slope(first, point))


def _attach_as_product(value: Array, number: Array, slope: Array) -> Array:
    return value + slope * (number - number.detach())


@functools.cache
def _attach_as_rule() -> Callable[[Array, Array, Array], Array]:
    """Make the function of JAX that gives a value a slope; a compiler drops the slope where nobody asks for it."""
    jax = _jax()

    @jax.custom_jvp
    def attach(value: Array, _: Array, __: Array) -> Array:
        return value

    def derivative(point: tuple[Array, ...], moves: tuple[Array, ...]) -> tuple[Array, Array]:
        (value, number, slope), (move, by, _) = point, moves
        zero = jax.custom_derivatives.SymbolicZero
        total = jax.numpy.zeros_like(value) if isinstance(move, zero) else move
        return attach(value, number, slope), total if isinstance(by, zero) else total + slope * by

    attach.defjvp(derivative, symbolic_zeros=True)
    return attach


def repeat(step: Callable[[Array, Array], tuple[Array, Array]], times: int, a: Array, b: Array) -> tuple[Array, Array]:
    """Apply a step to a pair so many times; under JAX's tracing as one loop, quicker to compile than its turns."""
    if compat.is_jax_array(a) and isinstance(a, _jax().core.Tracer):

        def step_pair(_: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
            return step(*pair)

        return _jax().lax.fori_loop(0, times, step_pair, (a, b))
    for _ in range(times):
        a, b = step(a, b)
    return a, b


def bisect(row: Row, is_above: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Find where a condition `[..., 1]` begins to hold between two ends `[..., 1]`, to the precision of the row."""
    low, high = bracket(row, is_above, low, high)
    return (low + high) / 2


def bracket(row: Row, is_above: Callable[[Array], Array], low: Array, high: Array) -> tuple[Array, Array]:
    """Enclose where a condition `[..., 1]` begins to hold by two ends `[..., 1]`, to the precision of the row."""
    xp = row.xp

    def halve(low: Array, high: Array) -> tuple[Array, Array]:
        middle = (low + high) / 2
        above = is_above(middle)
        return xp.where(above, low, middle), xp.where(above, middle, high)

    return repeat(halve, 52 if xp.finfo(row.z.dtype).bits == 64 else 32, low, high)


def differentiate(op: Callable[..., Array], q: Array, selector: Array | None, where: Array | None) -> Array:
    """Differentiate an operator in `q` `[..., A]`, by automatic differentiation: `[..., A]`.

    NumPy arrays go through JAX, in their own precision.
    """
    q = real(q)
    legal = legal_actions(q, where)  # an error if there is none, before JAX traces
    if compat.is_torch_array(q):
        torch: Any = importlib.import_module("torch")
        with torch.enable_grad():
            point = q.detach().requires_grad_()
            return torch.autograd.grad(op(point, selector, where).sum(), point)[0]
    if compat.is_jax_array(q):
        xp = compat.array_namespace(q)
        return xp.where(xp.any(legal, axis=-1, keepdims=True), _slope()(q, op, selector, where), math.nan)
    try:
        jax = _jax()
    except ModuleNotFoundError:
        raise ImportError(
            "this operator defines no gradient(), and to derive it from NumPy arrays takes JAX: "
            "pip install 'softbellman[train]', or define gradient()."
        ) from None
    register_pytrees()  # the operator may be older than the import of JAX
    require_pytree(op)
    with jax.enable_x64(True):
        return np.asarray(_slope()(q, op, selector, where), dtype=q.dtype)


@functools.cache
def _slope() -> Callable[..., Array]:
    def total(q: Array, op: Callable[..., Array], selector: Array | None, where: Array | None) -> Array:
        return op(q, selector, where).sum()

    return _jax().jit(_jax().grad(total))


def _jax() -> Any:
    import jax

    return jax
