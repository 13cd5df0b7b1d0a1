"""Names of ports and port-channels, and the rates that they may have. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SLOWEST: Final = 10 * 10**6  # bit/s of an Ethernet port of a switch
FASTEST: Final = 1_600 * 10**9  # bit/s of any port
MEMBERS: Final = 64  # links of one port-channel, at most
ANY_CHANNEL: Final = re.compile(r"(?i:port-?channel|bond|ae|po|team)(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Channels:
    """Port-channels of a platform: several links as one port."""

    shape: re.Pattern[str]  # of a port-channel's name, in every common spelling
    name: str = ""  # the name before its number; "": queues are bound to members, not the channel

    def problem(self, name: str) -> str:
        """Why a port-channel cannot have this name; "": it can, or is not a port-channel."""
        found = self.shape.fullmatch(name)
        if not found:
            return ""
        if not self.name:
            return (
                f"{name} is a port-channel: name its member ports, which have queues of their own"
            )
        wanted = f"{self.name}{found[1]}"
        return "" if name == wanted else f"{name}: write {wanted}, as the device does"


@dataclass(frozen=True, slots=True)
class PortNames:
    """The names of a platform's ports, and their rates."""

    pattern: str  # matches no character that ends a line, quote or comment of a configuration
    example: str
    channels: Channels | None = None  # None: port-channels have any spelling
    speeds: Sequence[tuple[str, int]] = ()  # beginning of a name, and its highest speed in bit/s
    slowest: int = SLOWEST  # bit/s

    def matches(self, name: str) -> bool:
        """Whether the platform has ports of this name."""
        return bool(re.fullmatch(self.pattern, name))

    def problem(self, name: str) -> str:
        """Why a port-channel cannot have this name; "": it can, or is not a port-channel."""
        return self.channels.problem(name) if self.channels else ""

    def is_channel(self, name: str) -> bool:
        """Whether the name is that of a port-channel to which the platform binds queues."""
        if self.channels is None:
            return bool(ANY_CHANNEL.fullmatch(name))
        return bool(self.channels.name) and name.startswith(self.channels.name)

    def speed_of(self, name: str) -> int:
        """Highest speed in bit/s that a port's name implies; 0: it implies none."""
        return next((most for start, most in self.speeds if name.startswith(start)), 0)

    def rate_problem(self, name: str, rate: int) -> str:
        """Why a port of this name cannot have this rate (bit/s); "": it can."""
        links = MEMBERS if self.is_channel(name) else 1
        most = self.speed_of(name) or FASTEST * links
        if rate > most:
            return f"{name} has {in_words(most)} at most, not {in_words(rate)}"
        if rate < self.slowest:
            return f"{name}: {in_words(rate)} is less than any port of a switch has"
        return ""


def in_words(rate: int) -> str:
    """A rate in bit/s as an intent writes it: "100Gbit"."""
    for unit, factor in (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3)):
        if rate >= factor and rate % factor == 0:
            return f"{rate // factor}{unit}"
    return f"{rate}bit"
