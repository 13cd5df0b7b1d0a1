"""Interface of all platforms: intent to state, state to text and back, changes to steps. Pure."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from switchcfg.errors import BadState, CannotExpress
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.masking import masked
from switchcfg.plan.queues import Abilities, Layout, lay_out
from switchcfg.plan.state import Change, Owns, Place, State

MAX_JSON: Final = 1 << 26  # characters; a full configuration of a chassis has a few million


@dataclass(frozen=True, slots=True)
class Rendered:
    """The wanted state of a device, and the deviations from the intent."""

    state: State
    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """The wanted state of a device, adapted to its foreign configuration."""

    state: State
    gives_way: frozenset[Place]  # may be removed although no name marks them as switchcfg's
    problems: tuple[str, ...]  # `RULE: what is wrong`: refused


@dataclass(frozen=True, slots=True)
class GivenBack:
    """Effects of a removal on values of the whole switch, which have no name of switchcfg."""

    values: Mapping[Place, str | None]  # place -> value to restore; None: remove
    stays: Mapping[Place, str]  # foreign or kept value that stays -> in words
    lasting: frozenset[Place] = frozenset()  # values that the device cannot remove again


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether a device's release takes changes."""

    problems: tuple[str, ...]  # `RULE: what is wrong`: refused
    doubts: tuple[str, ...]  # changes that the device may refuse
    by_reload: tuple[str, ...] = ()  # refused as well, unless the operator allows a full reload


@dataclass(frozen=True, slots=True)
class Step:
    """One unit of changes for a device; the next step waits until it has ended."""

    title: str
    payload: str  # in the device's own language
    disrupts: tuple[str, ...] = ()  # effects on traffic
    minutes: int = 0  # of a long step, which may cut the connection; 0: a short step
    lasts: int = 0  # seconds that a short step may take; 0: a few


@dataclass(frozen=True, slots=True)
class Shell:
    """How to read and configure a device with a POSIX shell. Scripts are for `sh -eu`."""

    snapshot: str  # script whose output `Platform.read` takes
    tools: tuple[str, ...]  # required commands
    script: Callable[[Step], str]  # the script of one step
    timeout: float = 60.0  # seconds for one script
    save: str = ""  # script that saves the running configuration; "": there is none


@dataclass(frozen=True, slots=True)
class Netconf:
    """How to read and configure a NETCONF device: RPCs as XML, without their <rpc>."""

    ask: str  # gets the configuration
    said: Callable[[str], str]  # the reply to `ask` -> text for `Platform.read`
    load: Callable[[Step], str]  # loads one step into the candidate
    undo: str = ""  # loads the configuration before the last commit; for confirmed-commit 1.0
    compare: str = ""  # gets the candidate's diff; "": the device has none
    compared: Callable[[str], str] = str  # the reply to `compare` -> the diff


def is_ours(intent: Intent, name: str) -> bool:
    """Whether switchcfg gave this name: the prefix, alone or followed by "-" or "_"."""
    return name == intent.prefix or name.startswith((f"{intent.prefix}-", f"{intent.prefix}_"))


def group_name(intent: Intent, group: PortGroup) -> str:
    """The name of a port group's profiles: the prefix, and the group's name if it has one."""
    return "-".join(filter(None, (intent.prefix, group.name)))


def not_to_be_had(intent: Intent, device: Device, able: Abilities) -> str:
    """Why a platform cannot express the intent, not even degraded; "": it can."""
    if intent.queueing.trim and not able.trim:
        return (
            "[queues] trim: switchcfg supports packet trimming on SONiC only, not on "
            f"{device.platform}"
        )
    if intent.lossless and not able.lossless:
        return f"lossless: {device.platform} cannot have [[lossless]] classes: {able.no_lossless}"
    if len(intent.lossless) > able.lossless:
        return (
            f"lossless: {device.platform} has at most {able.lossless} [[lossless]] classes, not "
            f"{len(intent.lossless)}"
        )
    return ""


def render_groups(
    intent: Intent,
    device: Device,
    able: Abilities,
    state_of: Callable[[Intent, PortGroup, Layout], Mapping[Place, str]],
) -> Rendered:
    """The states of all port groups together, and the deviations of their layouts.

    Raises: CannotExpress.
    """
    if device.ports and (why := not_to_be_had(intent, device, able)):
        raise CannotExpress(f"{device.name}: {why}: give this device an intent without it")
    state: dict[Place, str] = {}
    degraded: dict[str, None] = {}
    for group in device.groups:
        layout = lay_out(intent, group, able)
        degraded |= dict.fromkeys(layout.degraded)
        state |= state_of(intent, group, layout)
    return Rendered(state, tuple(degraded))


def foreign(name: str, said: str, text: str) -> BadState:
    """The error for a text that is not a configuration of platform `name`."""
    begin = masked(text.strip().split("\n")[0])[:40]
    kinds = {"": "nothing", "{": "JSON", "[": "JSON", "<": "HTML or XML"}
    found = kinds.get(begin[:1], f"text that begins with {begin!r}")
    return BadState(f"{found} is not a configuration of {name}: save the output of `{said}`")


def read_json(text: str, what: str) -> dict[str, Any]:
    """The JSON object that a device answered with.

    Raises: BadState.
    """
    if len(text) > MAX_JSON:
        raise BadState(f"{what}: {len(text)} characters, at most {MAX_JSON}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadState(f"{what} is not JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise BadState(f"{what} is not a JSON object")
    return document


class Platform(Protocol):
    """One kind of switch. Implementations keep no state."""

    @property
    def name(self) -> str: ...

    @property
    def able(self) -> Abilities: ...

    def render(self, intent: Intent, device: Device) -> Rendered:
        """The state that the intent wants. Raises: CannotExpress."""

    def owns(self, intent: Intent) -> Owns:
        """A predicate: whether switchcfg made a value of a device, and may remove it."""

    def write(self, state: State) -> str:
        """A state as the platform's own text, as `switchcfg render` and golden files have it."""

    def read(self, text: str) -> State:
        """The state in a device's answer, or in the output of `write`.

        Raises: BadState.
        """

    def check(self, state: State, device: Device) -> Sequence[str]:
        """Parts of a whole state that a device would refuse or ignore; the rule's name first."""

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """The changes in the device's language, in an order that is safe at every step."""

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        """A script that undoes the changes, wherever their steps stopped; "" where the device
        can do so by itself."""


@runtime_checkable
class FittingPlatform(Platform, Protocol):
    """A platform whose foreign configuration constrains the wanted state."""

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        """`rendered`, adapted to `present`. Idempotent: with the result present, no change."""

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        """Whether a device of this release takes these changes."""


@runtime_checkable
class AccountingPlatform(Platform, Protocol):
    """A platform whose `read` accounts for every line near QoS (`switchcfg.plan.account`)."""

    def near(self, device: Device, present: State) -> Collection[str]:
        """The owners of lines that a plan for the device's ports touches."""


@runtime_checkable
class SharedPlatform(Platform, Protocol):
    """A platform on which switchcfg sets values of the whole switch, which have no name."""

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """The effects of a removal on these values."""


@runtime_checkable
class ShellPlatform(Platform, Protocol):
    """A platform that is reached through a shell."""

    def shell(self, intent: Intent, device: Device) -> Shell:
        """How to read and configure a device."""


@runtime_checkable
class NetconfPlatform(Platform, Protocol):
    """A platform that is reached over NETCONF."""

    def netconf(self) -> Netconf:
        """How to read and configure a device."""
