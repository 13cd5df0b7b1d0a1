"""Rates of an intent against the speeds that a device tells of its ports. Pure."""

from collections.abc import Mapping
from typing import Final

from switchcfg.intent.intent import Device
from switchcfg.intent.port_names import in_words
from switchcfg.plan.state import State

# Where a platform's state has the speed of a port: the kind of the object, its field, bit/s of one.
TOLD: Final[Mapping[str, tuple[str, str, int]]] = {"sonic": ("PORT", "speed", 10**6)}


def speeds(platform: str, present: State) -> dict[str, int]:
    """Port -> bit/s, of those that the device tells; what is no number the platform's own rules
    name."""
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
    """Problems by name of the rule."""
    has = speeds(device.platform, present)
    return [
        f"rate: {port} has {in_words(has[port])}, not {in_words(group.rate)}"
        for group in device.groups
        for port in group.ports
        if has.get(port, group.rate) < group.rate
    ]
