"""The metrics port and clients of HTTP that are odd, silent or many."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dlcpd.daemon.http import FewAtOnce, WholeRequest
from dlcpd.daemon.metrics.server import MAX_REQUESTS, MAX_SCRAPES
from tests.daemon.kit import PATIENCE, until
from tests.daemon.test_metrics import LIMIT, Control, scrape


@pytest.fixture
def control() -> Iterator[Control]:
    made = Control()
    yield made
    made.close()


def answer(control: Control, method: str, path: str) -> tuple[int, str, bytes]:
    """Status, type and body."""
    host, port = control.server.address
    connection = HTTPConnection(host, port, PATIENCE)
    try:
        connection.request(method, path)
        found = connection.getresponse()
        return found.status, found.headers["Content-Type"], found.read()
    finally:
        connection.close()


@pytest.mark.parametrize("path", ["/", "/-/healthz", "/-/healthy/", "/healthz", "/metrics/x"])
def test_a_probe_of_a_path_that_is_mistyped_fails(control: Control, path: str) -> None:
    status, _, body = answer(control, "GET", path)
    assert (status, body) == (404, b"the paths are /metrics, /-/healthy, /-/ready\n")


def test_a_query_changes_no_path(control: Control) -> None:
    control.now = LIMIT + 1.0
    assert answer(control, "GET", "/-/healthy?from=balancer")[0] == 503
    assert b"dlcpd_uptime_seconds" in answer(control, "GET", "/metrics?")[2]


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready", "/none"])
@pytest.mark.parametrize("silent", [0.0, LIMIT + 1.0])
def test_head_is_answered_as_get_without_a_body(control: Control, path: str, silent: float) -> None:
    control.now = silent
    status, kind, body = answer(control, "GET", path)
    assert body and answer(control, "HEAD", path) == (status, kind, b"")


@pytest.mark.parametrize("begun", [b"", b"GET /metrics HTTP/1.1\r\nHost: a\r\n"])
def test_silent_connections_make_room(control: Control, begun: bytes) -> None:
    silent = []
    for _ in range(4 * MAX_REQUESTS):
        silent.append(socket.create_connection(control.server.address, PATIENCE))
        silent[-1].sendall(begun)
        assert answer(control, "GET", "/-/healthy")[0] == 200
    assert "dlcpd_uptime_seconds" in scrape(control.server.address[1])
    assert silent[0].recv(1) == b"", "the oldest has left"
    for sock in silent:
        sock.close()


@pytest.fixture
def waiting(control: Control) -> Iterator[list[HTTPConnection]]:
    """As many scrapes as are answered at once, of a daemon that is busy until the test ends."""
    busy, asked = threading.Event(), list[HTTPConnection]()
    control.loop.call_soon_threadsafe(busy.wait)
    for _ in range(MAX_SCRAPES):
        asked.append(HTTPConnection(*control.server.address, PATIENCE))
        asked[-1].request("GET", "/metrics")
    served: Any = control.server
    room = served._server.reports._room  # noqa: SLF001  # nothing else tells
    until(lambda: not room._value, "all are being answered")  # noqa: SLF001
    yield asked
    busy.set()
    for connection in asked:
        connection.close()


def test_a_probe_is_answered_while_all_scrapes_wait(
    control: Control, waiting: list[HTTPConnection]
) -> None:
    for _ in range(2 * MAX_REQUESTS):
        assert answer(control, "GET", "/-/healthy")[0] == 200
    status, _, body = answer(control, "GET", "/metrics")
    assert status == 503 and f"{MAX_SCRAPES} scrapes wait" in body.decode()


def test_scrapes_that_wait_for_one_report_end_together(
    control: Control, waiting: list[HTTPConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other: the last would wait MAX_SCRAPES times as long."""
    made: Any = control.server
    reports, asked = made._server.reports, list[Any]()  # noqa: SLF001  # nothing else tells
    monkeypatch.setattr(reports, "_asked", lambda: asked.append(1))
    codes = [connection.getresponse().status for connection in waiting]
    assert codes == [503] * MAX_SCRAPES
    assert not asked, "the daemon is asked once, by the first"


