"""Who may finish a CURVE handshake: only keys that a Join of this host has named.

A peer that is early - its key is not known here yet - waits inside its handshake,
and is let in the moment a Join names it. Refusing it is worse: after status 300
libzmq (4.3.5) keeps the connection until its handshake times out, so that the peer
loses that time, and after 400 it never comes back.
Source: ZeroMQ RFC 27 (ZAP).
"""

import asyncio
from collections import Counter, deque
from typing import Any, Final

import zmq
from zmq.utils import z85

from dlcpd.daemon.peers.pump import SocketPump

MAX_WAITING: Final = 1024  # handshakes held; 4 jobs of MAX_WORLD ranks. The oldest makes room
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
_REQUEST_FRAMES: Final = 9  # route, empty, version, id, domain, address, identity, CURVE, key
_KEY_BYTES: Final = 32
_ADMIT: Final = (b"200", b"OK")
_LATER: Final = (b"300", b"not a peer of any session here")  # it connects again later


class Gatekeeper:
    """The ZAP handler of one ZeroMQ context; create it before any CURVE server binds."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: "zmq.Context[zmq.Socket[bytes]]",
        counters: Counter[str],
    ) -> None:
        self._counters = counters
        self._admitted: Counter[str] = Counter()  # key -> sessions that name it
        self._waiting: deque[tuple[bytes, bytes, bytes]] = deque()  # route, request, key
        self._socket = context.socket(zmq.ROUTER)
        self._socket.bind(_ENDPOINT)
        self._pump = SocketPump(loop, self._socket, self._requested)

    def admits(self, key: str) -> bool:
        """Whether a session names `key` now."""
        return key in self._admitted

    def admit(self, key: str) -> None:
        """One more session names `key`: let in whoever waits with it."""
        self._admitted[key] += 1
        still: deque[tuple[bytes, bytes, bytes]] = deque()
        for route, request, waiting in self._waiting:
            if waiting.decode() == key:
                self._reply(route, request, waiting, _ADMIT)
            else:
                still.append((route, request, waiting))
        self._waiting = still
        self._pump.again()  # a reply may have swallowed the wake-up of a new request

    def dismiss(self, key: str) -> None:
        """One session less names `key`."""
        self._admitted[key] -= 1
        if self._admitted[key] <= 0:
            del self._admitted[key]

    def close(self) -> None:
        """Answer nobody any more."""
        self._pump.close()

    def _requested(self, frames: list[Any]) -> None:
        if len(frames) != _REQUEST_FRAMES or len(frames[-1].bytes) != _KEY_BYTES:
            self._counters["handshake_malformed"] += 1  # not CURVE: nobody can reach this
            return
        route, request = frames[0].bytes, frames[3].bytes
        key: bytes = z85.encode(frames[-1].bytes)
        if self.admits(key.decode()):
            self._reply(route, request, key, _ADMIT)
            return
        self._counters["handshake_waits"] += 1
        self._waiting.append((route, request, key))
        if len(self._waiting) > MAX_WAITING:
            self._counters["handshake_refused"] += 1
            self._reply(*self._waiting.popleft(), _LATER)

    def _reply(
        self, route: bytes, request: bytes, key: bytes, verdict: tuple[bytes, bytes]
    ) -> None:
        """Answer one request; the key becomes the User-Id of every message of that peer."""
        frames = [route, b"", _VERSION, request, *verdict, key, b""]
        self._socket.send_multipart(frames, zmq.NOBLOCK)
