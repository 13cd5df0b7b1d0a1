"""Changes of this host's addresses and routes, from the kernel (rtnetlink(7)). Needs no root."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, and those of IPV6 (linux/rtnetlink.h)
_GROUPS: Final = 0x10 | 0x40 | 0x100 | 0x400
_MOST: Final = 1 << 16  # bytes of a read; what is lost beyond is news all the same
POLL: Final = 10.0  # seconds between two looks where the kernel gives no news: in some containers


class AddressNews:
    """Calls `changed` after each change, until `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self._loop, self._changed = loop, changed
        self._timer: asyncio.TimerHandle | None = None
        self._sock: socket.socket | None = None
        try:
            self._sock = _subscribed()
        except OSError:
            self._poll()
        else:
            loop.add_reader(self._sock.fileno(), self._readable)

    def close(self) -> None:
        """Call `changed` no more."""
        if self._timer:
            self._timer.cancel()
        if self._sock:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def _readable(self) -> None:
        assert self._sock is not None  # noqa: S101  # its reader is removed with it
        with suppress(OSError):  # none is left, or the kernel had no room for some
            while self._sock.recv(_MOST):
                pass
        self._changed()

    def _poll(self) -> None:
        self._timer = self._loop.call_later(POLL, self._poll)
        self._changed()


def _subscribed() -> socket.socket:
    """Raises: OSError."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        sock.setblocking(False)
        sock.bind((0, _GROUPS))
    except OSError:
        sock.close()
        raise
    return sock
