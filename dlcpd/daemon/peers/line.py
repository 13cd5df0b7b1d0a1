"""The connection to one peer's control process; it only sends, and reconnects when it ends."""

import asyncio
import errno
import os
import random
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from dlcpd.daemon.peers.curve import Cipher, ClientHandshake, TurnedAway
from dlcpd.daemon.peers.frames import BrokenStream, check_greeting_untrusted, greeting
from dlcpd.daemon.peers.keys import KeyPair
from dlcpd.daemon.peers.stream import ByteStream, least_round_trip, set_options

MAX_QUEUED: Final = 64  # messages to one unreachable peer; a hello is repeated anyway
RECONNECT: Final = 0.05  # seconds, doubled up to RECONNECT_MAX: a late peer is found soon
RECONNECT_MAX: Final = 0.5  # seconds
CONNECT: Final = 2.0  # seconds; a host that boots is found without TCP's doubling of SYN timers
REFUSED: Final = "the port of its daemon is closed: its process has ended"
# A host without CPU time, or cut off for a while, loses connections too.
REOPENED: Final = "its daemon has ended, or was silent: the connection had to be made anew"
ENDED: Final = "its daemon has ended, or is silent: the connection ended, and another one fails"
HANDSHAKE: Final = 5.0  # seconds; an early peer waits as long for a Join, then connects again


