"""Measure the time of every operator's value and weights beside softmax's, on a batch of 32 rows of 18 actions.

    .venv/bin/python benchmarks/operator_speed.py --out results/benchmarks   # two minutes, on one core

Each is one compiled call in JAX on float32 arrays, its parameters inputs, as in a learner; the least of many rounds,
in which the operators take turns, so that a busy moment strikes none alone. Writes operator_speed.{csv,json} into the
folder --out, with the ratio to softmax(5) in the same run. The gallery in docs/operators.md shows what is in results/.
"""

import argparse
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"  # read when JAX starts

import jax
import numpy as np

from dqn_speed import RESULTS, provenance, write_results
from softbellman import operators as ops
from softbellman.operators.table import TABLE

BATCH, ACTIONS = 32, 18
GIVEN = {
    "fixed": ops.fixed(*(1 / ACTIONS,) * ACTIONS),
    "owa": ops.owa(*(1 / ACTIONS,) * ACTIONS),
    "kl_prior": ops.kl_prior(5, *(1 / ACTIONS,) * ACTIONS),
}
"""Those of a number for each action, for so many."""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for CSV and JSON")
    given, started = parser.parse_args(), datetime.now(UTC)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    seconds = measure({name: GIVEN.get(name, ops.parse(entry.spec)) for name, entry in TABLE.items()}, given.rounds)
    rows = [
        {"operator": name, "microseconds": f"{1e6 * least:.1f}", "to_softmax": f"{least / seconds['softmax']:.1f}"}
        for name, least in seconds.items()
    ]
    for row in rows:
        print(f"{row['operator']:<20}{row['microseconds']:>10}{row['to_softmax']:>8}")
    facts = provenance("operator_speed.py", {"rounds": given.rounds}, started)
    write_results(given.out / "operator_speed.csv", list(rows[0]), rows, facts)


def measure(operators: dict[str, ops.Operator], rounds: int) -> dict[str, float]:
    """Return the least seconds of a call of each operator."""
    rng = np.random.default_rng(0)
    q, selector = (jax.numpy.asarray(rng.standard_normal((BATCH, ACTIONS)), "float32") for _ in range(2))

    @jax.jit
    def answer(op: Any, q: Any, selector: Any) -> tuple[Any, Any]:
        return op(q, selector), op.weights(selector)

    least = dict.fromkeys(operators, float("inf"))
    for op in operators.values():
        jax.block_until_ready(answer(op, q, selector))  # compiled here
    for _ in range(rounds):
        for name, op in operators.items():
            start = time.perf_counter()
            for _ in range(20):
                given = answer(op, q, selector)
            jax.block_until_ready(given)
            least[name] = min(least[name], (time.perf_counter() - start) / 20)
    return least


if __name__ == "__main__":
    main()
