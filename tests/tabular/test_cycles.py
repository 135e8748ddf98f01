"""The search for cycles of an iteration."""

import numpy as np
import pytest

from softbellman.tabular.cycles import Cycles, cycle_note


@pytest.mark.parametrize("period", [2, 3, 7, 50])
@pytest.mark.parametrize("lead", [0, 1, 20])
def test_a_period_is_found_after_any_lead(period, lead):
    """Within a few times the length of both, and none before it is one."""

    def values(step):
        return np.array([100.0 - step if step < lead else (step - lead) % period, 1.0])

    cycles = Cycles(values(0))
    for step in range(1, 4 * (lead + period) + 4):
        now, after = values(step - 1), values(step)
        if found := cycles.period(step, now, float(np.abs(after - now).max())):
            break
    assert found == period and f"period {period};" in cycle_note(period)


def test_what_comes_nearer_and_nearer_is_no_cycle():
    cycles, values = Cycles(np.ones(3)), np.ones(3)
    for step in range(1, 200):
        assert cycles.period(step, values, float(np.abs(0.1 * values).max())) is None
        values = 0.9 * values
