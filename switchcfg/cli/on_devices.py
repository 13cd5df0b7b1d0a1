"""The commands that talk to devices."""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

from switchcfg.cli import records, sonic_yang, workflow
from switchcfg.cli.rollout import Outcome, every, roll
from switchcfg.drivers.driver import Driver
from switchcfg.drivers.known import driver_for
from switchcfg.errors import BadPlan, CannotExpress, SwitchcfgError
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.plan import Plan, plan, refuse, refused, removal, reverse
from switchcfg.plan.state import State, after, difference
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import Platform
from switchcfg.platforms.sonic import Sonic, document
from switchcfg.traffic.judge import Verdict, lines

Work = Callable[[Device, Driver], Awaitable[None]]


def planned(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> list[Plan]:
    """A plan for each device, from what it says of itself now."""
    make = planner(options)
    found: dict[str, Plan] = {}

    async def work(device: Device, driver: Driver) -> None:
        platform = PLATFORMS[device.platform]
        found[device.name] = make(
            intent, device, platform, await workflow.present(driver, platform)
        )

    _raise(_every(intent, devices, options, work))
    return [found[device.name] for device in devices]


def planner(options: argparse.Namespace) -> Callable[[Intent, Device, Platform, State], Plan]:
    """`plan` or `removal`, with the checks that were asked for."""
    make = removal if options.remove else plan
    if options.yang is None:
        return make

    def checked(intent: Intent, device: Device, platform: Platform, present: State) -> Plan:
        made = make(intent, device, platform, present)
        if platform.name == Sonic.name:
            problems = sonic_yang.check(document(after(present, made.changes)), options.yang)
            if problems:
                raise refused(f"{device.name}: the models in {options.yang}", problems)
        return made

    return checked


def apply(intent: Intent, plans: Sequence[Plan], options: argparse.Namespace) -> bool:
    """Bring devices to what their plans want. False where one failed."""
    by_name = {each.device: each for each in plans}
    devices = [intent.device(name) for name in by_name]
    one_at_a_time = asyncio.Lock()  # or probes would count each other's datagrams

    async def probe() -> Sequence[str]:
        async with one_at_a_time:
            return (await _traffic(intent, options)).problems

    async def work(device: Device, driver: Driver) -> None:
        wanted, platform = by_name[device.name], PLATFORMS[device.platform]
        if wanted.platform != device.platform:
            raise BadPlan(f"{device.name}: planned as {wanted.platform}, is {device.platform} now")
        if not wanted.changes:
            _tell(f"{device.name}: nothing to do")
            return
        records.prepare(options.records, device.name)
        snapshot = await workflow.apply(
            driver, platform, wanted,
            seconds=options.revert_after, tell=_tell, probe=probe if options.traffic else None,
        )  # fmt: skip
        if not options.pending:
            await workflow.confirm(driver, device.name, _tell)
        records.keep(options.records, wanted, snapshot, pending=options.pending)
        await _save(device, driver, options)

    def ended(outcome: Outcome) -> None:
        if len(devices) > 1:
            _tell(f"{len(outcome.done) + len(outcome.failed)} of {len(devices)} devices")

    do = _connected(intent, options, work)
    outcome = asyncio.run(roll(devices, do, at_once=options.at_once, ended=ended))
    _tell_errors(outcome.failed.values())
    if outcome.left:
        _tell(f"not begun: {', '.join(outcome.left)}; run it again once this is mended: "
              "what is done has an empty plan")  # fmt: skip
    _tell(f"{len(outcome.done)} done, {len(outcome.failed)} failed, {len(outcome.left)} not begun")
    _document(outcome, options)
    return not outcome.failed


def rollback(intent: Intent, device: Device, options: argparse.Namespace) -> None:
    """Take the last apply back, as carefully as it was done."""
    record = records.last(options.records, device.name)
    platform = PLATFORMS[device.platform]

    async def work(device: Device, driver: Driver) -> None:
        back = reverse(record.plan, device, platform, await workflow.present(driver, platform))
        await workflow.apply(driver, platform, back, seconds=options.revert_after, tell=_tell)
        await workflow.confirm(driver, device.name, _tell)
        records.undo(record)
        await _save(device, driver, options)

    _change(intent, [device], options, work)


def drift(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> list[Plan]:
    """What would bring devices back to what was last applied from here."""
    found: list[Plan] = []

    async def work(device: Device, driver: Driver) -> None:
        platform, record = PLATFORMS[device.platform], records.last(options.records, device.name)
        owns = platform.owns(intent)
        wanted = after(platform.read(record.snapshot), record.plan.changes)
        mine = {place: value for place, value in wanted.items() if owns(place, value)}
        changes = difference(await workflow.present(driver, platform), mine, owns)
        found.append(Plan(device.name, device.platform, intent.fabric, "", changes, (), ()))

    _raise(_every(intent, devices, options, work))
    return sorted(found, key=lambda each: each.device)


def confirm(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> None:
    """Keep what is pending."""

    async def work(device: Device, driver: Driver) -> None:
        await workflow.confirm(driver, device.name, _tell)
        records.settle(options.records, device.name, confirmed=True)
        await _save(device, driver, options)

    _change(intent, devices, options, work)


def abort(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> None:
    """Revert what is pending, now."""

    async def work(device: Device, driver: Driver) -> None:
        await driver.abort()
        records.settle(options.records, device.name, confirmed=False)
        _tell(f"{device.name}: reverted")

    _change(intent, devices, options, work)


def doctor(intent: Intent, devices: Sequence[Device], options: argparse.Namespace) -> bool:
    """Print what keeps each device from being configured. True: nothing does."""
    complaints: dict[str, list[str]] = {}

    async def work(device: Device, driver: Driver) -> None:
        found = [text async for text in _complaints(intent, device, driver)]
        complaints[device.name] = found
        for text in found or ["ready"]:
            _tell(f"{device.name}: {text}")

    outcome = _every(intent, devices, options, work)
    _tell_errors(outcome.failed.values())
    _document(outcome, options, complaints=complaints)
    return not outcome.failed and not any(complaints.values())


async def _complaints(intent: Intent, device: Device, driver: Driver) -> AsyncIterator[str]:
    for text in await driver.examine():
        yield text
    if (pending := await driver.pending()) is not None:
        left = f"reverts in {pending.seconds:.0f} s" if pending.seconds > 0 else "should be gone"
        yield f"a commit is pending: {pending.who}; {left} {pending.problem}".rstrip()
    platform = PLATFORMS[device.platform]
    try:
        state = await workflow.present(driver, platform)
        refuse(platform, device, state)
        plan(intent, device, platform, state)
    except SwitchcfgError as exc:
        yield str(exc)


async def _save(device: Device, driver: Driver, options: argparse.Namespace) -> None:
    if options.save:
        _tell(f"{device.name}: {await driver.save() or 'saved'}")


def _change(
    intent: Intent, devices: Sequence[Device], options: argparse.Namespace, work: Work
) -> None:
    """Do it to all devices and say what became of each. Raises: the first error."""
    outcome = _every(intent, devices, options, work)
    _document(outcome, options)
    _raise(outcome)


def _every(
    intent: Intent, devices: Sequence[Device], options: argparse.Namespace, work: Work
) -> Outcome:
    """Do it to all devices, whatever becomes of each."""
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


def _raise(outcome: Outcome) -> None:
    """Raises: the first error, after the others have been told."""
    errors = list(outcome.failed.values())
    _tell_errors(errors[1:])
    if errors:
        raise errors[0]


def _tell_errors(errors: Iterable[SwitchcfgError]) -> None:
    for exc in errors:
        _tell(f"switchcfg: {exc} [{exc.code}]")


def _document(outcome: Outcome, options: argparse.Namespace, **more: object) -> None:
    """What became of each, as JSON on standard output, where that was asked for."""
    if not options.json:
        return
    failed = {name: {"error": str(exc), "code": exc.code} for name, exc in outcome.failed.items()}
    document = {"done": outcome.done, "failed": failed, "not_begun": outcome.left, **more}
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def traffic(intent: Intent, options: argparse.Namespace) -> bool:
    """Print what the network does to each code point. True: all that is asked of it.

    Raises: CannotExpress, Unreachable, CommitFailed.
    """
    found = asyncio.run(_traffic(intent, options))
    if options.json:
        sys.stdout.write(json.dumps({**asdict(found), "passes": found.passes}, indent=1) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(found))
    return found.passes


async def _traffic(intent: Intent, options: argparse.Namespace) -> Verdict:
    try:
        from switchcfg.drivers import probing  # noqa: PLC0415  # an extra
    except ImportError as exc:
        raise CannotExpress(f"{exc}; `pip install 'dlcpd[ssh]'`") from exc
    sender, receiver, address = options.traffic
    between = probing.Between(sender, receiver, address, options.load)
    return await probing.verdict(intent.classes, between, config=options.ssh_config)
