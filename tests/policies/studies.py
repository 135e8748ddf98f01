"""Untrained runs of every family, whose networks have drawn weights: enough to see that a policy computes them."""

from softbellman import envs

from ..studies import TINY, created, untrained

OWN = """
    import gymnasium
    import numpy as np
    from gymnasium import spaces

    class Pictures(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (5, 6, 3), np.uint8)
        action_space = spaces.Discrete(3, start=-1)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.integers(0, 256, (5, 6, 3), np.uint8), {}

        def step(self, action):
            assert action in self.action_space
            return self.np_random.integers(0, 256, (5, 6, 3), np.uint8), float(action), False, False, {}

    class Uneven(Pictures):
        observation_space = spaces.Box(np.array([0, -4]), np.array([1, 10]), (2,), np.int64)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            gymnasium.Env.reset(self, seed=seed)
            return np.array([1, -4]), {}

        def step(self, action):
            return np.array([0, 10]), 1.0, False, False, {}
"""


def drawn(folder, environment, values=None, operator="softmax(5)", preset="classic-control"):
    """A study of one run of an environment, whose network is as it was drawn."""
    study = created(folder / "study", environment, preset, operator, [0], TINY | (values or {}))
    env = envs.make(environment, seed=0, training=False, protocol=getattr(study.config, _section(environment), None))
    return untrained(study, env)


def _section(environment):
    return envs.family_of(environment).section or "none"
