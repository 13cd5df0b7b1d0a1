import asyncio
from dataclasses import replace

import pytest

from switchcfg.cli import workflow
from switchcfg.errors import BadPlan, Busy, CommitFailed, Moved, SwitchcfgError, Unreachable
from switchcfg.intent.intent import parse
from switchcfg.plan.plan import Plan, plan
from switchcfg.platforms.linux.platform import Linux
from tests.switchcfg.intents import NAME
from tests.switchcfg.simulated import SimulatedDriver
from tests.switchcfg.test_linux import TEXT

INTENT = parse(TEXT, NAME)
[SWITCH] = INTENT.devices
LINUX = Linux()


def planned(driver: SimulatedDriver) -> Plan:
    return plan(INTENT, SWITCH, LINUX, LINUX.read(driver.device.says()))


def applied(driver: SimulatedDriver, what: Plan, *, confirm: bool = True) -> list[str]:
    said: list[str] = []

    async def both() -> None:
        await workflow.apply(driver, LINUX, what, seconds=60, tell=said.append)
        if confirm:
            await workflow.confirm(driver, "sw", said.append)

    asyncio.run(both())
    return said


def test_it_is_committed_read_back_and_confirmed_in_that_order() -> None:
    driver = SimulatedDriver()
    said = applied(driver, planned(driver))
    order = [call for call in driver.calls if call != "ask"]
    assert order == ["pending", "get", "commit", "get", "confirm"]
    assert said[-1] == "sw: confirmed"
    assert not planned(driver).changes


def test_without_confirm_it_stays_pending() -> None:
    driver = SimulatedDriver()
    applied(driver, planned(driver), confirm=False)
    assert driver.armed
    assert "plan" in driver.armed.who


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ({"refuses": "set rules"}, CommitFailed),
        ({"forgets": "set rules"}, CommitFailed),
        ({"forgets": "make queues"}, CommitFailed),
    ],
)
def test_whatever_goes_wrong_the_device_is_as_before(
    trouble: dict[str, str], error: type[SwitchcfgError]
) -> None:
    driver = SimulatedDriver()
    before, what = driver.device.says(), planned(driver)
    for name, value in trouble.items():
        setattr(driver, name, value)
    with pytest.raises(error):
        applied(driver, what)
    assert driver.device.says() == before
    assert not driver.armed


def test_what_is_not_as_planned_is_named() -> None:
    driver = SimulatedDriver(forgets="set rules")
    with pytest.raises(CommitFailed, match=r"rule DLCP\|p1\|000 is None, not .*; and \d+ more"):
        applied(driver, planned(driver))


def test_a_device_that_falls_silent_is_left_to_its_own_timer() -> None:
    driver = SimulatedDriver(silent="abort", forgets="set rules")
    with pytest.raises(CommitFailed):  # what led there, and not that nobody answered
        applied(driver, planned(driver))
    assert driver.armed


def test_a_device_that_moved_is_not_touched() -> None:
    driver = SimulatedDriver()
    what = planned(driver)
    driver.device.settings["net.ipv4.fib_multipath_hash_policy"] = "2"
    with pytest.raises(Moved):
        applied(driver, what)
    assert driver.calls == ["pending", "get"]


def test_a_commit_of_somebody_else_is_not_aborted() -> None:
    driver = SimulatedDriver()
    what = planned(driver)
    applied(driver, what, confirm=False)
    theirs, driver.device = driver.armed, type(driver.device)(("p1", "p2"))
    with pytest.raises(Busy):
        applied(driver, what)
    assert driver.armed is theirs


def test_an_interrupt_while_it_reads_back_reverts() -> None:
    driver = SimulatedDriver(delay=0.01)
    before, what = driver.device.says(), planned(driver)

    async def run() -> None:
        task = asyncio.create_task(
            workflow.apply(driver, LINUX, what, seconds=60, tell=lambda _: None)
        )
        while driver.calls[-2:] != ["commit", "get"]:  # there is no event for it
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert driver.device.says() == before


