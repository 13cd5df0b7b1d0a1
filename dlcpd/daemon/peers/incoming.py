"""One connection to the port of the controls: its handshake, then its messages."""

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
from dlcpd.daemon.peers.stream import Stream, set_options

MAX_FRAME: Final = MAX_PEER_FRAME + OVERHEAD  # bytes; a longer one is not read
HANDSHAKE: Final = 5.0  # seconds; then a peer that still waits connects again


class State(Enum):
    """What a connection is to bring next."""

    GREETING = auto()
    HELLO = auto()
    INITIATE = auto()
    NOTHING = auto()  # it proved its key, and waits for a Join that names it
    MESSAGES = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Port:
    """What every connection of a port shares."""

    keys: KeyPair
    counters: Counter[str]
    on_message: Callable[[str, bytes], None]  # the key that sent it, and the message
    proved: Callable[["Incoming"], None]  # it holds its key: `let_in` may follow
    ended: Callable[["Incoming"], None]


class Incoming:
    """One connection. Reads a frame a turn: the loop is level-triggered, so others get theirs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str, port: Port
    ) -> None:
        """Raises: OSError; `sock` is the caller's then."""
        self.state, self.key = State.GREETING, ""
        self.address = address
        self.source = _source(address)  # whose it is, as long as it has proved no key
        self._loop, self._port = loop, port
        set_options(sock)
        self._stream = Stream(sock)
        self._handshake = ServerHandshake(port.keys)
        self._cipher: Cipher | None = None
        self._send(greeting(as_server=True))
        loop.add_reader(sock.fileno(), self._turn)
        self._timer = loop.call_later(HANDSHAKE, self.end)

    def let_in(self) -> None:
        """Its key is admitted; it may be in already."""
        if self.state is not State.NOTHING:
            return
        ready, self._cipher = self._handshake.ready()
        self._timer.cancel()
        self.state, self._stream.reader.limit = State.MESSAGES, MAX_FRAME
        try:
            self._send(ready)
        except OSError:
            self.end()

    def turn_away(self, reason: str, counter: str) -> None:
        """Its key is not let in, neither now nor later: tell it so, and hang up."""
        with contextlib.suppress(OSError):  # it is gone already
            self._send(self._handshake.error(reason))
        self.end(counter)

    def end(self, counter: str = "") -> None:
        """Close the connection; count why."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
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
        if self.state is State.MESSAGES:
            self._message(frame)
        elif self.state is State.GREETING:
            check_greeting_untrusted(frame)
            self.state = State.HELLO
        elif self.state is State.HELLO:
            self._send(self._handshake.welcome(frame))
            self.state = State.INITIATE
        elif self.state is State.INITIATE:
            self.key = key_text(self._handshake.client(frame))
            self.state = State.NOTHING
            self._port.proved(self)
        else:
            raise BrokenStream("a frame before READY")

    def _message(self, frame: bytes) -> None:
        assert self._cipher  # noqa: S101  # set before the state
        flags, message = self._cipher.open_untrusted(frame)
        if flags & MORE:  # a message has one part: none is kept for others to follow
            self.end("peer_many_parts")
        elif not flags & COMMAND:
            self._port.on_message(self.key, message)

    def _send(self, data: bytes) -> None:
        """What little a server says fits any socket's buffer. Raises: OSError."""
        if self._stream.sock.send(data) != len(data):
            raise OSError("no room for a part of the handshake")


def _source(host: str) -> bytes:
    """Whom an address belongs to: of IPv6, a host has a network of its own, 64 bits."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).packed[:8]
