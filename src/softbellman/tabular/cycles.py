"""Iterations that come back to where they were, instead of standing still."""

from softbellman.tabular.kernel import Values

PATIENCE = 100_000  # iterations where no rate of contraction is known
SAME = 1e-10  # the part of the last change within which values count as those of before


class Cycles:
    """Brent's search for a cycle: values are held against earlier ones, seen at steps that double.

    Args:
        first: the values that iteration starts from.
    """

    def __init__(self, first: Values) -> None:
        """Begin at step 0."""
        self._seen, self._seen_at = first, 0

    def period(self, step: int, values: Values, change: float) -> int | None:
        """Give the period if values are back; they are those before a step, from 1, that changes them by so much."""
        if step > self._seen_at + 1 and abs(values - self._seen).max() <= SAME * change:
            return step - self._seen_at
        if step >= 2 * self._seen_at:
            self._seen, self._seen_at = values, step
        return None


def cycle_note(period: int) -> str:
    """Say that iteration goes round."""
    return f"Iteration goes round in a cycle of period {period}; q is one of its points, no fixed point."
