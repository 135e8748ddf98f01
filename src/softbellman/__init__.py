"""Value-based reinforcement learning in which the Bellman operator is a value."""

from typing import TYPE_CHECKING, Any

from softbellman import operators

if TYPE_CHECKING:
    from softbellman.config.arms import arm
    from softbellman.policies.policy import Policy, load
    from softbellman.running.compare import compare, train
    from softbellman.study.store import Study
    from softbellman.tabular import FiniteMDP, solve

__all__ = ["FiniteMDP", "Policy", "Study", "__version__", "arm", "compare", "load", "operators", "solve", "train"]

__version__ = "0.3.0.dev0"


def __getattr__(name: str) -> Any:
    """Loads the parts that need more than NumPy where they are first used."""
    if name in ("FiniteMDP", "solve"):
        from softbellman import tabular

        return getattr(tabular, name)
    if name == "arm":
        from softbellman.config import arms

        return arms.arm
    if name in ("Policy", "load"):
        from softbellman.policies import policy

        return getattr(policy, name)
    if name in ("compare", "train"):
        from softbellman.running import compare

        return getattr(compare, name)
    if name == "Study":
        from softbellman.study.store import Study

        return Study
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
