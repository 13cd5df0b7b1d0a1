"""One connection to the control port: its handshake, then its messages."""

import asyncio
import contextlib
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.peers.curve import COMMAND, MORE, OVERHEAD, Cipher, ServerHandshake
from dlcpd.daemon.peers.frames import BrokenStream, check_greeting_untrusted, greeting
from dlcpd.daemon.peers.keys import KeyPair, key_text
from dlcpd.daemon.peers.peer_messages import MAX_PEER_FRAME
from dlcpd.daemon.peers.stream import ByteStream, set_options

MAX_FRAME: Final = MAX_PEER_FRAME + OVERHEAD  # bytes; a longer one is not read
HANDSHAKE: Final = 5.0  # seconds; then a peer that still waits connects again


class IncomingState(Enum):
    """The data that a connection expects next."""

    GREETING = auto()
    HELLO = auto()
    INITIATE = auto()
    NOTHING = auto()  # the peer proved its key, and waits for a Join that names the key
    MESSAGES = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Port:
    """Objects that all connections of a port share."""

    keys: KeyPair
    counters: Counter[str]
    on_message: Callable[[str, bytes], None]  # the sender's key, and the message
    proved: Callable[["IncomingConnection"], None]  # the peer holds its key: `let_in` may follow
    ended: Callable[["IncomingConnection"], None]


class IncomingConnection:
    """One connection. Reads one frame per wake-up of the level-triggered loop: starves no other."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str, port: Port
    ) -> None:
        """Raises: OSError; then the caller still owns `sock`."""
        self.state, self.key = IncomingState.GREETING, ""
        self.address = address
        self.source = _source(address)  # its owner for eviction, until a key is proved
        self._loop, self._port = loop, port
        set_options(sock)
        self._stream = ByteStream(sock)
        self._handshake = ServerHandshake(port.keys)
        self._cipher: Cipher | None = None
        self._send(greeting(as_server=True))
        loop.add_reader(sock.fileno(), self._turn)
        self._timer = loop.call_later(HANDSHAKE, self.end)

    def let_in(self) -> None:
        """Complete the handshake: the key is admitted. No effect unless the state is NOTHING."""
        if self.state is not IncomingState.NOTHING:
            return
        ready, self._cipher = self._handshake.ready()
        self._timer.cancel()
        self.state, self._stream.reader.limit = IncomingState.MESSAGES, MAX_FRAME
        try:
            self._send(ready)
        except OSError:
            self.end()

    def turn_away(self, reason: str, counter: str) -> None:
        """Refuse the key for good: send `reason`, and close."""
        with contextlib.suppress(OSError):  # it is gone already
            self._send(self._handshake.error(reason))
        self.end(counter)

    def end(self, counter: str = "") -> None:
        """Close the connection; add 1 to `counter`, if given."""
        if self.state is IncomingState.CLOSED:
            return
        self.state = IncomingState.CLOSED
        if counter:
            self._port.counters[counter] += 1
        self._timer.cancel()
        self._loop.remove_reader(self._stream.sock.fileno())
        with contextlib.suppress(OSError):
            self._stream.sock.close()
        self._port.ended(self)

    def _turn(self) -> None:
        try:
            frame = self._stream.receive()
            if frame is not None:
                self._heard(frame)
        except BrokenStream as exc:
            log.debug("peer_stream_broken", code=exc.code, text=exc)
            self.end("peer_stream_broken" if self._cipher else "handshake_malformed")
        except (OSError, EOFError):
            self.end()

    def _heard(self, frame: bytes) -> None:
        """Raises: BrokenStream, OSError."""
        if self.state is IncomingState.MESSAGES:
            self._message(frame)
        elif self.state is IncomingState.GREETING:
            check_greeting_untrusted(frame)
            self.state = IncomingState.HELLO
        elif self.state is IncomingState.HELLO:
            self._send(self._handshake.welcome(frame))
            self.state = IncomingState.INITIATE
        elif self.state is IncomingState.INITIATE:
            self.key = key_text(self._handshake.client(frame))
            self.state = IncomingState.NOTHING
            self._port.proved(self)
        else:
            raise BrokenStream("a frame before READY")

    def _message(self, frame: bytes) -> None:
        assert self._cipher  # noqa: S101  # set before the state
        flags, message = self._cipher.open_untrusted(frame)
        if flags & MORE:  # a message has one part: parts are not stored
            self.end("peer_many_parts")
        elif not flags & COMMAND:
            self._port.on_message(self.key, message)

    def _send(self, data: bytes) -> None:
        """Send at once: a server's few bytes fit any socket's buffer. Raises: OSError."""
        if self._stream.sock.send(data) != len(data):
            raise OSError("no room for a part of the handshake")


def _source(host: str) -> bytes:
    """The owner of an address: the IPv4 address, or the /64 network of an IPv6 address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed[:8]
