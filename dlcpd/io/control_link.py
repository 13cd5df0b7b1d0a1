"""The engine's end of its command socket: commands in, events and reports out, never waiting for
control."""

import errno
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from dlcpd.io import commands
from dlcpd.io.control_events import (
    Alive,
    Event,
    Report,
    SessionDelivered,
    SessionEnded,
    SessionFailed,
    TraceReport,
)
from dlcpd.io.control_frames import MAX_COMMAND, pack, unpack
from dlcpd.ipc.kernel_errors import CallFailures, is_gone
from dlcpd.ipc.seqpacket import receive, send_now

# Events that control has not read. Events that end a session are kept beyond it, at most one per
# session, and so are the reports that control may ask for at once.
MAX_EVENTS: Final = 4096
MAX_WAITING: Final = 32 << 20  # bytes of those: one may have 131 KB
NEEDED: Final = (SessionEnded, SessionDelivered, SessionFailed, Report, Alive)
Parts = Iterator[dict[str, Any]]  # of one report
REPORT_TURN: Final = 0.002  # seconds of a wake-up for reports; a single part may take longer
MAX_TEXT: Final = 4096  # characters to which a text is cut that is too long


class ControlGone(BaseException):
    """The other end of the command socket has closed: the engine has no reason to run.

    Not an Exception, like SystemExit: handlers that confine a bug to one session let it pass.
    """


class ControlLink:
    """Owns `sock`. A control process that does not read (stopped, or busy) only misses events:
    operations go on, and clients get their outcomes on their lanes."""

    def __init__(self, sock: socket.socket, counters: Counter[str]) -> None:
        sock.setblocking(False)
        self._socket, self._counters = sock, counters

        def count(reason: str) -> None:
            counters[reason] += 1

        self._reads, self._writes = CallFailures(count, "control"), CallFailures(count, "control")
        self._waiting: deque[bytes] = deque()
        self._size = 0  # bytes that wait

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def backlog(self) -> int:
        """Events that wait until control reads."""
        return len(self._waiting)

    def receive(self) -> tuple[commands.Command | None, list[int]] | None:
        """The next command and the descriptors beside it; None when none waits.

        The command is None when control has ended. After an error the command stays in the socket
        for the next call. Raises: ControlGone.
        """
        try:
            data, descriptors = receive(self._socket, MAX_COMMAND)
        except BlockingIOError:
            return None
        except OSError as exc:
            if self._reads.noted(exc):
                raise ControlGone from exc
            return None
        self._reads.over()
        if not data:
            return None, []
        command = unpack(data)
        assert isinstance(command, commands.Command)  # noqa: S101  # control sends nothing else
        return command, descriptors

    def emit(self, event: Event) -> None:
        """Send an event, now or when control reads again."""
        full = self.backlog >= MAX_EVENTS or self._size >= MAX_WAITING
        if full and not isinstance(event, NEEDED):
            self._counters["events_dropped"] += 1
            return
        frame = self._frame(event)
        if frame is None:
            return
        self._waiting.append(frame)
        self._size += len(frame)
        if self.backlog == 1:
            self.flush()

    def _frame(self, event: Event) -> bytes | None:
        """The packet of an event. One that is too long for a packet is counted; events in NEEDED,
        and TraceReport, are shortened, and others are dropped."""
        frame = pack(event)
        if len(frame) <= MAX_COMMAND:
            return frame
        self._counters["events_too_long"] += 1
        if isinstance(event, Report | TraceReport):  # each answers a question
            return pack(type(event)({"error": f"{len(frame)} B are too long"}))
        match event:
            case SessionEnded(text=text, trace=trace):
                short = replace(event, text=text[:MAX_TEXT], trace=trace[-MAX_TEXT:])
                return pack(short)
            case SessionFailed(text=text):
                return pack(replace(event, text=text[:MAX_TEXT]))
            case SessionDelivered(lacking=text):
                return pack(replace(event, lacking=text[:MAX_TEXT]))
        return None

    def flush(self) -> None:
        """Send waiting events, as far as control reads.

        Raises: ControlGone.
        """
        while self._waiting:
            try:
                if not send_now(self._socket, self._waiting[0]):
                    return
            except OSError as exc:
                if is_gone(exc):
                    raise ControlGone from exc
                if not self._writes.noted(exc) and exc.errno != errno.EMSGSIZE:
                    return  # tried again as soon as the socket can be written
                self._counters["events_dropped"] += 1
            self._writes.over()
            self._size -= len(self._waiting.popleft())


class Reporter:
    """Answers control's requests for reports in parts, between which the engine does its work.

    `make` starts a report with this number of ledger rows. No part is made before control has
    read the one before: a control process that does not read costs no memory here.
    """

    def __init__(
        self, control: ControlLink, counters: Counter[str], make: Callable[[int], Parts]
    ) -> None:
        self._control, self._counters, self._make = control, counters, make
        self._asked: deque[int] = deque()  # ledger rows of each request; control bounds them
        self._parts: Parts | None = None  # of the first request

    def ask(self, ledger: int) -> None:
        """Answer a ReportRequest, after those before it."""
        self._asked.append(ledger)

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._asked) and not self._control.backlog

    def work(self, _now: float) -> None:
        """Send parts for one turn."""
        over = time.monotonic() + REPORT_TURN
        while self.busy and time.monotonic() < over:
            self._send_part()

    def _send_part(self) -> None:
        try:
            if self._parts is None:
                self._parts = self._make(self._asked[0])
            part = next(self._parts, None)
        except Exception as exc:  # a bug: the report only names it
            self._counters["internal"] += 1
            self._end(Report({"error": f"{type(exc).__name__}: {exc}"}))
            return
        if part is None:
            self._end(Report({}))
        else:
            self._control.emit(Report(part, last=False))

    def _end(self, report: Report) -> None:
        self._asked.popleft()
        self._parts = None
        self._control.emit(report)
