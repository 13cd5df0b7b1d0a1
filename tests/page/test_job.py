"""A job over several hosts in one page: reports of daemons and of other pages as one document."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from dlcpd.contract.errors import BadConfig, BadMessage, DaemonUnavailable, DlcpError
from dlcpd.ctl import main as command
from dlcpd.page import remote
from dlcpd.page.job import Job
from dlcpd.page.remote import RemotePage
from tests.page.test_server import TOKEN, get, serving

LAUNCH = "resnet-0123456789abcdef"


def document(host: str, *ranks: int, job: str = LAUNCH, **changes: Any) -> dict[str, Any]:
    """Of a page: ranks of a job of four, two on each of two hosts."""
    hosts = ["alpha", "alpha", "beta", "beta"]
    sessions = [
        {
            "session": str(7 + rank),
            "job": job,
            "rank": rank,
            "world_size": 4,
            "broken": "",
            "peers": [{"rank": n, "host": on} for n, on in enumerate(hosts) if n != rank],
        }
        for rank in ranks
    ]
    other = {"session": "99", "job": "bert", "rank": 0, "broken": "lost", "peers": []}
    engine = {
        key: {"late": [], "totals": {"used": 0.95}, "peers": []}
        for key in ("7", "8", "9", "10", "99")
    }
    report = {
        "host": host,
        "pid": 11,
        "version": "0.1.0",
        "uptime": 3.0,
        "health": {"ready": True, "text": ""},
        "features": {},
        "sessions": [*sessions, other],
        "engine": {"sessions": engine},
    }
    return {"report": report | changes, "alarms": ["BROKEN: bert"], "socket": "/run/x"}


class Told:
    """A source that returns a document, or raises."""

    def __init__(self, found: Any, name: str = "http://beta:7480/") -> None:
        self.found, self.name = found, name

    def status(self) -> dict[str, Any]:
        if isinstance(self.found, DlcpError):
            raise self.found
        return self.found  # type: ignore[no-any-return]  # or anything else, of a hostile page

    def trace(self, steps: int) -> dict[str, Any]:
        raise AssertionError(steps)


def test_sessions_of_all_hosts_are_one_report_with_their_own_engines() -> None:
    found = Job("resnet", [Told(document("alpha", 0, 1)), Told(document("beta", 0, 2))]).status()
    report = found["report"]
    rows = [(row["on"], row["rank"]) for row in report["sessions"]]
    assert rows == [("alpha", 0), ("alpha", 1), ("beta", 0), ("beta", 2)]
    assert {row["session"] for row in report["sessions"]} == set(report["engine"]["sessions"])
    assert found["job"] == {"name": "resnet", "hosts": 2, "asked": 2}
    assert (report["host"], report["version"]) == ("resnet", "0.1.0")


def test_alarms_are_of_this_job_and_name_their_host() -> None:
    found = Job(LAUNCH, [Told(document("alpha", 0)), Told(document("beta", 2, 3))]).status()
    kinds = [line.split(": ")[:2] for line in found["alarms"][:3]]
    assert kinds == [["BOUND", "alpha"], ["BOUND", "beta"], ["BOUND", "beta"]]
    assert found["alarms"][3:] == [
        f"NOT SHOWN: {LAUNCH}: rank 1 on alpha: add --of with the page of that host"
    ]


def test_paths_beyond_what_a_browser_can_take_are_left_out_and_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlcpd.page.job.MAX_PATHS", 5)
    monkeypatch.setattr("dlcpd.page.job.AT_ONCE", 1)
    path = {"up": True, "gray": False}
    pages = []
    for host, rank in (("alpha", 0), ("beta", 2)):
        made = document(host, rank)
        engine = made["report"]["engine"]["sessions"][str(7 + rank)]
        engine["peers"] = [{"rank": 1, "host": "alpha", "paths": [path] * 3}]
        pages.append(Told(made))
    found = Job("resnet", pages).status()
    rows = found["report"]["engine"]["sessions"]
    assert [len(rows[one["session"]]["peers"]) for one in found["report"]["sessions"]] == [1, 0]
    assert "SHORT: beta: its paths are left out, as a page shows at most 5" in found["alarms"]


@pytest.mark.parametrize(
    "job", ["resnet-x", "resnet-0123456789abcde", "my-resnet", "resnet-0123456789abcdef0"]
)
def test_jobs_of_other_names_are_not_shown(job: str) -> None:
    found = Job("resnet", [Told(document("alpha", 0, job=job))]).status()
    assert found["report"]["sessions"] == [] == found["alarms"]


@pytest.mark.parametrize(
    "answer",
    [
        DaemonUnavailable("http://beta:7480/: no page answers"),
        {},
        {"report": None},
        document("beta", 2) | {"report": []},
        document("beta", 2, sessions=[{"job": 3}]),
        document("beta", 2, sessions=[{"job": LAUNCH, "session": 1}]),
        document("beta", 2, engine=[]),
        document("beta", 2, sessions=7),
    ],
)
def test_a_host_that_does_not_answer_or_not_as_a_page_is_an_alarm(answer: Any) -> None:
    found = Job("resnet", [Told(document("alpha", 0, 1)), Told(answer)]).status()
    assert found["job"]["hosts"] == 1 and len(found["report"]["sessions"]) == 2
    [said] = [line for line in found["alarms"] if line.startswith("HOST: ")]
    assert said.startswith("HOST: http://beta:7480/: ")
    assert any("rank 2, 3 on beta" in line for line in found["alarms"])
    with pytest.raises(DaemonUnavailable, match="http://beta:7480/: "):
        Job("resnet", [Told(answer)]).status()
    with pytest.raises(DaemonUnavailable, match="page of one host"):
        Job("resnet", [Told(answer)]).trace(3)


# --- pages of other hosts ----------------------------------------------------------------------


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers each request with `status` and `body`, and notes it."""

    status, body, location = 200, b"{}", ""
    seen: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.status)
        if self.location:
            self.send_header("Location", self.location)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def answering(**values: Any) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    seen: list[tuple[str, str | None]] = []
    handler = type("Handler", (Answers,), {"seen": seen} | values)
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}", seen
        finally:
            made.shutdown()
            thread.join()


