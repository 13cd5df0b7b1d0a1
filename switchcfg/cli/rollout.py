"""Rolls changes out: a canary, then one side of the ECMP groups at a time; stops at a failure."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchcfg.errors import SwitchcfgError
from switchcfg.intent.intent import Device

AT_ONCE: Final = 8  # devices in progress at the same time

Do = Callable[[Device], Awaitable[None]]
Ended = Callable[["Outcome"], None]


@dataclass(slots=True)
class Outcome:
    """The result of each device, by name."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, SwitchcfgError] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # not begun


def waves(devices: Sequence[Device]) -> list[list[Device]]:
    """Groups of devices that may be changed at the same time. The first device is alone; so is
    each device without a side."""
    if not devices:
        return []
    canary, *others = devices
    out = [[canary]]
    sides: dict[str, list[Device]] = {}
    for each in others:
        if each.side:
            sides.setdefault(each.side, []).append(each)
        else:
            out.append([each])
    # The canary's side comes next: until it is done, the other sides carry all traffic.
    return [*out, *sorted(sides.values(), key=lambda wave: wave[0].side != canary.side)]


async def roll(
    devices: Sequence[Device], do: Do, *, at_once: int = AT_ONCE, ended: Ended = lambda _: None
) -> Outcome:
    """Run `do` on all devices, wave by wave. After a failure no device is begun; running ones are
    finished. `ended` is called after each device."""
    outcome = Outcome()
    room = asyncio.Semaphore(at_once)

    async def one(device: Device) -> None:
        async with room:
            if outcome.failed:
                outcome.left.append(device.name)
                return
            await _attempt(device, do, outcome)
            ended(outcome)

    for wave in waves(devices):
        await asyncio.gather(*map(one, wave))
    return outcome


async def every(devices: Sequence[Device], do: Do, *, at_once: int = AT_ONCE) -> Outcome:
    """Run `do` on all devices, regardless of failures: for work that does not risk the fabric."""
    outcome = Outcome()
    room = asyncio.Semaphore(at_once)

    async def one(device: Device) -> None:
        async with room:
            await _attempt(device, do, outcome)

    await asyncio.gather(*map(one, devices))
    return outcome


async def _attempt(device: Device, do: Do, outcome: Outcome) -> None:
    try:
        await do(device)
    except SwitchcfgError as exc:
        outcome.failed[device.name] = exc
    else:
        outcome.done.append(device.name)
