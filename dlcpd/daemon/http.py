"""A server of HTTP for a few clients, none of which can keep it: a thread for each request, few at
once; a request is as long, and takes as long, as one of a browser may.
"""

import io
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from typing import Any, Final

from dlcpd.ipc import kernel_errors

TIMEOUT: Final = 5.0  # seconds: for a whole request to come, and for a write of the answer
MAX_REQUEST: Final = 16_384  # bytes; browsers send one or two thousand, and cookies of the host
_END: Final = b"\r\n\r\n"


class FewAtOnce(ThreadingHTTPServer):
    """`at_once`: requests; who comes while there are as many is hung up on. Raises: OSError."""

    daemon_threads = True  # one that reads from a silent client must not keep the process

    def __init__(self, address: tuple[str, int], handler: Any, *, at_once: int) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self._room = threading.Semaphore(at_once)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without the look into DNS that HTTPServer adds: it can take seconds."""
        TCPServer.server_bind(self)

    def get_request(self) -> Any:
        """Rests where descriptors or memory are short: the listener stays readable, and the
        serving loop would spin. Raises: OSError."""
        try:
            return super().get_request()
        except OSError as exc:
            if exc.errno in kernel_errors.SHORT:
                time.sleep(kernel_errors.ACCEPT_REST)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up, was silent, or said too much: nobody needs to know."""


class WholeRequest(BaseHTTPRequestHandler):
    """Reads a request before it looks at it, within TIMEOUT and MAX_REQUEST. One per connection."""

    timeout = TIMEOUT

    def setup(self) -> None:
        """Raises: OSError where no request comes in time, or too long a one."""
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
