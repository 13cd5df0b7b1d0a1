"""Port names: patterns per platform, ranges, port-channels and speeds. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

MAX_PORTS: Final = 1024  # in one range: more than a chassis has

# Platform -> (pattern of a port's name, an example). No match contains a character that ends a
# line, quote or comment of a configuration.
PORT_PATTERNS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "sonic": (re.compile(r"Ethernet\d{1,4}"), "Ethernet0"),
    "eos": (re.compile(r"Ethernet\d{1,3}(/\d{1,3}){0,2}|Port-Channel\d{1,4}"), "Ethernet1/1"),
    "nxos": (re.compile(r"Ethernet\d{1,3}/\d{1,3}(/\d{1,2})?|port-channel\d{1,4}"), "Ethernet1/1"),
    "nvue": (re.compile(r"swp\d{1,3}(s\d{1,2})?"), "swp1"),
    "junos": (re.compile(r"(et|xe|ge)-\d{1,2}/\d{1,2}/\d{1,3}(:\d{1,2})?|ae\d{1,4}"), "et-0/0/0"),
    "linux": (re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,14}"), "eth0"),
    "openconfig": (re.compile(r"[A-Za-z][A-Za-z0-9/:._-]{0,31}"), "Ethernet1"),
}


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
            return f"{name} is a port-channel: name its member ports, each has queues of its own"
        wanted = f"{self.name}{found[1]}"
        return "" if name == wanted else f"{name}: write {wanted}, as the device does"


_ANY_CHANNEL: Final = re.compile(r"(?i:port-?channel|bond|ae|po|team)(\d{1,4})")
# Where queues and profiles of a port-channel are bound. EOS: to the channel (Arista's AVD,
# service_profile of port-channel interfaces). NX-OS: to the channel; a policy of a member has no
# effect (Nexus 9000 QoS guide). Junos: one configuration for all members (CoS guide, "Configuring
# Schedulers on Aggregated Interfaces"). SONiC: QUEUE and PORT_QOS_MAP have keys of PORT (its YANG).
# NVUE, Linux: a bond hands packets to queues of its members.
CHANNELS: Final[Mapping[str, Channels]] = {
    "sonic": Channels(_ANY_CHANNEL),
    "eos": Channels(_ANY_CHANNEL, "Port-Channel"),
    "nxos": Channels(_ANY_CHANNEL, "port-channel"),
    "nvue": Channels(_ANY_CHANNEL),
    "junos": Channels(_ANY_CHANNEL, "ae"),
    "linux": Channels(re.compile(r"(?:bond|team)(\d{1,4})")),
}

# Highest speed, in bit/s, by the beginning of a port's name.
_SPEEDS: Final[Mapping[str, Sequence[tuple[str, int]]]] = {
    "junos": (("ge-", 10**9), ("xe-", 10 * 10**9)),
}
SLOWEST: Final = 10 * 10**6  # bit/s of an Ethernet port of a switch
FASTEST: Final = 1_600 * 10**9  # bit/s of any port
MEMBERS: Final = 64  # links of one port-channel, at most


def is_channel(platform: str, name: str) -> bool:
    """Whether the name is that of a port-channel to which this platform binds queues."""
    channels = CHANNELS.get(platform)
    if channels is None:  # OpenConfig: any spelling
        return bool(_ANY_CHANNEL.fullmatch(name))
    return bool(channels.name) and name.startswith(channels.name)


def speed_of(platform: str, name: str) -> int:
    """Highest speed in bit/s that a port's name implies; 0: it implies none."""
    return next((most for start, most in _SPEEDS.get(platform, ()) if name.startswith(start)), 0)


def speed_problem(platform: str, name: str, rate: int) -> str:
    """Why a port of this name cannot have this rate (bit/s); "": it can."""
    links = MEMBERS if is_channel(platform, name) else 1
    most = speed_of(platform, name) or FASTEST * links
    if rate > most:
        return f"{name} has {in_words(most)} at most, not {in_words(rate)}"
    if rate < SLOWEST and platform != "linux":  # Linux shapes to the rate, which may be any
        return f"{name}: no port of a switch has {in_words(rate)}"
    return ""


def in_words(rate: int) -> str:
    """A rate in bit/s as an intent writes it: "100Gbit"."""
    for unit, factor in (("Gbit", 10**9), ("Mbit", 10**6), ("kbit", 10**3)):
        if rate >= factor and rate % factor == 0:
            return f"{rate // factor}{unit}"
    return f"{rate}bit"


_RANGE: Final = re.compile(r"([^\[\]]*)\[(\d{1,4})-(\d{1,4})(?:/(\d{1,2}))?\]([^\[\]]*)")


def expand(text: str) -> list[str]:
    """The names of a range: Ethernet0, 4, 8 and 12 for "Ethernet[0-12/4]". A name without
    brackets gives itself.

    Raises: ValueError.
    """
    found = _RANGE.fullmatch(text)
    if not found:
        if "[" in text or "]" in text:
            raise ValueError(f"{text!r}: a range is [FIRST-LAST] or [FIRST-LAST/STEP]")
        return [text]
    first, last, step = int(found[2]), int(found[3]), int(found[4] or 1)
    if first > last or not step:
        raise ValueError(f"{text!r}: an empty range")
    numbers = range(first, last + 1, step)
    if len(numbers) > MAX_PORTS:
        raise ValueError(f"{text!r}: {len(numbers)} ports, at most {MAX_PORTS}")
    return [f"{found[1]}{number}{found[5]}" for number in numbers]


def compact(names: Sequence[str]) -> list[str]:
    """The inverse of `expand`, in the same order: "Ethernet[0-12/4]", "Ethernet[1-8]/1"."""
    return min((_compact(names, which) for which in (-1, -2)), key=len)


def _compact(names: Sequence[str], which: int) -> list[str]:
    """Ranges over the last number of each name (`which` -1), or the one before it (-2)."""
    out: list[str] = []
    parts = (_parts(name, which) for name in names)
    for (prefix, suffix), group in groupby(parts, lambda part: (part[0], part[2])):
        for first, last, step in _runs(number for _, number, _ in group):
            if first == last:
                out.append(f"{prefix}{first}{suffix}")
            else:
                by = f"/{step}" if step > 1 else ""
                out.append(f"{prefix}[{first}-{last}{by}]{suffix}")
    return out


def _parts(name: str, which: int) -> tuple[str, str, str]:
    """(prefix, number, suffix); (name, "", "") if there is no such number or `expand` could not
    reproduce it."""
    found = list(re.finditer(r"[0-9]+", name))
    if len(found) < -which or not re.fullmatch(r"0|[1-9]\d{0,3}", found[which][0]):
        return name, "", ""
    return name[: found[which].start()], found[which][0], name[found[which].end() :]


def _runs(numbers: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """(first, last, step) of each run with an even, positive step; ("", "", 0) for no number."""
    run: list[int] = []
    for text in numbers:
        if not text:
            yield "", "", 0
            continue
        number = int(text)
        step = run[1] - run[0] if len(run) > 1 else number - run[0] if run else 0
        if run and (number - run[-1] != step or not 0 < step < 100 or len(run) >= MAX_PORTS):
            yield str(run[0]), str(run[-1]), run[1] - run[0] if len(run) > 1 else 0
            run = []
        run.append(number)
    if run:
        yield str(run[0]), str(run[-1]), run[1] - run[0] if len(run) > 1 else 0
