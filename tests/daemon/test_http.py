"""The metrics port and clients of HTTP that are odd, silent or many."""

import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dlcpd.daemon.metrics.server import MAX_REQUESTS
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


def test_a_connection_beyond_the_requests_that_are_being_answered_is_closed(
    control: Control,
) -> None:
    """An answer that is being made is not lost for a connection that may say nothing."""
    busy, asked = threading.Event(), list[HTTPConnection]()
    control.loop.call_soon_threadsafe(busy.wait)
    for _ in range(MAX_REQUESTS):
        asked.append(HTTPConnection(*control.server.address, PATIENCE))
        asked[-1].request("GET", "/metrics")
        assert asked[-1].sock
    served: Any = control.server
    room, silent = served._server._room, served._server._silent  # noqa: SLF001  # nothing else tells
    until(lambda: not (room._value or len(silent)), "all are being answered")  # noqa: SLF001
    with socket.create_connection(control.server.address, PATIENCE) as another:
        assert another.recv(1) == b""
    busy.set()
    for connection in asked:
        assert connection.getresponse().status == 200
        connection.close()


def test_a_port_that_nobody_asks_wakes_no_thread(control: Control) -> None:
    [thread] = [each for each in threading.enumerate() if each.name == "metrics"]
    scrape(control.server.address[1])
    file = Path(f"/proc/self/task/{thread.native_id}/schedstat")
    before = int(file.read_text().split()[2])  # how often it has run
    time.sleep(1.0)
    assert int(file.read_text().split()[2]) <= before + 1, "one: the end of the scrape"
