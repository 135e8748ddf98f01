"""Observations of an Atari game from its raw screens, as the environment makes them: pooled, resized, stacked."""

from typing import Any

import numpy as np

from softbellman.envs.atari.protocol import AtariProtocol
from softbellman.extras import MissingExtra

SCREEN_HEIGHT, SCREEN_WIDTH = 210, 160


class Screens:
    """History of one game that someone else plays: raw screens go in, observations come out.

    A raw screen is grey, `[210, 160]` uint8, as `ale.getScreenGrayscale()` gives it, or an environment of ale-py with
    `obs_type="grayscale"` and `frameskip=1`.
    """

    def __init__(self, protocol: AtariProtocol) -> None:
        """Takes the protocol that the policy was trained under.

        Raises:
            MissingExtra: if OpenCV is not installed.
        """
        self._protocol, self._resize = protocol, resizer(protocol)
        self._stack = np.zeros((protocol.stack, protocol.height, protocol.width), np.uint8)

    def begin(self, *screens: Any) -> np.ndarray:
        """Begins a game at its screen, or the last ones of its start, and returns its first observation."""
        self._stack[:] = 0
        return self.after(*screens)

    def after(self, *screens: Any) -> np.ndarray:
        """Takes the raw screens since the last action, the newest last, and returns the observation.

        An action is held for `frame_skip` screens; of these the last `frame_pool` are looked at.

        Returns:
            `[stack, height, width]` uint8.

        Raises:
            ValueError: if there is no screen, or one that is none.
        """
        seen = [np.asarray(screen) for screen in screens[-self._protocol.frame_pool :]]
        for screen in seen:
            if screen.shape != (SCREEN_HEIGHT, SCREEN_WIDTH) or screen.dtype != np.uint8:
                raise ValueError(
                    f"a screen must be grey, uint8 of shape {(SCREEN_HEIGHT, SCREEN_WIDTH)}, as "
                    f"ale.getScreenGrayscale() gives it; got {screen.dtype} of shape {screen.shape}"
                )
        if not seen:
            raise ValueError("there must be a screen at least: those since the last action, the newest last")
        self._stack[:-1] = self._stack[1:].copy()
        self._resize(np.maximum.reduce(seen), self._stack[-1])
        return self._stack.copy()


def resizer(protocol: AtariProtocol) -> Any:
    """Returns a function that scales a raw frame into a frame of the observation, in place.

    Raises:
        MissingExtra: if OpenCV is not installed.
    """
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingExtra("opencv-python-headless", "atari") from error
    interpolation = {"bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}[protocol.resize]
    size = (protocol.width, protocol.height)

    def resize(frame: np.ndarray, out: np.ndarray) -> None:
        cv2.resize(frame, size, dst=out, interpolation=interpolation)

    return resize
