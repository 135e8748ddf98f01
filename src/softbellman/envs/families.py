"""Families of environments: one record each, and environments by name. Loads no JAX and no emulator."""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from softbellman.arguments import nearest, squeeze
from softbellman.envs import atari, minatar
from softbellman.envs.options import EnvOptions
from softbellman.envs.step import DeviceEnv, HostEnv
from softbellman.extras import MissingExtra
from softbellman.references import REMEDY, is_reference, reference_to


def _same(protocol: Any) -> Any:
    return protocol


@dataclass(frozen=True, kw_only=True)
class Family:
    """Environments of one kind: all that the rest of softbellman must know of the kind, and of no single one.

    An adapter is a module, or anything with these functions, and is loaded when one of its environments is made:

        names() -> list[str]                                    those it knows, without the prefix
        rules(facts) -> str                                     what `describe()` says, in one sentence
        make(name, protocol, *, seed, num_envs, training, record) -> HostEnv
        make_device(name, protocol) -> DeviceEnv                in place of `make`, for a family on the device

    Attributes:
        form: how a name looks: `atari/<game>`.
        title: what a user calls the family.
        member: what one of them is called.
        load: returns the adapter.
        on_device: its environments are pure functions, compiled together with their learner.
        protocol: class of what an environment is made by besides its name; its defaults are the usual protocol.
        section: section of the configuration that holds the protocol.
        preset: preset that is trained with unless another is named.
        extra: the optional packages that it needs.
        own_network: `network.kind` auto finds a network for its observations that has no hidden layers to choose.
        accidents: fields of the protocol that the loop on the host honours, since it chooses the actions.
        pictures_per_second: pace of a film, by protocol.
        recorded: returns a protocol as it is recorded.
        too_few_steps: in so few agent steps no more is learned than chance does.
        longer: presets that train for longer.
        foreign: what to do where other processes can't make one, with `{name}` for its name without prefix and module;
            None for environments of ours, which are found everywhere.
        name_here: returns the name here of an environment that goes by another name elsewhere, or None.
        tried: an environment that the doctor makes.
    """

    form: str
    title: str
    member: str = "an environment"
    load: Callable[[], Any]
    on_device: bool = False
    protocol: type | None = None
    section: str | None = None
    preset: str = "classic-control"
    extra: str = "train"
    own_network: bool = False
    accidents: tuple[str, ...] = ()
    pictures_per_second: Callable[[Any], float] = lambda protocol: 30.0
    recorded: Callable[[Any], Any] = _same
    too_few_steps: int = 0
    longer: tuple[str, ...] = ()
    foreign: str | None = None
    name_here: Callable[[str], str | None] = lambda name: None
    tried: str | None = None

    def rules(self, facts: Mapping[str, Any]) -> str:
        """Says in one sentence what makes scores of two runs comparable or not."""
        return self.load().rules(facts)

    def checked_protocol(self, name: str, protocol: Any) -> Any:
        """Returns the protocol to make an environment by: the one given, or the usual one.

        Raises:
            ValueError: for a protocol of another family.
        """
        if protocol is None:
            return None if self.protocol is None else self.protocol()
        if self.protocol is None or not isinstance(protocol, self.protocol):
            wanted = "none" if self.protocol is None else self.protocol.__name__
            raise ValueError(f"{name} takes no protocol such as {type(protocol).__name__} (it takes {wanted})")
        return protocol


def _gym() -> Any:
    from softbellman.envs import gym

    return gym


def _mdp() -> Any:
    from softbellman.envs import mdp

    return mdp


def _factory() -> Any:
    from softbellman.envs import factory

    return factory


FAMILIES = {
    "atari": Family(
        form="atari/<game>",
        title="Atari",
        member="an Atari game",
        load=lambda: atari,
        protocol=atari.AtariProtocol,
        section="protocol",
        preset="paper-atari",
        extra="atari",
        own_network=True,
        accidents=("random_first_actions", "budget_cut_terminates"),
        pictures_per_second=lambda protocol: 60 / protocol.frame_skip,  # a console draws 60 frames a second
        recorded=atari.honestly_named,
        too_few_steps=500_000,  # in so few agent steps this agent learned no more of Breakout than chance does
        longer=("quick-atari", "paper-atari"),
        name_here=atari.name_of_id,
        tried="atari/breakout",
    ),
    "minatar": Family(
        form="minatar/<game>",
        title="MinAtar",
        load=lambda: minatar,
        on_device=True,
        protocol=minatar.MinAtarProtocol,
        section="minatar",
        preset="sharp-minatar",
        own_network=True,
        tried="minatar/breakout",
    ),
    "mdp": Family(form="mdp/<example>", title="finite MDPs", load=_mdp, on_device=True),
    "gym": Family(
        form="gym/<id>",
        title="Gymnasium",
        load=_gym,
        protocol=EnvOptions,
        section="env",
        foreign="they know what a module registers when it is imported, not what a script does: put the class and its "
        "registration into a module, and name both, as in gym/my_module:{name}",
        tried="gym/CartPole-v1",
    ),
}
"""The families whose names have a prefix, by prefix."""

