"""One device, from a plan to a confirmed change: check, commit, read back, confirm."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from switchcfg.drivers.driver import Commit, Driver, busy
from switchcfg.errors import BadPlan, CommitFailed, SwitchcfgError
from switchcfg.plan.plan import Plan, digest
from switchcfg.plan.state import Change, State, after
from switchcfg.platforms.platform import Platform

REVERT_AFTER: Final = 120  # seconds; NVUE's and Junos's own default are ten minutes, EOS has none
SHOWN: Final = 5  # values that an error names

Tell = Callable[[str], None]
TellDiff = Callable[[str | None], None]  # what a device says that it changes; None: it cannot
Probe = Callable[[], Awaitable[Sequence[str]]]


async def present(driver: Driver, platform: Platform) -> State:
    """What a device is. Raises: Unreachable, BadState."""
    return platform.read(await driver.get())


async def apply(  # noqa: PLR0913  # all but the first three by keyword
    driver: Driver,
    platform: Platform,
    plan: Plan,
    *,
    seconds: int | None,
    tell: Tell,
    probe: Probe | None = None,
    diff: TellDiff | None = None,
) -> str:
    """Bring one device to what its plan wants, until `confirm` or for so many seconds; gives what
    it said of itself before. `probe` asks the network what is wrong with it now; `diff` is told
    what the device itself says of the change. Without `seconds` it is as long as the plan's steps
    may take.

    Raises: before anything is done BadPlan, where that is not long enough, and Moved, where the
    device is no longer what was planned for; Busy, CommitFailed, Unreachable. Whatever is raised,
    the device is or will be as before.
    """
    needs = 60 * (plan.minutes + 1) if plan.minutes else 0
    seconds = max(REVERT_AFTER, needs) if seconds is None else seconds
    if seconds < needs:
        raise BadPlan(
            f"{plan.device}: a step may take {plan.minutes} minutes, and would be reverted in the "
            f"middle: --revert-after {needs}, or more"
        )
    snapshot = await _as_planned(driver, platform, plan)
    before = platform.read(snapshot)
    who = f"{operator()}, plan {digest(plan)[:8]}"
    restore = platform.restore(before, plan.changes)
    count = f"{len(plan.changes)} change{'s'[: len(plan.changes) != 1]}"
    tell(f"{plan.device}: {count}; reverts in {seconds} s unless confirmed")
    if plan.minutes:
        tell(f"{plan.device}: disrupts: {'; '.join(plan.disrupts)}")
    said = await driver.commit(Commit(plan.steps, restore, seconds, who, diff is not None))
    if diff is not None:
        diff(said)
    try:
        wanted = after(before, plan.changes)
        if wrong := differing(wanted, await present(driver, platform), plan.changes):
            raise CommitFailed(f"{plan.device}: not as planned: {'; '.join(wrong)}")
        tell(f"{plan.device}: reads back as planned")
        if probe is not None:
            if problems := await probe():
                raise CommitFailed(f"{plan.device}: traffic suffers: {'; '.join(problems)}")
            tell(f"{plan.device}: traffic passes")
    except (SwitchcfgError, asyncio.CancelledError):
        await _abort(driver, plan.device, tell)
        raise
    return snapshot


async def preview(driver: Driver, platform: Platform, plan: Plan) -> str | None:
    """What a device itself says that a plan would change; nothing is. None: it cannot say so.

    Raises: Moved, Busy, CommitFailed, Unreachable.
    """
    await _as_planned(driver, platform, plan)
    return await driver.diff(plan.steps)


async def _as_planned(driver: Driver, platform: Platform, plan: Plan) -> str:
    """What a device says of itself, which is what was planned for. Raises: Busy, Moved."""
    if (found := await driver.pending()) is not None:
        raise busy(plan.device, found.who)
    snapshot = await driver.get()
    plan.check(platform.read(snapshot))
    return snapshot


def operator() -> str:
    """Who works here, for others and for later."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


async def confirm(driver: Driver, device: str, tell: Tell) -> None:
    """Keep what is pending. Raises: NothingPending, Unreachable."""
    await driver.confirm()
    tell(f"{device}: confirmed")


async def _abort(driver: Driver, device: str, tell: Tell) -> None:
    """What led here is worth more than an error of this; the device reverts by itself anyway."""
    try:
        await driver.abort()
    except SwitchcfgError as exc:
        tell(f"{device}: not reverted yet, which it does by itself: {exc}")
    else:
        tell(f"{device}: reverted")


def differing(wanted: State, found: State, changes: Sequence[Change]) -> list[str]:
    """Where a device is not what the changes were to make of it."""
    wrong = [
        f"{place} is {found.get(place)}, not {wanted.get(place)}"
        for place in (change.place for change in changes)
        if found.get(place) != wanted.get(place)
    ]
    rest = len(wrong) - SHOWN
    return [*wrong[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])]
