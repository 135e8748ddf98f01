"""Formatting of numbers, intervals and lists, for sentences and tables."""

from collections.abc import Sequence

from softbellman.analysis.statistics import Interval


def decimals(values: Sequence[float | None]) -> int:
    """Chooses how many decimals show three digits of the largest of some values.

    >>> decimals([0.05, 3.2]), decimals([1234.5]), decimals([0.012]), decimals([])
    (2, 0, 4, 2)
    """
    largest = max((abs(value) for value in values if value is not None), default=1.0)
    return next((digits for digits in range(5) if largest * 10**digits >= 100), 4) if largest else 2


def number(value: float, digits: int) -> str:
    """Writes a number: commas, and a minus sign as wide as a plus.

    >>> number(-1234.5, 1), number(-0.001, 2)
    ('−1,234.5', '0.00')
    """
    text = f"{value:,.{digits}f}"
    return (text.lstrip("-") if float(text.replace(",", "")) == 0 else text).replace("-", "−")


def signed(value: float, digits: int) -> str:
    """Writes a difference with its sign.

    >>> signed(0.5, 1), signed(-0.5, 1)
    ('+0.5', '−0.5')
    """
    text = number(value, digits)
    return f"+{text}" if value > 0 and float(text.replace(",", "")) else text


def ends(interval: Interval | None, digits: int) -> str:
    """Writes the ends of an interval, or nothing if there is none.

    >>> ends((-1.0, 5.25), 1)
    '−1.0 to 5.2'
    """
    return "" if interval is None else f"{number(interval[0], digits)} to {number(interval[1], digits)}"


def count(n: int, noun: str) -> str:
    """Writes a number of things.

    >>> count(1, "seed"), count(2500, "update")
    ('1 seed', '2,500 updates')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Sequence[str], word: str = "and") -> str:
    """Writes a list as one says it.

    >>> listed(["max", "mean", "softmax(5)"])
    'max, mean and softmax(5)'
    """
    return f" {word} ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
