"""Finds the routers of each path of a flow, so that spraying balances links, not ports."""

from collections.abc import Sequence
from typing import Final, Protocol

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.route_search import Address, RouteSearch
from dlcpd.core.session.flow import Flow
from dlcpd.core.timers import Timer
from dlcpd.core.wire.header import Header, Kind
from dlcpd.io.discovery.icmp import IcmpNews, RouteProbe

INTERVAL: Final = 0.1  # seconds between consecutive hops: spares the ICMP limits of routers


class RoutedPath(Protocol):
    """The part of UdpPath that discovery needs."""

    probe: RouteProbe

    def connect(self, peer: int, host: str, port: int) -> None: ...
    def sealed(self, peer: int, data: bytes) -> bytes: ...


class Discovery:
    """A search per flow, one hop at a time, driven by the endpoint's timers."""

    def __init__(self, endpoint: Endpoint, paths: Sequence[RoutedPath]) -> None:
        self._endpoint, self._paths = endpoint, paths
        self._searches: dict[int, RouteSearch] = {}  # by flow, finished ones too
        self._others: dict[int, Sequence[Address]] = {}  # by flow without a search: its endpoints
        self._busy: set[int] = set()  # indices of the flows being searched

    def begin(self, flow: Flow, endpoints: Sequence[Address], now: float) -> None:
        """Aim a new flow at the peer's sockets, and find its routes if it has several paths. It
        takes a few seconds."""
        for path, (host, port) in zip(self._paths, endpoints, strict=False):
            path.connect(flow.index, host, port)
        if len(flow.paths) > 1:
            self._search(flow, endpoints, now)
        else:
            self._others[flow.index] = endpoints

    def find(self, flow: Flow, now: float) -> None:
        """Find the route of a flow with one path, too, once."""
        endpoints = self._others.pop(flow.index, None)
        if endpoints is not None:
            self._search(flow, endpoints, now)

    def _search(self, flow: Flow, endpoints: Sequence[Address], now: float) -> None:
        self._searches[flow.index] = RouteSearch(endpoints[: len(flow.paths)])
        self._start(flow.index, now)

    def repeat(self, flow: Flow, now: float) -> None:
        """Search again: a link is back, and paths may take other routes now."""
        if flow.index in self._searches and flow.index not in self._busy:
            self._searches[flow.index].restart()
            self._start(flow.index, now)

    def forget(self, flow: Flow) -> None:
        """The flow is about to close."""
        self._searches.pop(flow.index, None)
        self._others.pop(flow.index, None)
        self._end(flow.index)

    def _start(self, index: int, now: float) -> None:
        self._busy.add(index)
        self._endpoint.timers.set((self, Timer.ROUTE, (index, 0)), now)

    def handle_timer(self, timer: Timer, subject: tuple[int, int], now: float) -> None:
        """Probe the next hop: the last one has had its time."""
        index, turn = subject
        flow, search = self._endpoint.flows.get(index), self._searches.get(index)
        if flow is None or search is None:
            return
        if turn and not self._advance(flow, search):
            self._end(index)
            return
        for number in search.probes():
            ping = Header(Kind.PING, flow.token_out, round=search.hop, path=number)
            data = self._paths[number].sealed(flow.index, ping.pack())
            self._paths[number].probe.send(data, search.hop, search.aims[number])
        self._endpoint.timers.set((self, Timer.ROUTE, (index, turn + 1)), now + INTERVAL)

    def _advance(self, flow: Flow, search: RouteSearch) -> bool:
        routes, aims = flow.paths.routes.groups(), list(search.aims)
        goes_on = search.advance(flow.paths.routes)
        if flow.paths.routes.groups() != routes:
            flow.paths.regroup()
        for number, (old, new) in enumerate(zip(aims, search.aims, strict=True)):
            if old != new:
                self._paths[number].connect(flow.index, *new)
        return goes_on

    def _end(self, index: int) -> None:
        self._busy.discard(index)

    def on_answer(self, news: IcmpNews) -> None:
        """A router sent a datagram back."""
        try:
            header = Header.unpack_untrusted(news.quoted)
        except MalformedDatagram:
            return  # quoted too short, or not of dlcpd
        for index in self._busy:
            flow = self._endpoint.flows[index]
            if flow.token_out == header.token and header.kind is Kind.PING:
                self._searches[index].on_answer(header.path, header.round, news.router)
