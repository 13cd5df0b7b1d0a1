"""SIGHUP, and what the service manager hears of it."""

import asyncio
import signal
from collections.abc import Callable
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon import early_signals, log
from dlcpd.daemon.notify import READY, Notifier, reloading

REST: Final = 1.0  # seconds after a reload; all signals in it make one further reload


class ReloadSignal:
    """Calls `reload` after each SIGHUP between `serve` and `end`, once for those that come within
    REST. One that comes before waits for `serve`; one that comes after changes nothing."""

    def __init__(self, reload: Callable[[], None], notify: Notifier) -> None:
        """`reload` raises BadConfig, OSError."""
        self._reload, self._notify = reload, notify
        self._serving = self._asked = self._ending = self._resting = False

    def install(self) -> None:
        """From now on the signal does not end the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._came)
        early_signals.reload_on_signal()

    def serve(self) -> None:
        """The daemon is ready."""
        self._serving = True
        if self._asked:
            self._carry_out()

    def end(self) -> None:
        """The daemon ends."""
        self._ending, self._asked = True, False

    def _came(self) -> None:
        if self._asked:
            return
        self._asked = True
        if self._ending:  # the manager has heard STOPPING, and its files may be those of the next
            log.warning("reload_ignored", text="this daemon is ending: the next one reads the file")
        elif self._serving and not self._resting:
            self._carry_out()

    def _carry_out(self) -> None:
        self._asked, self._resting = False, True
        asyncio.get_running_loop().call_later(REST, self._rested)
        self._notify(reloading())
        try:
            self._reload()
        except (BadConfig, OSError) as exc:  # all of the old configuration stays in force
            log.error("reload_refused", code=BadConfig.code, text=exc)
        self._notify(READY)

    def _rested(self) -> None:
        self._resting = False
        if self._asked and not self._ending:
            self._carry_out()
