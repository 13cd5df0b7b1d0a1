"""Addresses that the configuration leaves to the daemon: those of the default route, which a host
may get, or change, after the daemon has started.
"""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Final

from dlcpd.contract.errors import DlcpError
from dlcpd.daemon import log
from dlcpd.daemon.address_news import AddressNews
from dlcpd.daemon.config.effective import Automatic, default_address
from dlcpd.daemon.config.tables import Config

SETTLE: Final = 0.3  # seconds from a change to the look: an interface brings several
AGAIN: Final = 2.0  # seconds until the next look while sessions are open, or after a failed move
ALONE: Final = (
    "there is no default route, so the daemon listens on loopback: no other host reaches it. It "
    "moves when there is one; or give [daemon] control_address and an address in [network] paths"
)


class Addresses:
    """Follows the default route while no client uses the daemon's addresses."""

    def __init__(
        self,
        automatic: Automatic,
        *,
        in_use: Callable[[], bool],
        move: Callable[[str], Awaitable[None]],
        look: Callable[[], str] = default_address,
    ) -> None:
        """`move` raises DlcpError if it fails; then the daemon's addresses are those of before."""
        self._automatic, self._in_use, self._move, self._look = automatic, in_use, move, look
        self._address = ""  # in use
        self._news: AddressNews | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._moving: asyncio.Task[None] | None = None
        self.problem = ""  # why other hosts may not reach the daemon; empty: they may

    def start(self, config: Config) -> None:
        """Follow from now on. `config`: in force."""
        self._address = self._automatic.address(config)
        if self._address:
            self._news = AddressNews(asyncio.get_running_loop(), self.soon)
            self._check()

    def close(self) -> None:
        """Follow no more."""
        if self._news:
            self._news.close()
            self._news = None
        if self._timer:
            self._timer.cancel()
        if self._moving:
            self._moving.cancel()

    def soon(self) -> None:
        """Something may have changed: look once, after SETTLE."""
        if self._news:
            self._check_in(SETTLE)

    def _check_in(self, seconds: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._moving:  # the end of the move looks again
            return
        found = self._look()
        if ip_address(found).is_loopback:  # a route that went may come back: stay
            self._tell(ALONE if ip_address(self._address).is_loopback else "")
        elif found == self._address:
            self._tell("")
        elif self._in_use():
            self._tell(
                f"the default route leaves at {found} now, and the daemon listens at "
                f"{self._address}: it moves when no session is open"
            )
            self._check_in(AGAIN)
        else:
            self._moving = asyncio.get_running_loop().create_task(self._moved(found))

    async def _moved(self, address: str) -> None:
        try:
            if not self._in_use():  # a client may have come since the look
                await self._move(address)
                self._address = address
                self._tell("")
        except DlcpError as exc:
            self._tell(f"the default route leaves at {address} now: {exc}")
        finally:
            self._moving = None
            if self._news:  # else it is closed
                self._check_in(AGAIN)

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("address_alarm", text=problem)
        self.problem = problem
