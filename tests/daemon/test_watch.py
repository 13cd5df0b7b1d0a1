"""How often the watch wakes an idle daemon, and how long it waits for an answer."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from dlcpd.daemon import watchdog
from dlcpd.daemon.condition import PATIENCE, Condition
from dlcpd.daemon.notify import Notifier

LIMIT = 40.0
UNITS: Final = sorted(Path(__file__).parents[2].glob("deploy/systemd/dlcpd*.service"))
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


def test_engines_that_sleep_are_looked_at_after_three_quarters_of_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines: Any = Sleepers(True, True, False, False)

    async def sleep(seconds: float) -> None:
        engines.waits.append(("sleep", seconds))

    class Socket:
        problem = ""

    monkeypatch.setattr("dlcpd.daemon.watchdog.asyncio.sleep", sleep)
    socket: Any = Socket()
    with pytest.raises(Over):
        asyncio.run(watchdog.watch(engines, Condition(LIMIT), Notifier(""), socket))
    assert engines.waits == [
        ("sleep", QUARTER),
        ("sleep", 3 * QUARTER),
        ("sleep", 3 * QUARTER),
        ("answer", QUARTER),  # they no longer sleep: look and answer take the limit together
        ("sleep", QUARTER),
        ("answer", QUARTER),
        ("sleep", QUARTER),
    ]


def test_our_unit_has_the_limit_of_a_daemon_alone() -> None:
    assert len(UNITS) == 2
    for unit in UNITS:
        assert f"WatchdogSec={PATIENCE:g}\n" in unit.read_text()
