"""Finds the MTU of each path towards each peer, and tells flows and sockets. docs/wire.md, "Path
MTU". The search itself is `core.paths.path_mtu`; here are its timers, its datagrams, the kernel's
reports, and the watch over data that do not arrive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.path_mtu import PathMtu, SearchState
from dlcpd.core.paths.pieces import MAX_OF_ALL, Reassembly
from dlcpd.core.paths.route_search import Address
from dlcpd.core.room import Room
from dlcpd.core.session.flow import Flow
from dlcpd.core.timers import Timer
from dlcpd.core.wire import probes
from dlcpd.core.wire.datagram import Control
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.core.wire.sizes import BASE, LEAST_MTU, MAX_SEGMENT, UNIT, datagram_size, segment_within
from dlcpd.io.discovery.icmp import IcmpNews
from dlcpd.io.udp import mmsg

LOOK: Final = 0.1  # seconds between checks of what arrives of a flow that sends
LOOKS: Final = 3  # in a row without an arrival, though data were sent: above any timer of core
_KINDS: Final = frozenset(  # second byte of a datagram
    bytes([kind]) for kind in (Kind.PROBE, Kind.PROBE_ACK, Kind.PIECE)
)


class ProbedPath(Protocol):
    """The part of UdpPath that this needs."""

    index: int
    address: Address
    too_big: list[tuple[int, int]]

    def limit(self, peer: int, size: int) -> None: ...
    def send_control(self, control: Control) -> None: ...


@dataclass(frozen=True, slots=True)
class MtuNews:
    """A search has ended with a result other than the last one."""

    session: int
    rank: int
    path: int
    mtu: int  # bytes of the largest packet that passes; 0: not even LEAST_MTU does
    before: int  # the result before; 0 = not known


@dataclass(slots=True, eq=False)
class FlowPath:
    """One path of a flow, towards the peer."""

    search: PathMtu
    path: ProbedPath
    host: str  # the peer's address
    told: int = 0  # mtu of the last news
    told_blocked: bool = False
    arrived: int = 0  # datagrams, at the last check that found new ones
    sent: int = 0  # datagrams, at that check
    quiet: int = 0  # checks since then at which more had been sent

    def look(self, sent: int, arrived: int, now: float) -> None:
        """Check the totals of the path. If data are sent and none arrive, probe whether their size
        is the cause."""
        if arrived != self.arrived:
            self.arrived, self.sent, self.quiet = arrived, sent, 0
        elif sent > self.sent:
            self.quiet += 1
            if self.quiet == LOOKS:
                self.quiet = 0
                self.search.suspect(now)


@dataclass(slots=True, eq=False)
class Towards:
    """The searches and pieces of one flow."""

    session: int
    flow: Flow
    ways: list[FlowPath]
    pieces: Reassembly


class MtuDiscovery:
    """Searches of all flows, driven by the endpoint's timers. `largest`: segment bytes never
    exceeded; `tell` gets changed results. `trailer`: bytes that paths add to every datagram."""

    def __init__(
        self,
        endpoint: Endpoint,
        paths: Sequence[ProbedPath],
        largest: int,
        tell: Callable[[MtuNews], None],
        *,
        trailer: int = 0,
    ) -> None:
        self._endpoint, self._paths, self._largest, self._tell = endpoint, paths, largest, tell
        self._trailer, self._pieces = trailer, Room(MAX_OF_ALL)
        self._towards: dict[int, Towards] = {}  # by flow
        self._by_token: dict[int, Towards] = {}  # by the token of datagrams to the peer

    def begin(self, session: int, flow: Flow, endpoints: Sequence[Address], now: float) -> None:
        """Search each path of a new flow. It uses the base size until an answer comes."""
        ways = [
            FlowPath(self._search(path, host), path, host)
            for path, (host, _) in zip(self._paths, endpoints, strict=False)
        ]
        towards = Towards(session, flow, ways, Reassembly(self._pieces))
        self._towards[flow.index] = self._by_token[flow.token_out] = towards
        for number, way in enumerate(ways):
            way.search.timer = now
            self._after(towards, number)

    def forget(self, flow: Flow) -> None:
        """The flow is about to close."""
        towards = self._towards.pop(flow.index, None)
        if towards is None:
            return
        self._by_token.pop(flow.token_out, None)
        towards.pieces.clear()
        self._endpoint.timers.cancel((self, Timer.MTU_LOOK, flow.index))
        for number in range(len(towards.ways)):
            self._endpoint.timers.cancel((self, Timer.MTU_SEARCH, (flow.index, number)))

    def _search(self, path: ProbedPath, host: str) -> PathMtu:
        headers = (48 if ":" in host else 28) + self._trailer
        return PathMtu(headers, self._most(path, host, headers))

    def _most(self, path: ProbedPath, host: str, headers: int) -> int:
        """The largest segment that this host's own interface lets out towards the peer."""
        fits = segment_within(mmsg.route_mtu(path.address[0], host), headers) or MAX_SEGMENT
        # Forged ICMP may have told the kernel less than LEAST_MTU. Transfers are counted in
        # segments of BASE at least; the search finds out whether those pass, or need pieces.
        return min(self._largest, max(fits, BASE))

    # --- time ---------------------------------------------------------------------------

    def handle_timer(self, timer: Timer, subject: Any, now: float) -> None:
        """The next round of a search, or the next check of what arrives."""
        index, number = (subject, 0) if timer is Timer.MTU_LOOK else subject
        towards = self._towards.get(index)
        if towards is None:
            return
        if timer is Timer.MTU_LOOK:
            self._look(towards, now)
        else:
            self._search_on(towards, number, now)

    def _search_on(self, towards: Towards, number: int, now: float) -> None:
        way = towards.ways[number]
        search = way.search
        if search.state is SearchState.COMPLETE:
            search.most = self._most(way.path, way.host, search.headers)
        for probe in search.on_timer(now):
            data = probes.pack_probe(
                towards.flow.token_out, number, probe.number, datagram_size(probe.size)
            )
            way.path.send_control(Control(towards.flow.index, number, data))
        self.on_refused(way.path, now)
        self._after(towards, number)

    def watch(self, index: int, now: float) -> None:
        """Flow `index` has sent data."""
        key = (self, Timer.MTU_LOOK, index)
        if not self._endpoint.timers.pending(key):
            self._endpoint.timers.set(key, now + LOOK)

    def suspect(self, index: int, now: float) -> None:
        """Datagrams of flow `index` that no packet number counts have got no answer: probe whether
        their size is the cause."""
        if (towards := self._towards.get(index)) is not None:
            for number, way in enumerate(towards.ways):
                way.search.suspect(now)
                self._after(towards, number)

    def _look(self, towards: Towards, now: float) -> None:
        paths = towards.flow.paths
        for number, way in enumerate(towards.ways):
            sender = paths.tx[number]
            way.look(sender.sent, sender.acked - sender.lost, now)
            self._after(towards, number)
        if paths.in_flight():  # else the next batch sets the timer again
            self.watch(towards.flow.index, now)

    # --- answers and reports --------------------------------------------------------------

    def take(self, path: ProbedPath, strays: list[bytes], now: float) -> list[bytes]:
        """Answer probes, take in answers, reassemble pieces; returns all other datagrams."""
        if not any(data[1:2] in _KINDS for data in strays):
            return strays
        rest = []
        for data in strays:
            other = self._take_one(path, data, now) if data[1:2] in _KINDS else data
            if other is not None:
                rest.append(other)
        return rest

    def _take_one(self, path: ProbedPath, data: bytes, now: float) -> bytes | None:
        """Handle one datagram. Returns a datagram for the endpoint: one of a stranger, to refuse,
        or a reassembled one; else None."""
        flow = None
        try:
            header = Header.unpack_untrusted(data)
            flow = self._endpoint.flow_of(header.token)
            if flow is None:
                return data
            self._endpoint.check(header, data)
            towards = self._towards[flow.index]
            if header.kind is Kind.PIECE:
                return towards.pieces.add(data)
            if header.kind is Kind.PROBE:
                self._on_probe(towards, path, header.path, data, now)
            else:
                self._on_answer(towards, header.path, data, now)
        except MalformedDatagram as exc:
            self._endpoint.counters[exc.reason] += 1
        except Exception as exc:  # a bug: the flow's session ends, and no other
            self._endpoint.fault(flow.session.number if flow else 0, exc)
        return None

    def _on_probe(
        self, towards: Towards, path: ProbedPath, number: int, data: bytes, now: float
    ) -> None:
        probe = probes.unpack_probe_untrusted(data)
        answer = probes.pack_answer(towards.flow.token_out, number, probe, len(data))
        path.send_control(Control(towards.flow.index, path.index, answer))
        for each, way in enumerate(towards.ways):
            way.search.on_peer_heard(now)
            self._after(towards, each)

    def _on_answer(self, towards: Towards, number: int, data: bytes, now: float) -> None:
        probe, received = probes.unpack_answer_untrusted(data)
        if number >= len(towards.ways):
            raise MalformedDatagram("path", str(number))
        if not towards.ways[number].search.on_answer(probe, received, now):
            self._endpoint.counters["probe"] += 1
        self._after(towards, number)

    def on_icmp(self, path: ProbedPath, news: IcmpNews, now: float) -> None:
        """A router dropped a datagram as too big. Only a quoted token shows that this engine sent
        it."""
        try:
            towards = self._by_token.get(Header.unpack_untrusted(news.quoted).token)
        except MalformedDatagram:
            towards = None
        if towards is None or path.index >= len(towards.ways):
            self._endpoint.counters["icmp"] += 1
            return
        search = towards.ways[path.index].search
        search.on_too_big(MAX_SEGMENT + UNIT, segment_within(news.mtu, search.headers), now)
        self._after(towards, path.index)

    def on_refused(self, path: ProbedPath, now: float) -> None:
        """Take in the datagrams that this host's own kernel found too big for the interface."""
        refused, path.too_big[:] = set(path.too_big), []
        for index, size in refused:
            towards = self._towards.get(index)
            if towards is not None and path.index < len(towards.ways):
                way = towards.ways[path.index]
                limit = self._most(path, way.host, way.search.headers)
                way.search.on_too_big(size - HEADER_SIZE, limit, now)
                self._after(towards, path.index)

    # --- results --------------------------------------------------------------------------

    def refresh(self, flow: Flow) -> None:
        """A path of the flow went down or came back: the segment size is the least of those that
        carry data."""
        towards = self._towards.get(flow.index)
        if towards is not None:
            up = [w for w, tx in zip(towards.ways, flow.paths.tx, strict=False) if tx.up]
            flow.segment_size = min(way.search.size for way in up or towards.ways)

    def _after(self, towards: Towards, number: int) -> None:
        """A search may have changed: update timer, socket, flow and log."""
        flow, way = towards.flow, towards.ways[number]
        search = way.search
        self._endpoint.timers.set((self, Timer.MTU_SEARCH, (flow.index, number)), search.timer)
        way.path.limit(flow.index, 0 if search.blocked else HEADER_SIZE + search.size)
        self.refresh(flow)
        ended = search.blocked or search.state is SearchState.COMPLETE
        if ended and (search.packet, search.blocked) != (way.told, way.told_blocked):
            before, way.told, way.told_blocked = way.told, search.packet, search.blocked
            self._tell(MtuNews(towards.session, flow.rank, number, search.packet, before))

    def report(self, flow: Flow) -> list[dict[str, Any]]:
        """The MTU and the state of its search, for each path of a flow."""
        towards = self._towards.get(flow.index)
        searches = [way.search for way in towards.ways] if towards else []
        return [{"mtu": s.packet, "mtu_search": s.state.value, "segment": s.size} for s in searches]

    def trouble(self, session: int, here: str) -> str:
        """For the error of an operation: the hosts between which too little passes; else empty."""
        blocked = {
            towards.flow.host
            for towards in self._towards.values()
            if towards.session == session and any(way.search.blocked for way in towards.ways)
        }
        return "".join(
            f"; path MTU below {LEAST_MTU:,} between {here} and {name}: small datagrams arrive and "
            f"those of a {LEAST_MTU:,}-byte packet do not; raise the MTU of the links between them"
            for name in sorted(blocked)
        )
