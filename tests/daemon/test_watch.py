"""How often the watch wakes an idle daemon, and how long it waits for an answer."""

import asyncio
from typing import Any

import pytest

from dlcpd.daemon import watchdog
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.notify import Notifier

LIMIT = 40.0
QUARTER = LIMIT / watchdog.ROUNDS


class Over(Exception):
    """The test has seen enough."""


class Sleepers:
    """Engines in place of real ones: asleep or not, at each look; they answer never."""

    def __init__(self, *asleep: bool) -> None:
        self._asleep = list(asleep)
        self.failing = ""
        self.waits: list[tuple[str, float]] = []

    @property
    def asleep(self) -> bool:
        if not self._asleep:
            raise Over
        return self._asleep.pop(0)

    async def answer(self, within: float) -> bool:
        self.waits.append(("answer", within))
        return False


@pytest.mark.parametrize("manager", [False, True])
@pytest.mark.parametrize("idle", [False, True])
def test_an_idle_daemon_without_a_manager_wakes_each_three_quarters_of_its_limit(
    monkeypatch: pytest.MonkeyPatch, *, manager: bool, idle: bool
) -> None:
    engines: Any = Sleepers(True, True, False, False)

    async def sleep(seconds: float) -> None:
        engines.waits.append(("sleep", seconds))

    class Socket:
        problem = ""

    monkeypatch.setattr("dlcpd.daemon.watchdog.asyncio.sleep", sleep)
    socket: Any = Socket()
    notify = Notifier("/nowhere" if manager else "")
    watch = watchdog.watch(engines, Condition(LIMIT), notify, socket, lambda: idle)
    with pytest.raises(Over):
        asyncio.run(watch)
    notify.close()
    long, short = (3 * QUARTER, QUARTER) if idle and not manager else (2 * QUARTER, 2 * QUARTER)
    assert engines.waits == [
        ("sleep", QUARTER),
        ("sleep", long),
        ("sleep", long),
        ("answer", short),  # it no longer sleeps: look and answer take the limit together
        ("sleep", QUARTER),
        ("answer", QUARTER),
        ("sleep", QUARTER),
    ]
