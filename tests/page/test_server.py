"""The page's HTTP, without a browser: who is answered, and with what."""

import http.client
import json
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlcpd.contract.errors import AddressUnavailable, BadConfig, DaemonUnavailable, TooMany
from dlcpd.ctl import main as command
from dlcpd.daemon import http as bounded_http
from dlcpd.daemon.http import MAX_REQUEST
from dlcpd.inspection.recording import Recorded
from dlcpd.page import page_token as tokens
from dlcpd.page.daemon import Daemon
from dlcpd.page.server import FILES, MAX_REQUESTS, WEB, Shown, is_loopback, names_us, server
from tests.daemon.kit import PATIENCE

TOKEN = "0123456789abcdef" * 2


class Answering(Daemon):
    """One that is always there, with a session whose number has 64 bits."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.recorded: list[int] = []

    def status(self) -> dict[str, Any]:
        return {"report": {"host": "alpha"}, "alarms": [], "socket": "nowhere"}

    def trace(self, steps: int) -> dict[str, Any]:
        self.recorded.append(steps)
        return {"steps": steps}


@contextmanager
def serving(shown: Shown, token: str = "") -> Iterator[int]:
    with server(("127.0.0.1", 0), shown, token) as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield served.server_address[1]
        finally:
            served.shutdown()
            thread.join()


def get(port: int, target: str, method: str = "GET", **headers: str) -> tuple[int, Any, Any]:
    """Status, headers, and the body: as JSON where it is."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    asked.request(
        method, target, headers={name.replace("_", "-"): v for name, v in headers.items()}
    )
    answer = asked.getresponse()
    body = answer.read()
    asked.close()
    kind = answer.getheader("Content-Type") or ""
    return answer.status, answer.headers, json.loads(body) if "json" in kind else body


def test_the_page_and_what_it_needs_come_with_headers_that_let_nothing_else_in() -> None:
    with serving(Answering()) as port:
        for target, (name, kind) in FILES.items():
            status, headers, body = get(port, target)
            assert (status, headers["Content-Type"]) == (200, kind)
            assert body == (WEB / name).read_bytes()
            assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "Access-Control-Allow-Origin" not in headers


def test_nothing_else_is_served() -> None:
    with serving(Answering()) as port:
        for target in ("/server.py", "/../page.html", "/web/uplot.LICENSE", "//etc/passwd", "/x"):
            assert get(port, target)[0] == 404
        assert get(port, "/status", method="POST")[0] == 501
        assert get(port, "/status", method="OPTIONS")[0] == 501


def test_names_of_web_pages_are_not_answered() -> None:
    with serving(Answering()) as port:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"):
            assert get(port, "/status", Host=host)[0] == 421, host
        for host in ("localhost:7480", "127.0.0.1", "[::1]:7480", "10.0.0.9:1"):
            assert names_us(host) and get(port, "/status", Host=host)[0] == 200, host


def test_other_sites_cannot_make_it_record() -> None:
    with serving(daemon := Answering()) as port:
        for site in ("cross-site", "same-site"):
            assert get(port, "/trace?steps=3", Sec_Fetch_Site=site)[0] == 403
        assert daemon.recorded == []
        assert get(port, "/trace?steps=3", Sec_Fetch_Site="same-origin")[2] == {"steps": 3}


@pytest.mark.parametrize("query", ["", "?steps=0", "?steps=21", "?steps=-1", "?steps=x",
                                   "?steps=01", "?steps=0000000019999999", "?steps=%D9%A3",
                                   "?steps=%2B3", "?steps=1_0", "?steps=3%0A",
                                   f"?steps={'0' * 299}1", f"?steps={'9' * 3000}"])  # fmt: skip
def test_a_recording_of_no_sensible_length_is_refused(query: str) -> None:
    with serving(daemon := Answering()) as port:
        assert get(port, f"/trace{query}")[0] == 400
        assert daemon.recorded == []


def test_with_a_token_nothing_of_the_daemon_is_told_without_it() -> None:
    with serving(daemon := Answering(), TOKEN) as port:
        for said in (
            "",
            "Bearer ",
            "Bearer x",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}0",
            f"Basic {TOKEN}",
            "Bearer \xff",
        ):
            for target in ("/status", "/trace?steps=1"):
                status, _, body = get(port, target, Authorization=said)
                assert (status, list(body)) == (401, ["error"])
        assert daemon.recorded == []
        assert get(port, f"/status?token={TOKEN}")[0] == 401  # no place that logs have
        assert get(port, "/status", Authorization=f"Bearer {TOKEN}", Host="node7:7480")[0] == 200
        assert get(port, "/")[0] == 200


