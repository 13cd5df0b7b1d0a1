"""Many devices: a canary, then one side of the ECMP groups at a time, and a stop at a failure."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchcfg.errors import SwitchcfgError
from switchcfg.intent.intent import Device

AT_ONCE: Final = 8  # devices of one side

Do = Callable[[Device], Awaitable[None]]
Ended = Callable[["Outcome"], None]


@dataclass(slots=True)
class Outcome:
    """What became of each device, by name."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, SwitchcfgError] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # not begun


def waves(devices: Sequence[Device]) -> list[list[Device]]:
    """Who may be changed at one time. The first one is alone; so is who has no side."""
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
    # The canary's side goes on where it began: until it is through, the others carry everything.
    return [*out, *sorted(sides.values(), key=lambda wave: wave[0].side != canary.side)]


async def roll(
    devices: Sequence[Device], do: Do, *, at_once: int = AT_ONCE, ended: Ended = lambda _: None
) -> Outcome:
    """Do it to all, wave by wave. After a failure nobody is begun; who is begun is finished.
    `ended` is told after each."""
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
    """Do it to all, whatever becomes of each: for what does not put the fabric at risk."""
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
