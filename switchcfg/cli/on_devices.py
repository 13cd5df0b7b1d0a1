"""The commands that connect to devices."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from switchcfg.cli import records, traffic, workflow
from switchcfg.cli.diffs import NOT_BEFORE, Diffs
from switchcfg.cli.fabric import Fabric
from switchcfg.cli.output import put, tell
from switchcfg.cli.planning import planner
from switchcfg.cli.readiness import complaints_of
from switchcfg.cli.report import Report
from switchcfg.cli.rollout import Outcome, every, roll
from switchcfg.drivers.driver import Driver
from switchcfg.drivers.known import driver_for
from switchcfg.errors import BadPlan
from switchcfg.fabric.text import order
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan import text
from switchcfg.plan.plan import Plan, reverse
from switchcfg.plan.state import State, after, difference
from switchcfg.platforms.known import PLATFORMS

Work = Callable[[Device, Driver], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Planned:
    """The plans that could be made, and the report of all devices."""

    plans: list[Plan]
    report: Report


def planned(
    intent: Intent,
    devices: Sequence[Device],
    options: argparse.Namespace,
    fabric: Fabric | None = None,
) -> Planned:
    """A plan for each device, from its present state. `fabric`: gets the states and neighbours."""
    make = planner(options)

    async def work(device: Device, driver: Driver) -> Plan:
        platform = PLATFORMS[device.platform]
        state = await workflow.present(driver, platform)
        if fabric is not None:
            fabric.states[device.name] = state
            await fabric.ask(device, driver, mtu=True)
        return make(intent, device, platform, state)

    return _plans(intent, devices, options, work)


def _plans(
    intent: Intent,
    devices: Sequence[Device],
    options: argparse.Namespace,
    make: Callable[[Device, Driver], Awaitable[Plan]],
) -> Planned:
    found: dict[str, Plan] = {}

    async def work(device: Device, driver: Driver) -> None:
        found[device.name] = await make(device, driver)

    return as_planned(devices, found, every_device(intent, devices, options, work))


def as_planned(devices: Sequence[Device], found: Mapping[str, Plan], outcome: Outcome) -> Planned:
    """The plans in the order of `devices`, and a report with their numbers of changes."""
    said = {name: text.count(len(each.changes), "change") for name, each in found.items()}
    plans = [found[device.name] for device in devices if device.name in found]
    return Planned(plans, Report(devices, outcome, said))


def present(intent: Intent, device: Device, options: argparse.Namespace) -> State:
    """The present state of one device. Raises: Unreachable, BadState, CannotExpress."""
    platform, found = PLATFORMS[device.platform], list[State]()

    async def work(_: Device, driver: Driver) -> None:
        found.append(await workflow.present(driver, platform))

    outcome = every_device(intent, [device], options, work)
    for exc in outcome.failed.values():
        raise exc
    return found[0]


def apply(intent: Intent, plans: Mapping[str, Plan], options: argparse.Namespace) -> bool:
    """Apply the plans of devices. False: a device failed."""
    devices = [intent.device(name) for name in plans]
    report, told = Report(devices), Diffs()
    one_at_a_time = asyncio.Lock()  # else probes would count each other's datagrams

    async def probe() -> Sequence[str]:
        async with one_at_a_time:
            return (await traffic.verdict(intent, options)).problems

    async def work(device: Device, driver: Driver) -> None:
        wanted, platform = _planned_as(plans[device.name], device), PLATFORMS[device.platform]
        if not wanted.changes:
            report.said[device.name] = "nothing to do"
            tell(f"{device.name}: nothing to do")
            return
        records.prepare(options.records, device.name)
        applied = await workflow.apply(
            driver,
            platform,
            wanted,
            seconds=options.revert_after,
            tell=tell,
            probe=probe if options.traffic else None,
            diff=told.telling(device) if options.diff else None,
            wait=options.wait,
        )
        if not options.pending:
            await workflow.confirm(driver, device.name, tell)
        records.keep(
            options.records,
            wanted,
            applied.before,
            treatments=applied.treatments,
            who=workflow.operator(),
            pending=options.pending,
            diff=told.found.get(device.name),
        )
        report.said[device.name] = "pending" if options.pending else "confirmed"
        await _save(device, driver, options)

    changing = [device for device in devices if plans[device.name].changes]
    report.outcome = _roll(intent, devices, options, work, changing)
    return _rolled(report, options, told)


def _roll(
    intent: Intent,
    devices: Sequence[Device],
    options: argparse.Namespace,
    work: Work,
    changing: Sequence[Device],
) -> Outcome:
    """Run `work` on devices, in an order that leaves each ECMP group a path; it stops at a failure.

    Raises: Refused if the links contradict each other.
    """
    fabric = Fabric(intent)
    if len(changing) > 1:
        every_device(intent, changing, options, fabric.ask)  # a failure is that of `work` later
    groups, known = fabric.groups(devices)
    if len(changing) > 1:
        for line in order(groups, known):
            tell(line)
    do = _connected(intent, options, work)

    def ended(outcome: Outcome) -> None:
        _tell_progress(outcome, devices)

    def stopped() -> None:
        tell("interrupted: finishing the devices that have begun; a second interrupt reverts them")

    return asyncio.run(roll(groups, do, at_once=options.at_once, ended=ended, stopped=stopped))


def _planned_as(wanted: Plan, device: Device) -> Plan:
    if wanted.platform != device.platform:
        raise BadPlan(
            f"{device.name}: the plan is for platform {wanted.platform}, and the intent says "
            f"{device.platform}: plan again"
        )
    return wanted


def diff(intent: Intent, plans: Mapping[str, Plan], options: argparse.Namespace) -> bool:
    """Print the devices' own diffs of their plans, without a change.

    False: a device failed.
    """
    devices = [intent.device(name) for name in plans]
    told = Diffs(NOT_BEFORE)

    async def work(device: Device, driver: Driver) -> None:
        wanted, platform = _planned_as(plans[device.name], device), PLATFORMS[device.platform]
        if wanted.changes:
            told.add(device, await workflow.preview(driver, platform, wanted))

    outcome = every_device(intent, devices, options, work)
    said = {name: told.status(name) for name in outcome.done}
    for device in devices:
        if device.name in outcome.done and not options.json:
            for line in told.lines(device):
                put(line)
    return Report(devices, outcome, said).close(as_json=options.json, diffs=told.found)


def _tell_progress(outcome: Outcome, devices: Sequence[Device]) -> None:
    if len(devices) > 1:
        tell(f"{len(outcome.done) + len(outcome.failed)} of {len(devices)} devices")


def _rolled(report: Report, options: argparse.Namespace, told: Diffs) -> bool:
    """Print the report of a rollout, which stops at a failure. False: a device failed."""
    more = {"diffs": told.found} if options.diff else {}
    succeeded = report.close(as_json=options.json, **more)
    outcome = report.outcome
    if outcome.left:
        tell(
            f"not started: {', '.join(outcome.left)}; mend the failure and run the command "
            "again: finished devices have an empty plan then"
        )
    tell(f"{len(outcome.done)} done, {len(outcome.failed)} failed, {len(outcome.left)} not started")
    return _stop_if_interrupted(report, succeeded)


def _stop_if_interrupted(report: Report, succeeded: bool) -> bool:
    """Raises: KeyboardInterrupt after SIGINT, if a device was not finished."""
    outcome = report.outcome
    if outcome.interrupts and (outcome.left or outcome.failed):
        raise KeyboardInterrupt
    return succeeded


def rollback(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> bool:
    """Undo the last apply of each device, in the same workflow. False: a device failed."""
    report = Report(devices)

    async def work(device: Device, driver: Driver) -> None:
        record = records.last(options.records, device.name)
        platform = PLATFORMS[device.platform]
        there = await workflow.present(driver, platform)
        back = reverse(intent, record.plan, device, platform, there, then=record.treatments)
        seconds, wait = options.revert_after, options.wait
        await workflow.apply(driver, platform, back, seconds=seconds, tell=tell, wait=wait)
        await workflow.confirm(driver, device.name, tell)
        records.undo(record, workflow.operator())
        report.said[device.name] = "rolled back"
        await _save(device, driver, options)

    report.outcome = _roll(intent, devices, options, work, devices)
    return _stop_if_interrupted(report, report.close(as_json=options.json))


def drift(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> Planned:
    """Plans that would restore the state that was last applied from this host."""

    async def work(device: Device, driver: Driver) -> Plan:
        platform, record = PLATFORMS[device.platform], records.last(options.records, device.name)
        owns = platform.owns(intent)
        wanted = after(record.before, record.plan.changes)
        mine = {place: value for place, value in wanted.items() if owns(place, value)}
        changes = difference(await workflow.present(driver, platform), mine, owns)
        return Plan(device.name, device.platform, intent.fabric, "", changes, (), ())

    return _plans(intent, devices, options, work)


def confirm(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> bool:
    """Confirm pending commits. False: a device failed."""

    async def work(device: Device, driver: Driver) -> None:
        await workflow.confirm(driver, device.name, tell)
        records.settle(options.records, device.name, confirmed=True)
        await _save(device, driver, options)

    outcome = every_device(intent, devices, options, work)
    said = dict.fromkeys(outcome.done, "confirmed")
    return Report(devices, outcome, said).close(as_json=options.json)


def abort(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> bool:
    """Revert pending commits now. False: a device failed."""

    async def work(device: Device, driver: Driver) -> None:
        await driver.abort()
        records.settle(options.records, device.name, confirmed=False)
        tell(f"{device.name}: reverted")

    outcome = every_device(intent, devices, options, work)
    said = dict.fromkeys(outcome.done, "reverted")
    return Report(devices, outcome, said).close(as_json=options.json)


def doctor(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> bool:
    """Print reasons why devices cannot be configured. True: all devices answered, with none."""
    complaints: dict[str, list[str]] = {}

    async def work(device: Device, driver: Driver) -> None:
        found = [each async for each in complaints_of(intent, device, driver)]
        complaints[device.name] = found
        for complaint in found or ["ready"]:
            tell(f"{device.name}: {complaint}")

    outcome = every_device(intent, devices, options, work)
    said = {
        name: text.count(len(found), "complaint") if found else "ready"
        for name, found in complaints.items()
    }
    report = Report(devices, outcome, said)
    reached = report.close(as_json=options.json, complaints=complaints)
    return reached and not any(complaints.values())


async def _save(device: Device, driver: Driver, options: argparse.Namespace) -> None:
    if options.save:
        tell(f"{device.name}: {await driver.save() or 'saved'}")


def every_device(
    intent: Intent, devices: Sequence[Device], options: argparse.Namespace, work: Work
) -> Outcome:
    """Run `work` on all devices, regardless of failures."""
    do = _connected(intent, options, work)
    return asyncio.run(every(devices, do, at_once=options.at_once))


def _connected(
    intent: Intent, options: argparse.Namespace, work: Work
) -> Callable[[Device], Awaitable[None]]:
    async def do(device: Device) -> None:
        async with _driver(intent, device, options) as driver:
            await work(device, driver)

    return do


@asynccontextmanager
async def _driver(
    intent: Intent, device: Device, options: argparse.Namespace
) -> AsyncIterator[Driver]:
    driver = driver_for(
        intent, device, ssh_config=options.ssh_config, state=records.default_folder()
    )
    try:
        yield driver
    finally:
        await driver.close()