def test_a_page_shows_a_job_of_another_page_that_needs_its_token() -> None:
    other = Told(document("beta", 2, 3))
    with serving(other, TOKEN) as port:
        url = f"http://127.0.0.1:{port}/"
        with serving(Job("resnet", [RemotePage(url, TOKEN)]), TOKEN) as mine:
            status, _, body = get(mine, "/status", Authorization=f"Bearer {TOKEN}")
            assert (status, len(body["report"]["sessions"])) == (200, 2)
            assert get(mine, "/status")[0] == 401
        with pytest.raises(DaemonUnavailable, match=f"{url}: the token is missing or wrong"):
            RemotePage(url, "").status()


def test_a_redirection_does_not_get_the_token() -> None:
    with answering() as (elsewhere, there), answering(status=302, location=elsewhere) as (url, _):
        with pytest.raises(BadMessage, match="as no page of dlcpctl"):
            RemotePage(url, TOKEN).status()
        assert there == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"body": b"<html>"}, "as no page of dlcpctl"),
        ({"body": b"[]"}, "as no page of dlcpctl"),
        ({"body": b"[" * 100_000}, "as no page of dlcpctl"),
        ({"status": 500, "body": b"{}"}, "as no page of dlcpctl"),
        ({"status": 503, "body": json.dumps({"error": "x" * 999}).encode()}, "x{300}$"),
        ({"body": b"{" + b" " * 2000 + b"}"}, "has more than 1024 B"),
    ],
)
def test_an_answer_of_anything_else_is_an_error(
    values: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MAX_ANSWER", 1024)
    if len(values["body"]) > 10_000:
        monkeypatch.setattr(remote, "MAX_ANSWER", 1 << 20)
    with answering(**values) as (url, _), pytest.raises(DlcpError, match=says):
        RemotePage(url, "").status()


def test_a_page_that_answers_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "DEADLINE", 0.2)
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connected, _ = listener.accept()
        with connected, suppress(OSError):
            connected.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not ended.wait(0.05):
                connected.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            with pytest.raises(DlcpError, match="no page"):
                RemotePage(f"http://127.0.0.1:{listener.getsockname()[1]}", "").status()
        finally:
            ended.set()
            thread.join()


def test_a_page_that_is_not_there_is_named() -> None:
    with pytest.raises(DaemonUnavailable, match=r"http://127.0.0.1:1: no page answers \(.*refused"):
        RemotePage("http://127.0.0.1:1", "").status()


@pytest.mark.parametrize(
    "url", ["ftp://a/", "http://", "http://u:secret@a/", "http://a/#token=secret", "http://a:x/"]
)
def test_what_is_no_url_of_a_page_is_refused(url: str) -> None:
    with pytest.raises(BadConfig, match="--of ") as caught:
        RemotePage(url, "")
    assert "secret" not in str(caught.value)


def test_hosts_without_a_job_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["page", "--listen", "127.0.0.1:0"]
    assert command.main([*words, "--of", "/run/x.sock"]) == 2
    assert "--of needs --job" in capsys.readouterr().err
    many = [word for number in range(65) for word in ("--of", f"/run/{number}.sock")]
    assert command.main([*words, "--job", "j", *many]) == 2
    assert "65 times --of; at most 64" in capsys.readouterr().err
