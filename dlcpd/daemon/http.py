"""An HTTP server for a few clients, none of which can block it: one thread per request, few at
once, with limits on a request's size and time.
"""

import io
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from typing import Any, Final

from dlcpd.ipc.accepting import REST, Short, accept

TIMEOUT: Final = 5.0  # seconds: to receive a whole request, and for a write of the answer
MAX_REQUEST: Final = 16_384  # bytes; browsers send 1,000 to 2,000, and cookies of the host
_END: Final = b"\r\n\r\n"


class FewAtOnce(ThreadingHTTPServer):
    """`at_once`: most requests at a time; more connections are closed. Raises: OSError."""

    daemon_threads = True  # a thread that waits for a silent client must not keep the process

    def __init__(self, address: tuple[str, int], handler: Any, *, at_once: int) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self._room = threading.Semaphore(at_once)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's DNS lookup: it can take seconds."""
        TCPServer.server_bind(self)

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

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serve until `shutdown`. A failed poll, as for lack of memory, is retried."""
        while True:
            try:
                super().serve_forever(poll_interval)
            except OSError:
                time.sleep(REST)
            else:
                return

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
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


class WholeRequest(BaseHTTPRequestHandler):
    """Receives a whole request first, within TIMEOUT and MAX_REQUEST. One per connection."""

    timeout = TIMEOUT

    def setup(self) -> None:
        """Raises: OSError if no request comes in time, or it is too long."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(self._head())
        self.connection.settimeout(TIMEOUT)

    def _head(self) -> bytes:
        until, head = time.monotonic() + TIMEOUT, b""
        while _END not in head:
            self.connection.settimeout(max(until - time.monotonic(), 0.001))
            more = self.connection.recv(MAX_REQUEST - len(head))
            if not more:  # it hung up, or there is no room for more
                raise ConnectionError("no whole request")
            head += more
        return head
