"""Log lines on stderr, whose reader may have stopped: no session waits for it."""

import logging
import select
from collections.abc import Callable
from typing import Final, TextIO

PATIENCE: Final = 1.0  # seconds, once: a reader on a busy host may be late
LOST: Final = "log_lost"  # the event that tells how many lines the reader had no room for


class LogStream(logging.StreamHandler[TextIO]):
    """Waits PATIENCE for a reader that has no room: a pipe whose reader is stuck, or a terminal
    that Ctrl-S has stopped, would else stop the daemon. From then on, a line that has no room is
    dropped, and counted in the next one that has.

    A pipe that poll(2) reports as writable takes 4096 bytes, as most lines have.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lost = 0
        self._has_room = _room_of(stream)

    def emit(self, record: logging.LogRecord) -> None:
        if not self._has_room(0.0 if self._lost else PATIENCE):
            self._lost += 1
            return
        super().emit(record)
        if self._lost and self._has_room(0.0):
            lost, self._lost = self._lost, 0
            super().emit(_told(record.name, lost))


def _told(name: str, lost: int) -> logging.LogRecord:
    fields = {"lines": lost, "text": "the reader of the log had stopped"}
    return logging.getLogger(name).makeRecord(
        name, logging.WARNING, "", 0, LOST, (), None, extra={"dlcpd": fields}
    )


def _room_of(stream: TextIO) -> Callable[[float], bool]:
    """A function that waits some seconds for room, and says whether there is some."""
    try:
        descriptor = stream.fileno()
    except OSError:  # no file: a test reads it
        return lambda _: True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)

    def has_room(within: float) -> bool:
        try:
            return bool(poll.poll(within * 1000))
        except OSError:  # the kernel has no memory for it
            return False

    return has_room
