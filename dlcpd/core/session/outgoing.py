"""The transfers from this rank to one peer: queued by class, sent, retransmitted, acknowledged."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.paths import Paths
from dlcpd.core.paths.space import MARKS, SpaceSender
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.outbox import Outbox
from dlcpd.core.timers import Timer
from dlcpd.core.transfer.incoming import FlowOwner
from dlcpd.core.transfer.sender import SenderState, TransferSender
from dlcpd.core.wire import control
from dlcpd.core.wire.bitmap import indices
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import ASK, ENDING, HEADER_SIZE, WAIVED, Header, Key, Kind

MAX_BATCH: Final = 1440  # datagrams of one system call: 32 GSO bursts, 2 MB
END_SOON: Final = 5e-4  # seconds after a pass over a path that loses: END shows a lost tail


@dataclass(slots=True, eq=False, repr=False)
class Outgoing:
    """The sending half of the flow `owner`, which gets the timers and calls `on_quiet`."""

    owner: Any
    index: int  # of the flow
    token_out: int
    rank: int  # of the peer
    session: FlowOwner
    paths: Paths
    outbox: Outbox
    agenda: Agenda
    next_class: int | None = None  # traffic class of the next segment to send; None: there is none
    held: bool = False  # it may not, until a datagram comes, a timer expires, or more is queued
    _queues: dict[int, deque[TransferSender]] = field(default_factory=dict)  # by class; none empty
    # by stream and operation, and by key; none empty
    _senders: dict[tuple[int, int], dict[Key, TransferSender]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are transfers that the peer has not acknowledged."""
        return bool(self._senders)

    # --- queues -------------------------------------------------------------------

    def add(self, sender: TransferSender) -> None:
        """Track a transfer until its acknowledgement, queued or not."""
        self._senders.setdefault(sender.key[:2], {})[sender.key] = sender

    def queue(self, sender: TransferSender, *, first: bool = False) -> None:
        """Queue a transfer behind the others of its class, but for those that yield to it, or
        before all of them."""
        self._unqueue(sender)
        sender.queued = sender.traffic_class
        queue = self._queues.setdefault(sender.queued, deque())
        queue.insert(0 if first else _place(queue, sender), sender)
        self.next_class = min(self._queues)
        self.held = False
        self.agenda.sending[self.index] = None

    def _unqueue(self, sender: TransferSender) -> None:
        """Take a transfer out of its queue: it has nothing to send, or not in that class."""
        if sender.queued is not None:
            queue = self._queues[sender.queued]
            queue.remove(sender)
            if not queue:
                del self._queues[sender.queued]
                self.next_class = min(self._queues, default=None)
                if not self._queues:
                    self.agenda.sending.pop(self.index, None)
            sender.queued = None

    def permit(self, sender: TransferSender) -> None:
        """Tell the peer which segments of a transfer it may waive without asking, if any; it asks
        where this gets lost."""
        if sender.permit is not None:
            body = control.pack_permit(sender.permit.limit, sender.permit.costs)
            self.outbox.put_about(Kind.PERMIT, sender.key, body)

    def restart(self, sender: TransferSender) -> None:
        """Queue a transfer once more from its start."""
        self.permit(sender)
        sender.restart()
        self.session.cancel_timer((self.owner, Timer.END, sender.key))
        self.queue(sender)

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent."""
        queues = self._queues.values()
        return sum(sender.remaining * sender.segment_size for q in queues for sender in q)

    # --- data out -----------------------------------------------------------------

    def transmit(self, now: float, window: int, allowance: int) -> Transmit | None:
        """The next batch that may go out now: within congestion windows, and with `window` bytes
        in flight and `allowance` bytes in the batch at most."""
        traffic_class = self.next_class
        if traffic_class is None:
            return None
        sender = self._queues[traffic_class][0]
        width = HEADER_SIZE + sender.segment_size
        credit = max(window // width, min(window, 1))  # a share may be less than a datagram
        index, room, enough = self.paths.pick(traffic_class, sender.run, credit, now)
        in_flight = self.paths.in_flight(traffic_class)
        left = credit - in_flight
        room = min(room, left, MAX_BATCH)
        if room <= 0 or (room < enough and in_flight):
            if left > 0:  # else the next CREDIT of the peer lets it out, and no pace does
                self._wake_by_pace(traffic_class, now)
            self.held = True
            return None
        limit = min(room, allowance // width)
        if limit <= 0:
            return None
        space = self.paths.space(index, traffic_class)
        batch = self._batch(sender, index, space, limit, credit=credit, now=now)
        sender.ends[index, traffic_class] = space.sent
        if not sender.remaining:
            self._unqueue(sender)
            sender.tail = (index, space.sent, space.acked)
            soon = self.paths.is_lossy
            self._set_end(sender, now + (END_SOON if soon else self.paths.timeout(traffic_class)))
            if soon and not sender.round and len(batch.segments) < sender.segments:
                self.permit(sender)  # once more: the first may be lost
        elif sender.traffic_class != traffic_class:
            self.queue(sender)
        if self.next_class != traffic_class:
            space.congestion.ran_dry()
        return batch

    def _wake_by_pace(self, traffic_class: int, now: float) -> None:
        """If the pace is the limit, set a timer for when it lets a burst out."""
        at = self.paths.paced_until(traffic_class)
        if at is not None and at > now:
            self.session.set_timer((self.owner, Timer.PACE, None), at)

    def _batch(
        self,
        sender: TransferSender,
        index: int,
        space: SpaceSender,
        limit: int,
        *,
        credit: int,
        now: float,
    ) -> Transmit:
        segments, tags, ending = sender.take(limit, index)
        stream, operation, transfer = sender.key
        first = Header(
            Kind.DATA,
            self.token_out,
            operation,
            stream,
            transfer,
            0,
            sender.round,
            path=index,
            packet_number=(space.sent + 1) & 0xFFFFFFFF,
            sent_at=microseconds(now) or 1,
        )
        flags = np.zeros(len(segments), np.uint8)
        if ending:
            flags[-ending:] |= ENDING
        space.sent += len(segments)
        short = (int(segments[-1]) + 1) * sender.segment_size - len(sender.payload)
        space.bytes += len(segments) * (HEADER_SIZE + sender.segment_size) - max(short, 0)
        if sender.round:
            space.again += len(segments)
        space.congestion.spend(len(segments))
        self.paths.on_sent(index, len(segments))
        if ending and sender.urgent:
            space.asked = space.sent
            flags[-MARKS:] |= ASK
        space.ask(flags, credit, MAX_BATCH)
        return Transmit(
            self.index, index, first, flags, sender.payload, segments, sender.segment_size, tags
        )

    # --- answers of the peer ------------------------------------------------------

    def on_verdict(self, header: Header, body: bytes, now: float) -> None:
        """NACK, FINAL or COMPLETE. Raises MalformedDatagram; nothing changed."""
        key = header.key
        match header.kind:
            case Kind.NACK:
                self._on_nack(key, body, header.round)
            case Kind.FINAL:
                self._on_final(key, body, header, now)
            case _:
                for transfer in control.unpack_transfers_untrusted(body):
                    self.acknowledge(key._replace(transfer=transfer), now)

    def _on_nack(self, key: Key, body: bytes, round_: int) -> None:
        """The peer lacks segments. Raises MalformedDatagram."""
        sender = self._sender(key)
        if sender is None:
            return
        missing = control.unpack_bits_untrusted(body, sender.segments)
        if sender.on_nack(missing, round_):
            self._retransmit(sender)

    def _on_final(self, key: Key, body: bytes, header: Header, now: float) -> None:
        """The peer asks to waive some segments, or has waived them under a permit: keep them and
        agree, or send them again.

        Raises: MalformedDatagram.
        """
        sender, told = self._sender(key), bool(header.flags & WAIVED)
        if sender is not None:
            bits = control.unpack_bits_untrusted(body, sender.segments)
            if not sender.on_offer(header.round):
                return
            vetoed = self.session.on_waived(self.rank, sender, indices(bits), told=told)
            if len(vetoed):
                sender.on_veto(vetoed)
                self._retransmit(sender)
                return
        if sender is not None or told:  # without a sender, it is a repetition
            self.outbox.put_about(Kind.ACK, key, round_=header.round, path=header.path)
        if told:
            self.acknowledge(key, now)

    def _retransmit(self, sender: TransferSender) -> None:
        """Queue a transfer before the others of its class."""
        self.session.cancel_timer((self.owner, Timer.END, sender.key))
        self.queue(sender, first=True)

    def acknowledge(self, key: Key, now: float) -> None:
        """The peer has this transfer, as a COMPLETE or its consequences show."""
        sender = self._take(key)
        if sender is not None and sender.on_done():
            self._unqueue(sender)
            self.session.cancel_timer((self.owner, Timer.END, key))
            self.session.on_acknowledged(self.rank, sender, now)

    def acknowledge_all(self, stream: int, operation: int, now: float, *, left: bool) -> None:
        """The peer needs nothing more of this operation: it is done or, with `left`, has left.

        A peer that is done may have waived segments under a permit: only its COMPLETE or FINAL
        settles such a transfer.
        """
        for key, sender in list(self._senders.get((stream, operation), {}).items()):
            if left or sender.permit is None:
                self.acknowledge(key, now)

    def forget(self, stream: int, operation: int) -> None:
        """The operation failed: drop its state."""
        for key, sender in self._senders.pop((stream, operation), {}).items():
            sender.on_done()
            self._unqueue(sender)
            self.session.cancel_timer((self.owner, Timer.END, key))

    def _sender(self, key: Key) -> TransferSender | None:
        return self._senders.get(key[:2], {}).get(key)

    def _take(self, key: Key) -> TransferSender | None:
        """Remove and return a transfer."""
        senders = self._senders.get(key[:2], {})
        sender = senders.pop(key, None)
        if sender is not None and not senders:
            del self._senders[key[:2]]
        return sender

    # --- time ---------------------------------------------------------------------

    def on_quiet(self, key: Key, now: float) -> None:
        """No verdict on a transfer yet: send END. While the path still delivers, just wait on."""
        sender = self._sender(key)
        if sender is None or sender.state is not SenderState.AWAITING:
            return
        path, number, acked = sender.tail
        traffic_class = sender.traffic_class
        space = self.paths.space(path, traffic_class)
        if not sender.followed and self.paths.is_lossy:
            sender.followed = True
            self._follow(sender, now)
        elif acked == space.acked or acked >= number:
            self.permit(sender)  # the peer may have begun the operation only after the data came
            self._probe(sender, path, now)
        sender.tail = (path, number, space.acked)
        self._set_end(sender, now + self.paths.timeout(traffic_class, sender.probes))

    def ask(self, now: float, operation: tuple[int, int] | None = None) -> None:
        """Send END for the transfers that wait, of one operation (its stream and number) or of all,
        instead of when timers that have doubled expire."""
        operations = list(self._senders) if operation is None else [operation]
        for sender in [s for key in operations for s in self._senders.get(key, {}).values()]:
            if sender.state is SenderState.AWAITING:
                sender.probes = 1  # the best path instead of that of its data
                self._probe(sender, sender.tail[0], now)
                self._set_end(sender, now + self.paths.timeout(sender.traffic_class))

    def _probe(self, sender: TransferSender, path: int, now: float) -> None:
        """Queue an END, first on the path of the data, then on others."""
        via = path if not sender.probes else self.paths.for_control(sender.probes - 1)
        sender.probes += 1
        self._put_end(sender, via, sender.traffic_class, now)

    def _follow(self, sender: TransferSender, now: float) -> None:
        """Queue an END on every path behind the data of the pass; none where data still wait for
        the socket, for it would overtake them."""
        self.session.on_passed(self.rank, sender.key, now)
        last = sender.tail[0], sender.traffic_class
        for path, traffic_class in sender.ends:
            if path not in self.paths.full:
                asks = (path, traffic_class) == last
                self._put_end(sender, path, traffic_class, now, asks=asks)

    def _put_end(
        self, sender: TransferSender, via: int, traffic_class: int, now: float, *, asks: bool = True
    ) -> None:
        """Queue an END in the class of the data, which it must not overtake."""
        stream, operation, transfer = sender.key
        rows = [control.EndRow(*space, number) for space, number in sender.ends.items()]
        header = Header(
            Kind.END,
            self.token_out,
            operation,
            stream,
            transfer,
            round=sender.round,
            flags=ASK if asks else 0,
            path=via,
            tag=traffic_class * DROP_PRECEDENCES,
            packet_number=self.paths.space(via, traffic_class).sent & 0xFFFFFFFF,
            sent_at=microseconds(now) or 1,
        )
        self.outbox.put(
            header, control.pack_ends(rows[: control.MAX_END_ROWS]), path=via, asks=asks
        )

    def _set_end(self, sender: TransferSender, at: float) -> None:
        self.session.set_timer((self.owner, Timer.END, sender.key), at)


def _place(queue: Sequence[TransferSender], sender: TransferSender) -> int:
    """The place of a transfer in its queue: the end, or before those that it precedes."""
    place = len(queue)
    while place and sender.precedes(queue[place - 1]):
        place -= 1
    return place
