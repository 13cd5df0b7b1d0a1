"""One device, from a plan to a confirmed change: check, commit, read back, confirm."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from switchcfg.drivers.driver import Commit, Driver, busy
from switchcfg.errors import BadPlan, CommitFailed, SwitchcfgError
from switchcfg.plan.plan import Plan, digest, treatments_of
from switchcfg.plan.state import Change, State, after
from switchcfg.platforms.platform import Platform

REVERT_AFTER: Final = 120  # seconds; NVUE's and Junos's own default are ten minutes, EOS has none
SHOWN: Final = 5  # values that an error lists

Tell = Callable[[str], None]
TellDiff = Callable[[str | None], None]  # takes the device's own diff; None: it has none
Probe = Callable[[], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Applied:
    """The states before and after an applied plan, for its record."""

    before: State
    treatments: Mapping[str, str]  # `treatments_of` the state after the plan


async def present(driver: Driver, platform: Platform) -> State:
    """The present state of a device. Raises: Unreachable, BadState."""
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
) -> Applied:
    """Commit the plan of one device; it reverts after `seconds` unless confirmed. `probe`
    returns problems of traffic after the change; `diff` is called with the device's own diff.
    `seconds` is by default REVERT_AFTER, or longer if the steps may take longer.

    Raises: before any change BadPlan, if `seconds` is too short for the steps, and Moved, if the
    device's state changed since the plan; Busy, CommitFailed, Unreachable. After any error, the
    device has reverted or will revert.
    """
    needs = 60 * (plan.minutes + 1) if plan.minutes else 0
    seconds = max(REVERT_AFTER, needs) if seconds is None else seconds
    if seconds < needs:
        raise BadPlan(
            f"{plan.device}: a step may take {plan.minutes} minutes, and the device would revert "
            f"before it ends: give --revert-after {needs} or more"
        )
    before = await _as_planned(driver, platform, plan)
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
        there = await present(driver, platform)
        if wrong := differing(wanted, there, plan.changes):
            raise CommitFailed(
                f"{plan.device}: differs from the plan after the change: {'; '.join(wrong)}"
            )
        tell(f"{plan.device}: matches the plan")
        if probe is not None:
            if problems := await probe():
                raise CommitFailed(f"{plan.device}: the traffic test failed: {'; '.join(problems)}")
            tell(f"{plan.device}: the traffic test passed")
    except (SwitchcfgError, asyncio.CancelledError):
        await _abort(driver, plan.device, tell)
        raise
    return Applied(before, treatments_of(platform, there))


async def preview(driver: Driver, platform: Platform, plan: Plan) -> str | None:
    """The device's own diff of a plan, without a change. None: it has none before a commit.

    Raises: Moved, Busy, CommitFailed, Unreachable.
    """
    await _as_planned(driver, platform, plan)
    return await driver.diff(plan.steps)


async def _as_planned(driver: Driver, platform: Platform, plan: Plan) -> State:
    """The device's state, if it is as planned for. Raises: Busy, Moved."""
    if (found := await driver.pending()) is not None:
        raise busy(plan.device, found.who)
    state = await present(driver, platform)
    plan.check(state)
    return state


def operator() -> str:
    """USER@HOST of this process, for pending commits and records."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


async def confirm(driver: Driver, device: str, tell: Tell) -> None:
    """Keep the pending commit. Raises: NothingPending, Unreachable."""
    await driver.confirm()
    tell(f"{device}: confirmed")


async def _abort(driver: Driver, device: str, tell: Tell) -> None:
    """Revert now. An error is only printed: it must not hide the caller's, and the device reverts
    by itself."""
    try:
        await driver.abort()
    except SwitchcfgError as exc:
        tell(f"{device}: cannot be reverted now, and reverts by itself: {exc}")
    else:
        tell(f"{device}: reverted")


def differing(wanted: State, found: State, changes: Sequence[Change]) -> list[str]:
    """Changed places whose value is not as wanted, in words; at most SHOWN, then a count."""
    wrong = [
        f"{place} is {found.get(place)}, not {wanted.get(place)}"
        for place in (change.place for change in changes)
        if found.get(place) != wanted.get(place)
    ]
    rest = len(wrong) - SHOWN
    return [*wrong[:SHOWN], *([f"and {rest} more"] if rest > 0 else [])]
