"""The port that Prometheus scrapes, served by its own threads. The event loop of the control
process only makes the report, as for `dlcpctl status`, and only for a scrape.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from importlib.util import find_spec
from socket import socket
from typing import Any, Final
from urllib.parse import urlsplit

from dlcpd.contract.errors import AddressUnavailable, BadConfig
from dlcpd.daemon import log
from dlcpd.daemon.child import NO_MORE
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.http import TIMEOUT, FewAtOnce, WholeRequest
from dlcpd.daemon.metrics.web_config import WebConfig

MAX_SCRAPES: Final = 8  # at once: a pair of Prometheus servers, and curl
MAX_REQUESTS: Final = 12  # at once: scrapes, which may wait for the daemon, and probes
METRICS: Final = "/metrics"
PROBES: Final = {"/-/healthy": "healthy", "/-/ready": "ready"}  # path: field of Health
LOOK: Final = 0.005  # seconds between looks whether the thread has ended
FRESH: Final = 1.0  # seconds for which further scrapes get the same report
Report = dict[str, Any]
Ask = Callable[[], Awaitable[Report]]


def check_installed() -> None:
    """Raises: BadConfig where the library that writes metrics is missing."""
    if find_spec("prometheus_client") is None:
        raise BadConfig(
            "[metrics] listen needs prometheus-client, which is not installed: "
            "pip install 'dlcpd[metrics]', or leave listen out"
        )


class Busy(Exception):
    """Enough scrapes are being answered."""


class Reports:
    """A collector of prometheus_client, whose threads get the report from the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ask: Ask) -> None:
        self._loop, self._ask = loop, ask
        self._lock, self._room = threading.Lock(), threading.Semaphore(MAX_SCRAPES)
        self._report: Report = {}
        self._at = self._failed_at = float("-inf")

    def collect(self) -> Iterator[Any]:
        """Raises: Busy; TimeoutError when control is too busy, RuntimeError when it has ended."""
        from dlcpd.daemon.metrics.collector import samples  # noqa: PLC0415  # an extra

        came = time.monotonic()
        if not self._room.acquire(blocking=False):
            raise Busy(f"{MAX_SCRAPES} scrapes wait for the daemon")
        try:
            return iter(samples(self._newest(came)))
        finally:
            self._room.release()

    def _newest(self, came: float) -> Report:
        """A report for a scrape that came at a time. Scrapes that wait for the same report end
        together, without one too."""
        with self._lock:
            if self._failed_at > came:
                raise TimeoutError("the report for another scrape did not come")
            if time.monotonic() - self._at > FRESH:
                try:
                    self._report = self._asked().result(TIMEOUT)
                except BaseException:
                    self._failed_at = time.monotonic()
                    raise
                self._at = time.monotonic()
            return self._report

    def _asked(self) -> "Future[Report]":
        async def ask() -> Report:
            return await self._ask()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop)


class MetricsServer:
    """Serves from construction until `close`."""

    def __init__(
        self,
        address: tuple[str, int],
        loop: asyncio.AbstractEventLoop,
        ask: Ask,
        condition: Condition,
        web: Callable[[], WebConfig] = WebConfig,
    ) -> None:
        """`web`: for each connection. Raises: AddressUnavailable."""
        try:
            self._server = _Server(address, Reports(loop, ask), condition, web)
        except OSError as exc:
            host, port = address
            raise AddressUnavailable(
                f"[metrics] listen {host} port {port}: {exc.strerror}; choose another"
            ) from exc
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as exc:
            self._server.server_close()
            raise AddressUnavailable(f"[metrics] listen: {NO_MORE}") from exc

    @property
    def address(self) -> tuple[str, int]:
        """Address and port it listens on; port 0 is resolved."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    async def close(self) -> None:
        """Stop serving."""
        self._server.end()
        while self._thread.is_alive():  # a thread that waits for it may be one too many
            await asyncio.sleep(LOOK)
        self._server.server_close()


class _Server(FewAtOnce):
    def __init__(
        self,
        address: tuple[str, int],
        reports: Reports,
        condition: Condition,
        web: Callable[[], WebConfig],
    ) -> None:
        self.reports = reports
        super().__init__(address, _handler(reports, condition, web), at_once=MAX_REQUESTS)

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        log.debug("scrape_broken", client=client_address)  # it hung up, or was silent


class _Guarded(WholeRequest):
    """A request by the TLS and the users of `rules`, as they are when it comes."""

    rules: Callable[[], WebConfig]

    def setup(self) -> None:
        """Raises: OSError."""
        self._rules = self.rules()
        if self._rules.tls:
            self.request.settimeout(TIMEOUT)  # of the whole handshake
            self.request = self._rules.tls.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
        try:
            super().setup()
        except BaseException:  # then `finish` is not called
            self.request.close()
            raise

    def shake_hands(self) -> None:
        """Here, so that a silent client blocks this thread alone. Raises: OSError."""
        if self._rules.tls:
            self.request.do_handshake()

    def finish(self) -> None:
        """Send the answer."""
        try:
            super().finish()
        finally:
            if self._rules.tls:
                self.request.close()  # the server has the socket without TLS, which is detached

    def admitted(self) -> bool:
        """Whether the client is a user; else it is told to name one."""
        if self._rules.admits(self.headers.get("Authorization")):
            return True
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="dlcpd"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False


def _handler(reports: Reports, condition: Condition, web: Callable[[], WebConfig]) -> Any:
    """prometheus_client's request handler, and PROBES, for which no engine and no event loop is
    asked; answers 503 if the daemon does not answer in time."""
    from prometheus_client import (  # noqa: PLC0415  # an extra
        CollectorRegistry,
        MetricsHandler,
        ProcessCollector,
    )

    made = CollectorRegistry(auto_describe=False)
    made.register(reports)
    ProcessCollector(registry=made)

    class Handler(_Guarded, MetricsHandler):
        registry = made

        rules = staticmethod(web)

        def do_GET(self) -> None:
            if not self.admitted():
                return
            path = urlsplit(self.path).path
            if field := PROBES.get(path):
                self._answer_probe(field)
                return
            if path != METRICS:  # a probe of a path that is mistyped must fail
                self._answer(404, f"the paths are {METRICS}, {', '.join(PROBES)}")
                return
            try:
                super().do_GET()
            except Busy as exc:
                self.send_error(503, str(exc))
            except (TimeoutError, RuntimeError) as exc:
                log.warning("scrape_failed", text=exc)
                self.send_error(503, "the daemon did not answer in time")

        def _answer_probe(self, field: str) -> None:
            health = condition.health()
            good = getattr(health, field)
            said = field if good else f"not {field}: {health.text}"
            self._answer(200 if good else 503, said)

        def _answer(self, status: int, text: str) -> None:
            body = f"{text}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
