"""SIGHUP, and what the service manager hears of it."""

import asyncio
import signal
from collections.abc import Callable

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon import log
from dlcpd.daemon.notify import READY, notify, reloading


class ReloadSignal:
    """Calls `reload` for each SIGHUP between `serve` and `end`. One that comes before waits for
    `serve`; one that comes after changes nothing."""

    def __init__(self, reload: Callable[[], None], target: str) -> None:
        """`reload` raises BadConfig, OSError; `target`: as for `notify`."""
        self._reload, self._target = reload, target
        self._serving = self._asked = self._ending = False

    def install(self) -> None:
        """From now on the signal does not end the process."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._came)

    def serve(self) -> None:
        """The daemon is ready."""
        self._serving = True
        if self._asked:
            self._came()

    def end(self) -> None:
        """The daemon ends."""
        self._ending = True

    def _came(self) -> None:
        if self._ending:  # the manager has heard STOPPING, and its files may be those of the next
            log.warning("reload_ignored", text="this daemon is ending: the next one reads the file")
            return
        if not self._serving:
            self._asked = True
            return
        notify(self._target, reloading())
        try:
            self._reload()
        except (BadConfig, OSError) as exc:  # all of the old configuration stays in force
            log.error("reload_refused", code=BadConfig.code, text=exc)
        notify(self._target, READY)
