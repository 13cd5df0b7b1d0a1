"""Rolls changes out, group after group; stops at a failure and at SIGINT."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from switchcfg.errors import Interrupted, SwitchcfgError
from switchcfg.intent.intent import Device

AT_ONCE: Final = 8  # devices in progress at the same time

Do = Callable[[Device], Awaitable[None]]
Ended = Callable[["Outcome"], None]
Stopped = Callable[[], None]


@dataclass(slots=True)
class Outcome:
    """The result of each device, by name."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, SwitchcfgError] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)  # not begun
    interrupts: int = 0  # SIGINT


async def roll(
    groups: Sequence[Sequence[Device]],
    do: Do,
    *,
    at_once: int = AT_ONCE,
    ended: Ended = lambda _: None,
    stopped: Stopped = lambda: None,
) -> Outcome:
    """Run `do` on all devices, group by group. After a failure no device is begun; running ones are
    finished. So it is after SIGINT, which calls `stopped`; a second SIGINT cancels running ones.
    `ended` is called after each device."""
    outcome = Outcome()
    room = asyncio.Semaphore(at_once)

    async def one(device: Device) -> None:
        async with room:
            if not outcome.failed and not outcome.interrupts:
                await _attempt(device, do, outcome)
                ended(outcome)

    with _stopping(outcome, stopped):
        try:
            for group in groups:
                await asyncio.gather(*map(one, group))
        except asyncio.CancelledError:
            if not outcome.interrupts:
                raise  # of the caller
    over = {*outcome.done, *outcome.failed}
    outcome.left = [each.name for group in groups for each in group if each.name not in over]
    return outcome


@contextmanager
def _stopping(outcome: Outcome, stopped: Stopped) -> Iterator[None]:
    """Count SIGINT in the outcome; from the second one on, each cancels the current task."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def stop() -> None:
        outcome.interrupts += 1
        if outcome.interrupts == 1:
            stopped()
        elif task is not None:
            task.cancel()

    with suppress(ValueError, RuntimeError):  # outside of the main thread there are no signals
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


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
    except asyncio.CancelledError:
        outcome.failed[device.name] = Interrupted(
            f"{device.name}: interrupted; an unconfirmed change reverts by itself"
        )
        raise
    else:
        outcome.done.append(device.name)
