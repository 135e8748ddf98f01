"""A host loop as a state that can be written down, and back: everything that its future depends on, and nothing else.

Networks, targets, optimisers, replays, counters and scores are saved as they are. An emulator's state can't be had, so
a game is saved as its tape, its seed and actions, and played again. There are no random generators: every draw is a
function of seed, role and counter.
"""

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from softbellman.envs.step import Tape
from softbellman.learning.settings import LearnerSettings
from softbellman.training.checkpoint import Checkpoint, Damaged, State
from softbellman.training.measurement import Counters

if TYPE_CHECKING:
    from softbellman.training.host_loop import HostLoop


def snapshot(loop: "HostLoop", *, with_replay: bool = True) -> State:
    """Returns the state of a loop between two agent steps. Its arrays are views: write it before the next step.

    Args:
        loop: the loop; its last losses are checked first, so that what is saved is a good state.
        with_replay: False leaves the replay out, which is nearly all of the bytes; the loop can then go on, with an
            empty one, but not exactly.

    Raises:
        Diverged: the loss is no longer finite.
    """
    loop.check_losses()
    if loop.test_is_due:
        loop.hold_out()  # without the replay it could not be done later
    arrays: dict[str, list[np.ndarray]] = {"losses": [np.array([np.asarray(loss) for loss in loop.losses], np.float32)]}
    runs: list[dict[str, Any]] = []
    for index, env in enumerate(loop.envs):
        tapes = env.tape
        arrays |= {f"runs/{index}/tapes/{copy}": [tape.actions] for copy, tape in enumerate(tapes)}
        arrays |= {f"runs/{index}/scores": [loop.scores[index]], f"runs/{index}/ages": [loop.ages[index]]}
        if loop.held_out:
            arrays[f"runs/{index}/held_out"] = [loop.held_out[index]]
        if with_replay:
            arrays |= {f"runs/{index}/replay/{name}": views for name, views in loop.replays[index].filled().items()}
        runs.append(
            {
                "counters": dataclasses.asdict(loop.counters[index]),
                "written": loop.replays[index].written if with_replay else None,
                "tapes": [{"game": tape.game, "seed": tape.seed, "checksum": tape.checksum} for tape in tapes],
                "diverged": loop.diverged.get(index),
            }
        )
    for block, state in enumerate(loop.states):
        arrays |= saved_tree(f"blocks/{block}", state)
    facts = {
        "agent_steps": loop.agent_steps,
        "updates": loop.updates,
        "epoch": loop.epoch,
        "learning_from": loop.learning_from,
        "seconds": time.monotonic() - loop.started,
        "runs": runs,
    }
    return State(facts, arrays)


def restore(loop: "HostLoop", saved: Checkpoint, *, inexact: bool = False) -> list[str]:
    """Puts a loop, just made for the same runs and settings, where the saved one was.

    Args:
        loop: the loop.
        saved: the checkpoint.
        inexact: begins a new game where the old one, played again, does not come to where it was. Without it, that
            is an error.

    Returns:
        What is not as if there had been no stop: empty if the loop goes on bit for bit.

    Raises:
        Damaged: the checkpoint is of other runs or settings.
        ValueError: a game can't be played again up to where it was.
    """
    facts, notes = saved.facts, []
    try:
        loop.agent_steps, loop.updates, loop.epoch = (facts[name] for name in ("agent_steps", "updates", "epoch"))
        loop.learning_from = facts["learning_from"]
        loop.started = time.monotonic() - facts["seconds"]
        loop.diverged = {index: run["diverged"] for index, run in enumerate(facts["runs"]) if run["diverged"]}
        loop.losses = list(saved.array("losses"))
        check_same(
            saved, {name for block, state in enumerate(loop.states) for name in saved_tree(f"blocks/{block}", state)}
        )
        loop.states = [restored_tree(saved, f"blocks/{block}", state) for block, state in enumerate(loop.states)]
        if "runs/0/held_out" in saved.names:
            loop.held_out = [saved.array(f"runs/{index}/held_out") for index in range(len(loop.runs))]
        for index, run in enumerate(facts["runs"]):
            loop.counters[index] = Counters(**run["counters"])
            saved.read_into(f"runs/{index}/scores", [loop.scores[index]])
            saved.read_into(f"runs/{index}/ages", [loop.ages[index]])
            notes.extend(_restore_replay_and_game(loop, saved, index, inexact=inexact))
    except (KeyError, TypeError, IndexError) as error:
        raise Damaged(f"{saved.path} is not of this study: {error!r}") from error
    return list(dict.fromkeys(notes))


def _restore_replay_and_game(loop: "HostLoop", saved: Checkpoint, index: int, *, inexact: bool) -> list[str]:
    run, env, replay = saved.facts["runs"][index], loop.envs[index], loop.replays[index]
    tapes = [Tape(actions=saved.array(f"runs/{index}/tapes/{copy}"), **tape) for copy, tape in enumerate(run["tapes"])]
    notes, goes_on = [], True
    try:
        loop.obs[index] = env.restore(tapes)
    except ValueError as error:
        if not inexact:
            raise ValueError(f"{error}; to go on with a new game all the same: resume --inexact") from error
        loop.obs[index], goes_on = env.reset(), False
        loop.scores[index][:], loop.ages[index][:] = 0.0, 0
        notes.append(f"not exact: {error}; a new game begins")
    if run["written"] is None:
        replay.start(loop.obs[index])
        loop.learning_from = loop.agent_steps + loop.settings.replay_start_steps
        notes.append(empty_replay(loop.settings))
        return notes
    replay.refill(run["written"], lambda name, views: saved.read_into(f"runs/{index}/replay/{name}", views))
    if not goes_on:
        replay.start(loop.obs[index])
    return notes


def empty_replay(settings: LearnerSettings) -> str:
    """Says what it means that a replay was not saved."""
    return (
        "not exact: the replay was not saved (checkpoint.replay) and is empty; learning goes on after "
        f"{settings.replay_start_steps:,} more agent steps"
    )


def saved_tree(prefix: str, tree: Any) -> dict[str, list[np.ndarray]]:
    """Returns the leaves of a pytree as arrays to be saved, by the path to each."""
    leaves, _ = jax.tree.flatten_with_path(tree)
    named = ((jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in leaves)
    return {f"{prefix}/{name}": [np.asarray(leaf)] for name, leaf in named}


def restored_tree(saved: Checkpoint, prefix: str, like: Any) -> Any:
    """Returns a pytree as `saved_tree` took it apart, with the structure and the arrays' sizes of `like`."""

    def read(name: str, pieces: list[np.ndarray]) -> jax.Array:
        made = np.empty(pieces[0].shape, pieces[0].dtype)
        saved.read_into(name, [made])
        return jnp.array(made)

    leaves = [read(name, pieces) for name, pieces in saved_tree(prefix, like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def check_same(saved: Checkpoint, names: set[str]) -> None:
    """Refuses a checkpoint whose blocks have other arrays than those named.

    Raises:
        Damaged: it has.
    """
    if names != {name for name in saved.names if name.startswith("blocks/")}:
        raise Damaged(f"{saved.path} is of another network, optimiser or number of runs")
