"""Asks each path of a flow for its routers, so that spraying evens out links, not ports."""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.flow import Flow
from dlcpd.core.routes import MAX_HOPS
from dlcpd.core.wire import Header, Kind
from dlcpd.io.route_probe import RouteProbe

ROUNDS: Final = 3  # routers limit their ICMP, and probes are lost like data
INTERVAL: Final = 0.1  # seconds between probes of one round trip's hops: gentle on such limits


class Path(Protocol):
    """What discovery needs of a UdpPath."""

    probe: RouteProbe

    def address_of(self, peer: int) -> tuple[str, int] | None: ...


class Discovery:
    """Rounds of probes, one hop at a time, driven by the endpoint's timers."""

    def __init__(self, endpoint: Endpoint, paths: Sequence[Path]) -> None:
        self._endpoint, self._paths = endpoint, paths
        self._busy: set[int] = set()  # indices of the flows being probed

    def begin(self, flow: Flow, now: float) -> None:
        """Ask for the routers of a flow with several paths. It takes about two seconds."""
        if len(flow.paths) < 2 or flow.index in self._busy:
            return
        self._busy.add(flow.index)
        for path in self._paths[: len(flow.paths)]:
            path.probe.open()
        self._endpoint.timers.set((self, "probe", flow.index, 0), now)

    def handle_timer(self, what: str, rest: tuple[Any, ...], now: float) -> None:
        """The next hop's turn."""
        index, turn = rest
        flow = self._endpoint.flows.get(index)
        if flow is None or turn >= ROUNDS * MAX_HOPS:
            self._end(index)
            return
        hop = turn % MAX_HOPS + 1
        for number, path in enumerate(self._paths[: len(flow.paths)]):
            to = path.address_of(index)
            if to is not None:
                ping = Header(Kind.PING, flow.token_out, round=hop, path=number)
                path.probe.send(ping.pack(), hop, to)
        self._endpoint.timers.set((self, "probe", index, turn + 1), now + INTERVAL)

    def _end(self, index: int) -> None:
        self._busy.discard(index)
        if not self._busy:
            for path in self._paths:
                path.probe.close()

    def on_answers(self, path: Path) -> None:
        """The error queue of a path's socket has something."""
        for data, router in path.probe.answers():
            try:
                header = Header.unpack_untrusted(data)
            except MalformedDatagram:
                continue  # quoted too short, or none of ours
            for flow in self._endpoint.flows.values():
                if flow.token_out == header.token and header.kind is Kind.PING:
                    flow.paths.found(header.path, header.round, router)
