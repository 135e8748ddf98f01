"""Values of operators in arithmetic of 60 digits, straight from their definitions, to hold the implementations against.

Each function takes action values, as decimals, and the operator's parameters.
"""

import decimal
from collections.abc import Callable, Sequence
from decimal import Decimal

PRECISION = decimal.Context(prec=60, Emin=-(10**9), Emax=10**9)


def root(is_above: Callable[[Decimal], bool], low: Decimal, high: Decimal) -> Decimal:
    """Find where a condition begins to hold, to 40 digits."""
    for _ in range(140):
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return (low + high) / 2


def boltzmann(rate: Decimal, z: Sequence[Decimal]) -> list[Decimal]:
    terms = [(rate * x).exp() for x in z]
    return [term / sum(terms) for term in terms]


def average(p: Sequence[Decimal], q: Sequence[Decimal]) -> Decimal:
    return sum((x * y for x, y in zip(p, q, strict=True)), Decimal(0))


def keep(q: Sequence[Decimal], rho: Decimal) -> Decimal:
    """Take softmax at the rate where its entropy is `rho log(m)`."""
    best, spread = max(q), max(q) - min(q)
    if not spread:
        return best
    z = [(x - best) / spread for x in q]

    def is_above(log_rate: Decimal) -> bool:
        p = boltzmann(log_rate.exp(), z)
        return -sum((x * x.ln() for x in p if x), Decimal(0)) < rho * Decimal(len(q)).ln()

    rate = root(is_above, Decimal(-60), Decimal(30)).exp()
    return best + spread * average(boltzmann(rate, z), z)


def gini(q: Sequence[Decimal], rho: Decimal) -> Decimal:
    """Take the average over the most of the best actions that have no negative weights."""
    ordered, size, value = sorted(q, reverse=True), Decimal(len(q)), max(q)
    for n in range(1, len(q) + 1):
        among = ordered[:n]
        mean, room = sum(among) / n, 1 - rho * (1 - 1 / size) - 1 / Decimal(n)
        squares = sum(((x - mean) ** 2 for x in among), Decimal(0))
        if room < Decimal("-1e-50"):
            continue
        rate = (max(room, Decimal(0)) / squares).sqrt() if squares else Decimal(0)
        p = [1 / Decimal(n) + rate * (x - mean) for x in among]
        if min(p) >= Decimal("-1e-50"):
            value = average(p, among)
    return value


def entmax(q: Sequence[Decimal], alpha: Decimal, tau: Decimal) -> Decimal:
    """Minimise the dual, `(1 - alpha c) / (alpha (alpha - 1)) + sum(p^alpha) / alpha` in `c = p_best^(alpha - 1)`.

    There `p = ((alpha - 1) tau z + c)_+ ^ (1 / (alpha - 1))` is of sum 1.
    """
    best, power = max(q), alpha - 1
    s = [(x - best) * tau for x in q]

    def policy(log_best: Decimal) -> list[Decimal]:
        levels = [power * x + (power * log_best).exp() for x in s]
        return [(level.ln() / power).exp() if level > 0 else Decimal(0) for level in levels]

    log_best = root(lambda x: sum(policy(x)) > 1, -Decimal(len(q)).ln(), Decimal(0))
    powers = sum((alpha * x.ln()).exp() for x in policy(log_best) if x)
    return best + ((1 - alpha * (power * log_best).exp()) / power + powers) / alpha / tau


def sparsemax(q: Sequence[Decimal], tau: Decimal) -> Decimal:
    return entmax(q, Decimal(2), tau)


def logsumexp(q: Sequence[Decimal], tau: Decimal) -> Decimal:
    return max(q) + sum(((x - max(q)) * tau).exp() for x in q).ln() / tau


def mellowmax(q: Sequence[Decimal], omega: Decimal) -> Decimal:
    return logsumexp(q, omega) - Decimal(len(q)).ln() / omega


def barrier(q: Sequence[Decimal], tau: Decimal) -> Decimal:
    """Take `<p, q> + mean(log(m p)) / tau` at `p = 1 / (m (1 - tau z - c))`, of sum 1."""
    best, size = max(q), Decimal(len(q))

    def policy(shift: Decimal) -> list[Decimal]:
        return [1 / (size * (1 + (best - x) * tau - shift)) for x in q]

    p = policy(root(lambda x: sum(policy(x)) > 1, Decimal(0), 1 - 1 / size))
    return best + average(p, [x - best for x in q]) + sum((size * x).ln() for x in p) / (size * tau)


FUNCTIONS = (keep, gini, entmax, sparsemax, logsumexp, mellowmax, barrier)
REFERENCES = {function.__name__: function for function in FUNCTIONS}


def value(spec: str, q: Sequence[float]) -> Decimal:
    """Evaluate an operator, such as `keep(0.5)`, at the floats given, whose parameters are the floats nearest."""
    spec = spec.replace("general_mellowmax(mean, 0, ", "logsumexp(")
    name, _, given = spec.removesuffix(")").partition("(")
    parameters = [Decimal(float(number)) for number in given.split(",")]
    with decimal.localcontext(PRECISION):
        return REFERENCES[name]([Decimal(float(x)) for x in q], *parameters)
