"""Looks whether engines answer and clients can connect, and tells the watchdog."""

import asyncio
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.clients.session_socket import SessionSocket
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.notify import ALIVE, Notifier

ROUNDS: Final = 4  # per limit: ask in one, answer in the next; one may fail
ASLEEP: Final = 3  # of them between two looks at engines that sleep; the last is for the answer


async def watch(
    engines: Engines,
    condition: Condition,
    notify: Notifier,
    session_socket: SessionSocket,
) -> None:
    """Tell `condition`, and the manager that `notify` reaches, at least every `condition.limit`
    seconds that the control process runs and all engines answer. A missing ping makes the manager
    restart the daemon; without a manager, `condition` alone.

    A busy engine answers late: silence of less than half of the limit does no harm. One that sleeps
    is not woken: a look after three quarters of the limit finds whether it still does, and if not,
    the last quarter is for its answer.
    """
    asleep = False
    while True:
        turn = condition.limit / ROUNDS
        await asyncio.sleep(turn * ASLEEP if asleep else turn)
        if (problem := session_socket.problem) and not condition.detached:
            log.error("socket_gone", text=problem)
        condition.detached = problem
        asleep = engines.asleep
        if asleep or await engines.answer(turn):
            condition.proved(engines.failing)
            notify(ALIVE)
        else:
            log.warning("engine_silent", seconds=turn)
