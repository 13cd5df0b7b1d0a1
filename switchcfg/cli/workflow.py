"""One device, from a plan to a confirmed change: check, commit, read back, confirm."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from switchcfg.cli import neighbours
from switchcfg.drivers.driver import Commit, Driver, busy
from switchcfg.errors import BadPlan, CommitFailed, SwitchcfgError
from switchcfg.intent.port_ranges import folded
from switchcfg.plan import text
from switchcfg.plan.plan import Plan, digest, treatments_of
from switchcfg.plan.state import Change, State, after
from switchcfg.platforms.platform import Platform

REVERT_AFTER: Final = 120  # seconds; NVUE's and Junos's own default are ten minutes, EOS has none
LONGEST: Final = 86_400  # seconds; an unconfirmed change of a day was forgotten
SPARE: Final = 60  # seconds beyond the steps, at least, to read back and to wait for neighbours
CONFIRM: Final = 15  # seconds to confirm a change before the device reverts it
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


def revert_after(plan: Plan, asked: int | None) -> int:
    """Seconds until a device reverts the plan: as asked, or as many as its steps need.

    Raises: BadPlan if the steps may take longer, with the least that works.
    """
    least = plan.seconds + SPARE if plan.seconds else 0
    seconds = plan.seconds + REVERT_AFTER if asked is None else asked
    if least > LONGEST:
        raise BadPlan(
            f"{plan.device}: its steps may take {text.minutes(plan.seconds)}, and a change reverts "
            f"after {text.minutes(LONGEST)} at the latest: plan fewer ports at a time"
        )
    if seconds < least:
        raise BadPlan(
            f"{plan.device}: its steps may take {text.minutes(plan.seconds)}, and the device would "
            f"revert before they end: give --revert-after {least} or more"
        )
    return min(seconds, LONGEST)


async def apply(  # noqa: PLR0913  # all but the first three by keyword
    driver: Driver,
    platform: Platform,
    plan: Plan,
    *,
    seconds: int | None,
    tell: Tell,
    probe: Probe | None = None,
    diff: TellDiff | None = None,
    wait: bool = True,
) -> Applied:
    """Commit the plan of one device; it reverts after `seconds` unless confirmed. `probe` returns
    problems of traffic after the change; `diff` is called with the device's own diff; `seconds` is
    by default as `revert_after` says. `wait`: until its LLDP neighbours and BGP sessions of before
    are back, at most until CONFIRM seconds before the device reverts.

    Raises: before any change BadPlan, if `seconds` is too short for the steps, and Moved, if the
    device's state changed since the plan; Busy, CommitFailed, Unreachable. After any error, the
    device has reverted or will revert.
    """
    seconds = revert_after(plan, seconds)
    before = await _as_planned(driver, platform, plan)
    who = f"{operator()}, plan {digest(plan)[:8]}"
    restore = platform.restore(before, plan.changes)
    seen = await neighbours.look(driver, platform.name) if wait else neighbours.Seen()
    count = f"{len(plan.changes)} change{'s'[: len(plan.changes) != 1]}"
    tell(f"{plan.device}: {count}{_lasting(plan)}; reverts in {seconds} s unless confirmed")
    if plan.minutes:
        tell(f"{plan.device}: disrupts: {'; '.join(folded(plan.disrupts, most=1))}")
    ends = asyncio.get_running_loop().time() + seconds - CONFIRM
    commit = Commit(plan.steps, restore, seconds, who, diff is not None, _telling(plan, tell))
    said = await driver.commit(commit)
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
        await _returned(driver, platform, plan.device, seen=seen, ends=ends, tell=tell)
        if probe is not None:
            if problems := await probe():
                raise CommitFailed(f"{plan.device}: the traffic test failed: {'; '.join(problems)}")
            tell(f"{plan.device}: the traffic test passed")
    except (SwitchcfgError, asyncio.CancelledError):
        await _abort(driver, plan.device, tell)
        raise
    return Applied(before, treatments_of(platform, there))


def _lasting(plan: Plan) -> str:
    return f", up to {text.minutes(plan.seconds)}" if plan.seconds else ""


def _telling(plan: Plan, tell: Tell) -> Callable[[int], None]:
    """Tells each step of a plan that takes long."""

    def begun(number: int) -> None:
        if plan.seconds and len(plan.steps) > 1:
            title = plan.steps[number].title
            tell(f"{plan.device}: step {number + 1} of {len(plan.steps)}: {title}")

    return begun


async def _returned(
    driver: Driver,
    platform: Platform,
    device: str,
    *,
    seen: neighbours.Seen,
    ends: float,
    tell: Tell,
) -> None:
    """Wait for the neighbours of before. Raises: CommitFailed if they do not come back."""
    before = [*seen.names()]
    if not before:
        return
    if absent := await neighbours.missing(driver, platform.name, seen, until=ends):
        raise CommitFailed(
            f"{device}: {len(absent)} of {len(before)} neighbours did not come back: "
            f"{neighbours.in_words(absent)}"
        )
    tell(f"{device}: has its {len(before)} neighbours of before")


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