def test_a_daemon_that_is_not_there_is_said() -> None:
    with serving(Daemon("/nowhere/at/all.sock")) as port:
        status, _, body = get(port, "/status")
    assert status == 503 and "/nowhere/at/all.sock: no daemon answers" in body["error"]
    with pytest.raises(DaemonUnavailable):
        Daemon("/nowhere/at/all.sock").trace(1)


def hung_up_on(port: int, request: bytes) -> bool:
    """Whether nothing is answered."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        try:
            sock.sendall(request)
            return sock.recv(1) == b""
        except ConnectionError:  # with what was sent unread
            return True


def test_requests_are_bounded_in_length_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Answering()) as port:
        request = b"GET / HTTP/1.0\r\nHost: localhost\r\nX: %s\r\n\r\n"
        assert not hung_up_on(port, request % b"x")
        assert hung_up_on(port, request % (b"x" * MAX_REQUEST))
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_REQUESTS)]
        assert not hung_up_on(port, request % b"x")
        silent[0].settimeout(PATIENCE)
        assert silent[0].recv(1) == b"", "it has made room"
        for sock in silent:
            sock.close()
    monkeypatch.setattr(bounded_http, "TIMEOUT", 0.05)
    with serving(Answering()) as port, socket.create_connection(("127.0.0.1", port)) as slow:
        slow.settimeout(PATIENCE)
        slow.sendall(b"GET /status HTTP/1.0\r\n")
        assert slow.recv(1) == b""


def test_a_taken_port_is_named() -> None:
    with (
        serving(Answering()) as port,
        pytest.raises(AddressUnavailable, match=f"--listen 127.0.0.1 port {port}: "),
    ):
        server(("127.0.0.1", port), Answering(), "")


def test_loopback_is_what_the_kernel_calls_so() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.1.2.3", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "::ffff:127.0.0.1"))


def test_reports_are_shared_and_recordings_are_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, recording, go_on = [], threading.Event(), threading.Event()
    report = {
        "sessions": [{"session": (1 << 60) + 1, "job": "j", "rank": 0, "broken": ""}],
        "engine": {},
    }

    @contextmanager
    def conversation(_: str) -> Iterator[SimpleNamespace]:
        asked.append(1)
        yield SimpleNamespace(status=lambda _: report)

    def record(*_: object) -> Recorded:
        recording.set()
        assert go_on.wait(PATIENCE)
        return Recorded({}, 1, 0, False)

    monkeypatch.setattr("dlcpd.page.daemon.Conversation", conversation)
    monkeypatch.setattr("dlcpd.page.daemon.record", record)
    monkeypatch.setattr("dlcpd.page.daemon.FRESH", PATIENCE)
    daemon = Daemon("somewhere")
    [session] = daemon.status()["report"]["sessions"]
    assert session["session"] == str((1 << 60) + 1), "a number of JavaScript has 53 bits"
    assert daemon.status() is daemon.status() and len(asked) == 1
    first = threading.Thread(target=daemon.trace, args=(1,))
    first.start()
    assert recording.wait(PATIENCE)
    with pytest.raises(TooMany, match="another browser is recording a trace"):
        daemon.trace(1)
    go_on.set()
    first.join()
    assert daemon.trace(1)["steps"] == 1


# --- tokens ------------------------------------------------------------------------------------


def kept(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "token"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_token_comes_from_a_file_of_its_owner(tmp_path: Path) -> None:
    assert tokens.from_file(kept(tmp_path, TOKEN + "\n")) == TOKEN
    assert len(tokens.drawn()) == 32 and tokens.drawn() != tokens.drawn()


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [(TOKEN, 0o640, "has mode 0640"), (TOKEN, 0o604, "has mode 0604"), ("short", 0o600, "random"),
     (TOKEN + " x", 0o600, "random"), ("\xe9" * 40, 0o600, "random"),
     ("a" * 2000, 0o600, "random")],
)  # fmt: skip
def test_what_others_know_or_can_guess_is_refused(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    with pytest.raises(BadConfig, match=says):
        tokens.from_file(kept(tmp_path, text, mode))


def test_a_file_that_is_missing_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["page", "--listen", "127.0.0.1:0", "--token-file", str(tmp_path / "none")]
    assert command.main(words) == 2
    assert "openssl rand -hex 32" in capsys.readouterr().err
    assert stat.S_ISDIR(tmp_path.stat().st_mode)


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for listen in ("localhost:1", "127.0.0.1", "7480", "127.0.0.1:99999"):
        assert command.main(["page", "--listen", listen]) == 2
        assert "is not an IP address and a port" in capsys.readouterr().err
