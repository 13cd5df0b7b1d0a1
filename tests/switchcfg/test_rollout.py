import asyncio
import tracemalloc
from dataclasses import replace

from switchcfg.cli.rollout import Outcome, roll
from switchcfg.cli.workflow import apply, present
from switchcfg.errors import CommitFailed
from switchcfg.fabric.order import waves
from switchcfg.intent.intent import Device, parse
from switchcfg.plan.plan import plan
from switchcfg.platforms.linux.platform import Linux
from tests.switchcfg.intents import NAME
from tests.switchcfg.simulated import SimulatedDriver
from tests.switchcfg.test_linux import TEXT

INTENT = parse(TEXT, NAME)
[ONE] = INTENT.devices


def devices(*sides: str) -> list[Device]:
    return [replace(ONE, name=f"sw{n}", side=side) for n, side in enumerate(sides)]


def names(found: list[list[Device]]) -> list[list[str]]:
    return [[each.name for each in wave] for wave in found]


def test_the_first_is_alone_then_its_side_then_the_others() -> None:
    assert names(waves(devices("B", "A", "B", "A", "B"))) == [
        ["sw0"],
        ["sw2", "sw4"],
        ["sw1", "sw3"],
    ]


def test_who_has_no_side_is_alone() -> None:
    assert names(waves(devices("", "", "A", "A"))) == [["sw0"], ["sw1"], ["sw2", "sw3"]]
    assert waves([]) == []


def rolled(sides: tuple[str, ...], bad: str, *, at_once: int = 8) -> tuple[Outcome, int]:
    busy, most = 0, 0

    async def do(device: Device) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0)
        busy -= 1
        if device.name == bad:
            raise CommitFailed(bad)

    return asyncio.run(roll(waves(devices(*sides)), do, at_once=at_once)), most


def test_after_a_failure_nobody_is_begun() -> None:
    outcome, _ = rolled(("A", "A", "A", "B"), "sw0")
    assert (outcome.done, list(outcome.failed)) == ([], ["sw0"])
    assert outcome.left == ["sw1", "sw2", "sw3"]


def test_who_is_under_way_is_finished() -> None:
    outcome, _ = rolled(("A", "A", "A", "A", "B"), "sw1", at_once=2)
    assert outcome.done == ["sw0", "sw2"]
    assert outcome.left == ["sw3", "sw4"]


def test_two_sides_are_never_changed_at_one_time_and_not_too_many_of_one() -> None:
    outcome, most = rolled(("A",) + ("B",) * 20, "", at_once=3)
    assert len(outcome.done) == 21
    assert most == 3


def test_a_hundred_devices_are_planned_and_applied_in_bounded_memory() -> None:
    """A second round finds nothing to do: who was interrupted goes on where it stopped."""
    fabric = devices(*(("A", "B") * 50))
    drivers = {each.name: SimulatedDriver(delay=0.001) for each in fabric}
    linux, bad = Linux(), drivers["sw70"]
    bad.refuses = "set rules"

    async def do(device: Device) -> None:
        driver = drivers[device.name]
        what = plan(INTENT, device, linux, await present(driver, linux))
        if what.changes:
            await apply(driver, linux, what, seconds=60, tell=lambda _: None)
            await driver.confirm()

    tracemalloc.start()
    first = asyncio.run(roll(waves(fabric), do))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert list(first.failed) == ["sw70"]
    assert not any(drivers[name].armed for name in drivers)
    assert peak < 64 << 20
    bad.refuses = ""
    second = asyncio.run(roll(waves(fabric), do))
    assert len(second.done) == 100
    assert all(drivers[name].calls.count("commit") == 1 for name in first.done)
