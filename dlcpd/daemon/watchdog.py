"""Looks whether engines answer and clients can connect, and tells the watchdog."""

import asyncio
from collections.abc import Callable
from typing import Final

from dlcpd.daemon import log
from dlcpd.daemon.clients.session_socket import SessionSocket
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.notify import ALIVE, Notifier

ROUNDS: Final = 4  # per limit: ask in one, answer in the next; one may fail
IDLE: Final = 3  # of them between two looks at an engine that sleeps, without sessions and manager


async def watch(
    engines: Engines,
    condition: Condition,
    notify: Notifier,
    session_socket: SessionSocket,
    idle: Callable[[], bool],
) -> None:
    """Tell `condition`, and the manager that `notify` reaches, at least every `condition.limit`
    seconds that the control process runs and all engines answer. A missing ping makes the manager
    restart the daemon; without a manager, `condition` alone.

    A busy engine answers late: silence of less than half of the limit does no harm. One that sleeps
    is not woken: a look in each half finds whether it still does, and if not, the other half is for
    its answer. While the daemon is `idle`, without sessions, no work keeps an engine from its
    answer: a quarter is enough where no manager would end it.
    """
    asleep = False
    while True:
        rounds = IDLE if asleep and idle() and not notify else 1 + asleep
        await asyncio.sleep(condition.limit / ROUNDS * rounds)
        if (problem := session_socket.problem) and not condition.detached:
            log.error("socket_gone", text=problem)
        condition.detached = problem
        asleep = engines.asleep
        within = condition.limit / ROUNDS * min(rounds, ROUNDS - rounds)
        if asleep or await engines.answer(within):
            condition.proved(engines.failing)
            notify(ALIVE)
        else:
            log.warning("engine_silent", seconds=within)
