"""One flow: everything that passes between this rank and one peer of a session.

It owns the order of things and no rule: passes are `sender`'s, the stop rule is
`receiver`'s, windows are `path`'s and `congestion`'s.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dlcpd.contract.traffic import DROP_RANKS
from dlcpd.core.paths.health import PathState
from dlcpd.core.paths.paths import CONTROL, Paths
from dlcpd.core.paths.space import SpaceSender, microseconds
from dlcpd.core.session.outbox import Outbox
from dlcpd.core.timers import Timer
from dlcpd.core.transfer.early import EarlyData
from dlcpd.core.transfer.incoming import Host, Incoming
from dlcpd.core.transfer.pass_time import PassTime
from dlcpd.core.transfer.receiver import Answer
from dlcpd.core.transfer.sender import State, TransferSender
from dlcpd.core.wire import control
from dlcpd.core.wire.bitmap import indices, pack_bits
from dlcpd.core.wire.datagram import Control, Group, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, Flag, Header, Key, Kind
from dlcpd.core.wire.header_batch import SEGMENT, SENT_AT, Words, build

MAX_BATCH: Final = 1440  # datagrams of one system call: 32 GSO bursts, 2 MB
ASKS_PER_WINDOW: Final = 4  # credits per window: fewer stall the sender, more wake it for nothing
ASKING: Final = 8  # last datagrams of a batch that carry ASK: it survives some loss
STAMPED: Final = 32  # first datagrams of a batch that carry its time: the rest leave later
_ENDING: Final = int(Flag.ENDING) << 16  # in a header's first word
ASK: Final = int(Flag.ASK) << 16


@dataclass(slots=True, eq=False)
class Flow:
    """State towards one peer. `index` is how io knows it; tokens are docs/wire.md's."""

    index: int
    host: Host
    rank: int  # of the peer
    name: str  # of the peer's host, for errors
    token_out: int
    segment_size: int  # payload bytes of a datagram to the peer; new operations take it over
    window: int  # bytes the peer lets us have in flight
    grant: int  # bytes we let the peer have in flight
    paths: Paths
    address: str = ""  # UDP address and port of the peer's first path, for errors
    opening: int = 0  # bytes of that when it begins, and others with it
    pass_time: PassTime = field(default_factory=PassTime)
    early: EarlyData = field(default_factory=EarlyData)
    outbox: Outbox = field(init=False)
    heard_at: float = 0.0
    unanswered: int = 0  # pings since the peer was last heard
    _queues: dict[int, deque[TransferSender]] = field(default_factory=dict)  # by traffic class
    _senders: dict[Key, TransferSender] = field(default_factory=dict)
    _incoming: dict[Key, Incoming] = field(default_factory=dict)
    _probe_acked: int | None = None  # acked at the last look; None: nothing is awaited
    _probe_attempt: int = 0
    _check_at: float = 0.0  # not before
    twin: "Flow | None" = None  # the peer's flow to us, where its session is in this process too
    _local: list[TransferSender] = field(default_factory=list)  # for the twin, in order

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.index, self.token_out, self.paths)

    # --- sending ------------------------------------------------------------------

    def send(self, sender: TransferSender) -> None:
        """Queue a transfer."""
        self._senders[sender.key] = sender
        if self.twin is not None:
            self._local.append(sender)
        else:
            self._queue(sender)

    def resend(self, sender: TransferSender) -> None:
        """Queue a transfer once more from its start, unless the peer is content by now."""
        if sender.state is not State.DONE and sender not in self._local:
            sender.restart()
            self.host.cancel_timer((self, Timer.END, sender.key))
            self._queue(sender)

    def _queue(self, sender: TransferSender, *, first: bool = False) -> None:
        queue = self._queues.setdefault(sender.traffic_class, deque())
        queue.insert(0 if first else len(queue), sender)

    @property
    def next_class(self) -> int | None:
        """Traffic class of what goes out next; None: there is nothing."""
        head = self._head()
        return None if head is None else head.traffic_class

    def _head(self) -> TransferSender | None:
        """The transfer whose turn it is: the first of the most urgent class that has any."""
        while self._queues:
            traffic_class = min(self._queues)
            queue = self._queues[traffic_class]
            sender = queue[0]
            waits = sender.remaining and sender.state is not State.DONE
            if waits and sender.traffic_class == traffic_class:
                return sender
            queue.popleft()  # done, or it went on in another class and waits there
            if not queue:
                del self._queues[traffic_class]
        return None

    def transmit(self, now: float, allowance: int) -> Transmit | None:
        """The next batch that may go out now: within windows, credit and `allowance` bytes."""
        sender = self._head()
        if sender is None:
            return None
        if self._probe_acked is None:
            self._await_credit(now)
        traffic_class = sender.traffic_class
        width = HEADER_SIZE + sender.segment_size
        credit = self.window // width
        index, room, enough = self.paths.pick(traffic_class, sender.run, credit, now)
        in_flight = self.paths.in_flight(traffic_class)
        room = min(room, credit - in_flight, MAX_BATCH)
        if room <= 0 or (room < enough and in_flight):
            self._wake_by_pace(traffic_class, now)
            return None
        limit = min(room, allowance // width)
        if limit <= 0:
            return None
        batch = self._batch(sender, index, limit, now)
        if not sender.remaining:
            space = self.paths.space(index, traffic_class)
            sender.tail = (index, space.sent, space.acked)
            at = now + self.paths.timeout(traffic_class)
            self.host.set_timer((self, Timer.END, sender.key), at)
        elif sender.traffic_class != traffic_class:
            self._queue(sender)
        return batch

    def _wake_by_pace(self, traffic_class: int, now: float) -> None:
        """Where the pace is what holds us up, go on when it lets go."""
        at = self.paths.paced_until(traffic_class)
        if at is not None and at > now:
            self.host.set_timer((self, Timer.PACE, None), at)

    @property
    def _width(self) -> int:
        return HEADER_SIZE + self.segment_size

    def _batch(self, sender: TransferSender, index: int, limit: int, now: float) -> Transmit:
        path = self.paths.space(index, sender.traffic_class)
        segments, tags, ending = sender.take(limit, index)
        stream, operation, transfer = sender.key
        first = Header(
            Kind.DATA, self.token_out, operation, stream, transfer, 0, sender.round, path=index,
            packet_number=(path.sent + 1) & 0xFFFFFFFF, sent_at=microseconds(now) or 1,
        )  # fmt: skip
        words = build(first, segments, tags)
        words[STAMPED:, SENT_AT] = 0
        if ending:
            words[-ending:, 0] |= _ENDING
        path.sent += len(segments)
        path.congestion.spend(len(segments))
        self.paths.on_sent(index, len(segments))
        if ending and sender.urgent:
            path.asked = path.sent
            words[-ASKING:, 0] |= ASK
        self._ask(path, words)
        return Transmit(
            self.index, index, words, sender.payload, segments, sender.segment_size, tags,
        )  # fmt: skip

    def _ask(self, space: SpaceSender, words: Words) -> None:
        """Mark the ends of the window's quarters that lie in this batch."""
        limit = space.limit(self.window // self._width)
        every = min(max(limit // ASKS_PER_WINDOW, min(limit // 2, ASKING), 1), MAX_BATCH)
        marks = min(ASKING, max(every // 2, 1))  # all of a small window would be asked for thrice
        first = space.sent - len(words)  # the packet before the batch
        for number in range(max(space.asked + every, first + 1), space.sent + 1, every):
            row = number - first
            words[max(row - marks, 0) : row, 0] |= ASK
            space.asked = number

    # --- within one process -----------------------------------------------------------

    def deliver(self, now: float) -> bool:
        """Copy what waits for the twin straight to its place. True: something has moved.

        What the twin cannot take yet waits on: it will when its READY comes.
        """
        waiting, self._local = self._local, []
        for sender in waiting:
            if sender.state is not State.DONE and not self._deliver(sender, now):
                self._local.append(sender)
        return len(self._local) < len(waiting)

    def _deliver(self, sender: TransferSender, now: float) -> bool:
        twin = self.twin
        opened: Incoming | str = "early"
        if twin is not None:
            opened = twin.host.open_incoming(twin.rank, sender.key)
        if opened in ("early", "unready"):
            return False
        if twin is not None and isinstance(opened, Incoming):
            opened.buffer[:] = sender.payload
            opened.receiver.fill(now)
            twin.host.on_received(opened, now)
        self.acknowledge(sender.key, now)  # what it refuses for good, it has or has given up
        return True

    # --- data in ------------------------------------------------------------------

    def heard(self, now: float) -> None:
        """The peer lives."""
        self.heard_at, self.unanswered = now, 0

    @property
    def receiving(self) -> bool:
        """Whether the peer has something under way to us."""
        return bool(self._incoming)

    def on_data(self, group: Group, now: float) -> None:
        """Datagrams of one transfer and round."""
        header, words = group.header, group.words
        key = header.key
        ending = bool(int(words[-1, 0]) & _ENDING)
        incoming = self._incoming.get(key)
        if incoming is None:
            incoming = self._open(key, len(words), ending=ending, data=group)
            if incoming is None:
                return
            self._limit_wait(incoming, now)
        segments = (words[:, SEGMENT] & 0xFFFF).astype(np.intp)
        good = incoming.place(group.rows, group.index, group.lengths, segments)
        if len(good) < len(segments):
            self.host.count("length", len(segments) - len(good))
        receiver = incoming.receiver
        if ending and header.round == 0 and not receiver.ended:
            self.pass_time.update(now - receiver.began, receiver.segments)
        fresh = receiver.on_segments(good, ending=ending, round_=header.round, now=now)
        if fresh < len(good):
            self.host.count("duplicate", len(good) - fresh)
        if not receiver.missing:
            self._finish(incoming, now)
        elif receiver.ended:
            quiet = self.paths.reordering(receiver.traffic_class)
            self.host.set_timer((self, Timer.VERDICT, key), now + quiet)

    def _limit_wait(self, incoming: Incoming, now: float) -> None:
        """From when on the end of the first pass is not waited for."""
        receiver = incoming.receiver
        receiver.began = now
        wait = self.pass_time.allowance(receiver.segments)
        if receiver.budget and wait < float("inf"):
            receiver.deadline = now + wait
            self.host.set_timer((self, Timer.VERDICT, incoming.key), receiver.deadline)

    def replay_early(self, stream: int, operation: int, now: float) -> None:
        """Take in what came before the peer and we had agreed on an operation."""
        for group in self.early.take((stream, operation)):
            self.on_data(group, now)

    def _open(
        self, key: Key, datagrams: int, *, ending: bool, data: Group | None = None
    ) -> Incoming | None:
        opened = self.host.open_incoming(self.rank, key)
        if isinstance(opened, Incoming):
            self._incoming[key] = opened
            return opened
        if data is not None and opened == "early" and self.early.keep(data):
            return None
        self.host.count(opened, datagrams)
        if ending and opened in ("duplicate", "stale"):
            self.outbox.complete.append(key)  # our COMPLETE was lost: say it again
        return None

    def _finish(self, incoming: Incoming, now: float) -> None:
        del self._incoming[incoming.key]
        self.host.cancel_timer((self, Timer.VERDICT, incoming.key))
        self.outbox.complete.append(incoming.key)
        self.host.on_received(incoming, now)

    # --- control in ---------------------------------------------------------------

    def on_control(self, header: Header, body: bytes, arrived_at: float, now: float) -> None:
        """One control datagram of this flow. Raises MalformedDatagram; nothing changed."""
        self.heard(now)
        key = header.key
        match header.kind:
            case Kind.CREDIT:
                self._on_credit(body, now)
            case Kind.PING:
                self._on_ping(header, arrived_at)
            case Kind.END:
                self._on_ping(header, arrived_at)
                self._on_end(key, header.round, now)
            case Kind.NACK:
                self._on_nack(key, body, header.round)
            case Kind.FINAL:
                self._on_final(key, body, header)
            case Kind.ACK:
                incoming = self._incoming.get(key)
                if incoming and incoming.receiver.on_ack(header.round):
                    self._finish(incoming, now)
            case Kind.COMPLETE:
                for transfer in control.unpack_transfers_untrusted(body):
                    self.acknowledge(key._replace(transfer=transfer), now)

    def _on_ping(self, header: Header, arrived_at: float) -> None:
        self.outbox.pinged = True
        traffic_class = header.tag // DROP_RANKS
        self.paths.on_arrival(header.path, traffic_class, 0, header.packet_number, ask=True)
        self.paths.on_stamp(header.path, traffic_class, header.sent_at, arrived_at)

    def _on_credit(self, body: bytes, now: float) -> None:
        self.window, rows = control.unpack_credit_untrusted(body)
        for path, state in self.paths.on_credit(rows, now):
            self.host.on_path(self.rank, path, state)

    def _on_end(self, key: Key, round_: int, now: float) -> None:
        incoming = self._incoming.get(key) or self._open(key, 1, ending=True)
        if incoming is not None:
            incoming.receiver.on_end(round_)  # it may have overtaken data, as anything may
            quiet = self.paths.reordering(incoming.receiver.traffic_class)
            self.host.set_timer((self, Timer.VERDICT, key), now + quiet)

    def _on_nack(self, key: Key, body: bytes, round_: int) -> None:
        sender = self._senders.get(key)
        if sender is None:
            return
        missing = control.unpack_bits_untrusted(body, sender.segments)
        if sender.on_nack(missing, round_):
            self._repair(sender)

    def _on_final(self, key: Key, body: bytes, header: Header) -> None:
        """The peer would go without some segments: keep them and agree, or send them again."""
        sender = self._senders.get(key)
        if sender is None:
            return
        missing = indices(control.unpack_bits_untrusted(body, sender.segments))
        vetoed = self.host.on_given_up(self.rank, sender, missing)
        if len(vetoed):
            sender.on_veto(vetoed)
            self._repair(sender)
            return
        self.outbox.put_about(Kind.ACK, key, round_=header.round, path=header.path)

    def _repair(self, sender: TransferSender) -> None:
        """Queue a transfer before the others of its class."""
        self.host.cancel_timer((self, Timer.END, sender.key))
        self._queue(sender, first=True)

    def acknowledge(self, key: Key, now: float) -> None:
        """The peer has this transfer, as a COMPLETE or its consequences show."""
        sender = self._senders.pop(key, None)
        if sender is not None and sender.on_done():
            self.host.cancel_timer((self, Timer.END, key))
            self.host.on_acknowledged(self.rank, sender, now)

    def acknowledge_all(self, stream: int, operation: int, now: float) -> None:
        """The peer has all it wants of this operation: it is done, or has left."""
        for key in [key for key in self._senders if key[:2] == (stream, operation)]:
            self.acknowledge(key, now)

    # --- time ---------------------------------------------------------------------

    def handle_timer(self, timer: Timer, key: Any, now: float) -> None:
        """A timer of this flow expired; `key` is the transfer of END and VERDICT.

        PACE has no effect of its own: `transmit`, which follows every timer, is what it is for.
        """
        match timer:
            case Timer.ANSWER:
                self.answer(now)
            case Timer.CREDIT:
                self._check_credit(now)
            case Timer.VERDICT:
                if incoming := self._incoming.get(key):
                    self._evaluate(incoming, now)
            case Timer.END:
                sender = self._senders.get(key)
                if sender is not None and sender.state is State.AWAITING:
                    self._probe(sender, now)

    def _await_credit(self, now: float, attempt: int = 0) -> None:
        self._probe_acked, self._probe_attempt = self.paths.acked, attempt
        at = now + self.paths.timeout(CONTROL, attempt)
        self.host.set_timer((self, Timer.CREDIT, None), at)

    def _check_credit(self, now: float) -> None:
        """What is in flight should be credited within a round trip: where it is not, its end
        or the credit was lost, and the window would stay shut. Ask. A path among others that
        has died is found here as well: the look that Liveness takes now and then is too late."""
        if len(self.paths) > 1:
            self.check_paths(now)
        if not self.paths.in_flight() or not self._senders:
            self._probe_acked = None
        elif self.paths.acked != self._probe_acked:
            self._await_credit(now)
        else:
            self.ping(now)
            self._await_credit(now, self._probe_attempt + 1)

    def _probe(self, sender: TransferSender, now: float) -> None:
        """No verdict on a transfer yet. While the path still delivers, its turn will come."""
        path, number, acked = sender.tail
        traffic_class = sender.traffic_class
        space = self.paths.space(path, traffic_class)
        if acked == space.acked or acked >= number:
            via = path if not sender.probes else self.paths.for_control(sender.probes - 1)
            sender.probes += 1
            stream, operation, transfer = sender.key
            header = Header(
                Kind.END, self.token_out, operation, stream, transfer, round=sender.round,
                path=via, tag=traffic_class * DROP_RANKS,
                packet_number=self.paths.space(via, traffic_class).sent & 0xFFFFFFFF,
                sent_at=microseconds(now) or 1,
            )  # fmt: skip
            self.outbox.put(header, path=via)  # in the queue of the data: it must not overtake them
        sender.tail = (path, number, space.acked)
        at = now + self.paths.timeout(traffic_class, sender.probes)
        self.host.set_timer((self, Timer.END, sender.key), at)

    def _evaluate(self, incoming: Incoming, now: float) -> None:
        receiver = incoming.receiver
        wait = self.paths.reordering(receiver.traffic_class)
        answer = receiver.evaluate(now, 0.9 * wait)
        if answer is not Answer.NOTHING:
            nack = answer is Answer.NACK
            self.outbox.put_about(
                Kind.NACK if nack else Kind.FINAL, incoming.key, pack_bits(~receiver.received),
                round_=receiver.round if nack else receiver.offer, attempt=receiver.attempts - 1,
            )  # fmt: skip
            wait = self.paths.timeout(receiver.traffic_class, receiver.attempts)
        if receiver.missing:
            self.host.set_timer((self, Timer.VERDICT, incoming.key), now + wait)

    # --- paths --------------------------------------------------------------------

    def check_paths(self, now: float) -> bool:
        """Ping paths that owe an answer, demote those that stay silent. True: some do owe one."""
        silent = self.paths.silent()
        for path in self.paths.demote(silent):
            self.host.on_path(self.rank, path, PathState.DOWN)
        for index in silent:
            self._ping(index, now)
        return bool(silent)

    def look_after_paths(self, now: float) -> None:
        """Check paths when an operation begins: most are over before the timer that does it."""
        if len(self.paths) > 1 and now >= self._check_at:
            self._check_at = now + 2 * self.paths.timeout(CONTROL)
            self.check_paths(now)

    def ping(self, now: float) -> None:
        """Ask on every route whether the peer lives and what it has."""
        self.unanswered += 1
        for index in self.paths.carriers:
            self._ping(index, now)

    def _ping(self, index: int, now: float) -> None:
        """Once for the path, and once in each class that waits for credit on it."""
        spaces = self.paths.tx[index].spaces
        for traffic_class in {CONTROL} | {c for c, space in spaces.items() if space.in_flight}:
            space = self.paths.space(index, traffic_class)
            header = Header(
                Kind.PING, self.token_out, path=index, tag=traffic_class * DROP_RANKS,
                packet_number=space.sent & 0xFFFFFFFF, sent_at=microseconds(now) or 1,
            )  # fmt: skip
            self.outbox.put(header, path=index)

    def flush(self, now: float) -> list[Control]:
        """Control datagrams to send now."""
        out = self.outbox.take(now, self.grant)
        if self.outbox.answer_at is None:
            self.host.cancel_timer((self, Timer.ANSWER, None))
        else:
            self.host.set_timer((self, Timer.ANSWER, None), self.outbox.answer_at)
        return out

    def answer(self, now: float) -> None:
        """Queue all that the peer may wait to hear."""
        self.outbox.answer(now, self.grant)

    def forget(self, stream: int, operation: int) -> None:
        """The operation failed: drop everything of it."""
        self.early.take((stream, operation))
        for key in [k for k in self._senders if k[:2] == (stream, operation)]:
            self._senders.pop(key).on_done()
            self.host.cancel_timer((self, Timer.END, key))
        for key in [k for k in self._incoming if k[:2] == (stream, operation)]:
            del self._incoming[key]
            self.host.cancel_timer((self, Timer.VERDICT, key))
