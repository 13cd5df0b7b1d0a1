"""The neighbours that a device sees, asked through its driver, and the wait for their return."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from switchcfg.drivers.driver import Driver
from switchcfg.errors import SwitchcfgError
from switchcfg.fabric.answers import Lldp, Mtus, Sessions
from switchcfg.fabric.questions import QUESTIONS

POLL: Final = 2.0  # seconds between two looks; BGP takes seconds to come back, LLDP up to 30
SHOWN: Final = 5  # missing neighbours that an error lists
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Seen:
    """The neighbours of a device. None: it does not tell."""

    lldp: Lldp | None = None
    bgp: Sessions | None = None
    mtu: Mtus = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # subjects that it does not tell, and why

    def names(self) -> Iterator[str]:
        """Each neighbour in words; equal words are the same neighbour."""
        yield from (f"LLDP {each.port} ({each.system})" for each in self.lldp or ())
        yield from (f"BGP {each}" for each in self.bgp or ())


async def look(driver: Driver, platform: str, *, mtu: bool = False) -> Seen:
    """The neighbours of a device now; `mtu`: also the MTU of its ports. Raises nothing: a subject
    that the device does not tell is unknown."""
    if platform not in QUESTIONS:
        return Seen(unknown=(f"neighbours: switchcfg cannot ask {platform}",))
    asked, unknown = QUESTIONS[platform], list[str]()

    async def told(what: str, questions: Sequence[str], read: Callable[[str], Read]) -> list[Read]:
        try:
            return [read(await driver.ask(question)) for question in questions]
        except SwitchcfgError as exc:
            unknown.append(f"{what}: {exc.lines[0]}")
            return []

    lldp = await told("LLDP", [asked.lldp], asked.read_lldp)
    bgp = await told("BGP", asked.bgp, asked.read_bgp)
    mtus = await told("MTU", [asked.mtu], asked.read_mtu) if mtu else []
    return Seen(
        lldp[0] if lldp else None,
        frozenset[str]().union(*bgp) if bgp else None,
        mtus[0] if mtus else {},
        tuple(unknown),
    )


async def missing(driver: Driver, platform: str, before: Seen, *, until: float) -> list[str]:
    """The neighbours of `before` that are not there again, at the latest at the time `until` of
    the running loop; at least one look."""
    wanted = dict.fromkeys(before.names())
    while wanted:
        now = set((await look(driver, platform)).names())
        absent = [each for each in wanted if each not in now]
        if not absent or asyncio.get_running_loop().time() + POLL > until:
            return absent
        await asyncio.sleep(POLL)
    return []


def in_words(names: Sequence[str]) -> str:
    """At most SHOWN names, then a count."""
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f", and {rest} more" if rest > 0 else "")
