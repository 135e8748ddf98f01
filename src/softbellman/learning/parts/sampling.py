"""Sampling: the choice of transitions to learn from, and their weights in the loss.

A replay numbers its transitions without gaps, and sampling draws numbers; what it keeps in mind of them is a pytree of
its own, apart from the replay's: its memory. A draw knows all of the updates before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.learning import sum_tree
from softbellman.learning.sum_tree import WIDTH, SumTree
from softbellman.part import Part, require

_LEAST = 1e-6  # added to errors, so that none is never drawn


@dataclass(frozen=True)
class Uniform(Part):
    """Every transition alike, with replacement (Deviation D19); nothing is kept in mind."""

    name = "uniform"
    has_memory = False

    def memory(self, capacity: int, xp: Any) -> Any:
        """Make the memory of an empty replay, as arrays of `xp`: `numpy` or `jax.numpy`; None: there is none."""
        return None

    def bytes_needed(self, capacity: int) -> int:
        """Compute the bytes of the memory of a replay."""
        return 0

    def written(self, memory: Any, written: Any, capacity: int) -> Any:
        """Take note of transitions written in a ring: number `w % capacity` is the `w`-th, up to `written` of them."""
        return memory

    def moved(self, memory: Any, moves: Sequence[int]) -> Any:
        """Take note of transitions that came and went, in NumPy; see `FrameReplay.moves`."""
        return memory

    def draw(self, memory: Any, words: Any, stored: Any, xp: Any) -> tuple[Any, Any]:
        """Draw a minibatch.

        Args:
            memory: the memory.
            words: `[B]` uint32, random.
            stored: transitions in the replay, numbered from 0.
            xp: `numpy` or `jax.numpy`.

        Returns:
            The numbers `[B]` of transitions, and their density `[B]`: the probability of each, as a multiple of a
            uniform one's; None: 1.
        """
        return words % xp.uint32(stored), None  # uniform to within `stored / 2^32`

    def learned(self, memory: Any, numbers: Any, priorities: Any, xp: Any) -> Any:
        """Take note of the priorities `[B]` of the minibatch that an update has learned from."""
        return memory

    def weights(self, density: Any, updates: Any) -> Any:
        """Compute the weights `[B]` of losses; None: all alike.

        Args:
            density: `[B]`, the probability of each drawn transition, as a multiple of a uniform one's; None: 1.
            updates: updates made so far.
        """
        return None

    def priority(self, errors: Any) -> Any:
        """Compute the priorities `[B]` of the transitions just learned from; None: there are none."""
        return None


class Memory(NamedTuple):
    """Memory of a prioritised sampling.

    Attributes:
        tree: priorities by the transitions' numbers.
        largest: the largest priority so far, which new transitions get; 1 at first.
        known: transitions taken note of: those there are, or in a ring all that were ever written.
    """

    tree: SumTree
    largest: Any
    known: Any


@dataclass(frozen=True)
class Prioritised(Uniform):
    """Prioritised experience replay, proportional (Schaul et al., 2016).

    A transition is drawn in proportion to `(|error| + 1e-6)^alpha`, one from each of `B` equal strata; its loss is
    weighted by `(N P)^-beta`, divided by the largest such weight of the minibatch. `beta` goes linearly from
    `beta_start` to `beta_end` over so many updates. Deviation D22.
    """

    alpha: float = 0.6
    beta_start: float = 0.4
    beta_end: float = 1.0
    updates: int = 100_000
    name = "prioritised"
    has_memory = True

    def __post_init__(self) -> None:
        """Check the numbers."""
        require(0 <= self.alpha <= 1, f"alpha ({self.alpha}) must be in 0 .. 1")
        for name in ("beta_start", "beta_end"):
            beta = getattr(self, name)
            require(0 <= beta <= 1, f"{name} ({beta}) must be in 0 .. 1")
        require(
            isinstance(self.updates, Integral) and self.updates >= 1,
            f"updates ({self.updates}), over which beta changes, must be an integer, 1 or more",
        )

    def memory(self, capacity: int, xp: Any) -> Memory:
        """Make the memory of an empty replay."""
        return Memory(sum_tree.empty(capacity, xp), xp.ones((), xp.float32), xp.zeros((), xp.int32))

    def bytes_needed(self, capacity: int) -> int:
        """Compute the bytes of the memory of a replay."""
        return sum_tree.bytes_needed(capacity) + 4 + 4

    def written(self, memory: Memory, written: Any, capacity: int) -> Memory:
        """Give the largest priority to transitions written since the last time, row by row."""
        rows = len(memory.tree.leaves)
        new = jnp.minimum(written - memory.known, capacity)
        start = (written - new) % capacity
        first, last = start // WIDTH, (written - 1) % capacity // WIDTH
        touched = jnp.where(new > capacity - WIDTH, rows, (last - first) % rows + 1)

        def row(number: jax.Array, tree: SumTree) -> SumTree:
            at = (first + number) % rows
            numbers = at * WIDTH + jnp.arange(WIDTH)
            is_new = ((numbers - start) % capacity < new) & (numbers < capacity)
            values = jnp.where(is_new, memory.largest, tree.leaves[at])
            return sum_tree.with_rows_summed(tree._replace(leaves=tree.leaves.at[at].set(values)), at, jnp)

        tree = jax.lax.fori_loop(0, touched, row, memory.tree)
        return memory._replace(tree=tree, known=jnp.asarray(written, jnp.int32))

    def moved(self, memory: Memory, moves: Sequence[int]) -> Memory:
        """Give the largest priority to transitions that came, and each place that was left to the last."""
        if not moves:
            return memory
        leaves, known, changed = memory.tree.leaves.reshape(-1), int(memory.known), set[int]()
        for number in moves:
            if number < 0:
                leaves[known] = memory.largest
                changed.add(known // WIDTH)
                known += 1
            else:
                known -= 1
                leaves[number], leaves[known] = leaves[known], 0.0
                changed |= {number // WIDTH, known // WIDTH}
        tree = sum_tree.with_rows_summed(memory.tree, np.array(sorted(changed)), np)
        return memory._replace(tree=tree, known=np.int32(known))

    def draw(self, memory: Memory, words: Any, stored: Any, xp: Any) -> tuple[Any, Any]:
        """Draw a transition from each stratum."""
        size = len(words)
        inside = (words >> 8).astype(xp.float32) * xp.float32(2**-24)
        shares = (xp.arange(size, dtype=xp.float32) + inside) * xp.float32(1 / size)
        numbers, priorities, total = sum_tree.draw(memory.tree, shares, xp)
        return numbers, priorities * (xp.float32(stored) / total)

    def learned(self, memory: Memory, numbers: Any, priorities: Any, xp: Any) -> Memory:
        """Store the new priorities."""
        largest = xp.maximum(memory.largest, priorities.max())
        return memory._replace(tree=sum_tree.put(memory.tree, numbers, priorities, xp), largest=largest)

    def weights(self, density: Any, updates: Any) -> Any:
        """Compute `density^-beta`, divided by the largest."""
        if density is None:
            return None
        share = jnp.minimum(updates / self.updates, 1.0)
        weights = density ** -(self.beta_start + share * (self.beta_end - self.beta_start))
        return weights / weights.max()

    def priority(self, errors: Any) -> Any:
        """Compute `(|error| + 1e-6)^alpha`."""
        return (jnp.abs(errors) + _LEAST) ** self.alpha
