"""The engine's end of its command socket: commands in, events out, and no waiting for control."""

import socket
from collections import Counter, deque
from typing import Final

from dlcpd.io import commands
from dlcpd.ipc.seqpacket import receive, send_now

# Events that control has not read. What ends a session is kept beyond it, and there is at most
# one of that per session, and of reports as many as control may ask for at once.
MAX_EVENTS: Final = 4096
MAX_WAITING: Final = 32 << 20  # bytes of those: one may have 131 KB
NEEDED: Final = (
    commands.SessionEnded, commands.SessionDelivered, commands.SessionBroken, commands.Report,
)  # fmt: skip


class ControlLink:
    """Owns `sock`. A control that does not read (stopped, or busy) costs its own news only:
    operations go on, and clients hear of theirs on their lanes."""

    def __init__(self, sock: socket.socket, counters: Counter[str]) -> None:
        sock.setblocking(False)
        self._socket, self._counters = sock, counters
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

        The command is None when control has ended.
        """
        try:
            data, descriptors = receive(self._socket, commands.MAX_COMMAND)
        except BlockingIOError:
            return None
        if not data:
            return None, []
        command = commands.unpack(data)
        assert isinstance(command, commands.Command)  # noqa: S101  # control sends nothing else
        return command, descriptors

    def emit(self, event: commands.Event) -> None:
        """Send an event, now or when control reads again."""
        full = self.backlog >= MAX_EVENTS or self._size >= MAX_WAITING
        if full and not isinstance(event, NEEDED):
            self._counters["events_dropped"] += 1
            return
        frame = commands.pack(event)
        self._waiting.append(frame)
        self._size += len(frame)
        if self.backlog == 1:
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as control reads.

        Raises: OSError when control is gone.
        """
        while self._waiting and send_now(self._socket, self._waiting[0]):
            self._size -= len(self._waiting.popleft())
