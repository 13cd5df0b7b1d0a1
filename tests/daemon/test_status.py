"""A status always fits one packet; the largest part that may be missing goes first."""

from typing import Any

import pytest

from dlcpd.contract.frames import decode_untrusted
from dlcpd.contract.messages import MAX_FRAME, Status
from dlcpd.daemon.status import fitting

ROW = {"text": "x" * 100}
FULL = MAX_FRAME // 100  # rows that do not fit


def status(*, ledger: int = 0, peers: int = 0, sessions: int = 1) -> dict[str, Any]:
    """What a daemon knows, with so many rows for each session."""
    return {
        "host": "host-a",
        "sessions": [
            {"session": n, "state": "open", "peers": [ROW] * peers} for n in range(sessions)
        ],
        "engine": {
            "counters": {"token": 1},
            "sessions": {
                str(n): {"open": 1, "peers": [ROW] * peers, "ledger": [ROW] * ledger}
                for n in range(sessions)
            },
        },
    }


def shown(value: dict[str, Any]) -> dict[str, Any]:
    packet = fitting(value)
    assert len(packet) <= MAX_FRAME
    message = decode_untrusted(packet)
    assert isinstance(message, Status)
    return message.read()


def test_what_fits_is_whole() -> None:
    small = status(ledger=10, peers=10, sessions=10)
    assert shown(small) == small


def test_ledgers_go_first() -> None:
    report = shown(status(ledger=FULL, peers=2))
    assert report["truncated"] is True
    assert report["engine"]["sessions"]["0"] == {"open": 1, "peers": [ROW] * 2, "ledger": []}
    assert report["sessions"][0]["peers"] == [ROW] * 2


@pytest.mark.parametrize("sessions", [1, 8, 64])
def test_the_last_peers_go_next_and_each_session_stays(sessions: int) -> None:
    report = shown(status(peers=FULL, sessions=sessions))
    assert report["truncated"] is True and "error" not in report["engine"]
    assert report["engine"]["counters"] == {"token": 1}
    assert [row["state"] for row in report["sessions"]] == ["open"] * sessions
    assert len(report["engine"]["sessions"]) == sessions
    assert all(row["peers"] for row in report["sessions"])


@pytest.mark.parametrize("engine", [None, {"error": "silent"}], ids=["engine", "no_engine"])
def test_sessions_go_last(engine: dict[str, Any] | None) -> None:
    everything = status(peers=1, sessions=MAX_FRAME // 10)
    report = shown(everything | ({"engine": engine} if engine else {}))
    assert report["host"] == "host-a" and report["truncated"] is True
    assert 0 < len(report["sessions"]) < MAX_FRAME // 10
