"""Watchdog pings to the service manager, which restarts a daemon that sends none."""

import asyncio
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.notify import ALIVE, notify

ROUNDS: Final = 4  # per limit of the manager: ask in one, answer in the next; one may fail


async def watch(engines: Engines, target: str, limit: float) -> None:
    """Tell the manager at `target`, at least every `limit` seconds, that the control process runs
    and all engines answer. A missing ping makes the manager restart the daemon.

    A busy engine answers late: silence of less than half of `limit` does no harm.
    """
    pause = limit / ROUNDS
    while True:
        await asyncio.sleep(pause)
        if await engines.answer(pause):
            notify(target, ALIVE)
        else:
            log.warning("engine_silent", seconds=pause)
