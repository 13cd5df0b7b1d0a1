"""Accepts connections, and pauses while the process is short of descriptors or memory.

An accept that fails for lack of descriptors or memory fails again at once, while poll reports the
listener as readable: retries would take a whole CPU. The loop pauses; clients wait in the kernel.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final

REST: Final = 0.5  # seconds without accepting
# No connection waits, or it has gone: accept(2) returns its pending network errors.
GONE: Final = frozenset(
    {errno.EAGAIN, errno.EINTR, errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO,
     errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN,
     errno.EHOSTUNREACH, errno.ENONET, errno.ETIMEDOUT, errno.EPERM}
)  # fmt: skip
Connection = tuple[socket.socket, Any]  # and the address of the other end


class Short(Exception):  # a state of this host
    """No accept succeeds now: descriptors or memory are short, or the listener is broken."""


def accept(listener: socket.socket) -> Connection | None:
    """The next connection; None if none waits.

    Raises: Short; call again after REST.
    """
    try:
        return listener.accept()
    except OSError as exc:
        if exc.errno in GONE:
            return None
        raise Short(exc.strerror or str(exc)) from exc


class AcceptLoop:
    """Accepts on a listener of an event loop until `close`: one connection per turn, so that open
    connections are served however many arrive."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        accepted: Callable[[socket.socket, Any], None],
        *,
        make_room: Callable[[], bool],
        told: Callable[[Short], None],
    ) -> None:
        """`accepted` owns the socket that it gets; it may raise OSError, if the other end has gone
        or the loop cannot watch it: then it is closed. `make_room` is called when descriptors or
        memory are short; True: it has closed something. Else `told` is called, and the loop
        pauses for REST."""
        self._loop, self._listener, self._accepted = loop, listener, accepted
        self._make_room, self._told = make_room, told
        self._rest: asyncio.TimerHandle | None = None
        loop.add_reader(listener.fileno(), self._readable)

    def close(self) -> None:
        """Stop accepting; to be called before the listener is closed."""
        if self._rest:
            self._rest.cancel()
        self._loop.remove_reader(self._listener.fileno())

    def _readable(self) -> None:
        try:
            connection = accept(self._listener)
        except Short as exc:
            if not self._make_room():
                self._told(exc)
                self._loop.remove_reader(self._listener.fileno())
                self._rest = self._loop.call_later(REST, self._resume)
            return
        if connection is None:
            return
        try:
            self._accepted(*connection)
        except OSError:
            connection[0].close()

    def _resume(self) -> None:
        self._rest = None
        self._loop.add_reader(self._listener.fileno(), self._readable)
