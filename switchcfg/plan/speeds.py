"""Rates of an intent against the speeds that a device tells of its ports. Pure."""

from collections.abc import Mapping
from typing import Final

from switchcfg.intent.intent import Device
from switchcfg.intent.port_names import in_words
from switchcfg.plan.state import Place, State

# Where a platform's state has the speed of a port: the kind of the object, its field, bit/s of one.
TOLD: Final[Mapping[str, tuple[str, str, int]]] = {"sonic": ("PORT", "speed", 10**6)}


def too_fast(device: Device, present: State) -> list[str]:
    """Problems by name of the rule; a speed that is no number the platform's own rules name."""
    told = TOLD.get(device.platform)
    if told is None:
        return []
    kind, field, factor = told
    problems = []
    for group in device.groups:
        for port in group.ports:
            speed = present.get(Place(kind, port, field), "")
            if speed.isdecimal() and int(speed) * factor < group.rate:
                has = in_words(int(speed) * factor)
                problems.append(f"rate: {port} has {has}, not {in_words(group.rate)}")
    return problems
