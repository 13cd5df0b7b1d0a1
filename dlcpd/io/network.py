"""The engine's network: its UDP sockets, and the addresses, routes and MTU of its peers."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, Self

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.health import PathState
from dlcpd.core.session.events import PathNews
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import KIND, Kind, brings_data
from dlcpd.io.commands import EnginePeer, UdpAddress
from dlcpd.io.config import EngineConfig
from dlcpd.io.control_events import PathChanged, PathMtuChanged
from dlcpd.io.control_link import ControlLink
from dlcpd.io.datapath.compiled import Compiled, compiled
from dlcpd.io.discovery.closed_ports import ClosedPorts
from dlcpd.io.discovery.mtu import MtuDiscovery, MtuNews
from dlcpd.io.discovery.routes import Discovery
from dlcpd.io.poll import ERROR, WRITE, EngineBroken, Handler, Poll
from dlcpd.io.udp.encryption import encryption
from dlcpd.io.udp.udp_path import UdpPath

if TYPE_CHECKING:
    from dlcpd.io.udp.encrypted_path import Encryption  # needs an extra

BATCHES_PER_WAKE: Final = 4  # receive calls with data, per socket, before the next socket
READS_PER_WAKE: Final = 64  # receive calls per socket, including those that bring only control


@dataclass(frozen=True, slots=True)
class Sockets:
    """The UDP paths of an engine, and the implementation that moves data over them."""

    paths: list[UdpPath]
    encryption: "Encryption | None"  # None: datagrams are sent in clear
    compiled: Compiled | None  # None: numpy does the work
    keys: Keyring  # of the peers' checksums

    @classmethod
    def opened(cls, config: EngineConfig, counters: Counter[str], effort: Counter[str]) -> Self:
        """Bind a socket per path. Raises: AddressUnavailable, BadConfig."""
        keys, encrypted = Keyring(), encryption(config.data_encryption)
        library = None if encrypted else compiled(config.data_path, counters)
        paths = [
            encrypted.path(index, config, counters, effort)
            if encrypted
            else UdpPath(index, config, counters, effort, library, keys=keys)
            for index in range(len(config.paths))
        ]
        return cls(paths, encrypted, library, keys)


class Network:
    """Sends and receives for the endpoint over all paths, and finds routes and MTU to each peer."""

    def __init__(
        self,
        config: EngineConfig,
        sockets: Sockets,
        endpoint: Endpoint,
        *,
        control: ControlLink,
        poll: Poll,
    ) -> None:
        self._config, self._endpoint, self._control, self._poll = config, endpoint, control, poll
        self.paths, self._encryption = sockets.paths, sockets.encryption
        self._discovery = Discovery(endpoint, self.paths)
        self._closed_ports = ClosedPorts(endpoint.sessions)
        self.mtu = MtuDiscovery(
            endpoint,
            self.paths,
            config.segment_size,
            self._mtu_changed,
            trailer=self._encryption.trailer if self._encryption else 0,
        )

    def watch(self) -> None:
        """Receive from now on, from the peers of open sessions alone."""
        self.admit()
        for path in self.paths:
            self._poll.watch(path, self._path_handler(path), pauses=True)

    @property
    def endpoints(self) -> list[UdpAddress]:
        """The address of this engine for peers, one for each path."""
        bound = [path.address for path in self.paths]
        told = self._config.relays or [host for host, _ in bound]
        return [UdpAddress(host, port) for host, (_, port) in zip(told, bound, strict=True)]

    def send(self, now: float) -> None:
        """Send all that may leave now."""
        while self._endpoint.unanswered:
            self.mtu.suspect(self._endpoint.unanswered.pop(), now)
        controls, batches = self._endpoint.departures(now)
        for control in controls:  # just before the data: the peer wakes up once for both
            self.paths[control.path].send_control(control)
            if control.data[KIND] == Kind.BUNDLE:  # it may have data that count as in flight
                self.mtu.watch(control.peer, now)
        first = next(batches, None)
        if first is not None:
            self._send_data(first, batches, now)

    def _send_data(self, first: Transmit, others: Iterator[Transmit], now: float) -> None:
        began, size = time.monotonic(), 0
        for batch in chain([first], others):
            path = self.paths[batch.path]
            path.send(batch)
            size += batch.size
            self.mtu.watch(batch.peer, now)
            if path.too_big:
                self.mtu.on_refused(path, now)
            if path.backlog:  # other paths go on
                self._endpoint.full.add(path.index)
                self._poll.watch_writing(path, wanted=True)
        self._endpoint.scheduler.took(size, time.monotonic() - began)

    def _path_handler(self, path: UdpPath) -> Handler:
        def handle(mask: int, now: float) -> None:
            if mask & ERROR:
                self._on_icmp(path, now)
            if mask & WRITE and path.send_backlog():
                self._endpoint.on_room(path.index)
                self._poll.watch_writing(path, wanted=False)
            try:
                self._receive(path, now)
            finally:
                if path.receiver.lost:
                    self._lose(path)

        return handle

    def _receive(self, path: UdpPath, now: float) -> None:
        left = BATCHES_PER_WAKE
        for _ in range(READS_PER_WAKE):
            batches = path.receiver.receive()
            if not batches:
                return
            with_data = among = False
            for batch in batches:
                with_data |= batch.count > 0
                among |= any(map(brings_data, batch.strays))
                batch.strays = self.mtu.take(path, batch.strays, now)
                self._endpoint.receive(batch, now)
            left -= with_data
            if left <= 0 or (path.receiver.drained and (with_data or among)):
                return  # else it was control alone, and data after it may have come

    def _lose(self, path: UdpPath) -> None:
        """Stop using a path whose socket is gone. Raises: EngineBroken if it was the last."""
        self._poll.forget(path)
        self._endpoint.full.add(path.index)
        if all(each.receiver.lost for each in self.paths):
            raise EngineBroken

    def _on_icmp(self, path: UdpPath, now: float) -> None:
        for news in path.probe.answers():
            try:
                if news.mtu:
                    self.mtu.on_icmp(path, news, now)
                elif news.refused:
                    if not self._closed_ports.on_refused(news, now):
                        self._endpoint.counters["icmp"] += 1
                else:
                    self._discovery.on_answer(news)
            except Exception as exc:  # a bug: this message is lost, as ICMP often is
                self._endpoint.fault(0, exc)

    def _mtu_changed(self, news: MtuNews) -> None:
        self._control.emit(PathMtuChanged(**asdict(news)))

    def on_path_news(self, news: PathNews) -> None:
        """A path went down or up: control is told, and its routes are looked for again."""
        number, rank, path, state, loss = news
        self._control.emit(PathChanged(number, rank, path, state.value, loss))
        flow = self._endpoint.sessions[number].flows[rank]
        self.mtu.refresh(flow)
        if state is PathState.UP:
            self._discovery.repeat(flow, time.monotonic())

    def trouble(self, session: int) -> str:
        """The known problems of the network, for the text of an error."""
        return self.mtu.trouble(session, self._config.host)

    def admit(self, without: Session | None = None) -> bool:
        """Have the kernel refuse datagrams that no peer of an open session can have sent. False: on
        some path it refuses more than those."""
        flows, gone = self._endpoint.flows.values(), without and without.callbacks
        tokens = [flow.token_in for flow in flows if flow.session is not gone]
        return all([path.strangers.admit(tokens) for path in self.paths])

    def add(self, session: int, flow: Flow, peer: EnginePeer) -> None:
        """Send to and receive from a peer. Raises: AddressUnavailable."""
        host, port = peer.endpoints[0]
        flow.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._closed_ports.add(flow)
        self._protect(flow, peer)
        self._aim(session, flow, peer.endpoints)

    def find_routes(self, session: Session) -> None:
        """Find the routers of a session's flows, those with one path included."""
        for flow in session.flows.values():
            self._discovery.find(flow, time.monotonic())

    def forget(self, session: Session) -> None:
        """A session is about to close: send its peers the last answers, and forget its flows."""
        self.admit(without=session)
        for control in self._endpoint.final_controls(session.number, time.monotonic()):
            self.paths[control.path].send_control(control)
        for flow in session.flows.values():
            self._discovery.forget(flow)
            self.mtu.forget(flow)
            self._closed_ports.forget(flow)
            for path in self.paths:
                path.disconnect(flow.index)
            if self._encryption:
                self._encryption.remove(flow.index, flow.token_in)

    def checked_with(self, peer: EnginePeer) -> bytes:
        """The secret that keys a peer's checksums; empty if datagrams are encrypted, and verified
        by that."""
        return b"" if self._encryption else peer.secret_in

    def _protect(self, flow: Flow, peer: EnginePeer) -> None:
        if self._encryption:
            self._encryption.add(flow.index, peer.token_in, peer.secret_in, peer.secret_out)
        elif peer.secret_out:
            checksum = Checksum(peer.secret_out)
            for path in self.paths:
                path.seal(flow.index, checksum)

    def _aim(self, session: int, flow: Flow, endpoints: list[UdpAddress]) -> None:
        """Begin the discovery of routes and MTU towards a peer. Raises: AddressUnavailable."""
        now = time.monotonic()
        try:
            self._discovery.begin(flow, endpoints, now)
            self.mtu.begin(session, flow, endpoints, now)
        except OSError as exc:  # a zone that this host has not, or the other family of addresses
            where = ", ".join(host for host, _ in endpoints)
            raise AddressUnavailable(
                f"rank {flow.rank} on {flow.host} says that it is at {where}, and this host cannot "
                f"send there: {exc}; see [network] paths of both hosts"
            ) from exc
