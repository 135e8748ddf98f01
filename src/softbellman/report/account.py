"""Account of a study: settings, software, hardware, and the commands that repeat it."""

import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from softbellman.analysis.records import Record, Records
from softbellman.config import Config, effective, fields, in_words
from softbellman.config.arms import joined
from softbellman.report.wording import count
from softbellman.study.store import Study


def facts(records: Records) -> Iterator[tuple[str, str]]:
    """Says what was run and on what: labels, each with a text."""
    study = records.study
    yield "environments" if len(study.environments) > 1 else "environment", ", ".join(study.environments)
    yield f"{study.noun}s", joined(study.arms.values())
    yield "seeds", ", ".join(map(str, study.seeds))
    furthest = max((record for record in records.runs if record.rows), key=lambda each: each.column("agent_steps")[-1])
    yield from training(study.config, furthest)
    if any(arm.changes for arm in study.arms.values()):
        yield "settings of arms", "an arm's own, in its name or under Every setting, stand in place of those above"
    seconds = furthest.column("seconds")[-1]
    yield "time", f"{seconds / 60:,.1f} minutes until the last test of a run, with all that it waited for"
    yield "software", software(study)
    yield "hardware", _all(_hardware(each) for each in provenances(study))
    if resumptions := study.record.get("resumptions"):
        notes = list(dict.fromkeys(note for each in resumptions for note in each["notes"]))
        how = "; ".join(notes) or "each time exactly as if there had been no stop"
        yield "stopped and resumed", f"{count(len(resumptions), 'time')}: {how}"


def training(config: Config, record: Record) -> Iterator[tuple[str, str]]:
    """Says how a run is trained, by its configuration, and how far it has come, by its record."""
    learner, loop = config.learner, config.loop
    steps, frames, updates = (record.column(name)[-1] for name in ("agent_steps", "env_frames", "updates"))
    done = f"{steps:,.0f} agent steps, {frames:,.0f} frames, {updates:,.0f} updates"
    yield "budget of a run", done if steps == loop.steps else f"{loop.steps:,} agent steps; done so far: {done}"
    games = "" if loop.test_episodes is None else f"{count(loop.test_episodes, 'game')}, in at most "
    tests = f"{games}{loop.test_steps:,} agent steps with epsilon {loop.test_epsilon:g}"
    yield "tests", f"{loop.tested}: {tests}"
    learning = [
        f"gamma {learner.gamma:g}",
        f"{learner.optimizer} with learning rate {learner.learning_rate:g}",
        f"minibatches of {learner.batch_size}",
        f"an update every {_period(learner.update_period_steps, 'step')}",
        f"target network copied every {_period(learner.target_period_updates, 'update')}",
        f"replay of {learner.replay_capacity:,}",
    ]
    yield "learner", ", ".join(learning)
    plain = dict(fields(Config().recipe))
    parts = [f"{name}={value}" for name, value in fields(config.recipe) if value != plain[name]]
    if parts:
        yield "parts of the learner", ", ".join(parts)
    policy = "" if config.recipe.exploration == plain["exploration"] else f"{config.recipe.exploration}, but for "
    epsilon = f"epsilon {learner.epsilon_start:g} to {learner.epsilon_end:g} over {learner.epsilon_decay_steps:,} steps"
    yield "exploration", f"{policy}{epsilon}, after {learner.replay_start_steps:,} random ones"
    yield "rewards", f"enter learning {learner.rewards}; scores are raw"


def software(study: Study) -> str:
    """Lists the versions that trained a study."""
    made = [{"Python": each["python"], **each["versions"]} for each in provenances(study)]
    names = dict.fromkeys(name for each in made for name in each)
    return ", ".join(f"{name} {_all((each.get(name) for each in made), ' and ')}" for name in names)


def settings(study: Study) -> list[tuple[str, str]]:
    """Lists what each environment says of itself, and every setting that has an effect, with those of arms below it."""
    listing = [
        (f"{environment}: {name}", in_words(value))
        for environment in study.environments
        for name, value in study.record["environment_facts"].get(environment, {}).items()
        if name != "environment"
    ]
    configs = [study.config, *(arm.config(study.config) for arm in study.arms.values())]
    used = {name for config in configs for name, _ in effective(config, study.environments)}
    for path, value in fields(study.config):
        listing += [(path, in_words(value))] if path in used else []
        for arm in study.arms.values():
            listing += [(f"{path} of {arm.name}", in_words(own)) for changed, own in arm.changes if changed == path]
    return listing


def commands(study: Study) -> str:
    """Returns the commands that run a study again and write its report anew."""
    asked = study.record["command"]
    again = (
        shlex.join(["softbellman", *asked])
        if asked
        else "# by softbellman.compare of Python, with what study.json holds"
    )
    folder = asked[asked.index("--out") + 1] if "--out" in asked else str(study.path)
    return f"{again}\nsoftbellman report {shlex.quote(folder)}"


def made_with(study: Study) -> str:
    """Says which version made a study, or which ones."""
    return _all(map(_version, provenances(study)))


def provenances(study: Study) -> list[dict[str, Any]]:
    """Lists with what a study was begun, and what it was trained on with later: each once."""
    later = [*study.record.get("launches", []), *study.record.get("resumptions", [])]
    made = [study.record["provenance"], *(each["provenance"] for each in later)]
    return [each for place, each in enumerate(made) if each not in made[:place]]


def record(study: Study) -> str:
    """Returns what `study.json` holds."""
    return json.dumps(study.record, indent=2) + "\n"


def _version(made: dict[str, Any]) -> str:
    revision = f", revision {made['revision']}" if made.get("revision") else ""
    return f"softbellman {made['versions'].get('softbellman', 'of an unknown version')}{revision}"


def _hardware(made: dict[str, Any]) -> str:
    threads = f", {count(int(made['threads']), 'thread')} of XLA" if made.get("threads") else ""
    return f"{made['processor']} ({made['machine']}), {count(made['cores'], 'core')}{threads}"


def _all(texts: Iterable[str | None], between: str = "; ") -> str:
    """Writes what several provenances say, each once; what one does not say is left out."""
    return between.join(text for text in dict.fromkeys(texts) if text is not None)


def _period(n: int, noun: str) -> str:
    return noun if n == 1 else count(n, noun)
