"""What every platform does: intent to state, state to text and back, changes to steps. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from switchcfg.errors import BadState, CannotExpress
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, lay_out
from switchcfg.plan.state import Change, Owns, Place, State

MAX_JSON: Final = 1 << 26  # characters; a full configuration of a chassis has a few million


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a device shall be, and what of the intent it cannot be."""

    state: State
    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """What a device shall be, made to go beside what others have there."""

    state: State
    gives_way: frozenset[Place]  # values of others that cannot stay beside it
    problems: tuple[str, ...]  # `RULE: what is wrong`: refused


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What of a whole switch a removal brings back, since no name says whose it is."""

    values: Mapping[Place, str | None]  # as the intent sets them -> as they were; None: not there
    stays: tuple[str, ...]  # what somebody else set, in words


@dataclass(frozen=True, slots=True)
class Taken:
    """What a device says to changes, by its release."""

    problems: tuple[str, ...]  # `RULE: what is wrong`: refused
    doubts: tuple[str, ...]  # what only the device itself knows
    by_reload: tuple[str, ...] = ()  # refused as well, unless the operator allows a full reload


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a device is told; what follows waits until it has been done."""

    title: str
    payload: str  # in the device's own language
    disrupts: tuple[str, ...] = ()  # what traffic notices
    minutes: int = 0  # it may take so long, and cut our connection meanwhile; 0: it does neither


@dataclass(frozen=True, slots=True)
class Shell:
    """How a device with a POSIX shell is asked and told. All are scripts for `sh -eu`."""

    snapshot: str  # says what `Platform.read` understands
    tools: tuple[str, ...]  # commands that must be there
    script: Callable[[Step], str]  # does one step
    timeout: float = 60.0  # seconds that one script may take
    save: str = ""  # makes what runs outlast a restart; "" where nothing does


@dataclass(frozen=True, slots=True)
class Netconf:
    """How a NETCONF device is asked and told: RPCs as XML, without their <rpc>."""

    ask: str
    said: Callable[[str], str]  # the reply to `ask` -> what `Platform.read` understands
    load: Callable[[Step], str]  # puts one step into the candidate
    undo: str = ""  # puts there what was before the last commit; needed before version 1.1
    compare: str = ""  # asks what the candidate changes; "" where nothing says so
    compared: Callable[[str], str] = str  # the reply to `compare` -> what it says


def is_ours(intent: Intent, name: str) -> bool:
    """Did switchcfg give this name? Ours are the prefix, alone or before a part of their own."""
    return name == intent.prefix or name.startswith((f"{intent.prefix}-", f"{intent.prefix}_"))


def group_name(intent: Intent, group: PortGroup) -> str:
    """What a port group's profiles are called: the prefix, and the group's name if it has one."""
    return "-".join(filter(None, (intent.prefix, group.name)))


def not_to_be_had(intent: Intent, device: Device, able: Abilities) -> str:
    """What of the intent a platform cannot do, and must not leave out without a word; "": all."""
    if intent.queueing.trim and not able.trim:
        return f"[queues] trim: switchcfg has packet trimming on SONiC, not on {device.platform}"
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
    """The states of all port groups together, and what their layouts lack.

    Raises: CannotExpress.
    """
    if why := not_to_be_had(intent, device, able):
        raise CannotExpress(f"{device.name}: {why}: give this device an intent without it")
    state: dict[Place, str] = {}
    degraded: dict[str, None] = {}
    for group in device.groups:
        layout = lay_out(intent, group, able)
        degraded |= dict.fromkeys(layout.degraded)
        state |= state_of(intent, group, layout)
    return Rendered(state, tuple(degraded))


def foreign(name: str, said: str, text: str) -> BadState:
    """The error for a text that is not what such a device says of itself."""
    begin = text.strip().split("\n")[0][:40]
    kinds = {"": "nothing", "{": "JSON", "[": "JSON", "<": "HTML or XML"}
    found = kinds.get(begin[:1], f"text that begins with {begin!r}")
    return BadState(f"{found} is not what {name} says of itself: that is the output of `{said}`")


def read_json(text: str, what: str) -> dict[str, Any]:
    """The JSON object that a device answered with.

    Raises: BadState.
    """
    if len(text) > MAX_JSON:
        raise BadState(f"{what}: {len(text)} characters, at most {MAX_JSON}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadState(f"{what} is no JSON: {exc}") from exc
    if not isinstance(document, dict):
        raise BadState(f"{what} is no JSON object")
    return document


class Platform(Protocol):
    """One kind of switch. Implementations keep no state."""

    @property
    def name(self) -> str: ...

    def render(self, intent: Intent, device: Device) -> Rendered:
        """Raises: CannotExpress."""

    def owns(self, intent: Intent) -> Owns:
        """Which values of a device switchcfg made, and may remove."""

    def write(self, state: State) -> str:
        """A state as the platform's own text: what `render` prints and golden files hold."""

    def read(self, text: str) -> State:
        """What a device tells of itself, or what `write` printed.

        Raises: BadState.
        """

    def check(self, state: State, device: Device) -> Sequence[str]:
        """What a device would refuse, or silently not do, of a whole state; by name of the rule."""

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """The changes in the device's language, in an order that is safe at every step."""

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        """A script that undoes the changes, wherever their steps stopped; "" where the device
        can do so by itself."""


@runtime_checkable
class FittingPlatform(Platform, Protocol):
    """One where what others made says how ours must be, and whether it can be at all."""

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        """`rendered` as it suits `present`. A second time, on the outcome, it changes nothing."""

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        """Whether a device of this release takes these changes."""


@runtime_checkable
class SharedPlatform(Platform, Protocol):
    """One on which some of what ours sets has no name: it is the switch's."""

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """What a removal does with it."""


@runtime_checkable
class ShellPlatform(Platform, Protocol):
    """One that is reached through a shell."""

    def shell(self, intent: Intent, device: Device) -> Shell:
        """How to ask and tell it."""


@runtime_checkable
class NetconfPlatform(Platform, Protocol):
    """One that is reached over NETCONF."""

    def netconf(self) -> Netconf:
        """How to ask and tell it."""
