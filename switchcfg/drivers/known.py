"""Chooses the driver of a platform."""

from pathlib import Path
from pkgutil import resolve_name

from switchcfg.drivers.driver import Driver, Target
from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.known import KNOWN
from switchcfg.platforms.known import PLATFORMS


def driver_for(intent: Intent, device: Device, *, ssh_config: Path | None, state: Path) -> Driver:
    """A driver that has not connected yet. `state`: folder for notes of pending commits.

    Raises: CannotExpress if there is no driver, or its library is not installed; Unreachable if
    the environment lacks the login.
    """
    known = KNOWN[device.platform]
    if not known.driver:
        raise CannotExpress(
            f"{device.name}: switchcfg has no driver for {device.platform}: save the device's "
            "configuration in a file, and plan with --present FILE"
        )
    target = Target(intent, device, PLATFORMS[device.platform], ssh_config, state / "pending")
    try:
        made: Driver = resolve_name(known.driver).of(target)
    except ImportError as exc:
        raise CannotExpress(f"{device.name}: {exc}; `pip install 'dlcpd[{known.extra}]'`") from exc
    return made