class Line:
    """`send` keeps the order. Messages that an ended connection took, undelivered, are lost."""

    def __init__(  # noqa: PLR0913  # the last four by keyword
        self,
        loop: asyncio.AbstractEventLoop,
        target: tuple[str, int],
        server_key: bytes,
        *,
        keys: KeyPair,
        counters: Counter[str],
        on_turned_away: Callable[[str], None] = lambda reason: None,
        on_lost: Callable[[str], None] = lambda sign: None,
    ) -> None:
        """`on_turned_away` gets the code with which the peer refuses this daemon; the line keeps
        trying, as the peer's operator may change that. `on_lost` gets a text: a sign that the
        daemon at the open line has ended. Its port is closed, or the connection ended and the next
        one failed or had to be made anew. The end of a connection alone is no sign.
        """
        self._loop, self._target, self._server_key = loop, target, server_key
        self._keys, self._counters, self._on_turned_away = keys, counters, on_turned_away
        self._on_lost, self._was_open = on_lost, False
        self._ended = False  # an open connection has ended, and no other one was tried since
        self._queue: deque[bytes] = deque()  # the first may be partly sent, see `_out`
        self._out = b""  # bytes of it, or of the handshake, that the socket has not taken
        self._stream: ByteStream | None = None
        self._connecting = False
        self._answers: list[Callable[[bytes], bytes]] = []  # to the server's frames, in order
        self._cipher: Cipher | None = None
        self._delay = RECONNECT
        self._timer: asyncio.TimerHandle | None = None
        self._on_closed: Callable[[Line], None] | None = None  # set: it ends when all is sent
        self._dial()

    def send(self, message: bytes) -> bool:
        """Send, now or when the peer can be reached. False: MAX_QUEUED messages wait already."""
        if len(self._queue) >= MAX_QUEUED:
            return False
        self._queue.append(message)
        if self._cipher and not self._out:
            self.turn()
        return True

    def close(self, linger: float, on_closed: Callable[["Line"], None]) -> None:
        """End once all is sent, after `linger` seconds at the latest. No `send` may follow."""
        self._on_closed = on_closed
        if self._queue:
            self._loop.call_later(linger, self.shut)
        else:
            self.shut()

    def shut(self) -> None:
        """End at once."""
        self._hang_up()
        self._queue.clear()
        done, self._on_closed = self._on_closed, None
        if done:
            done(self)

    @property
    def round_trip(self) -> int:
        """Microseconds; 0 while the connection is not open."""
        return 0 if self._stream is None else least_round_trip(self._stream.sock)

    @property
    def wants(self) -> tuple[int, int] | None:
        """Descriptor and events of `poll` with which `turn` could go on sending; None: nothing
        is to be sent, or there is no connection.
        """
        if self._stream is None or not self._queue:
            return None
        waits = select.POLLOUT if self._connecting or self._out else select.POLLIN
        return self._stream.sock.fileno(), waits

    def turn(self) -> None:
        """Connect, read and write as far as the socket is ready."""
        try:
            if self._connecting:
                self._connected()
            self._read()
            self._write()
        except TurnedAway as exc:
            self._counters["line_turned_away"] += 1
            self._again(RECONNECT_MAX)
            self._on_turned_away(exc.reason)
        except BrokenStream:
            self._counters["line_broken"] += 1
            self._again(RECONNECT_MAX)
        except ConnectionRefusedError:
            self._refused()
        except (OSError, EOFError):
            self._again(self._delay)

    def _refused(self) -> None:
        self._ended = False  # REFUSED is a better sign
        self._again(self._delay)
        if self._was_open:
            self._on_lost(REFUSED)

    def _dial(self) -> None:
        family = socket.AF_INET6 if ":" in self._target[0] else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            self._stream, self._connecting = ByteStream(sock), True
            set_options(sock)
            error = sock.connect_ex(self._target)
            if error in (0, errno.EINPROGRESS):
                self._loop.add_writer(sock.fileno(), self.turn)
                self._set_timer(CONNECT, self._close_late)
                return
        except OSError:  # out of descriptors or memory
            self._again(RECONNECT_MAX)
            return
        if error == errno.ECONNREFUSED:
            self._refused()
        else:
            self._again(self._delay)

    def _connected(self) -> None:
        """Raises: OSError."""
        assert self._stream  # noqa: S101  # connecting means that there is one
        sock = self._stream.sock
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        self._connecting = False
        self._set_timer(HANDSHAKE, self._close_late)
        self._loop.add_reader(sock.fileno(), self.turn)
        shake = ClientHandshake(self._keys, self._server_key)
        self._out = greeting(as_server=False)

        def hello(heard: bytes) -> bytes:
            check_greeting_untrusted(heard)
            return shake.hello()

        self._answers = [hello, shake.initiate, lambda ready: self._open(shake.finish(ready))]

    def _open(self, cipher: Cipher) -> bytes:
        self._cipher = cipher
        self._delay = RECONNECT
        self._set_timer(0.0, None)
        again, self._was_open, self._ended = self._was_open, True, False
        if again:
            self._on_lost(REOPENED)
        return b""

    def _read(self) -> None:
        """Answer one step of the handshake. After the handshake the peer must not send: a byte ends
        the connection.

        Raises: BrokenStream, OSError, EOFError.
        """
        assert self._stream  # noqa: S101  # `turn` runs only with one
        if self._cipher:
            self._expect_silence(self._stream.sock)
        elif (heard := self._stream.receive()) is not None:
            self._out += self._answers.pop(0)(heard)

    def _expect_silence(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(1)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            raise EOFError
        self._counters["line_talks"] += 1
        raise BrokenStream("a peer speaks where it has nothing to say")

    def _write(self) -> None:
        """Raises: OSError."""
        assert self._stream  # noqa: S101  # likewise
        sock = self._stream.sock
        while self._out or (self._cipher and self._queue):
            if not self._out and self._cipher:
                self._out = self._cipher.seal(self._queue[0])
            try:
                taken = sock.send(self._out)
            except (BlockingIOError, InterruptedError):
                self._loop.add_writer(sock.fileno(), self.turn)
                return
            self._out = self._out[taken:]
            if self._cipher and not self._out:
                self._queue.popleft()
        self._loop.remove_writer(sock.fileno())
        if self._on_closed and not self._queue:
            self.shut()

    def _close_late(self) -> None:
        self._again(self._delay)

    def _again(self, delay: float) -> None:
        """Reconnect after `delay` seconds plus up to 20 %, so that peers do not synchronise."""
        failed, self._ended = self._ended, self._cipher is not None
        self._hang_up()
        self._delay = min(2 * delay, RECONNECT_MAX)
        self._set_timer(delay * random.uniform(1.0, 1.2), self._dial)  # noqa: S311  # jitter
        if failed:
            self._on_lost(ENDED)

    def _hang_up(self) -> None:
        self._set_timer(0.0, None)
        stream, self._stream, self._cipher = self._stream, None, None
        self._connecting, self._out, self._answers = False, b"", []
        if stream:
            self._loop.remove_reader(stream.sock.fileno())
            self._loop.remove_writer(stream.sock.fileno())
            with suppress(OSError):
                stream.sock.close()

    def _set_timer(self, delay: float, then: Callable[[], None] | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, then) if then else None


def linger(lines: Sequence[Line], seconds: float) -> None:
    """Block the event loop until `lines` have sent their messages, for `seconds` at most."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        poll, by_descriptor = select.poll(), dict[int, Line]()
        for line in lines:
            if wants := line.wants:
                poll.register(*wants)
                by_descriptor[wants[0]] = line
        if not by_descriptor:
            return
        for descriptor, _ in poll.poll(left * 1000):
            by_descriptor[descriptor].turn()
