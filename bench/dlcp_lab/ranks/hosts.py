"""Emulated hosts: a real `dlcpd` each, on its own addresses, started and always stopped."""

import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from dlcp_lab.emulation.patience import patience, peer_timeout
from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.ranks.processes import ANYWHERE, Child, Place, start
from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.daemon.config.effective import to_toml
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import (
    ChecksTable,
    Config,
    DaemonTable,
    InjectTable,
    LocalPath,
    MetricsTable,
    NetworkTable,
    PlannerTable,
)

START_TIMEOUT: Final = 60.0  # seconds for all daemons on an idle machine; ten take eight
DRAIN: Final = 1.0  # seconds; ranks have ended when a daemon is stopped
_NETWORK: Final = NetworkTable()
MAX_HOSTS: Final = 64  # daemons on one machine; more would measure the scheduler


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Plan of one host: place, addresses and settings of its daemon."""

    name: str
    addresses: tuple[str, ...]  # one path each; the first also carries the control plane
    place: Place = ANYWHERE
    interface: str = "lo"  # interface of the first address, for Gloo
    network: NetworkTable = _NETWORK  # `addresses` replace its `paths`
    digest_every: int = 16
    loss: float = 0.0  # injected: fraction of arriving datagrams that is dropped
    seed: int = 0  # of the injected loss
    port: int = 0  # UDP, of every path; 0 = any
    control_port: int = 0  # TCP; 0 = any
    drain: float = DRAIN  # [daemon] drain_timeout, seconds
    relays: tuple[str, ...] = ()  # addresses that peers are given, one per address
    metrics: str = ""  # address:port of the metrics; "" = none
    topology: str = ""  # path of a topology file; "" = none
    replan: bool = False
    probe: bool = False

    def configuration(self, folder: Path) -> str:
        """Text of the daemon's configuration file."""
        daemon = DaemonTable(
            host=self.name,
            socket=str(folder / "session"),
            control_address=self.addresses[0],
            control_port=self.control_port,
            drain_timeout=self.drain,
            log_level="info",
        )
        paths = tuple(LocalPath(address, self.port) for address in self.addresses)
        return to_toml(
            Config(
                daemon,
                replace(self.network, paths=paths),
                checks=ChecksTable(self.digest_every),
                inject=InjectTable(loss=self.loss, seed=self.seed, relays=self.relays),
                metrics=MetricsTable(self.metrics),
                planner=PlannerTable(self.topology, self.probe, self.replan),
            )
        )


def on_loopback(hosts: int, paths: int = 1, **settings: Any) -> list[HostPlan]:
    """Hosts on 127.0.PATH.HOST+1; `settings` are fields of HostPlan. Seeds differ by host."""
    seed = settings.pop("seed", 0)
    return [
        HostPlan(
            f"host{host}",
            tuple(f"127.0.{path}.{host + 1}" for path in range(paths)),
            seed=seed + host,
            **settings,
        )
        for host in range(hosts)
    ]


def network_table(settings: Sequence[str]) -> NetworkTable:
    """[network] of the hosts, from KEY=VALUE as in a configuration file.

    `peer_timeout` follows the load of this machine if it is not among the settings.

    Raises: BadConfig.
    """
    found = parse("\n".join(["[network]", *settings]), "--set").network
    if any(setting.partition("=")[0].strip() == "peer_timeout" for setting in settings):
        return found
    return replace(found, peer_timeout=peer_timeout())


def apart(plans: Sequence[HostPlan]) -> list[HostPlan]:
    """The same hosts, each on its own CPUs, like machines; all CPUs if there are too few.

    Otherwise the scheduler may run both engines on one CPU and leave another idle.
    """
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // len(plans)
    return [
        replace(plan, place=replace(plan.place, cpus=tuple(cpus[number * share :][:share])))
        for number, plan in enumerate(plans)
    ]


@dataclass(frozen=True, slots=True)
class Host:
    """A running host."""

    plan: HostPlan
    folder: Path
    daemon: Child

    @property
    def socket(self) -> str:
        """The daemon's session socket."""
        return str(self.folder / "session")


@dataclass(slots=True)
class Hosts:
    """Running hosts, and their common folder."""

    folder: Path
    members: list[Host] = field(default_factory=list)

    def raise_if_ended(self) -> None:
        """Raises: DaemonUnavailable naming the first host whose daemon has ended."""
        for host in self.members:
            if host.daemon.process.poll() is not None:
                raise DaemonUnavailable(f"{host.plan.name}: {host.daemon.how_it_ended()}")


@contextmanager
def running(plans: Sequence[HostPlan]) -> Iterator[Hosts]:
    """Start a daemon per plan and wait until all serve. The context stops them.

    Raises: DaemonUnavailable with the last line of the daemon's log.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(scratch_folder()))
        hosts = Hosts(folder)
        starting = [stack.enter_context(Starting(hosts.folder / plan.name, plan)) for plan in plans]
        for one in starting:
            stack.callback(one.host.daemon.stop, signal.SIGTERM)
            hosts.members.append(one.host)
        for one in starting:
            one.wait()
        yield hosts


class Starting:
    """A daemon that was just started in `folder`, which is made if it is missing.

    `wait` returns when it serves. The context closes the notification socket and does not end the
    daemon.
    """

    def __init__(
        self, folder: Path, plan: HostPlan, environ: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "dlcpd.toml").write_text(plan.configuration(folder))
        self._name = folder / "notify"
        self._name.unlink(missing_ok=True)
        self._notice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # sd_notify
        self._notice.bind(str(self._name))  # READY=1 arrives here
        self._deadline = time.monotonic() + patience(START_TIMEOUT)
        child = start(
            "dlcpd.daemon.main",
            "--config",
            str(folder / "dlcpd.toml"),
            name="dlcpd",
            log=folder / "dlcpd.log",
            environ={**os.environ, **(environ or {}), "NOTIFY_SOCKET": str(self._name)},
            place=plan.place,
        )
        self.host = Host(plan, folder, child)

    def wait(self) -> Host:
        """Wait until the daemon serves; returns the host. Raises: DaemonUnavailable."""
        _wait_ready(self.host, self._notice, self._deadline)
        return self.host

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._notice.close()


def _wait_ready(host: Host, notice: socket.socket, deadline: float) -> None:
    """Wait for the notification. Raises: DaemonUnavailable."""
    pidfd = os.pidfd_open(host.daemon.process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(notice, selectors.EVENT_READ)
            selector.register(pidfd, selectors.EVENT_READ)
            ready = [key.fd for key, _ in selector.select(max(0.0, deadline - time.monotonic()))]
    finally:
        os.close(pidfd)
    if notice.fileno() in ready:
        return
    ended = f"ended: {host.daemon.how_it_ended()}" if ready else "not ready in time"
    raise DaemonUnavailable(f"{host.plan.name}: {ended}")
