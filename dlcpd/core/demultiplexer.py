"""Passes each datagram that arrived to the flow that its token names.

Datagrams outside groups of data, beyond MOST_STRAYS per wake-up, wait in an `Inbox`, so that a
flood of them does not keep the engine from its other sources.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.inbox import Inbox
from dlcpd.core.paths.incast import ArrivalRate
from dlcpd.core.paths.link_rate import FRAMES
from dlcpd.core.session.flow import Flow
from dlcpd.core.session.session import Session
from dlcpd.core.wire import bundle, control
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Batch, DatagramGroup
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.core.wire.rows import alone
from dlcpd.core.wire.sizes import MAX_SEGMENT

MOST_STRAYS: Final = 256  # handled per wake-up, parts of a BUNDLE included: some milliseconds

# Handled at once: an engine takes a peer for dead that does not answer PING in time, and CREDIT is
# the answer.
URGENT: Final = frozenset({Kind.PING, Kind.CREDIT})

Fault = tuple[int, Exception]  # number of the session, 0: of none in particular; the bug


@dataclass(slots=True, eq=False, repr=False)
class Demultiplexer:
    """All datagrams of one engine. A malformed one is counted; a bug in the work for one is a
    fault of its session, and the others are not affected."""

    sessions: Mapping[int, Session]  # the open ones, by number
    counters: Counter[str]  # refused datagrams
    effort: Counter[str]  # datagrams taken in
    keys: Keyring  # of the peers
    inbox: Inbox
    arriving: ArrivalRate
    faults: list[Fault]
    by_token: dict[int, Flow] = field(default_factory=dict)
    _handled: int = 0  # strays, since `work_off` was called

    def add(self, flow: Flow, secret: bytes) -> None:
        """A flow was opened; `secret` keys the checksums of the peer's datagrams. Empty: they have
        none."""
        self.by_token[flow.token_in] = flow
        if secret:
            self.keys.add(flow.token_in, Checksum(secret))

    def remove(self, flow: Flow) -> None:
        """A flow has ended: its token is unknown from now on."""
        self.keys.remove(flow.token_in)
        if self.by_token.get(flow.token_in) is flow:
            del self.by_token[flow.token_in]

    def receive(self, batch: Batch, now: float) -> None:
        """Take in all datagrams of one receive call.

        READY comes first, since data may have travelled with it; all other control refers to data
        that left before it, and comes last.
        """
        groups, at = self._groups(batch), batch.stray_arrival
        strays = [stray for data in batch.strays for stray in self._genuine(data)]
        for header, data in strays:
            if header.kind is Kind.READY:
                self._stray(header, data, at, now)
        for group in groups:
            self._group(group, now)
        for header, data in strays:
            if header.kind is not Kind.READY:
                self._stray(header, data, at, now)

    def _genuine(self, data: bytes) -> list[tuple[Header, bytes]]:
        """A datagram with its header, or the parts of a BUNDLE; nothing if it is refused."""
        try:
            header = Header.unpack_untrusted(data)
            self.check(header, data)
            if header.kind is not Kind.BUNDLE:
                return [(header, data)]
            if header.token not in self.by_token:
                raise MalformedDatagram("token")
            return bundle.unpack_untrusted(data)
        except MalformedDatagram as exc:
            self.counters[exc.reason] += 1
            return []

    def _groups(self, batch: Batch) -> Sequence[DatagramGroup]:
        try:
            return batch.groups(self.counters)
        except Exception as exc:  # the datagrams are lost, as on any network
            self.faults.append((0, exc))
            return ()

    def _group(self, group: DatagramGroup, now: float) -> None:
        header, count = group.header, group.count
        flow = self.by_token.get(header.token)
        if flow is None:
            self.counters["token"] += count
            return
        self.effort["data_in"] += count
        if group.marked:
            self.counters["ce"] += group.marked
        flow.touch()
        try:
            useful = flow.arrivals.on_data(group, now)
        except Exception as exc:  # a bug: that session ends, and no other
            self.faults.append((flow.session.number, exc))
            return
        if useful:
            flow.heard(now)
            self.arriving.on_bytes(group.size, now, group.arrived_at)
            size = group.size + FRAMES * count
            flow.link.came(header.path, size, header.sent_at, group.arrived_at)

    def _stray(self, header: Header, data: bytes, arrived_at: float, now: float) -> None:
        try:
            if header.kind in URGENT or (not self.inbox and self._handled < MOST_STRAYS):
                self._handled += 1
                self._handle(header, data, arrived_at, now)
            elif header.token not in self.by_token:
                raise MalformedDatagram("token")
            else:
                self.inbox.put(header, data, arrived_at)
        except MalformedDatagram as exc:
            self.counters[exc.reason] += 1

    def _handle(self, header: Header, data: bytes, arrived_at: float, now: float) -> None:
        """Raises: MalformedDatagram."""
        if header.kind is Kind.DATA:
            self._stray_data(header, data, arrived_at, now)
        else:
            self._on_control(header, data, arrived_at, now)

    def check(self, header: Header, data: bytes) -> None:
        """Raises: MalformedDatagram where the checksum does not match."""
        if not self.keys.is_genuine(header.token, header.checksum, data):
            raise MalformedDatagram("checksum")

    def _stray_data(self, header: Header, data: bytes, arrived_at: float, now: float) -> None:
        """Data of a small operation: part of a BUNDLE, or joined by the kernel with others of its
        size. Raises: MalformedDatagram."""
        if len(data) > HEADER_SIZE + MAX_SEGMENT:
            raise MalformedDatagram("length", f"data of {len(data)} bytes")
        self._group(alone(header, data, arrived_at), now)

    def _on_control(self, header: Header, data: bytes, arrived_at: float, now: float) -> None:
        """Raises: MalformedDatagram."""
        flow = self.by_token.get(header.token)
        if flow is None:
            raise MalformedDatagram("token")
        flow.touch()
        body = control.body_untrusted(data)
        flow.outgoing.held = False
        session = self.sessions[flow.session.number]
        try:
            if header.kind is Kind.READY:
                session.rendezvous.on_ready(flow, header, body, now)
            elif header.kind is Kind.READY_ACK:
                session.rendezvous.on_ready_ack(flow, header, now)
            elif header.kind is Kind.DIGESTS:
                session.replicas.on_digests(flow, header, body)
            else:
                flow.on_control(header, body, arrived_at, now)
        except MalformedDatagram:
            raise
        except Exception as exc:  # a bug: that session ends, and no other
            self.faults.append((session.number, exc))

    def pass_on(self, data: bytes, now: float) -> None:
        """Take in a control datagram that never left this process, and has no checksum."""
        try:
            self._on_control(Header.unpack_untrusted(data), data, now, now)
        except MalformedDatagram as exc:
            self.counters[exc.reason] += 1

    def work_off(self, now: float) -> None:
        """Handle up to MOST_STRAYS datagrams of `inbox`."""
        self._handled = 0
        while self.inbox and self._handled < MOST_STRAYS:
            self._handled += 1
            header, data, arrived_at = self.inbox.take()
            try:
                self._handle(header, data, arrived_at, now)
            except MalformedDatagram as exc:
                self.counters[exc.reason] += 1
