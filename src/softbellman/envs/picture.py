"""Pictures of boards: a colour for each plane, each cell a square of pixels."""

from collections.abc import Mapping, Sequence

import numpy as np

LONGER_SIDE = 400  # pixels, at least: films show such pictures as they are
BACKGROUND = (16, 16, 24)


def painted(planes: np.ndarray, names: Sequence[str], colours: Mapping[str, tuple[int, int, int]]) -> np.ndarray:
    """Paints planes `[H, W, C]`, that is what is not 0 in them.

    Args:
        planes: the board; channel `c` is called `names[c]`.
        names: `[C]` names.
        colours: red, green and blue of each name, 0 to 255; a later one is painted over those before it.

    Returns:
        `[height, width, 3]` uint8, whole multiples of `H` and `W`.
    """
    picture = np.empty((*planes.shape[:2], 3), np.uint8)
    picture[:] = BACKGROUND
    for name, colour in colours.items():
        if name in names:
            picture[planes[..., names.index(name)] != 0] = colour
    size = 2 * -(-LONGER_SIDE // (2 * max(planes.shape[:2])))  # even, as films want it
    return picture.repeat(size, axis=0).repeat(size, axis=1)
