"""Checks the rates of an intent against the port speeds that a device reports. Pure."""

from switchcfg.intent.intent import Device
from switchcfg.intent.known import KNOWN
from switchcfg.intent.port_names import in_words
from switchcfg.plan.state import State


def speeds(platform: str, present: State) -> dict[str, int]:
    """Port -> bit/s, where the device reports it. Values that are not numbers are left to the
    platform's own rules."""
    told = KNOWN[platform].speeds
    if told is None:
        return {}
    return {
        place.name: int(value) * told.unit
        for place, value in present.items()
        if (place.kind, place.field) == (told.kind, told.field) and value.isdecimal()
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
