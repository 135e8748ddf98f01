"""Gaps as parts of a recipe: those of `softbellman.gaps`, which the solver of finite MDPs has too."""

from softbellman.gaps import (
    GAPS,
    AdvantageGap,
    Gap,
    PersistentAdvantageGap,
    PersistentGap,
    UndiscountedPersistentGap,
    discounted,
)

__all__ = [
    "GAPS",
    "AdvantageGap",
    "Gap",
    "PersistentAdvantageGap",
    "PersistentGap",
    "UndiscountedPersistentGap",
    "discounted",
]
