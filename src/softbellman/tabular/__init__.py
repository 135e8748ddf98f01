"""Finite Markov decision processes, solved exactly under any Bellman operator.

Example:
    >>> from softbellman import operators as ops, tabular
    >>> def walk(place, step):
    ...     return [(1.0, max(place + step, 0), -1.0, place + step == 2)]
    >>> mdp = tabular.FiniteMDP.from_function(walk, states=[0, 1], actions=[-1, 1], gamma=0.5)
    >>> tabular.solve(mdp, ops.maximum()).values.tolist()
    [-1.5, -1.0]
"""

from softbellman.tabular.mdp import FiniteMDP
from softbellman.tabular.solve import Solution, solve

__all__ = ["FiniteMDP", "Solution", "solve"]
