"""Rendering of a daemon's report; what a real daemon answers is in test_hosts and test_real."""

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from dlcpd.contract.errors import BadMessage, DaemonUnavailable, TooMany
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.inquiries import Status
from dlcpd.contract.messages import Message, Refused, Welcome
from dlcpd.ctl import main as command
from dlcpd.ctl.status import PEER_HEADER, peer_rows, status_lines
from dlcpd.inspection.report import alarms, query

PATH = {"sent": 10, "lost": 1, "in_flight": 0, "rtt": 0.00025, "congestion_window": 4096,
        "queue_delay": 0.0, "received": 9, "missing": 2}  # fmt: skip


def report(**changes: Any) -> dict[str, Any]:
    return {
        "host": "alpha",
        "version": "0.1.0",
        "commit": "1a2b3c4",
        "messages": [11, 10],
        "peers": [10],
        "uptime": 12.4,
        "draining": False,
        "pending": [],
        "unreachable": "",
        "unmeasured": "",
        "health": {"healthy": True, "ready": True, "text": ""},
        "endpoints": {"control": "tcp://10.0.0.1:5000", "data": [["10.0.0.1", 7], ["10.0.1.1", 8]]},
        "features": {"gso": True, "gro": False},
        "sessions": [
            {
                "session": 3,
                "job": "train",
                "rank": 0,
                "world_size": 2,
                "state": "open",
                "broken": "",
                "arena_bytes": 1 << 20,
                "age": 3.6,
                "proof": "authorised keys",
                "peers": [
                    {
                        "rank": 1,
                        "host": "beta",
                        "control": "tcp://10.0.0.2:5000",
                        "data": [["10.0.0.2", 9], ["10.0.1.2", 9]],
                        "state": "up",
                        "end_reason": "",
                    }
                ],
            }
        ],
        "security": {
            "key": "k" * 40,
            "identity": "/etc/dlcpd/keys/identity.toml",
            "hosts": 3,
            "authorised": "/etc/dlcpd/keys/authorised",
            "problems": [],
        },
        "counters": {"joined": 1, "refused_bad_message": 0},
        "engine": {
            "counters": {"stale": 4, "ce": 0},
            "paths": [],
            "sessions": {
                "3": {
                    "rank": 0,
                    "submitted": 17,
                    "open": 2,
                    "residual_bytes": 1408,
                    "broken": "",
                    "peers": [{"rank": 1, "host": "beta", "window": 1, "paths": [PATH, PATH]}],
                    "ledger": [
                        {
                            "operation": 5,
                            "name": "grad",
                            "sender": 1,
                            "owner": 0,
                            "transfer": 2,
                            "segments": 3,
                            "paths": {"0": 1, "1": 2},
                        }
                    ],
                }
            },
        },
    } | changes


def test_status_says_what_there_is_to_say() -> None:
    text = "\n".join(status_lines(report()))
    assert "alpha: dlcpd 0.1.0, serving for 12 s" in text
    assert "commit 1a2b3c4, messages 11 and 10, peers 10" in text
    assert "data 10.0.0.1:7, 10.0.1.1:8" in text
    assert "train" in text
    assert "17" in text
    assert "1408" in text
    assert "control counters: joined 1\n" in text
    assert "engine counters: stale 4\n" in text
    assert text.splitlines()[-1].split() == ["5", "grad", "1", "0", "2", "3", "0:1", "1:2"]


def test_who_is_late_is_named_with_host_and_path() -> None:
    waits = report()
    late = {
        "rank": 1,
        "host": "beta",
        "address": "10.0.0.2:9",
        "late": 7.25,
        "silent": 0.12,
        "paths_down": [1],
        "awaiting": "rank(s) 1 to submit operation 812",
    }
    waits["engine"]["sessions"]["3"]["late"] = [late]
    [line] = [line for line in status_lines(waits) if "waits for" in line]
    assert line == (
        "  rank 0 waits for rank 1 on beta (10.0.0.2:9, heard 0.1 s ago, path 1 down) for 7.2 s: "
        "rank(s) 1 to submit operation 812"
    )


