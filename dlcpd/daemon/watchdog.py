"""Signs of life for a service manager, which restarts a daemon that gives none."""

import asyncio
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.notify import ALIVE, notify

ROUNDS: Final = 4  # of the manager's limit: asked in one, answered in the next; once it may fail


async def watch(engines: Engines, target: str, limit: float) -> None:
    """Tell the manager at `target` again and again, at least every `limit` seconds, that control
    runs and all engines answer. What does not come is what tells it.

    An engine that is busy answers late: silent for less than half of `limit`, it does no harm.
    """
    pause = limit / ROUNDS
    while True:
        await asyncio.sleep(pause)
        if await engines.answer(pause):
            notify(target, ALIVE)
        else:
            log.warning("engine_silent", seconds=pause)
