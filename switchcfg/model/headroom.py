"""Headroom: bytes that a lossless priority receives after it has sent a PFC pause. Pure.

Sources: IEEE 802.1Q-2018, Annex N (parts of the delay); IEEE 802.3, 31B.3.7 (time in which a
neighbour reacts), as in buffer_headroom_mellanox.lua of sonic-swss. The delays of the switch's own
MAC and pipeline are left out: no configuration has them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.port_names import in_words
from switchcfg.intent.port_ranges import compact
from switchcfg.model.values import PauseBuffer, SwitchModel

CABLE: Final = 40  # metres, if neither the intent nor the switch has a length
FRAME: Final = 9216  # bytes of the largest frame, if the configuration has no MTU
_DELAY: Final = 5  # ns per metre of fibre or copper, rounded up from 1 / (0.66 c)
_PAUSE: Final = 84  # bytes on the wire of a PFC frame, with preamble and gap
_QUANTUM: Final = 64  # bytes: 512 bit times
# Gbit/s -> quanta after which a neighbour has stopped; another speed counts as the next one
_QUANTA: Final = {1: 2, 10: 67, 25: 80, 40: 118, 50: 147, 100: 394, 200: 453, 400: 905}


@dataclass(frozen=True, slots=True)
class Headroom:
    """The bytes that arrive after a pause at a speed, over a cable, with frames of a size."""

    rate: int  # bit/s
    metres: int
    frame: int  # bytes of the largest frame that delays the pause, or is being sent to us

    @property
    def least(self) -> int:
        """With a neighbour that stops at once: the cable, both ways, and the two frames."""
        nanoseconds = 2 * self.metres * _DELAY
        return -(-self.rate * nanoseconds // (8 * 10**9)) + 2 * self.frame + _PAUSE

    @property
    def most(self) -> int:
        """With a neighbour that takes the time that the standard allows."""
        quanta = (each for speed, each in _QUANTA.items() if speed * 10**9 >= self.rate)
        return self.least + _QUANTUM * next(quanta, max(_QUANTA.values()))


def warnings(intent: Intent, device: Device, after: SwitchModel) -> Iterator[str]:
    """Headrooms that do not hold the bytes that can arrive after a pause: of too few bytes, or
    computed by the switch for a shorter cable."""
    ports: dict[str, list[str]] = {}
    longest = max((each.cable for each in intent.lossless), default=0)
    for group in device.groups:
        for name in group.ports:
            for each in dict.fromkeys(after.port(name)):
                if not (found := each.pause_buffer):
                    continue
                metres = intent.cable or found.metres or longest or CABLE
                need = Headroom(found.rate or group.rate, metres, found.frame or FRAME)
                if short := _short(found, need):
                    names = ports.setdefault(f"queue {each.queue} {short}", [])
                    names += [name] if name not in names else []
    for short, names in ports.items():
        yield f"headroom: {', '.join(compact(names))}: {short}"


def _short(found: PauseBuffer, need: Headroom) -> str:
    """The shortage of a headroom, in words; "": there is none."""
    if found.size is None:
        if need.metres <= found.metres:
            return ""
        return (
            f"has the headroom for a cable of {found.metres} m, and the intent has {need.metres} "
            "m: packets drop"
        )
    if found.size >= need.most:
        return ""
    link = f"a cable of {need.metres} m at {in_words(need.rate)} and frames of {need.frame} bytes"
    if found.size < need.least:
        return f"has {found.size} bytes after a pause, and {link} need {need.least}: packets drop"
    return (
        f"has {found.size} bytes after a pause, and {link} need {need.least} to "
        f"{need.most}, by the neighbour: check how fast it stops"
    )
