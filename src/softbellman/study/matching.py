"""Check that a study on disk is the one that is asked for."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from softbellman.config import Config, decisive
from softbellman.study.groups import OVER, open_groups
from softbellman.study.runs import read_status
from softbellman.study.store import Study


def require_within(
    study: Study,
    environments: Sequence[str],
    operators: Sequence[Any],
    seeds: Sequence[int],
    config: Config,
    facts: Mapping[str, Any],
) -> None:
    """Refuses to grow a study into one that would not hold all of its runs, as they are.

    Raises:
        ValueError: with what would be missing, and every setting or fact of an environment that differs. How
            checkpoints are saved is no difference, nor is a budget of agent steps that no run has come to the end of.
    """
    asked = {"environments": environments, "operators": [str(arm) for arm in operators], "seeds": seeds}
    faults, changed = list[str](), list[str]()
    for name, values in asked.items():
        missing = ", ".join(str(value) for value in study.record[name] if value not in values)
        faults += [f"{name} {missing} there, and not asked for: a study can grow, not shrink"] if missing else []
    for environment, known in study.record["environment_facts"].items():
        asked_of_it = json.loads(json.dumps(facts.get(environment, known)))
        in_both = {name: value for name, value in asked_of_it.items() if name in known}  # older ones recorded less
        changed += [f"{environment}: {each}" for each in _differing(known, in_both, "now")]
    faults += _changed(study, config)
    if faults:
        all_faults = "; ".join([*faults, *changed])
        raise ValueError(f"{study.path} holds another study already ({all_faults}); name another directory with --out")
    if changed:
        raise ValueError(
            f"{study.path} can't go on: what it trains in has changed ({'; '.join(changed)}); put that back as it was, "
            "or begin another study"
        )


def _changed(study: Study, config: Config) -> list[str]:
    faults = _differing(decisive(study.config), decisive(config), "asked for")
    return [*faults, *_unreachable(study, config.loop.steps)]


def _unreachable(study: Study, budget: int) -> list[str]:
    """Says why a study's runs can't be given another budget, if they can't: they go on from where they were saved."""
    before = study.config.loop.steps
    if budget == before:
        return []
    taken = max((group.saved_steps for group in open_groups(study)), default=0)
    if taken >= before or any(read_status(run) in OVER for run in study.runs):
        why = "a run that has ended can't go on"
    elif taken > budget:
        why = f"{taken:,} are taken already"
    else:
        return []
    return [f"loop.steps {before} there, {budget} asked for: {why}"]


def _differing(there: Mapping[str, Any], here: Mapping[str, Any], how: str) -> list[str]:
    names = [name for name in here if here[name] != there.get(name)]
    return [f"{name} {there.get(name)} there, {here[name]} {how}" for name in names]
