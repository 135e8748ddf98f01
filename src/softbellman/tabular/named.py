"""MDPs by name: an example, a file, or a Gymnasium id with a table of transitions."""

import re

from softbellman.arguments import as_path, nearest
from softbellman.extras import MissingExtra
from softbellman.tabular.examples import EXAMPLES
from softbellman.tabular.files import read_mdp
from softbellman.tabular.mdp import FiniteMDP

GYMNASIUM_GAMMA = 0.99  # its tables have no discount factor of their own


def named_mdp(target: str, gamma: float | None = None) -> FiniteMDP:
    """Build the MDP that a word names.

    Args:
        target: an example of `tabular.examples`, a .json or .npz file, or a Gymnasium id with a table of transitions.
        gamma: discount factor; by default the example's or file's own, and `GYMNASIUM_GAMMA` for Gymnasium.

    Raises:
        ValueError: for what is none of them; the nearest are listed.
        MissingExtra: for an id where Gymnasium is not installed.
    """
    own = {} if gamma is None else {"gamma": gamma}
    if target in EXAMPLES:
        return EXAMPLES[target](**own)
    if as_path(target).is_file():
        return read_mdp(target, **own)
    try:
        import gymnasium
    except ModuleNotFoundError:
        if re.search(r"-v\d+$", target):
            raise MissingExtra("gymnasium", "train") from None
        hint = nearest(target, EXAMPLES)
        raise ValueError(f"{target} is no example and no file{hint} (examples: {', '.join(EXAMPLES)})") from None
    if target not in gymnasium.registry:
        toys = [name for name, spec in gymnasium.registry.items() if ".toy_text." in str(spec.entry_point)]
        with_table = [name for name in toys if not name.startswith("Blackjack")]
        hint = nearest(target, [*EXAMPLES, *with_table])
        raise ValueError(
            f"{target} is no example, no file and no Gymnasium id{hint} (examples: {', '.join(EXAMPLES)}; ids, among "
            f"others: {', '.join(with_table)})"
        )
    return FiniteMDP.from_gymnasium(target, GYMNASIUM_GAMMA if gamma is None else gamma)
