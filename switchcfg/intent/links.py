"""Links between ports of two devices, as an intent names them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from switchcfg.intent.known import KNOWN
from switchcfg.intent.port_ranges import expand
from switchcfg.intent.table import Table

MAX_LINKS: Final = 1 << 16  # of a fabric: 4,096 devices with 16 links each
SHAPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62} [A-Za-z][A-Za-z0-9/:._\[\]-]{0,63}")


@dataclass(frozen=True, slots=True, order=True)
class End:
    """One end of a link."""

    device: str
    port: str  # "": not known

    def __str__(self) -> str:
        return f"{self.device} {self.port or '(port unknown)'}"


Ends = tuple[End, End]


def read_links(root: Table, platforms: Mapping[str, str]) -> tuple[Ends, ...]:
    """The links of all [[link]], with ranges of ports expanded. `platforms`: by device; an end may
    also be a host or a switch that is not in the intent.

    Raises: BadIntent.
    """
    found: list[Ends] = []
    taken: dict[End, End] = {}
    for row in root.tables("link"):
        texts = row.texts("ends", SHAPE, 'end of a link: write "DEVICE PORT"')
        row.done()
        if len(texts) != 2:
            raise row.error("ends", f"{len(texts)} ends: a link has two")
        ours, theirs = (_ends(row, text, platforms) for text in texts)
        if len(ours) != len(theirs):
            raise row.error("ends", f"{len(ours)} ports at one end, {len(theirs)} at the other")
        if not {ours[0].device, theirs[0].device} & platforms.keys():
            raise row.error("ends", "neither end is a device of the intent")
        for link in zip(ours, theirs, strict=True):
            _take(row, link, taken)
            found.append(link)
        if len(found) > MAX_LINKS:
            raise row.error("ends", f"more than {MAX_LINKS} links")
    return tuple(found)


def _ends(row: Table, text: str, platforms: Mapping[str, str]) -> list[End]:
    device, _, ports = text.partition(" ")
    try:
        found = [End(device, port) for port in expand(ports)]
    except ValueError as exc:
        raise row.error("ends", str(exc)) from None
    if platform := platforms.get(device):
        names = KNOWN[platform].ports
        for end in found:
            if not names.matches(end.port):
                why = f"{platform} has ports such as {names.example}"
                raise row.error("ends", f"{end}: {why}")
    return found


def _take(row: Table, link: Ends, taken: dict[End, End]) -> None:
    """Mark both ports as used by this link. Raises: BadIntent if one is used by another."""
    one, other = link
    if one.device == other.device:
        raise row.error("ends", f"{one.device}: both ends are on one device")
    for end, far in ((one, other), (other, one)):
        if end in taken:
            raise row.error("ends", f"{end} is linked to {taken[end]} and to {far}")
        taken[end] = far