def test_a_device_that_does_not_answer_at_all_is_an_error() -> None:
    driver = SimulatedDriver()
    what = planned(driver)
    driver.silent = "get"
    with pytest.raises(Unreachable):
        applied(driver, what)


@pytest.mark.parametrize("stop", ["make queues", "set rules"])
def test_restore_brings_back_what_was_wherever_it_stopped(stop: str) -> None:
    """From one configuration towards another, with half of the steps done."""
    driver = SimulatedDriver()
    applied(driver, planned(driver))
    before = LINUX.read(driver.device.says())
    few = 'one = { rank = 0, dscp = [10], ecn = ["ect0"] }\n'
    other = parse(TEXT.replace("[[device]]", f"[classes]\n{few}[[device]]", 1), NAME)
    there = plan(other, other.devices[0], LINUX, before)
    for step in there.steps:
        driver.device.do(step.payload)
        if step.title == stop:
            break
    driver.device.do(LINUX.restore(before, there.changes))
    assert LINUX.read(driver.device.says()) == before


@pytest.mark.parametrize("problems", [(), ("front is lost",)])
def test_what_traffic_suffers_from_is_taken_back(problems: tuple[str, ...]) -> None:
    driver = SimulatedDriver()
    before, what, said = driver.device.says(), planned(driver), list[str]()

    async def probe() -> tuple[str, ...]:
        assert driver.armed
        return problems

    work = workflow.apply(driver, LINUX, what, seconds=60, tell=said.append, probe=probe)
    if problems:
        with pytest.raises(CommitFailed, match="sw: the traffic test failed: front is lost"):
            asyncio.run(work)
        assert (driver.armed, driver.device.says()) == (None, before)
    else:
        asyncio.run(work)
        assert driver.armed
        assert said[-1] == "sw: the traffic test passed"


def lasting(seconds: int, steps: int = 2, *, minutes: int = 0) -> Plan:
    driver = SimulatedDriver()
    made = planned(driver)
    return replace(
        made,
        steps=tuple(replace(step, lasts=seconds, minutes=minutes) for step in made.steps[:steps]),
    )


@pytest.mark.parametrize(
    ("what", "asked", "found"),
    [
        (lasting(0), None, 120),
        (lasting(0), 5, 5),
        (lasting(180), None, 480),
        (lasting(180), 420, 420),
        (lasting(180, 1, minutes=20), None, 1320),
        (lasting(180, 1, minutes=20), 1260, 1260),
        (lasting(43_165), None, 86_400),
    ],
)
def test_the_time_to_revert_is_longer_than_the_steps(
    what: Plan, asked: int | None, found: int
) -> None:
    assert workflow.revert_after(what, asked) == found


@pytest.mark.parametrize(
    ("what", "asked", "says"),
    [
        (lasting(180), 419, "sw: its steps may take 6 minutes, and the device would revert before "
         "they end: give --revert-after 420 or more"),
        (lasting(43_200), None, "sw: its steps may take 1440 minutes, and a change reverts after "
         "1440 minutes at the latest: plan fewer ports at a time"),
    ],
)  # fmt: skip
def test_a_time_that_is_too_short_is_refused_with_the_least_that_works(
    what: Plan, asked: int | None, says: str
) -> None:
    driver = SimulatedDriver()
    with pytest.raises(BadPlan) as caught:
        asyncio.run(workflow.apply(driver, LINUX, what, seconds=asked, tell=lambda _: None))
    assert str(caught.value) == says
    assert not driver.calls


def test_long_steps_are_told_one_by_one_and_short_ones_are_not() -> None:
    driver, said = SimulatedDriver(), list[str]()
    asyncio.run(workflow.apply(driver, LINUX, lasting(10), seconds=None, tell=said.append))
    assert said[0].endswith(" changes, up to 1 minute; reverts in 140 s unless confirmed")
    assert said[1:3] == ["sw: step 1 of 2: make queues", "sw: step 2 of 2: set rules"]
    assert not any(
        "step" in line for line in applied(SimulatedDriver(), planned(SimulatedDriver()))
    )
