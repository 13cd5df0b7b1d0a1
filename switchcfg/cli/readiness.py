"""Reasons why a device cannot be configured, for `switchcfg doctor`."""

from collections.abc import AsyncIterator

from switchcfg.cli import workflow
from switchcfg.drivers.driver import Driver
from switchcfg.errors import SwitchcfgError
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.plan import plan, refuse
from switchcfg.platforms.known import PLATFORMS


async def complaints_of(intent: Intent, device: Device, driver: Driver) -> AsyncIterator[str]:
    """Complaints of the device, a pending commit, and the refusal of a plan."""
    for complaint in await driver.examine():
        yield complaint
    if (pending := await driver.pending()) is not None:
        left = (
            f"reverts in {pending.seconds:.0f} s"
            if pending.seconds > 0
            else "its time to revert has passed"
        )
        yield f"a commit is pending: {pending.who}; {left} {pending.problem}".rstrip()
    platform = PLATFORMS[device.platform]
    try:
        state = await workflow.present(driver, platform)
        refuse(platform, device, state)
        plan(intent, device, platform, state)
    except SwitchcfgError as exc:
        yield str(exc)
