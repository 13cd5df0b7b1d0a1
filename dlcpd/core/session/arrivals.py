"""The transfers from one peer to this rank: opened, filled, judged, acknowledged."""

from dataclasses import dataclass, field
from typing import Any, Final

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.paths.paths import Paths
from dlcpd.core.paths.rtt import LEAST_REORDERING
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.outbox import ANSWER_DELAY, Outbox
from dlcpd.core.timers import Timer
from dlcpd.core.transfer.early import EarlyData
from dlcpd.core.transfer.incoming import FlowOwner, Incoming, Placement
from dlcpd.core.transfer.pass_time import PassTime
from dlcpd.core.transfer.permit import Permit
from dlcpd.core.transfer.receiver import Answer, TransferReceiver
from dlcpd.core.wire import control
from dlcpd.core.wire.bitmap import pack_bits
from dlcpd.core.wire.datagram import DatagramGroup, Placed
from dlcpd.core.wire.header import ASK, WAIVED, Header, Key, Kind
from dlcpd.core.wire.rows import RowGroup

NOTHING: Final = Placed(0, 0, 0)


@dataclass(slots=True, eq=False, repr=False)
class Arrivals:
    """The receiving half of the flow `owner`, which gets the timers and calls `on_quiet`."""

    owner: Any
    index: int  # of the flow
    token_in: int  # in the peer's datagrams
    rank: int  # of the peer
    session: FlowOwner
    paths: Paths
    outbox: Outbox
    placement: Placement
    agenda: Agenda
    pass_time: PassTime = field(default_factory=PassTime)
    early: EarlyData = field(default_factory=EarlyData)
    _incoming: dict[Key, Incoming] = field(default_factory=dict)
    # complete, with segments waived under a permit; the peer has not said that it keeps them
    _waived: dict[Key, TransferReceiver] = field(default_factory=dict)
    # Bytes that the peer has yet to send, begun or not, by stream and operation. None is 0.
    _expected: dict[tuple[int, int], int] = field(default_factory=dict)

    def __len__(self) -> int:
        """Transfers that have begun to arrive and are not complete."""
        return len(self._incoming)

    @property
    def expected(self) -> bool:
        """Whether the peer has anything to send in the operations that are open here."""
        return bool(self._expected)

    def expect(self, stream: int, operation: int, size: int, *, short: bool) -> None:
        """An operation has begun here in which the peer sends `size` bytes. `short`: all peers
        together send few."""
        if short:
            self.agenda.short.add((self.index, stream, operation))
        if size:
            self._expected[stream, operation] = size
            self.agenda.expecting.add(self.index)

    def expect_nothing(self, stream: int, operation: int) -> None:
        """The operation is over."""
        self._expected.pop((stream, operation), None)
        self.agenda.short.discard((self.index, stream, operation))
        if not self._expected:
            self.agenda.expecting.discard(self.index)

    def on_data(self, group: DatagramGroup, now: float) -> bool:
        """Datagrams of one transfer and round. Returns whether they were of use.

        Only useful data show that the peer lives: stale, early or duplicate data may be a replay.
        """
        incoming = self._transfer_of(group, now)
        placed = group.place(incoming) if incoming is not None else NOTHING
        self._account(group, useful=placed.fresh > 0)
        if incoming is not None:
            self._on_placed(incoming, group, placed, now)
        return placed.fresh > 0

    def _transfer_of(self, group: DatagramGroup, now: float) -> Incoming | None:
        key = group.header.key
        incoming = self._incoming.get(key)
        if incoming is None:
            incoming = self._open(key, group.count, now, ending=group.ending, data=group)
            if incoming is not None:
                self._limit_wait(incoming, now)
        return incoming

    def _account(self, group: DatagramGroup, *, useful: bool) -> None:
        header = group.header
        path, traffic_class = header.path, header.tag // DROP_PRECEDENCES
        news = self.paths.rx.on_arrival(
            path,
            traffic_class,
            group.count,
            group.newest,
            group.arrived_at,
            marked=group.marked,
            useful=useful,
        )
        if news and group.asks:
            self.paths.rx.on_ask(path, traffic_class)
        if useful and header.sent_at:
            self.paths.rx.on_stamp(path, traffic_class, header.sent_at, group.arrived_at)

    def _on_placed(
        self, incoming: Incoming, group: DatagramGroup, placed: Placed, now: float
    ) -> None:
        if isinstance(group, RowGroup):
            self.placement.refresh(incoming)  # io's table is not up to date
        if placed.odd:
            self.session.count("length", placed.odd)
        if placed.duplicate:
            self.session.count("duplicate", placed.duplicate)
        receiver, ending, round_ = incoming.receiver, group.ending, group.header.round
        if ending and round_ == 0 and not receiver.ended:
            self.pass_time.update(now - receiver.began, receiver.segments)
        offered, ended = receiver.least_round, receiver.ended
        receiver.on_segments(placed.fresh, ending=ending, round_=round_, now=now)
        if offered and not receiver.least_round:
            self.placement.refresh(incoming)  # vetoed: the offer is void
        if not receiver.missing:
            self._finish(incoming, now)
        elif receiver.ended and (placed.fresh or not ended):  # else it would put the verdict off
            self._judge_at(incoming, now + self._patience(receiver))

    def _patience(self, receiver: TransferReceiver) -> float:
        """Quiet time after which missing segments count as lost, seconds.

        Until a hole in the packet numbers shows a loss, the missing segments are behind all that
        came: the sender may have been without a CPU for a moment, or a slow link carries other data
        between two of the last datagrams. If they are lost, the END of the sender makes the hole
        when its timer expires, and this rank waits as long. On paths that keep the order, none come
        after the ENDs that followed them.
        """
        holes = self.paths.rx.holes
        if receiver.followed and holes.are_losses:
            return LEAST_REORDERING
        if holes.count > receiver.holes:
            return self.paths.reordering(receiver.traffic_class)
        return self.paths.timeout(receiver.traffic_class)

    def _limit_wait(self, incoming: Incoming, now: float) -> None:
        """Set the time until which the receiver waits for the end of the first pass."""
        receiver = incoming.receiver
        receiver.began, receiver.holes = now, self.paths.rx.holes.count
        wait = self.pass_time.allowance(receiver.segments)
        if receiver.budget and wait < float("inf"):
            receiver.deadline = now + wait
            self._judge_at(incoming, receiver.deadline)

    def replay(self, stream: int, operation: int, now: float) -> None:
        """Take in data that came before both ranks had agreed on an operation."""
        for group in self.early.take((stream, operation)):
            incoming = self._transfer_of(group, now)
            if incoming is not None:
                self._on_placed(incoming, group, group.place(incoming), now)

    def _open(
        self,
        key: Key,
        datagrams: int,
        now: float,
        *,
        ending: bool,
        data: DatagramGroup | None = None,
    ) -> Incoming | None:
        opened = self._try_open(key, now)
        if isinstance(opened, Incoming):
            return opened
        if data is not None and opened == "early" and self.early.keep(data):
            return None
        self.session.count(opened, datagrams)
        if ending and opened in ("duplicate", "stale") and key not in self._waived:
            self.outbox.complete.append(key)  # the last COMPLETE was lost: send it again
        return None

    def _try_open(self, key: Key, now: float) -> Incoming | str:
        """The transfer that begins to arrive, or the reason to refuse it."""
        self.session.settle_implied(self.rank, key, now)
        opened = self.session.open_incoming(self.rank, key)
        if isinstance(opened, Incoming):
            self._incoming[key] = opened
            self.placement.open(self.token_in, opened)
        return opened

    def _finish(self, incoming: Incoming, now: float) -> None:
        key, receiver = incoming.key, incoming.receiver
        del self._incoming[key]
        self.placement.close(incoming)
        self.session.cancel_timer((self.owner, Timer.VERDICT, key))
        if receiver.waived:
            self._waived[key] = receiver
            self._tell_waived(key, receiver, now)
        elif receiver.permit is not None:
            self.outbox.complete_now(key)  # no result implies it: see Outgoing.acknowledge_all
        else:
            self.outbox.complete.append(key)
        stream, operation, _ = key
        left = self._expected.get((stream, operation), 0) - len(incoming.buffer)
        if left > 0:
            self._expected[stream, operation] = left
        else:
            self.expect_nothing(stream, operation)
        self.session.on_received(incoming, now)

    def on_end(self, header: Header, ends: list[control.EndRow], now: float) -> None:
        """END of a pass came from the peer; `ends`: the last datagrams of that pass."""
        key = header.key
        if (receiver := self._waived.get(key)) is not None:
            self._tell_waived(key, receiver, now)
            return
        asks = bool(header.flags & ASK)
        incoming = self._incoming.get(key) or self._open(key, 1, now, ending=asks)
        if incoming is None:
            return
        receiver = incoming.receiver
        news = receiver.on_end(header.round, header.sent_at)
        if header.round == receiver.round and not receiver.followed:
            receiver.followed = self.paths.rx.have_delivered(ends)
            news |= receiver.followed
        if news:  # END may have overtaken data, as any datagram may
            self._judge_at(incoming, now + self._patience(receiver))

    def on_ack(self, key: Key, offer: int, now: float) -> None:
        """The peer agrees to waive the segments that this rank offered."""
        incoming, waived = self._incoming.get(key), self._waived.get(key)
        if incoming is not None and incoming.receiver.on_ack(offer):
            self._finish(incoming, now)
        elif waived is not None and waived.offer == offer:
            self._forget_waived(key)
            self.session.on_booked(self.rank, key)

    def on_permit(self, header: Header, body: bytes, now: float) -> None:
        """The peer names the segments of a transfer that may be waived without asking. Raises
        MalformedDatagram."""
        key = header.key
        incoming = self._incoming.get(key)
        if incoming is None:
            opened = self._try_open(key, now)
            if not isinstance(opened, Incoming):
                return  # complete, or early: the peer says it once more as its pass ends
            incoming = opened
            self._limit_wait(incoming, now)
        receiver = incoming.receiver
        receiver.permit = Permit(*control.unpack_permit_untrusted(body, receiver.segments))

    def _tell_waived(self, key: Key, receiver: TransferReceiver, now: float) -> None:
        """Tell the peer what was waived, until it says that it keeps it; soon a second time, since
        its operation waits for that."""
        bits, attempt = pack_bits(~receiver.received), receiver.attempts
        self.outbox.put_about(
            Kind.FINAL, key, bits, round_=receiver.offer, flags=WAIVED, attempt=attempt
        )
        wait = self.paths.timeout(receiver.traffic_class, attempt) if attempt else ANSWER_DELAY
        receiver.attempts += 1
        self.session.set_timer((self.owner, Timer.VERDICT, key), now + wait)

    def _forget_waived(self, key: Key) -> None:
        del self._waived[key]
        self.session.cancel_timer((self.owner, Timer.VERDICT, key))

    def on_quiet(self, key: Key, now: float) -> None:
        """Nothing of a transfer has come for long enough to judge what is missing."""
        if (waived := self._waived.get(key)) is not None:
            self._tell_waived(key, waived, now)
        incoming = self._incoming.get(key)
        if incoming is None:
            return
        receiver = incoming.receiver
        wait = self._patience(receiver)
        answer = receiver.evaluate(now, 0.9 * wait)
        if answer is Answer.WAIVED:
            self._finish(incoming, now)
            return
        if answer is Answer.FINAL:
            self.placement.refresh(incoming)
        if answer is not Answer.NOTHING:
            nack = answer is Answer.NACK
            self.outbox.put_about(
                Kind.NACK if nack else Kind.FINAL,
                key,
                pack_bits(~receiver.received),
                round_=receiver.round if nack else receiver.offer,
                attempt=receiver.attempts - 1,
            )
            twice = receiver.attempts == 1 and self.paths.is_long  # the sender ignores a repetition
            if not twice:
                wait = self.paths.timeout(receiver.traffic_class, receiver.attempts)
        if receiver.missing:
            self._judge_at(incoming, now + wait)

    def _judge_at(self, incoming: Incoming, at: float) -> None:
        self.session.set_timer((self.owner, Timer.VERDICT, incoming.key), at)

    def forget(self, stream: int, operation: int) -> None:
        """The operation failed: drop its state."""
        self.early.take((stream, operation))
        for key in [k for k in self._incoming if k[:2] == (stream, operation)]:
            self.placement.close(self._incoming.pop(key))
            self.session.cancel_timer((self.owner, Timer.VERDICT, key))
        for key in [k for k in self._waived if k[:2] == (stream, operation)]:
            self._forget_waived(key)

    def close(self) -> None:
        """The session is over."""
        while self._incoming:
            self.placement.close(self._incoming.popitem()[1])
