"""Training: one loop around the learner, on the host or on a device."""