def test_a_peer_that_is_silent_is_named_as_suspected() -> None:
    quiet = report()
    quiet["engine"]["sessions"]["3"]["peers"][0]["silent"] = 7.25
    [line] = [line for line in status_lines(quiet) if "SUSPECTED" in line]
    assert line == (
        "  rank 0: rank 1 on beta is SUSPECTED: silent for 7.2 s; it may be paused, overloaded, "
        "cut off or dead"
    )
    quiet["engine"]["sessions"]["3"]["peers"][0]["paths"] = []
    [line] = [line for line in alarms(quiet) if line.startswith("SILENT")]
    assert line.startswith("SILENT: train, rank 0: rank 1 on beta has not answered for 7.2 s")


def test_a_path_that_is_down_or_gray_is_named_with_its_peer() -> None:
    ill = report()
    [peer] = ill["engine"]["sessions"]["3"]["peers"]
    peer["paths"] = [PATH | {"up": False}, PATH | {"up": True, "gray": True}, PATH | {"up": True}]
    assert [line for line in status_lines(ill) if "path " in line] == [
        "  rank 0: path 0 to rank 1 on beta is down",
        "  rank 0: path 1 to rank 1 on beta is gray",
    ]


def test_a_silent_engine_and_a_broken_session_stand_out() -> None:
    broken = report(engine={"error": "the engine did not answer within 3 s"})
    broken["health"] = {"healthy": True, "ready": False, "text": "draining"}
    broken["sessions"][0]["broken"] = "rank 1 on beta has not answered"
    text = "\n".join(status_lines(broken))
    assert "draining" in text
    assert "ENGINE: the engine did not answer" in text
    assert "rank 0 is broken: rank 1 on beta" in text


def test_status_says_who_may_be_a_peer() -> None:
    known = report()
    text = "\n".join(status_lines(known))
    assert "identity.toml; 3 hosts authorised by /etc/dlcpd/keys/authorised" in text
    assert "authorised keys" in text, "of a session"
    anybody = {"identity": "", "authorised": "", "problems": ["a.toml: is no TOML"]}
    open_to_all = "\n".join(status_lines(known | {"security": known["security"] | anybody}))
    assert "of this start; ANY KEY that a job names is a peer (docs/security.md)" in open_to_all
    assert "SECURITY: a.toml: is no TOML" in open_to_all


def test_peers_are_shown_path_by_path() -> None:
    rows = [dict(zip(PEER_HEADER, row, strict=True)) for row in peer_rows(report())]
    assert [row["data"] for row in rows] == ["10.0.0.2:9", "10.0.1.2:9"]
    assert {(row["host"], row["rtt(us)"], row["lost"]) for row in rows} == {("beta", "250", 1)}


@pytest.mark.parametrize(
    ("more", "word"),
    [({}, "up"), ({"gray": True}, "gray"), ({"up": False, "gray": True}, "down")],
    ids=str,
)
def test_a_path_says_how_it_is_and_whom_it_crosses(more: dict[str, Any], word: str) -> None:
    shown = report()
    path = PATH | {"up": True, "gray": False, "hops": ["10.77.0.1", "?"]} | more
    shown["engine"]["sessions"]["3"]["peers"][0]["paths"] = [path]
    [row] = [dict(zip(PEER_HEADER, row, strict=True)) for row in peer_rows(shown)]
    assert (row["is"], row["via"]) == (word, "10.77.0.1 ?")


