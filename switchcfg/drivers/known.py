"""Which driver reaches which platform."""

from pathlib import Path

from switchcfg.drivers.driver import Driver
from switchcfg.errors import CannotExpress
from switchcfg.intent import Device, Intent
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import ShellPlatform


def driver_for(intent: Intent, device: Device, *, ssh_config: Path | None) -> Driver:
    """A driver that has not connected yet.

    Raises: CannotExpress, where there is none, or its library is not installed.
    """
    platform = PLATFORMS[device.platform]
    if not isinstance(platform, ShellPlatform):
        raise CannotExpress(
            f"{device.name}: no driver for {device.platform} yet; save what it says of itself and "
            "give it with --present"
        )
    try:
        from switchcfg.drivers.ssh import SshDriver  # noqa: PLC0415  # an extra
    except ImportError as exc:
        raise CannotExpress(f"{device.name}: {exc}; `pip install 'dlcpd[ssh]'`") from exc
    return SshDriver(
        device.name,
        device.address or device.name,
        platform.shell(intent, device),
        config=ssh_config,
    )
