"""What every platform does: intent to state, state to text and back, changes to steps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from switchcfg.intent import Device, Intent
from switchcfg.state import Change, Owns, State


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a device shall be, and what of the intent it cannot be."""

    state: State
    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a device is told; what follows waits until it has been done."""

    title: str
    payload: str  # in the device's own language
    disrupts: tuple[str, ...] = ()  # what traffic notices


def is_ours(intent: Intent, name: str) -> bool:
    """Did switchcfg give this name? Ours are the prefix, alone or before a part of their own."""
    return name == intent.prefix or name.startswith((f"{intent.prefix}-", f"{intent.prefix}_"))


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