@pytest.mark.parametrize(
    ("mtu", "search", "word"),
    [(1468, "complete", "1468"), (1340, "searching", "1340"), (0, "base", None),
     (0, "blocked", "<1280")],
)  # fmt: skip
def test_a_path_says_what_it_carries(mtu: int, search: str, word: str | None) -> None:
    shown = report()
    path = PATH | {"up": True, "mtu": mtu, "mtu_search": search}
    shown["engine"]["sessions"]["3"]["peers"][0]["paths"] = [path]
    [row] = [dict(zip(PEER_HEADER, row, strict=True)) for row in peer_rows(shown)]
    assert row["mtu"] == word


def test_a_peer_that_the_engine_does_not_know_yet_has_a_row_too() -> None:
    young = report()
    young["engine"]["sessions"] = {}
    young["sessions"][0]["peers"][0] |= {"data": [], "state": "calling"}
    [row] = peer_rows(young)
    assert dict(zip(PEER_HEADER, row, strict=True))["state"] == "calling"


class Answering:
    """A daemon that says what it is told to, one packet per request."""

    def __init__(self, path: Path, *answers: Message) -> None:
        self.path, self.asked = str(path), list[Message]()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, args=(answers,))
        self._thread.start()

    def _serve(self, answers: tuple[Message, ...]) -> None:
        client, _ = self._listener.accept()
        with client, self._listener:
            for answer in answers:
                self.asked.append(decode_untrusted(client.recv(1 << 16)))
                client.sendall(encode(answer))

    def __enter__(self) -> "Answering":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(30.0)


WELCOME = Welcome(1, "alpha", "tcp://10.0.0.1:5000", "k" * 40)


def test_query_greets_then_asks(tmp_path: Path) -> None:
    with Answering(tmp_path / "s", WELCOME, Status.of({"host": "alpha"})) as daemon:
        assert query(daemon.path, 12) == {"host": "alpha"}
    hello, request = daemon.asked
    assert type(hello).__name__ == "Hello"
    assert getattr(request, "ledger", None) == 12


def test_a_refusal_keeps_its_class(tmp_path: Path) -> None:
    with (
        Answering(tmp_path / "s", Refused("too_many", "64 clients")) as daemon,
        pytest.raises(TooMany, match="64 clients"),
    ):
        query(daemon.path, 0)


def test_another_answer_is_no_answer(tmp_path: Path) -> None:
    with (
        Answering(tmp_path / "s", WELCOME, WELCOME) as daemon,
        pytest.raises(BadMessage, match="StatusRequest with Welcome"),
    ):
        query(daemon.path, 0)


def test_a_text_that_is_not_utf_8_is_a_mistake_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Answering(tmp_path / "s", WELCOME) as daemon:
        assert command.main(["cordon", "--socket", daemon.path, "--why", "a\udcff"]) == 2
    assert capsys.readouterr().err == "dlcpctl: a text for the daemon is not UTF-8: 'a\\udcff'\n"


@pytest.mark.parametrize("answer", [b"\xff" * 100, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_another_program_behind_the_socket_is_one_error(
    answer: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path := str(tmp_path / "s"))
        listener.listen()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                while client.recv(1 << 16):
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert command.main(["health", "--socket", path]) == 1
        thread.join(30.0)
    said = capsys.readouterr().err
    assert said.startswith("dlcpctl: ") and said.count("\n") == 1 and "[bad_message]" in said


def test_a_daemon_that_hangs_up_is_named(tmp_path: Path) -> None:
    with Answering(tmp_path / "s") as daemon, pytest.raises(DaemonUnavailable):
        query(daemon.path, 0)


def test_no_daemon_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnavailable, match="--socket"):
        query(str(tmp_path / "absent"), 0)


def test_a_plan_has_a_version_once_the_job_has_changed_it() -> None:
    sessions = report()["sessions"]
    for version, shown in (
        (1, "  rank 0: plan forest: why"),
        (3, "  rank 0: plan forest: why (version 3)"),
    ):
        session = sessions[0] | {"plan": "forest: why", "plan_version": version}
        assert shown in list(status_lines(report(sessions=[session])))
