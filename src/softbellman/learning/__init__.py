"""One learner: networks, replay, the temporal-difference loss, and what is measured of it."""
