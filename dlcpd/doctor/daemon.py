"""Checks of the daemon: version, data path, configuration, ports, and the running daemon."""

import errno
import importlib.util
import os
import platform
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlcpd import __version__
from dlcpd.cli.ranges import ranges
from dlcpd.contract.errors import BadConfig, DlcpError, NotPermitted
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.config.effective import engine_configs
from dlcpd.daemon.config.tables import Config, LocalPath
from dlcpd.doctor.rows import Row, fail, good, warn
from dlcpd.inspection.report import query
from dlcpd.inspection.settings import not_in_force
from dlcpd.io.datapath.choices import NUMPY
from dlcpd.io.datapath.library import choose, installed
from dlcpd.io.udp.encryption import NONE

MAX_NAMED: Final = 6  # settings in a row
PORT_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
Port = tuple[str, str, int]  # "TCP" or "UDP", address, number


def judge_version() -> Row:
    """A row to compare hosts by."""
    return good(
        "version",
        f"dlcpd {__version__}, Python {platform.python_version()}, Linux {platform.release()}",
    )


def judge_data_path(setting: str, encryption: str) -> Row:
    """The data path that an engine would choose: compiled or numpy."""
    check = "data path"
    if encryption != NONE:
        if importlib.util.find_spec("cryptography") is None:
            return fail(
                check,
                f"data_encryption is {encryption!r}, and `cryptography` is missing",
                "pip install 'dlcpd[encryption]'",
            )
        return good(check, f"numpy, because data_encryption is {encryption!r}")
    try:
        library = choose(setting)
    except BadConfig as exc:
        return fail(
            check,
            str(exc),
            "build it: apt install gcc, then pip install dlcpd again; or "
            '[network] data_path = "numpy"',
        )
    if library is not None:
        return good(check, "compiled")
    if setting == NUMPY or installed() is not None:
        return good(check, "numpy, as the configuration or DLCPD_DATA_PATH says")
    return warn(
        check,
        "numpy: there was no C compiler when dlcpd was installed; it takes a third more CPU time",
        "apt install gcc, then pip install --force-reinstall dlcpd",
    )


def judge_configuration(config: Config, file: Path | None) -> Row:
    """`config` is valid: this warns of settings that may not be intended."""
    check, daemon = "configuration", config.daemon
    try:
        Access.configured(daemon.allowed_users, daemon.socket_group)
    except BadConfig as exc:
        return fail(check, str(exc), "name users and a group that this host has, or give ids")
    injected = config.inject
    if injected.loss or injected.corrupt or injected.relays:
        return warn(
            check, "[inject] adds faults to the network on purpose", "remove the table [inject]"
        )
    return good(check, str(file) if file else "the defaults; --config FILE checks a file")


@dataclass(frozen=True, slots=True)
class Running:
    """The daemon that answers at the session socket, or why none does."""

    socket: str
    report: dict[str, Any] | None = None
    exists: bool = False  # the file
    refused: bool = False  # this user may not connect
    problem: str = ""


def look_at_daemon(path: str) -> Running:
    """Ask the daemon for its status."""
    exists = os.path.exists(path)  # False also for a path that may not be read
    try:
        return Running(path, query(path, 0), exists=exists)
    except NotPermitted as exc:
        return Running(path, exists=True, refused=True, problem=str(exc))
    except DlcpError as exc:
        return Running(path, exists=exists, problem=str(exc))


def judge_daemon(found: Running, version: str = __version__) -> Row:
    """Whether this user's ranks can use the daemon."""
    check = "daemon"
    if found.refused:
        return fail(
            check,
            found.problem,
            "add this user to [daemon] allowed_users, or to the group socket_group, and start "
            "the daemon again",
        )
    if found.report is None:
        if not found.exists:
            return good(check, f"no daemon at {found.socket}: ranks start a private daemon")
        return fail(
            check,
            found.problem,
            "systemctl restart dlcpd, or remove the file and unset DLCPD_SOCKET: then ranks "
            "start a private daemon",
        )
    theirs = found.report["version"]
    if theirs != version:
        return warn(
            check,
            f"the daemon at {found.socket} has version {theirs}, and this dlcpctl has {version}",
            "start the daemon again after an upgrade: it serves clients of this version and the "
            "one before",
        )
    health = found.report["health"]
    if not health["healthy"]:
        return fail(check, health["text"], "see the log of the daemon, and start it again")
    if not health["ready"]:
        cordoned = "dlcpctl uncordon, once the work on this host is done"
        return warn(
            check,
            f"the daemon at {found.socket} takes no new jobs: {health['text']}",
            cordoned if found.report.get("cordoned") else "see its log, or wait until it has ended",
        )
    if "error" in found.report["engine"]:
        return warn(
            check,
            f"slow: {found.report['engine']['error']}",
            "see which processes take the CPUs of this host: top",
        )
    return good(check, f"{theirs} at {found.socket}, with {len(found.report['sessions'])} sessions")


