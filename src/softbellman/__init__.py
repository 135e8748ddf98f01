"""Value-based reinforcement learning in which the Bellman operator is a value."""

from softbellman import operators

__all__ = ["__version__", "operators"]

__version__ = "0.1.0"
