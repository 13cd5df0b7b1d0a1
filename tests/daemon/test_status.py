"""A status always fits one packet; the largest part that may be missing goes first."""

from typing import Any

import pytest

from dlcpd.contract.messages import MAX_FRAME, Status
from dlcpd.daemon.status import fitting
from dlcpd.ipc.seqpacket import decode_untrusted

ROW = "x" * 100
FULL = MAX_FRAME // len(ROW)  # rows that do not fit


def status(*, ledger: int = 0, paths: int = 0, sessions: int = 0) -> dict[str, Any]:
    return {
        "host": "host-a",
        "sessions": [ROW] * sessions,
        "engine": {
            "paths": [ROW] * paths,
            "sessions": {"7": {"open": 1, "ledger": [ROW] * ledger}},
        },
    }


def shown(value: dict[str, Any]) -> dict[str, Any]:
    packet = fitting(value)
    assert len(packet) <= MAX_FRAME
    message = decode_untrusted(packet)
    assert isinstance(message, Status)
    return message.report


def test_what_fits_is_whole() -> None:
    small = status(ledger=10, paths=10, sessions=10)
    assert shown(small) == small


def test_ledgers_go_first() -> None:
    report = shown(status(ledger=FULL, paths=1, sessions=1))
    assert report["truncated"] is True
    assert report["engine"] == {"paths": [ROW], "sessions": {"7": {"open": 1, "ledger": []}}}
    assert report["sessions"] == [ROW]


@pytest.mark.parametrize("engine", [None, {"error": "silent"}], ids=["engine", "no_engine"])
def test_sessions_go_last(engine: dict[str, Any] | None) -> None:
    report = shown(status(ledger=FULL, paths=FULL, sessions=1))
    assert report["sessions"] == [ROW] and "error" in report["engine"]
    everything = status(ledger=1, paths=1, sessions=FULL)
    report = shown(everything | ({"engine": engine} if engine else {}))
    assert report["sessions"] == [] and report["host"] == "host-a"
