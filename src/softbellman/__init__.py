"""Value-based reinforcement learning in which the Bellman operator is a value."""

from typing import TYPE_CHECKING, Any

from softbellman import operators

if TYPE_CHECKING:
    from softbellman.tabular import FiniteMDP, solve

__all__ = ["FiniteMDP", "__version__", "operators", "solve"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Loads the tabular part, and SciPy with it, where it is first used."""
    if name in ("FiniteMDP", "solve"):
        from softbellman import tabular

        return getattr(tabular, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
