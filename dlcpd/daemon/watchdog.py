"""Looks whether engines answer and clients can connect, and tells the watchdog."""

import asyncio
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.clients.session_socket import SessionSocket
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.notify import ALIVE, notify

ROUNDS: Final = 4  # per limit: ask in one, answer in the next; one may fail


async def watch(
    engines: Engines, condition: Condition, target: str, session_socket: SessionSocket
) -> None:
    """Tell `condition`, and the manager at `target`, at least every `condition.limit` seconds that
    the control process runs and all engines answer. A missing ping makes the manager restart the
    daemon; without a target, `condition` alone.

    A busy engine answers late: silence of less than half of the limit does no harm. One that sleeps
    is not woken: a look in each half finds whether it still does, and if not, the other half is for
    its answer.
    """
    asleep = False
    while True:
        pause = condition.limit / ROUNDS * (2 if asleep else 1)
        await asyncio.sleep(pause)
        if (problem := session_socket.problem) and not condition.detached:
            log.error("socket_gone", text=problem)
        condition.detached = problem
        asleep = engines.asleep
        if asleep or await engines.answer(pause):
            condition.proved(engines.failing)
            notify(target, ALIVE)
        else:
            log.warning("engine_silent", seconds=pause)