FACTORIES = Family(
    form="package.module:function",
    title="factories",
    load=_factory,
    protocol=EnvOptions,
    section="env",
    foreign=REMEDY,
)
"""The family of environments of a user's own, each named by the function or class that makes it."""


def every_family() -> list[Family]:
    """Lists all families."""
    return [*FAMILIES.values(), FACTORIES]


def find_family(name: str) -> Family | None:
    """Returns the family that a name is of, whether or not there is such an environment, or None for a name of none."""
    prefix, slash, rest = name.partition("/")
    if slash:
        return FAMILIES.get(prefix) if rest else None
    return FACTORIES if is_reference(name) else None


def family_of(name: str) -> Family:
    """Returns the family that a name is of, whether or not there is such an environment.

    Raises:
        ValueError: for a name of none; the nearest are listed.
    """
    if family := find_family(name):
        return family
    for family in every_family():
        if here := family.name_here(name):
            raise ValueError(f"{name} goes by {here} here, with an explicit protocol")
    forms = ", ".join(each.form for each in every_family())
    raise ValueError(f"unknown environment {name!r}; names look like {forms}{nearest(name, known())}")


def is_device(name: str) -> bool:
    """Tells if `name` is of a device environment, which a loop can compile together with its learner."""
    family = find_family(name)
    return family is not None and family.on_device


def name_of(environment: Any) -> str:
    """Returns the name of an environment: the name itself, or `module:name` of a function or class that makes one.

    Raises:
        ValueError: for what other processes could not find again.
    """
    return environment if isinstance(environment, str) else reference_to(environment, "environment")


def section_forms() -> dict[str, str]:
    """Says of every section of the configuration that is for some families which environments it is for."""
    forms: dict[str, str] = {}
    for family in every_family():
        if family.section:
            before = forms.get(family.section)
            forms[family.section] = f"{before} and {family.form}" if before else family.form
    return forms


def make(
    name: str,
    *,
    seed: int,
    num_envs: int = 1,
    training: bool = True,
    protocol: Any = None,
    record: bool = False,
) -> HostEnv:
    """Makes `num_envs` copies of the environment called `name`.

    Args:
        name: `atari/<game>`, `minatar/<game>`, `mdp/<example>`, `gym/<id>`, `gym/<module>:<id>`, or
            `package.module:function` for a function or class that makes a Gymnasium environment.
        seed: seed of the run, `>= 0`. Every game of every copy has a seed of its own, derived from it.
        num_envs: number of copies `E`.
        training: False gives the games of the test phases: another stream of seeds, and no end at a lost life.
        protocol: an `AtariProtocol` for `atari/`, a `MinAtarProtocol` for `minatar/`, `EnvOptions` for `gym/` and
            functions; None is the usual one.
        record: renders every step in colour, for `screen`.

    Raises:
        ValueError: for an unknown name (the nearest are listed), a protocol where none applies, or an environment
            that renders no pictures where they are asked for.
        MissingExtra: if the environment needs a package that is not installed.
    """
    family, own_name = _parts(name)
    if family.on_device:
        env = make_device(name, protocol)
        from softbellman.envs.hosted import HostedEnv

        return HostedEnv(env, seed=seed, num_envs=num_envs, training=training)
    protocol = family.checked_protocol(name, protocol)
    return family.load().make(own_name, protocol, seed=seed, num_envs=num_envs, training=training, record=record)


def make_device(name: str, protocol: Any = None) -> DeviceEnv:
    """Makes the device environment called `name`: one copy, as pure functions.

    Args:
        name: `minatar/<game>` or `mdp/<example>`.
        protocol: for `minatar/` only; None is that of the reference package.

    Raises:
        ValueError: for an unknown name (the nearest are listed), or a protocol where none applies.
        MissingExtra: if JAX is not installed.
    """
    family, own_name = _parts(name)
    if not family.on_device:
        others = " and ".join(each.form for each in every_family() if each.on_device)
        raise ValueError(f"{name} is played on the host; {others} are not")
    try:
        import jax  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("jax", family.extra) from error
    protocol = family.checked_protocol(name, protocol)
    adapter = family.load()
    return adapter.make_device(_known(name, own_name, adapter.names()), protocol)


def known() -> list[str]:
    """Lists the names `make` takes, as far as the installed packages tell."""
    found: list[str] = []
    for prefix, family in FAMILIES.items():
        with contextlib.suppress(ImportError):
            found += [f"{prefix}/{name}" for name in family.load().names()]
    return found


def _parts(name: str) -> tuple[Family, str]:
    """Returns the family of a name, and the name without its prefix."""
    family = family_of(name)
    return family, name if family is FACTORIES else name.partition("/")[2]


def _known(name: str, own_name: str, names: list[str]) -> str:
    """Returns the one of `names` that is meant, case and punctuation aside, or raises with the nearest."""
    found = {squeeze(each): each for each in names}.get(squeeze(own_name))
    if found is None:
        full = [name.removesuffix(own_name) + each for each in names]
        hint = nearest(name, full) if nearest(own_name, names) else f"; there are {', '.join(full)}"
        raise ValueError(f"unknown environment {name!r}{hint}")
    return found
