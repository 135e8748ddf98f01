"""Bellman operators: values that say what the actions of a next state are worth together.

Example:
    >>> from softbellman import operators as ops
    >>> float(ops.double(ops.softmax(1.0))([10.0, 2.0], [1.0, 5.0]).round(6))
    2.14389
"""

from softbellman.operators.contract import require_contract
from softbellman.operators.core import (
    Double,
    Maximum,
    Mean,
    Mellowmax,
    Operator,
    Softmax,
    double,
    maximum,
    mean,
    mellowmax,
    softmax,
)
from softbellman.operators.laws import Finding, Laws, Report, Witness, check_operator
from softbellman.operators.pytrees import operator, register_pytrees
from softbellman.operators.row import Row, centre
from softbellman.operators.spec import SpecError, as_operator, as_operators, parse

__all__ = [
    "Double",
    "Finding",
    "Laws",
    "Maximum",
    "Mean",
    "Mellowmax",
    "Operator",
    "Report",
    "Row",
    "Softmax",
    "SpecError",
    "Witness",
    "as_operator",
    "as_operators",
    "centre",
    "check_operator",
    "double",
    "maximum",
    "mean",
    "mellowmax",
    "operator",
    "parse",
    "register_pytrees",
    "require_contract",
    "softmax",
]
