"""The engine's end of its command socket: commands in, events out, never waiting for control."""

import errno
import socket
from collections import Counter, deque
from dataclasses import replace
from typing import Final

from dlcpd.io import commands
from dlcpd.io.control_events import (
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
NEEDED: Final = (SessionEnded, SessionDelivered, SessionFailed, Report)
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