BODY = b"x" * (64 << 20)  # more than the kernel holds for a client that does not read


class _Large(WholeRequest):
    may_answer = threading.Event()

    def do_GET(self) -> None:
        self.may_answer.wait(PATIENCE)
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        self.wfile.write(BODY if self.path == "/large" else b"small")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def few() -> Iterator[FewAtOnce]:
    """A server of two requests at a time."""
    _Large.may_answer.clear()
    server = FewAtOnce(("127.0.0.1", 0), _Large, at_once=2)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    _Large.may_answer.set()
    server.shutdown()
    thread.join(PATIENCE)
    server.server_close()


def address_of(server: FewAtOnce) -> tuple[str, int]:
    host, port = server.server_address[:2]
    return str(host), int(port)


def asking(server: FewAtOnce, path: str) -> socket.socket:
    sock = socket.create_connection(address_of(server), PATIENCE)
    sock.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    return sock


def all_of(sock: socket.socket) -> bytes:
    with sock.makefile("rb") as file:
        return file.read()


def held(server: FewAtOnce) -> int:
    """Requests that are being answered."""
    return 2 - server._room._value - len(server._silent)  # noqa: SLF001  # nothing else tells


def test_a_connection_beyond_the_requests_that_are_being_answered_is_closed(
    few: FewAtOnce,
) -> None:
    """An answer that is being made is not lost for a connection that may say nothing."""
    asked = [asking(few, "/") for _ in range(2)]
    until(lambda: held(few) == 2, "both are being answered")
    with socket.create_connection(address_of(few), PATIENCE) as another:
        assert another.recv(1) == b""
    _Large.may_answer.set()
    assert [all_of(sock)[-5:] for sock in asked] == [b"small"] * 2
    for sock in asked:
        sock.close()


def test_a_port_that_is_taken_is_named(few: FewAtOnce) -> None:
    with pytest.raises(OSError) as caught:  # noqa: PT011  # its number says which
        FewAtOnce(address_of(few), _Large, at_once=2)
    assert caught.value.errno == errno.EADDRINUSE


def test_a_burst_of_connections_waits_in_the_kernel() -> None:
    """Not for SYNs that are sent again after seconds: a probe among them would come too late."""
    server = FewAtOnce(("127.0.0.1", 0), _Large, at_once=2)  # accepts nothing
    waiting = [socket.create_connection(address_of(server), PATIENCE) for _ in range(200)]
    assert len(waiting) == 200
    for sock in waiting:
        sock.close()
    server.server_close()


def test_clients_that_do_not_read_make_room(few: FewAtOnce) -> None:
    _Large.may_answer.set()
    with asking(few, "/large") as first:
        until(lambda: len(few._silent) == 1, "it has not read for READ_SOON")  # noqa: SLF001
        with asking(few, "/large") as second:
            until(lambda: len(few._silent) == 2, "both have not")  # noqa: SLF001
            oldest = few._silent.oldest()  # noqa: SLF001  # mostly the first
            assert oldest is not None
            leaves = next(s for s in (first, second) if s.getsockname() == oldest.getpeername())
            with asking(few, "/") as sock:
                assert all_of(sock).endswith(b"small")
            assert len(all_of(leaves)) < len(BODY), "the oldest has left"


def test_a_client_that_reads_late_has_the_whole_answer(
    few: FewAtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlcpd.daemon.http.READ_SOON", 0.01)
    monkeypatch.setattr("dlcpd.daemon.http.TIMEOUT", PATIENCE)
    _Large.may_answer.set()
    with asking(few, "/large") as sock:
        until(lambda: len(few._silent), "it has not read")  # noqa: SLF001
        assert all_of(sock).endswith(BODY)


def test_a_port_that_nobody_asks_wakes_no_thread(control: Control) -> None:
    [thread] = [each for each in threading.enumerate() if each.name == "metrics"]
    scrape(control.server.address[1])
    file = Path(f"/proc/self/task/{thread.native_id}/schedstat")
    before = int(file.read_text().split()[2])  # how often it has run
    time.sleep(1.0)
    assert int(file.read_text().split()[2]) <= before + 1, "one: the end of the scrape"
