"""Checks the rates of an intent against the port speeds that a device reports. Pure."""

from collections.abc import Mapping
from typing import Final

from switchcfg.intent.intent import Device
from switchcfg.intent.port_names import in_words
from switchcfg.plan.state import State

# Where a platform's state has the speed of a port: (kind of the object, its field, unit in bit/s).
TOLD: Final[Mapping[str, tuple[str, str, int]]] = {"sonic": ("PORT", "speed", 10**6)}


def speeds(platform: str, present: State) -> dict[str, int]:
    """Port -> bit/s, where the device reports it. Values that are not numbers are left to the
    platform's own rules."""
    told = TOLD.get(platform)
    if told is None:
        return {}
    kind, field, factor = told
    return {
        place.name: int(value) * factor
        for place, value in present.items()
        if (place.kind, place.field) == (kind, field) and value.isdecimal()
    }


def too_fast(device: Device, present: State) -> list[str]:
    """Ports slower than the intent's rate; each problem begins with the rule's name."""
    has = speeds(device.platform, present)
    return [
        f"rate: {port} has {in_words(has[port])}, not {in_words(group.rate)}"
        for group in device.groups
        for port in group.ports
        if has.get(port, group.rate) < group.rate
    ]
