"""Structured logs on stderr: one event a line, as logfmt or JSON.

`code` is the field that carries an error's stable token, see dlcpd.contract.errors.
"""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dlcpd.daemon import journal
from dlcpd.daemon.journal import PRIORITIES, SOCKET, Journal
from dlcpd.daemon.log_stream import LogStream

MAX_VALUE: Final = journal.MAX_VALUE  # characters of one value
_LOGGER: Final = logging.getLogger("dlcpd")


def configure(level: str, style: str, *, to_journal: Path | None = None) -> None:
    """Log to stderr from now on: `level` as in logging, `style` "logfmt" or "json".

    `to_journal`: stderr is systemd's journal; entries with fields go to this socket of it. An entry
    that the socket does not take goes to stderr, as a line with its priority.
    """
    handler: logging.Handler = LogStream(sys.stderr)
    lines = _Json() if style == "json" else _Logfmt()
    handler.setFormatter(_Prioritised(lines) if to_journal else lines)
    if to_journal:
        handler = Journal(to_journal, lines, handler)
    for before in _LOGGER.handlers:
        before.close()
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False


def debug(event: str, **fields: Any) -> None:
    """Details for debugging dlcpd itself."""
    _LOGGER.debug(event, extra={"dlcpd": fields})


def info(event: str, **fields: Any) -> None:
    """An event that an operator may look for later."""
    _LOGGER.info(event, extra={"dlcpd": fields})


def warning(event: str, **fields: Any) -> None:
    """Something went wrong for one session; the daemon goes on."""
    _LOGGER.warning(event, extra={"dlcpd": fields})


def error(event: str, **fields: Any) -> None:
    """Something went wrong for the daemon."""
    _LOGGER.error(event, extra={"dlcpd": fields})


def _columns(record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")
    fields: dict[str, Any] = getattr(record, "dlcpd", {})
    values = {key: _plain(value) for key, value in fields.items() if value is not None}
    return {"ts": at, "level": record.levelname.lower(), "event": record.getMessage(), **values}


def _plain(value: Any) -> Any:
    """Numbers and short lists as they are, anything else as a text of bounded length."""
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    return value if isinstance(value, list) and len(text) <= MAX_VALUE else text[:MAX_VALUE]


def journal_of(stream: str) -> Path | None:
    """The journal's socket if stderr is `stream` ("device:inode", JOURNAL_STREAM), else None."""
    found = os.fstat(sys.stderr.fileno())
    return SOCKET if stream == f"{found.st_dev}:{found.st_ino}" else None


class _Prioritised(logging.Formatter):
    """The lines of another formatter, each after its priority. Source: sd-daemon(3)."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        return f"<{PRIORITIES[record.levelname]}>{self._lines.format(record)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_columns(record))


class _Logfmt(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_logfmt(value)}" for key, value in _columns(record).items())


def _logfmt(value: Any) -> str:
    text = str(value)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=')
    return text if plain and text else json.dumps(text)
