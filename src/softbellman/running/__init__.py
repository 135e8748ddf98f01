"""Running: plans, comparisons, engines, and the training of groups."""
