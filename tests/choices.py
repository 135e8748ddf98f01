"""Choices by the other seeds, of many studies at once."""

import numpy as np


def chosen_by_the_other_seeds(scores):
    """`[..., operator, seed]` to `[..., seed]`: each seed's score with the operator that is best on the others."""
    others = scores.sum(axis=-1, keepdims=True) - scores
    return np.take_along_axis(scores, others.argmax(axis=-2, keepdims=True), axis=-2).squeeze(-2)
