"""Entries of systemd's journal, with fields of their own, in its native protocol.

A datagram per entry: KEY=VALUE and a newline, or, where the value has newlines, KEY, a newline,
the length as u64, the value and a newline. Source: systemd.io/JOURNAL_NATIVE_PROTOCOL. An entry
of the daemon has some twenty values of bounded length, so it fits a datagram, and the descriptors
that the protocol has for larger ones are never needed.
"""

import logging
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.job_name import given

SOCKET: Final = Path("/run/systemd/journal/socket")
PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3}  # of syslog
MAX_VALUE: Final = 2048  # characters of one value: a hostile text must not flood the journal
# Events worth an alert, by ids that all versions share: `journalctl MESSAGE_ID=`.
MESSAGE_IDS: Final = {
    "ready": "65d5862b4dc94f569a78aab551eb6f5a",
    "stopped": "3af252ae92054fada21665bb51a21224",
    "engine_lost": "b0117ae38a6448269436d2cb04c53f92",
    "engine_silent": "eefe5c526cc44a68aceb4c0975f5869c",
    "session_broken": "bbb63f50f29c4eccab8d58df33b9c9c9",
    "operation_failed": "881996cf83cc4d69b0b083e027a6f655",
    "path_down": "946ce8b0b91c45e0bee5746af7a31279",
    "path_gray": "b6d5a8d858a64e26b77e3965ff837fdf",
    "peer_suspected": "4c8f3a0e7b1d4e52a96f0d3c5b7e8a14",
    "peer_heard": "9e27d5b1c06f4a7d8b3e1f94a5d2c670",
    "path_mtu_fell": "d5e17b13256b4efd9617f42f25c1ba85",
    "ledger_ended": "184ce44585c5402081b3274674cff338",
    "reload_refused": "19e41908eb2d44e69ecc5a66081c7bc3",
    "internal": "2bef80e6a07d46a89160977ed01248d1",
}


class Journal(logging.Handler):
    """Sends entries to the journal at `to`; entries that it does not take go to `otherwise`."""

    def __init__(self, to: Path, lines: logging.Formatter, otherwise: logging.Handler) -> None:
        super().__init__()
        self._to, self._otherwise = str(to), otherwise
        self.setFormatter(lines)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)  # a journal that hangs must block no session

    def emit(self, record: logging.LogRecord) -> None:
        entry = encode(fields(record) | {"MESSAGE": self.format(record)})
        try:
            self._socket.sendto(entry, self._to)
        except OSError:  # it restarts, or is overrun; the stream has a buffer of its own
            self._otherwise.emit(record)

    def close(self) -> None:
        self._socket.close()
        super().close()


def fields(record: logging.LogRecord) -> dict[str, str]:
    """The fields of an entry, without its message."""
    event = record.getMessage()
    found = {
        "PRIORITY": str(PRIORITIES[record.levelname]),
        "SYSLOG_IDENTIFIER": "dlcpd",
        "DLCPD_EVENT": event,
    }
    if event in MESSAGE_IDS:
        found["MESSAGE_ID"] = MESSAGE_IDS[event]
    for key, value in getattr(record, "dlcpd", {}).items():
        if value is not None:
            found |= {name: text[:MAX_VALUE] for name, text in _of(key.upper(), value).items()}
    return found


def _of(key: str, value: Any) -> dict[str, str]:
    """Fields of one value: a session's job and rank, a peer's rank and host, or the value."""
    if key == "SESSION" and hasattr(value, "membership"):
        job, rank = value.name
        return {"DLCPD_JOB": given(job), "DLCPD_LAUNCH": job, "DLCPD_RANK": str(rank)}
    if key == "PEER" and hasattr(value, "rank"):
        return {"DLCPD_PEER": str(value.rank), "DLCPD_PEER_HOST": value.host}
    return {f"DLCPD_{key}": str(value)}


def encode(entry: Mapping[str, str]) -> bytes:
    """The datagram of an entry."""
    parts = list[bytes]()
    for key, value in entry.items():
        data = value.encode(errors="backslashreplace")
        if b"\n" in data:
            parts.append(key.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            parts.append(key.encode() + b"=" + data + b"\n")
    return b"".join(parts)
