"""Formatting of numbers, intervals and lists, for sentences and tables."""

import textwrap
from collections.abc import Sequence

from softbellman.analysis.statistics import Interval
from softbellman.config.arms import separator


def decimals(values: Sequence[float | None]) -> int:
    """Chooses how many decimals show three digits of the largest of some values.

    >>> decimals([0.05, 3.2]), decimals([1234.5]), decimals([0.012]), decimals([])
    (2, 0, 4, 2)
    """
    largest = max((abs(value) for value in values if value is not None), default=1.0)
    return next((digits for digits in range(5) if largest * 10**digits >= 100), 4) if largest else 2


def decimals_of_difference(mean: float, interval: Interval | None) -> int:
    """Chooses how many decimals show three digits of a difference, and no end of its interval as the 0 that it is not.

    >>> decimals_of_difference(5.2, (0.4, 10.0)), decimals_of_difference(0.22, (0.0004, 0.41))
    (1, 4)
    """
    values = [mean, *(interval or ())]
    fewest = decimals(values)
    return next((digits for digits in range(fewest, 6) if all(not v or round(v, digits) for v in values)), 6)


def number(value: float, digits: int) -> str:
    """Writes a number: commas, and a minus sign as wide as a plus.

    >>> number(-1234.5, 1), number(-0.001, 2)
    ('−1,234.5', '0.00')
    """
    text = f"{value:,.{digits}f}"
    return (text.lstrip("-") if float(text.replace(",", "")) == 0 else text).replace("-", "−")


def significant(value: float, figures: int) -> str:
    """Writes a number with so many significant figures, and without an exponent where it is not very large or small.

    >>> significant(201.4, 2), significant(0.0453, 2)
    ('200', '0.045')
    """
    return f"{float(f'{value:.{figures}g}'):g}"


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


def in_lines(name: str, width: int) -> list[str]:
    """Breaks a long name of an arm where it has a space; an operator's stays whole.

    >>> in_lines("softmax(5), gap=gap(0.9)", 16), in_lines("double(softmax(5))", 10)
    (['softmax(5),', 'gap=gap(0.9)'], ['double(softmax(5))'])
    """
    return textwrap.wrap(name, width, break_long_words=False, break_on_hyphens=False)


def listed(names: Sequence[str], word: str = "and") -> str:
    """Writes a list as one says it, by semicolons where arms have commas of their own.

    >>> listed(["max", "mean", "softmax(5)"]), listed(["max", "mean", "max, returns=3"], "or")
    ('max, mean and softmax(5)', 'max; mean; or max, returns=3')
    """
    if len(names) == 1:
        return names[0]
    *others, last = names
    apart = f"; {word} " if len(others) > 1 and separator(names) == "; " else f" {word} "
    return separator(names).join(others) + apart + last
