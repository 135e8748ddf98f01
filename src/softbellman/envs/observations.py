"""Observations of a Gymnasium Box: layout, dtype, bounds, scale."""

import math
from typing import Any

import gymnasium
import numpy as np

from softbellman.envs.gym_api import as_array
from softbellman.envs.step import Scale

NO_BOUND = 2**31 - 1  # a bound of this magnitude or more is the end of a dtype's range, not something known of the task
_CHANNELS = (1, 3, 4)  # grey, RGB, RGBA


class Observations:
    """Layout of a Box's observations, and the check that they keep to it.

    Integers of up to 16 bits, and bools, keep their dtype; everything else becomes float32. A uint8 image with its
    channels last is turned to channels first, the layout of every network here.

    Integers are scaled by the bounds that their space declares: each entry is divided by the larger magnitude of its
    two bounds, so that it lies in `-1 .. 1`, and 0 stays 0. Pixels declared as 0 to 255 are divided by 255, and a
    one-hot code declared as 0 to 1 enters as it is, in whatever dtype. An entry without known bounds, a bool and a
    float enter as they are.

    Attributes:
        shape: shape of an observation as learned from, channels first; a scalar is `(1,)`.
        dtype: dtype in which it is stored.
        scale: see `HostEnv.obs_scale`.
    """

    def __init__(self, space: gymnasium.spaces.Box, name: str) -> None:
        """Takes the space.

        Args:
            space: the space.
            name: what messages call the environment.

        Raises:
            ValueError: if an observation would have no entry.
        """
        if not math.prod(space.shape):
            raise ValueError(f"{name} has the observation space {space}, which has no entry: nothing can be seen")
        self._name, self._space, self._declared = name, space, np.dtype(space.dtype)
        is_small = self._declared.kind in "biu" and self._declared.itemsize <= 2
        self.dtype = self._declared if is_small else np.dtype(np.float32)
        self._channels_last = (
            self.dtype == np.uint8
            and len(space.shape) == 3
            and space.shape[-1] in _CHANNELS
            and space.shape[0] not in _CHANNELS
        )
        first = np.zeros(space.shape)
        self.shape = self._laid_out(first).shape
        self._low, self._high = np.asarray(space.low), np.asarray(space.high)
        self._holds_any = self._declared.kind == "b"  # whatever its dtype can be lies within the bounds
        self.scale: Scale = 1.0
        if self._declared.kind in "iu":
            self._take_bounds()

    def taken(self, given: Any, source: str | None = None) -> np.ndarray:
        """Returns an observation in the shape, layout and dtype promised.

        Args:
            given: the observation.
            source: what messages begin with; None: that the environment gave it.

        Raises:
            ValueError: if it is not what the space declares, or not finite in float32.
        """
        array, source = as_array(given), source or f"{self._name} gave"
        if array.dtype.kind not in ("biuf" if self._declared.kind == "f" else "biu"):
            kind = f"{array.dtype} ({type(given).__name__})" if array.dtype.kind == "O" else array.dtype
            self._refuse(source, f"an observation of dtype {kind}, its space says {self._declared}")
        if array.shape != self._space.shape:
            self._refuse(source, f"an observation of shape {array.shape}, its space says {self._space.shape}")
        if self._declared.kind == "f":
            with np.errstate(over="ignore"):
                array = array.astype(np.float32, copy=False)
            if not np.isfinite(array).all():
                self._refuse(source, f"an observation that is not finite in float32: {given}")
        elif not (self._holds_any and array.dtype == self._declared):
            self._check_bounds(source, array)
        return self._laid_out(array.astype(self.dtype, copy=False))

    def outside(self, obs: np.ndarray) -> str | None:
        """Says where a float observation, as `taken` returns it, lies outside of the bounds declared, if it does."""
        if self._declared.kind != "f":
            return None
        with np.errstate(over="ignore"):  # of float64's largest number, which says that there is no bound
            low, high = (self._laid_out(bound.astype(np.float32)) for bound in (self._low, self._high))
        wrong = np.argwhere((obs < low) | (obs > high))
        if not len(wrong):
            return None
        index = tuple(wrong[0].tolist())
        return f"{obs[index]:g} at {list(index)}, where its space says {low[index]:g} to {high[index]:g}"

    def _take_bounds(self) -> None:
        """Finds the scale of integers, and the bounds that they are checked against."""
        largest = np.maximum(np.abs(self._low.astype(np.float64)), np.abs(self._high.astype(np.float64)))
        known = self._space.bounded_below & self._space.bounded_above & (largest < NO_BOUND)
        scale = self._laid_out(np.where(known, np.maximum(largest, 1.0), 1.0)).reshape(-1).tolist()
        self.scale = scale[0] if len(set(scale)) == 1 else tuple(scale)
        limits = np.iinfo(str(self._declared))
        self._low = np.where(self._space.bounded_below, self._low, limits.min)
        self._high = np.where(self._space.bounded_above, self._high, limits.max)
        self._holds_any = bool((self._low == limits.min).all() and (self._high == limits.max).all())

    def _check_bounds(self, source: str, array: np.ndarray) -> None:
        """Refuses integers outside of the bounds declared: they are scaled by these."""
        wrong = np.argwhere((array < self._low) | (array > self._high))
        if len(wrong):
            index = tuple(wrong[0].tolist())
            place = f" at {list(index)}" if index else ""
            self._refuse(
                source,
                f"an observation with {array[index]}{place}, where its space says "
                f"{self._low[index]} to {self._high[index]}: integers are scaled by their bounds, so declare true ones",
            )

    def _laid_out(self, array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array, -1, 0) if self._channels_last else array.reshape(array.shape or (1,))

    def _refuse(self, source: str, given: str) -> None:
        raise ValueError(f"{source} {given}")
