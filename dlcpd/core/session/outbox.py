"""Control datagrams of one flow to send, and the answers that the peer is owed.

CREDIT and COMPLETE answer at once when the peer asks. Else they wait, for a short time only: for
another datagram, since to wake the peer up costs more than the answer, or for a READY that implies
it all.
"""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.paths.newest import microseconds
from dlcpd.core.paths.paths import Paths
from dlcpd.core.session.agenda import Agenda
from dlcpd.core.wire import control
from dlcpd.core.wire.datagram import Control
from dlcpd.core.wire.header import Header, Key, Kind

ANSWER_DELAY: Final = 2e-3  # seconds CREDIT and COMPLETE wait for an ASK; half the least RTO
LONGEST_DELAY: Final = 20e-3  # seconds; where the round trip varies by so much
COMPANY: Final = 1e-3  # seconds; an answer this old leaves with the next control datagram


@dataclass(slots=True, eq=False)
class Outbox:
    """`answer_at` is when `take` must be called at the latest; None: nothing is owed."""

    flow: int  # index of the flow in io
    token_out: int
    paths: Paths
    agenda: Agenda = field(default_factory=Agenda)
    complete: list[Key] = field(default_factory=list)  # transfers to acknowledge soon
    heard_ready: set[tuple[int, int]] = field(default_factory=set)  # (stream, operation) of READYs
    pinged: bool = False  # the peer has asked, and may be reached on some routes only
    answer_at: float | None = None
    _owed_at: float = 0.0  # when the oldest of the answers came to be owed
    _again: list[Key] = field(default_factory=list)  # acknowledged once, on a path that loses
    waiting: list[Control] = field(default_factory=list)

    # --- in -----------------------------------------------------------------------------

    def put(
        self,
        header: Header,
        body: bytes = b"",
        *,
        path: int | None = None,
        attempt: int = 0,
        asks: bool = True,
    ) -> None:
        """Queue one control datagram, on the best path by default. `asks`: the peer answers it."""
        if path is None or path >= len(self.paths):
            path = self.paths.for_control(attempt)
        self.paths.tx[path].expecting |= asks
        self._put(header, body, path)

    def put_about(  # noqa: PLR0913  # of the header, and of the choice of a path
        self,
        kind: Kind,
        key: Key,
        body: bytes = b"",
        *,
        round_: int = 0,
        flags: int = 0,
        path: int | None = None,
        attempt: int = 0,
    ) -> None:
        """Queue one that refers to a transfer."""
        stream, operation, transfer = key
        header = Header(
            kind, self.token_out, operation, stream, transfer, round=round_, flags=flags
        )
        self.put(header, body, path=path, attempt=attempt)

    def put_everywhere(self, header: Header, body: bytes) -> None:
        """Queue one on every route; an answer is expected on the best."""
        best = self.paths.for_control(0)
        for index in self.paths.carriers:
            if index != best:
                self._put(header, body, index)
        self.put(header, body, path=best)

    def _put(self, header: Header, body: bytes, path: int) -> None:
        if header.path != path:
            header = header._replace(path=path)
        self.agenda.touched.add(self.flow)
        self.waiting.append(Control(self.flow, path, control.datagram(header, body), header.tag))

    def complete_now(self, key: Key) -> None:
        """Queue a COMPLETE of one transfer, which nothing else will imply."""
        stream, operation, transfer = key
        body = control.pack_transfers([transfer])
        self.put_about(Kind.COMPLETE, Key(stream, operation, 0), body)

    def imply_complete(self, stream: int, operation: int) -> None:
        """The READY that leaves now implies that an operation is complete, and the peer's READY of
        it here."""
        self.complete = [key for key in self.complete if key[:2] != (stream, operation)]
        self.heard_ready.discard((stream, operation))

    # --- out ----------------------------------------------------------------------------

    def answers(self, now: float) -> bool:
        """Whether `take` sends all answers that the peer is owed: it asked, or a datagram goes out
        that they can go with."""
        if self.paths.rx.asked:
            return True
        due = self.answer_at
        return due is not None and bool(self.waiting) and now >= self._owed_at + COMPANY

    def take(self, now: float, grant: int) -> list[Control]:
        """Control datagrams to send now; `grant`: bytes the peer may have in flight."""
        if self.answers(now):
            self.answer(now, grant)
        elif self.answer_at is None and (
            self.complete or self.heard_ready or self.paths.rx.pending
        ):
            self._owed_at = now
            self.answer_at = now + self._delay
        out, self.waiting = self.waiting, []
        return out

    @property
    def _delay(self) -> float:
        """Seconds that an answer waits for others: half of the margin of the peer's timers, as far
        as this rank's own tell it."""
        margin = min([path.margin for path in self.paths.tx])
        return min(max(margin / 2, ANSWER_DELAY), LONGEST_DELAY)

    def answer(self, now: float, grant: int) -> None:
        """Queue all answers that the peer may wait for."""
        self.answer_at = None
        rows = self.paths.rx.credits(now)
        for at in range(0, len(rows), control.MAX_CREDIT_ROWS):
            body = control.pack_credit(grant, rows[at : at + control.MAX_CREDIT_ROWS])
            for path in self._answer_paths():
                header = Header(Kind.CREDIT, self.token_out, sent_at=microseconds(now) or 1)
                self.put(header, body, path=path)
        self._report_complete(now)
        self.pinged = False
        for stream, operation in sorted(self.heard_ready):
            self.put(Header(Kind.READY_ACK, self.token_out, operation, stream))
        self.heard_ready.clear()

    def _answer_paths(self) -> list[int]:
        """One path for an answer that is repeated anyway; every route for an answer to a ping."""
        return self.paths.carriers if self.pinged else [self.paths.for_credit()]

    def _report_complete(self, now: float) -> None:
        """Twice on a long path that loses datagrams: the peer may wait for this to end."""
        fresh, self.complete = self.complete, []
        told, self._again = self._again + fresh, []
        if fresh and self.paths.is_long and self.paths.is_lossy:
            self._again, self.answer_at = fresh, now + ANSWER_DELAY
            self._owed_at = now
        for stream, operation in sorted({key[:2] for key in told}):
            transfers = [key.transfer for key in told if key[:2] == (stream, operation)]
            for at in range(0, len(transfers), control.MAX_LISTED):
                body = control.pack_transfers(transfers[at : at + control.MAX_LISTED])
                for path in self._answer_paths():
                    self.put_about(Kind.COMPLETE, Key(stream, operation, 0), body, path=path)
