"""The ports of a device, from its configuration. Pure."""

import re
from collections.abc import Iterator

from switchcfg.intent.known import KNOWN
from switchcfg.intent.port_ranges import compact
from switchcfg.plan.account import Reading
from switchcfg.plan.state import State, natural
from switchcfg.platforms.commands import CommandPlatform, member
from switchcfg.platforms.grammar import CHANNEL
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.name_ranges import members
from switchcfg.platforms.platform import Platform


def names(platform: str, present: State) -> Iterator[str]:
    """Names of the ports in a state, from objects of interfaces, ports and queues, and in lines of
    its text; without split ports, and members of port-channels, whose channel has the queues."""
    kinds = ("interface", "port")
    found = {
        part
        for place in present
        if place.kind.lower().startswith(kinds) or place.kind == "QUEUE"
        for part in place.name.split("|")[:1]
    }
    found |= set(_listed(PLATFORMS[platform], present))
    for name in sorted(filter(KNOWN[platform].ports.matches, found), key=natural):
        split = any(each.startswith((f"{name}s", f"{name}:")) for each in found)  # swp1: swp1s0
        if not split and not member(name, platform, present):
            yield name


def _listed(platform: Platform, present: State) -> Iterator[str]:
    """Names of ports in lines that say nothing of QoS."""
    text = present.text if isinstance(present, Reading) else None
    if text and isinstance(platform, CommandPlatform):
        lines = re.finditer(platform.names_ports, text, re.MULTILINE)
        for each in dict.fromkeys(found[1] for found in lines):
            yield from members(each)


def notes(platform: str, present: State) -> Iterator[str]:
    """A note on members of port-channels, which the intent does not name."""
    ports = [place.name for place in present if place.kind == CHANNEL]
    if bound := [port for port in ports if member(port, platform, present)]:
        yield (
            f"Members of port-channels have the queues of their channel: "
            f"{', '.join(compact(sorted(bound, key=natural)))}"
        )