def judge_settings(report: dict[str, Any], config: Config, file: Path | None) -> Row:
    """Whether the running daemon uses the settings of `config`, which is not resolved."""
    check = "settings in force"
    found = not_in_force(report["config"], config) if file else []
    keys = [one.key for one in found] if file else list(report["pending"])
    if not keys:
        return good(check, f"all of {file}" if file else "no setting waits for a restart")
    names = ", ".join(keys[:MAX_NAMED])
    more = f" and {len(keys) - MAX_NAMED} more" if len(keys) > MAX_NAMED else ""
    return warn(
        check,
        f"the running daemon does not use {names}{more}",
        "systemctl reload dlcpd; those that `dlcpctl config diff FILE` still lists wait for a "
        "restart, which ends running jobs: dlcpctl drain, then systemctl restart dlcpd",
    )


def judge_address(report: dict[str, Any]) -> Row:
    """Whether other hosts reach the running daemon, as far as it knows."""
    check, control = "daemon's address", report["endpoints"]["control"]
    if problem := report.get("unreachable"):
        return warn(
            check,
            f"{control}: {problem}",
            "give this host a default route, or addresses in the configuration; a job on several "
            "hosts fails until then",
        )
    return good(check, control)


def judge_granted(report: dict[str, Any], wanted: int) -> Row:
    """Receive buffers of the running daemon's own sockets. `wanted`: bytes."""
    check, features = "daemon's sockets", report["features"]
    granted = features["receive_buffer"]
    said = f"receive buffers of {granted} bytes; data path {features['data_path']}"
    if granted < wanted:
        return warn(
            check,
            f"{said}, though {wanted} are configured",
            f"sysctl -w net.core.rmem_max={wanted} net.core.wmem_max={wanted} (and in "
            f"/etc/sysctl.d), and start the daemon again",
        )
    return good(check, said)


def ports(config: Config) -> list[Port]:
    """Ports that a daemon with this resolved configuration binds, engine by engine; 0 = any."""
    control = ("TCP", config.daemon.control_address, config.daemon.control_port)
    data = [("UDP", *path) for engine in engine_configs(config) for path in engine.paths]
    return [control, *data]


def look_at_ports(wanted: Iterable[Port]) -> list[Port]:
    """Those of `wanted` that are in use."""
    return [port for port in wanted if port[2] and _taken(port)]


def _taken(port: Port) -> bool:
    kind = socket.SOCK_STREAM if port[0] == "TCP" else socket.SOCK_DGRAM
    family = socket.AF_INET6 if ":" in port[1] else socket.AF_INET
    with socket.socket(family, kind) as sock:
        if port[0] == "TCP":  # as the daemon does: ports in TIME_WAIT are free
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(port[1:])
        except OSError as exc:
            return exc.errno == errno.EADDRINUSE  # a foreign address has its own row
        return False


def judge_ports(
    wanted: Sequence[Port], taken: Sequence[Port], paths: Sequence[LocalPath], *, running: bool
) -> Row:
    """`running`: a daemon of this host answers, so the taken ports are its own."""
    check = "ports"
    if taken and not running:
        return fail(
            check,
            f"{_named(taken)}: held by another process",
            f"see which: ss -lntup sport = :{taken[0][2]}; or choose other ports in [daemon] "
            f"control_port and [network] paths",
        )
    if all(port for _, _, port in wanted):
        return good(check, f"a firewall must allow {_named(wanted)}")
    return good(
        check,
        f"any: a firewall must allow TCP and UDP {_port_range()}; [daemon] control_port and "
        f"{'port in each of ' if len(paths) > 1 else 'port in '}[network] paths fix them",
    )


def _named(ports: Iterable[Port]) -> str:
    """Ports as text, by protocol and address, with ranges of numbers."""
    by_address: dict[tuple[str, str], list[int]] = {}
    for protocol, address, number in ports:
        by_address.setdefault((protocol, address), []).append(number)
    return ", ".join(
        f"{protocol} {address} port{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
        for (protocol, address), numbers in by_address.items()
    )


def _port_range() -> str:
    try:
        return "-".join(PORT_RANGE.read_text().split())
    except OSError:
        return "of the ephemeral range"
