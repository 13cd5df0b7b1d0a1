"""Reports of other hosts: from their pages, by HTTP, with the token that browsers need."""

import http.client
import json
import socket
import threading
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from dlcpd.contract.errors import BadConfig, BadMessage, DaemonUnavailable

TIMEOUT: Final = 5.0  # seconds for each step of an exchange
DEADLINE: Final = 20.0  # seconds for a connected exchange: a page may send byte by byte
MAX_ANSWER: Final = 32 << 20  # bytes; 256 ranks with 16 paths have 15 MiB
MAX_WHY: Final = 300  # characters of a refusal that are repeated
Document = dict[str, Any]


class RemotePage:
    """The page at `url`, of another `dlcpctl page`. `token`: "" = none is sent.

    Raises: BadConfig if it is no URL of a page.
    """

    def __init__(self, url: str, token: str) -> None:
        self.name = url
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname, parts.port
        except ValueError as exc:
            raise BadConfig(f"--of {url[:8]}...: {exc}; give http://HOST:PORT/") from exc
        more = parts.username or parts.password or parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not self._host or more:
            raise BadConfig(  # which does not repeat what may be a secret
                f"--of {parts.scheme}://{self._host or ''}...: give http://HOST:PORT/ of a page, "
                "or a session socket; a token comes from --token-file"
            )
        self._secure = parts.scheme == "https"
        self._path = f"{parts.path.rstrip('/')}/status"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def status(self) -> Document:
        """The page's document. Redirections are not followed: they would get the token.

        Raises: DaemonUnavailable, BadMessage.
        """
        status, body = self._answer()
        try:
            found = json.loads(body)
            if status != http.HTTPStatus.OK:
                raise DaemonUnavailable(f"{self.name}: {str(found['error'])[:MAX_WHY]}")
        except (ValueError, RecursionError, KeyError, TypeError) as exc:
            raise BadMessage(f"{self.name}: answers as no page of dlcpctl (HTTP {status})") from exc
        if not isinstance(found, dict):
            raise BadMessage(f"{self.name}: answers as no page of dlcpctl")
        return found

    def _answer(self) -> tuple[int, bytes]:
        """Status and body."""
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(str(self._host), self._port, timeout=TIMEOUT)
        guard: threading.Timer | None = None
        try:
            connection.connect()
            guard = threading.Timer(DEADLINE, _cut, [connection.sock])
            guard.start()
            connection.request("GET", self._path, headers=self._headers)
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER + 1)
        except (OSError, http.client.HTTPException) as exc:
            why = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
            raise DaemonUnavailable(
                f"{self.name}: no page answers ({why}); start dlcpctl page there"
            ) from exc
        finally:
            if guard is not None:
                guard.cancel()
            connection.close()
        if len(body) > MAX_ANSWER:
            raise BadMessage(f"{self.name}: its report has more than {MAX_ANSWER} B")
        return answer.status, body


def _cut(connected: socket.socket) -> None:
    """End an exchange from another thread."""
    with suppress(OSError):  # it has just ended
        connected.shutdown(socket.SHUT_RDWR)
