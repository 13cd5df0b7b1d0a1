"""One flow: everything that passes between this rank and one peer of a session.

Its halves are `outgoing` and `arrivals`; here is what they share: the peer's liveness, the paths,
the control datagrams, and the credit that each side gives the other.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.paths.health import PathState
from dlcpd.core.paths.link_rate import LinkPart
from dlcpd.core.paths.newest import Newest, microseconds
from dlcpd.core.paths.paths import CONTROL, Paths
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.session.arrivals import Arrivals
from dlcpd.core.session.outbox import Outbox
from dlcpd.core.session.outgoing import Outgoing
from dlcpd.core.timers import Timer
from dlcpd.core.transfer.incoming import FlowOwner, Incoming, NoPlacement, Placement
from dlcpd.core.transfer.sender import SenderState, TransferSender
from dlcpd.core.wire import control
from dlcpd.core.wire.datagram import Control, Transmit
from dlcpd.core.wire.header import ASK, Header, Kind


@dataclass(slots=True, eq=False, repr=False)
class Flow:
    """State towards one peer. `index`: its number in io; tokens as in docs/wire.md."""

    index: int
    session: FlowOwner
    rank: int  # of the peer
    host: str  # name of the peer's host, for errors
    token_in: int
    token_out: int
    segment_size: int  # payload bytes of a datagram to the peer, for new operations
    window: int  # bytes that this rank may have in flight
    grant: int  # bytes that the peer may have in flight; sent with every CREDIT
    paths: Paths
    placement: Placement = field(default_factory=NoPlacement)
    agenda: Agenda = field(default_factory=Agenda)
    link: LinkPart = field(default_factory=LinkPart)  # into this host, from the peer's
    address: str = ""  # UDP address and port of the peer's first path, for errors
    opening: int = 0  # bytes granted in READY: the peer's share if all peers begin at once
    outbox: Outbox = field(init=False)
    outgoing: Outgoing = field(init=False)
    arrivals: Arrivals = field(init=False)
    heard_at: float = 0.0
    unanswered: int = 0  # pings since the peer was last heard
    suspected: bool = False  # its silence was reported, and lasts
    sign: str = ""  # that its process has ended, in words; "" = there is none
    sign_at: float = 0.0  # when that came
    unanswered_at_sign: int = 0  # `unanswered` at that time
    twin: "Flow | None" = None  # the peer's flow to this rank, if it is in this process
    _local: list[TransferSender] = field(default_factory=list)  # for the twin, in order
    _credited: int | None = None  # packets acked at the last check; None: no credit is awaited
    _asked: int = 0  # times in a row that credit was asked for
    _check_at: float = 0.0  # not before
    _window_of: Newest = field(default_factory=Newest)  # time stamp of the last `window`

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.index, self.token_out, self.paths, self.agenda)
        self.outgoing = Outgoing(
            self,
            self.index,
            self.token_out,
            self.rank,
            self.session,
            self.paths,
            self.outbox,
            self.agenda,
        )
        self.arrivals = Arrivals(
            self,
            self.index,
            self.token_in,
            self.rank,
            self.session,
            self.paths,
            self.outbox,
            self.placement,
            self.agenda,
        )

    def touch(self) -> None:
        """Mark this flow as one that may have something to tell."""
        self.agenda.touched.add(self.index)

    # --- transfers ----------------------------------------------------------------

    def send(self, sender: TransferSender) -> None:
        """Begin a transfer to the peer."""
        self.outgoing.add(sender)
        if self.twin is not None:
            self._local.append(sender)
            self.touch()
        else:
            self.outgoing.permit(sender)
            self.outgoing.queue(sender)

    def resend(self, sender: TransferSender) -> None:
        """Queue a transfer once more from its start, unless it is done by now."""
        if sender.state is not SenderState.DONE and sender not in self._local:
            self.outgoing.restart(sender)

    def transmit(self, now: float, allowance: int) -> Transmit | None:
        """The next batch that may go out now: within windows, credit and `allowance` bytes."""
        if self._credited is None:
            self._await_credit(now)
        return self.outgoing.transmit(now, self.window, allowance)

    def forget(self, stream: int, operation: int) -> None:
        """The operation failed: drop its state."""
        self.outgoing.forget(stream, operation)
        self.arrivals.forget(stream, operation)

    # --- within one process -----------------------------------------------------------

    def deliver(self, now: float, most: int) -> int:
        """Copy transfers to the twin straight to their places, until `most` bytes have moved.

        Those that the twin cannot take yet wait for the next call. Returns the bytes, at least 1
        for each transfer.
        """
        waiting, self._local, moved = deque(self._local), [], 0
        while waiting and moved < most:
            sender = waiting.popleft()
            if sender.state is SenderState.DONE or self._deliver(sender, now):
                moved += max(len(sender.payload), 1)
            else:
                self._local.append(sender)
        self._local += waiting
        if self._local:
            self.touch()
        return moved

    def _deliver(self, sender: TransferSender, now: float) -> bool:
        twin = self.twin
        opened: Incoming | str = "early"
        if twin is not None:
            twin.session.settle_implied(twin.rank, sender.key, now)
            opened = twin.session.open_incoming(twin.rank, sender.key)
        if opened in ("early", "unready"):
            return False
        if twin is not None and isinstance(opened, Incoming):
            opened.fill(sender.payload, now)
            twin.session.on_received(opened, now)
        # the twin has, or has aborted, what it refuses for good
        self.outgoing.acknowledge(sender.key, now)
        return True

    # --- control in ---------------------------------------------------------------

    def heard(self, now: float) -> None:
        """The peer lives: it has sent new data, or an answer. A replay does not show it."""
        self.heard_at, self.unanswered, self.suspected, self.sign = now, 0, False, ""

    def doubt(self, sign: str, now: float) -> bool:
        """There is a sign that the peer's process has ended. It may be forged, so only unanswered
        pings are proof. False: there was a sign already."""
        if self.sign:
            return False
        self.sign, self.sign_at, self.unanswered_at_sign = sign, now, self.unanswered
        return True

    def excuse(self, seconds: float, now: float) -> None:
        """This process could not listen for `seconds`, which do not count as silence of the
        peer."""
        self.heard_at = min(self.heard_at + seconds, now)
        self.sign_at = min(self.sign_at + seconds, now)

    def on_control(self, header: Header, body: bytes, arrived_at: float, now: float) -> None:
        """One control datagram of this flow. Raises MalformedDatagram; nothing changed."""
        key = header.key
        match header.kind:
            case Kind.CREDIT:
                self._on_credit(header, body, now)
            case Kind.PING:
                self._on_ping(header, arrived_at)
            case Kind.END:
                ends = control.unpack_ends_untrusted(body)
                if self._on_ping(header, arrived_at):
                    self.arrivals.on_end(header, ends, now)
            case Kind.NACK | Kind.FINAL | Kind.COMPLETE:
                self.outgoing.on_verdict(header, body, now)
            case Kind.ACK:
                self.arrivals.on_ack(key, header.round, now)
            case Kind.PERMIT:
                self.arrivals.on_permit(header, body, now)

    def _on_ping(self, header: Header, arrived_at: float) -> bool:
        """A PING or END. False: the peer sent it before another datagram that has come."""
        asks = header.kind is Kind.PING or bool(header.flags & ASK)
        self.outbox.pinged |= asks
        return self.paths.rx.on_question(
            header.path,
            header.tag // DROP_PRECEDENCES,
            header.packet_number,
            header.sent_at,
            arrived_at,
            asks=asks,
        )

    def on_window(self, window: int, sent_at: int, now: float) -> None:
        """Take over `window`, the bytes that this rank may have in flight, unless a newer one has
        come."""
        if self._window_of.see(sent_at, now):
            self.window = window

    def _on_credit(self, header: Header, body: bytes, now: float) -> None:
        window, rows = control.unpack_credit_untrusted(body)
        self.on_window(window, header.sent_at, now)
        news, alive = self.paths.on_credit(rows, now)
        if alive:
            self.heard(now)
        for path, state in news:
            self.session.on_path(self.rank, path, state)

    # --- time ---------------------------------------------------------------------

    def handle_timer(self, timer: Timer, key: Any, now: float) -> None:
        """A timer of this flow expired; `key` is the transfer of END and VERDICT.

        PACE needs no handling: `transmit` follows every timer.
        """
        match timer:
            case Timer.ANSWER:
                self.answer(now)
            case Timer.CREDIT:
                self._check_credit(now)
            case Timer.VERDICT:
                self.arrivals.on_quiet(key, now)
            case Timer.END:
                self.outgoing.on_quiet(key, now)

    def _await_credit(self, now: float, attempt: int = 0) -> None:
        self._credited, self._asked = self.paths.acked, attempt
        at = now + self.paths.timeout(CONTROL, attempt)
        self.session.set_timer((self, Timer.CREDIT, None), at)

    def _check_credit(self, now: float) -> None:
        """Data in flight should be credited within a round trip. If they are not, the end of the
        data or the credit was lost, and the window would stay shut: ping. Also finds a path that
        has died among several, since the periodic check of Liveness is too late."""
        if len(self.paths) > 1:
            self.check_paths(now)
        if not self.paths.in_flight() or not self.outgoing:
            self._credited = None
        elif self.paths.acked != self._credited:
            self._await_credit(now)
        else:
            self.ping(now)
            self._await_credit(now, self._asked + 1)

    # --- paths --------------------------------------------------------------------

    def check_paths(self, now: float) -> bool:
        """Ping paths that owe an answer, demote those that stay silent. True: some owe one."""
        silent = self.paths.silent()
        dead = self.paths.demote(silent)
        for path in dead:
            self.session.on_path(self.rank, path, PathState.DOWN)
        if dead:
            self.outgoing.ask(now)  # data, or ENDs, died with it
        for index in silent:
            self._ping(index, now)
        return bool(silent)

    def look_after_paths(self, now: float) -> None:
        """Check paths when an operation begins: most operations end before the timer would
        check."""
        if len(self.paths) > 1 and now >= self._check_at:
            self._check_at = now + 2 * self.paths.timeout(CONTROL)
            self.check_paths(now)

    def ping(self, now: float) -> None:
        """Ask on every route whether the peer lives and what it has received."""
        self.unanswered += 1
        for index in self.paths.carriers:
            self._ping(index, now)

    def _ping(self, index: int, now: float) -> None:
        """One PING for the path, and one in each class with packets in flight on it."""
        spaces = self.paths.tx[index].spaces
        for traffic_class in {CONTROL} | {c for c, space in spaces.items() if space.in_flight}:
            space = self.paths.space(index, traffic_class)
            header = Header(
                Kind.PING,
                self.token_out,
                path=index,
                tag=traffic_class * DROP_PRECEDENCES,
                packet_number=space.sent & 0xFFFFFFFF,
                sent_at=microseconds(now) or 1,
            )
            self.outbox.put(header, path=index)

    def flush(self, now: float) -> list[Control]:
        """Control datagrams to send now."""
        set_for = self.outbox.answer_at
        out = self.outbox.take(now, self.grant)
        answer_at = self.outbox.answer_at
        if answer_at is not None:
            self.session.set_timer((self, Timer.ANSWER, None), answer_at)
        elif set_for is not None:
            self.session.cancel_timer((self, Timer.ANSWER, None))
        return out

    def answer(self, now: float) -> None:
        """Queue all answers that the peer may wait for."""
        self.outbox.answer(now, self.grant)
