"""HTTP server of the page: static files, and two requests to what it shows. It changes nothing."""

import ipaddress
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from http.server import HTTPServer
from importlib import resources
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, urlsplit

from dlcpd import __version__
from dlcpd.contract.errors import AddressUnavailable, DlcpError
from dlcpd.daemon.http import FewAtOnce, WholeRequest
from dlcpd.page.daemon import MAX_STEPS
from dlcpd.page.page_token import told

# A page requests one thing at a time, and its files at once; for a handful of users.
MAX_REQUESTS: Final = 12
WEB: Final = resources.files("dlcpd.page") / "web"
FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/timeline.js": ("timeline.js", "text/javascript; charset=utf-8"),
    "/look.css": ("look.css", "text/css; charset=utf-8"),
    "/uplot.js": ("uplot.js", "text/javascript; charset=utf-8"),
    "/uplot.css": ("uplot.css", "text/css; charset=utf-8"),
}
HEADERS: Final = {
    # Nothing from other servers, nothing inline: names that peers choose can never run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
JSON: Final = "application/json"


def is_loopback(host: str) -> bool:
    """Whether an address, as `listening` takes it, is loopback."""
    return ipaddress.ip_address(host).is_loopback


class Shown(Protocol):
    """What a page shows: a daemon, or a job."""

    def status(self) -> dict[str, Any]:
        """Report and alarms. Raises: DlcpError."""

    def trace(self, steps: int) -> dict[str, Any]:
        """A recording. Raises: DlcpError."""


def server(address: tuple[str, int], shown: Shown, token: str) -> HTTPServer:
    """A server that listens; `token`: "" = none is needed. Raises: AddressUnavailable."""
    try:
        handler = type("Looks", (_Looks,), {"shown": shown, "token": token})
        return FewAtOnce(address, handler, at_once=MAX_REQUESTS)
    except OSError as exc:
        host, port = address
        raise AddressUnavailable(
            f"--listen {host} port {port}: {exc.strerror}; choose another"
        ) from exc


_STEPS: Final = re.compile("[1-9][0-9]{0,3}")  # one spelling of each number, in ASCII


def names_us(host: str) -> bool:
    """Whether a request's Host is an address or `localhost`, and no name of a web page.

    DNS rebinding: a page whose name resolves to this host could read this server's answers. Pages
    cannot have an address as their name.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost":
            return True
        address = ipaddress.ip_address(name)
        # Old browsers, which do not send Sec-Fetch-Site, let pages of other sites reach this host
        # by 0.0.0.0, in any spelling.
        return not (getattr(address, "ipv4_mapped", None) or address).is_unspecified
    except ValueError:
        return False


class _Looks(WholeRequest):
    """One request of a browser."""

    shown: Shown
    token: str
    server_version, sys_version = f"dlcpctl/{__version__}", ""

    def do_GET(self) -> None:
        target = urlsplit(self.path)
        if refusal := self._refusal(target.path):
            self._refuse(*refusal)
        elif target.path in FILES:
            name, kind = FILES[target.path]
            self._answer(HTTPStatus.OK, kind, (WEB / name).read_bytes())
        elif target.path == "/status":
            self._ask(self.shown.status)
        else:
            self._record(dict(parse_qsl(target.query)).get("steps", ""))

    def _refusal(self, path: str) -> tuple[HTTPStatus, str] | None:
        """Why this request is refused, or None. The files hold no secrets: all may read them."""
        if not self.token and not names_us(self.headers.get("Host", "")):
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                "ask for the page by address or by the name localhost",
            )
        if path in FILES:
            return None
        if path not in ("/status", "/trace"):
            return HTTPStatus.NOT_FOUND, "the paths are /, /status and /trace"
        if self.token and not told(self.token, self.headers.get("Authorization")):
            return HTTPStatus.UNAUTHORIZED, "the token is missing or wrong"
        # Browsers set this header, and a page of another site cannot change it.
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return HTTPStatus.FORBIDDEN, "only the page of this server may ask for this"
        return None

    def _record(self, steps: str) -> None:
        if not _STEPS.fullmatch(steps) or int(steps) > MAX_STEPS:
            self._refuse(HTTPStatus.BAD_REQUEST, f"/trace?steps=1..{MAX_STEPS}")
            return
        self._ask(lambda: self.shown.trace(int(steps)))

    def _ask(self, what: Callable[[], dict[str, Any]]) -> None:
        try:
            found = what()
        except DlcpError as exc:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(exc))
            return
        self._answer(HTTPStatus.OK, JSON, json.dumps(found).encode())

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, JSON, json.dumps({"error": why}).encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # names of BaseHTTPRequestHandler
        """Log nothing: a line per request of a browser has no use."""
