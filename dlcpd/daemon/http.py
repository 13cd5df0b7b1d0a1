"""An HTTP server for a few clients, none of which can block it: one thread per request, few at
once, with limits on a request's size and time.
"""

import io
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RDWR, socket
from socketserver import TCPServer
from typing import Any, Final

from dlcpd.daemon.fair_table import FairTable
from dlcpd.ipc.accepting import REST, Short, accept
from dlcpd.ipc.socket_folder import BACKLOG

TIMEOUT: Final = 5.0  # seconds: to receive a whole request, and to send the answer
READ_SOON: Final = 1.0  # seconds in which a client that reads has the answer
MAX_REQUEST: Final = 16_384  # bytes; browsers send 1,000 to 2,000, and cookies of the host
PARTING: Final = 1.0  # seconds for a thread to note that its connection was shut down; 1 ms if idle
_END: Final = b"\r\n\r\n"


class FewAtOnce(ThreadingHTTPServer):
    """`at_once`: most requests at a time. A further connection takes the place of one that has not
    sent a whole request, or has not read its answer for READ_SOON, of the address with most of
    these; without such a one, it is closed.

    Raises: OSError.
    """

    request_queue_size = BACKLOG  # socketserver's 5 would let clients of a burst wait for seconds
    daemon_threads = True  # a thread that waits for a silent client must not keep the process

    def __init__(self, address: tuple[str, int], handler: Any, *, at_once: int) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self._room = threading.Semaphore(at_once)
        self._silent: FairTable[socket] = FairTable(at_once)
        self._lock = threading.Lock()  # of _silent: a socket in it is open
        self._end_asked, self._ended = os.eventfd(0, os.EFD_CLOEXEC), threading.Event()
        try:
            super().__init__(address, handler)
        except BaseException:
            self._forget_end()
            raise

    def server_bind(self) -> None:
        """Bind without HTTPServer's DNS lookup: it can take seconds."""
        TCPServer.server_bind(self)

    def server_close(self) -> None:
        """Close the listener. Requests that are open get their answers."""
        super().server_close()
        self._forget_end()

    def get_request(self) -> Any:
        """The next connection. Raises: OSError if there is none, which the serving loop expects; if
        none can be accepted, after REST seconds."""
        try:
            connection = accept(self.socket)
        except Short as exc:
            time.sleep(REST)
            raise OSError(str(exc)) from exc
        if connection is None:
            raise BlockingIOError("who connected has gone")
        return connection

    def serve_forever(self, poll_interval: float = 0.0) -> None:
        """Serve until `shutdown`. A failed poll, as for lack of memory, is retried.

        Not as in socketserver, which wakes in each `poll_interval` to look for `shutdown`.
        """
        poll = select.poll()
        for descriptor in (self.fileno(), self._end_asked):
            poll.register(descriptor, select.POLLIN)
        while True:
            try:
                ready = dict(poll.poll())
            except OSError:
                time.sleep(REST)
                continue
            if self._end_asked in ready:
                break
            self._handle_request_noblock()  # type: ignore[attr-defined]  # of socketserver
        self._ended.set()

    def end(self) -> None:
        """End `serve_forever`, soon."""
        os.eventfd_write(self._end_asked, 1)

    def shutdown(self) -> None:
        """End `serve_forever`, and wait for its end."""
        self.end()
        self._ended.wait()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False) and not self._room_made():
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client hung up, was silent, or sent too much."""

    @contextmanager
    def silent(self, connection: socket, address: str) -> Iterator[None]:
        """Meanwhile another client may take the place of this one."""
        with self._lock:
            self._silent.add(address, connection)
        try:
            yield
        finally:
            with self._lock:
                self._silent.discard(connection)

    def _forget_end(self) -> None:
        if self._end_asked >= 0:
            os.close(self._end_asked)
            self._end_asked = -1

    def _room_made(self) -> bool:
        """Whether a silent connection has left, for another one."""
        with self._lock:
            leaves = self._silent.oldest()
            if leaves is None:
                return False
            self._silent.discard(leaves)
            with suppress(OSError):
                socket.shutdown(leaves, SHUT_RDWR)  # that of TLS would change it for its thread
        return self._room.acquire(timeout=PARTING)


class WholeRequest(BaseHTTPRequestHandler):
    """Receives a whole request first, within TIMEOUT and MAX_REQUEST, and sends the whole answer
    last. One per connection."""

    timeout = TIMEOUT
    server: FewAtOnce
    wfile: io.BytesIO  # the answer

    def setup(self) -> None:
        """Raises: OSError if no request comes in time, or it is too long."""
        with self.server.silent(self.request, self.client_address[0]):
            self.shake_hands()
            super().setup()
            self.rfile.close()
            self.rfile = io.BytesIO(self._head())
        self.wfile = io.BytesIO()

    def shake_hands(self) -> None:
        """For TLS. Raises: OSError."""

    def do_HEAD(self) -> None:
        """The answer to GET, without its body (RFC 9110, 9.3.2). A subclass has `do_GET`."""
        self.do_GET()  # type: ignore[attr-defined]
        head = self.wfile.getvalue().partition(_END)[0] + _END
        self.wfile = io.BytesIO(head)

    def finish(self) -> None:
        """Send the answer. Raises: OSError if the client does not read it within TIMEOUT."""
        answer = memoryview(self.wfile.getvalue())
        answer = answer[self._sent(answer, READ_SOON) :]
        if answer:
            with self.server.silent(self.request, self.client_address[0]):
                if self._sent(answer, TIMEOUT - READ_SOON) < len(answer):
                    raise TimeoutError("the client does not read")

    def _sent(self, answer: memoryview, within: float) -> int:
        """Bytes that the client's side has taken `within` seconds. Raises: OSError."""
        until, sent = time.monotonic() + within, 0
        while sent < len(answer) and (left := until - time.monotonic()) > 0:
            self.connection.settimeout(left)
            with suppress(TimeoutError):
                sent += self.connection.send(answer[sent:])
        return sent

    def _head(self) -> bytes:
        until, head = time.monotonic() + TIMEOUT, b""
        while _END not in head:
            self.connection.settimeout(max(until - time.monotonic(), 0.001))
            more = self.connection.recv(MAX_REQUEST - len(head))
            if not more:  # it hung up, or there is no room for more
                raise ConnectionError("no whole request")
            head += more
        return head
