"""Chooses the driver of a platform."""

from pathlib import Path

from switchcfg.drivers.driver import Driver
from switchcfg.drivers.login import login
from switchcfg.errors import CannotExpress
from switchcfg.intent.intent import Device, Intent
from switchcfg.platforms.eos import Eos
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.nvue.platform import Nvue
from switchcfg.platforms.nxos.platform import Nxos
from switchcfg.platforms.openconfig.platform import OpenConfig
from switchcfg.platforms.platform import NetconfPlatform, Platform, ShellPlatform


def driver_for(intent: Intent, device: Device, *, ssh_config: Path | None, state: Path) -> Driver:
    """A driver that has not connected yet. `state`: folder for notes of pending commits.

    Raises: CannotExpress if there is no driver, or its library is not installed.
    """
    platform, address = PLATFORMS[device.platform], device.address or device.name
    try:
        if isinstance(platform, ShellPlatform):
            from switchcfg.drivers.ssh import SshDriver  # noqa: PLC0415  # an extra

            shell = platform.shell(intent, device)
            return SshDriver(device.name, address, shell, config=ssh_config)
        if isinstance(platform, OpenConfig):
            from switchcfg.drivers import gnmi  # noqa: PLC0415  # an extra

            return gnmi.GnmiDriver(
                device.name, address, login=login(gnmi.KIND), folder=state / "pending"
            )
        if isinstance(platform, Eos):
            from switchcfg.drivers.eos import EosDriver  # noqa: PLC0415  # an extra

            return EosDriver(device.name, address, login=login("EOS"), state=state / "pending")
        if isinstance(platform, Nxos):
            from switchcfg.drivers import nxos  # noqa: PLC0415  # an extra

            return nxos.NxosDriver(device.name, address, login=login(nxos.KIND))
        if isinstance(platform, Nvue):
            from switchcfg.drivers.nvue import NvueDriver  # noqa: PLC0415  # an extra

            return NvueDriver(device.name, address, config=ssh_config)
        if isinstance(platform, NetconfPlatform):
            from switchcfg.drivers.netconf import NetconfDriver  # noqa: PLC0415  # an extra

            return NetconfDriver(
                device.name,
                address,
                platform.netconf(),
                ssh_config=ssh_config,
                state=state / "pending",
            )
    except ImportError as exc:
        extra = _extra(platform)
        raise CannotExpress(f"{device.name}: {exc}; `pip install 'dlcpd[{extra}]'`") from exc
    raise CannotExpress(
        f"{device.name}: no driver for {device.platform} yet; save what it says of itself and give "
        "it with --present"
    )


def _extra(platform: Platform) -> str:
    """The extra of dlcpd with the library of a platform's driver."""
    if isinstance(platform, (ShellPlatform, Nvue)):
        return "ssh"
    if isinstance(platform, NetconfPlatform):
        return "netconf"
    if isinstance(platform, OpenConfig):
        return "gnmi"
    return "nxos" if isinstance(platform, Nxos) else "eos"
