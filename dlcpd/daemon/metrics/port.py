"""The port of `[metrics] listen`: a daemon serves jobs without it while something else has it."""

import asyncio
from ipaddress import ip_address
from ssl import CERT_REQUIRED
from typing import Final

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.daemon import log
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.config.tables import MetricsTable
from dlcpd.daemon.metrics.server import Ask, MetricsServer, check_installed
from dlcpd.daemon.metrics.web_config import load

RETRY: Final = 10.0  # seconds until a port that was taken is tried again


class MetricsPort:
    """Serves from `start` until `close`, if there is a port."""

    def __init__(self, table: MetricsTable, ask: Ask, condition: Condition) -> None:
        """`ask` runs on the event loop of `start`. Raises: BadConfig."""
        if table.listen:
            check_installed()
        self._table, self._ask, self._condition = table, ask, condition
        self._web = load(table.web_config)
        self._server: MetricsServer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.problem = ""  # why it is not served

    def read_again(self) -> None:
        """Use the TLS files and users of now. Raises: BadConfig; then those of before stay."""
        self._web = load(self._table.web_config)

    def start(self) -> None:
        """Serve now, or as soon as the port is free."""
        if self._table.listen:
            self._open()

    async def close(self) -> None:
        """Stop serving."""
        if self._timer:
            self._timer.cancel()
        if self._server:
            await self._server.close()

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = MetricsServer(
                self._table.address, loop, self._ask, self._condition, lambda: self._web
            )
        except AddressUnavailable as exc:
            if not self.problem:
                log.error("metrics_unavailable", code=exc.code, text=exc)
            self.problem = str(exc)
            self._timer = loop.call_later(RETRY, self._open)
            return
        self.problem = ""
        host, port = self._server.address
        log.info("metrics", address=host, port=port)
        verified = self._web.tls is not None and self._web.tls.verify_mode is CERT_REQUIRED
        if not (ip_address(host).is_loopback or self._web.users or verified):
            text = f"every client that reaches {host} port {port} can read names of jobs and hosts"
            log.warning("metrics_open", text=text)
