"""`switchcfg fabric`: the links, what differs at their ends, and the order of changes."""

import argparse
from collections.abc import Iterator, Sequence

from switchcfg.cli import on_devices, workflow
from switchcfg.cli.fabric import Fabric
from switchcfg.cli.files import saved_configuration, state
from switchcfg.cli.output import put, put_json
from switchcfg.cli.report import Report
from switchcfg.cli.rollout import Outcome
from switchcfg.drivers.driver import Driver
from switchcfg.errors import SwitchcfgError
from switchcfg.fabric import text
from switchcfg.fabric.judge import FabricVerdict
from switchcfg.fabric.order import topology, waves
from switchcfg.fabric.wiring import Wiring
from switchcfg.intent.intent import Device, Intent
from switchcfg.platforms.known import PLATFORMS


def show(
    intent: Intent, devices: Sequence[Device], options: argparse.Namespace
) -> tuple[bool, bool]:
    """Print the fabric. Returns whether all devices answered and no links contradict each other,
    and whether nothing differs."""
    fabric = Fabric(intent)
    outcome = _read(fabric, devices, options) if options.present else _ask(fabric, devices, options)
    links = fabric.wiring()
    verdict = fabric.verdict(links)
    known = topology(intent, links)
    groups = [] if links.contradictions else waves(devices, known)
    said = {name: "differs" for name in outcome.done if _differs(verdict, name)}
    report = Report(devices, outcome, said)
    report.tell_errors()
    if options.json:
        body = text.document(links, verdict, groups)
        put_json({**body, "unknown": [*fabric.unknown()], **report.document()})
    else:
        for line in _lines(fabric, links, verdict):
            put(line)
        for line in text.order(groups, known) if groups else ():
            put(line)
        for line in report.table():
            put(line)
    return not outcome.failed and not links.contradictions, verdict.passes


def _lines(fabric: Fabric, links: Wiring, verdict: FabricVerdict) -> Iterator[str]:
    yield from text.links(links)
    yield from (f"not known: {each}" for each in text.few([*fabric.unknown()]))
    yield from (f"contradiction: {each}" for each in text.few(links.contradictions))
    yield from text.problems(verdict)
    yield from text.whole(verdict)
    if verdict.passes:
        yield f"{verdict.judged} links are equal at both ends"


def _differs(verdict: FabricVerdict, name: str) -> bool:
    ends = (end for each in verdict.findings for end in (each.link.one, each.link.other))
    return any(end.device == name for end in ends)


def _ask(fabric: Fabric, devices: Sequence[Device], options: argparse.Namespace) -> Outcome:
    async def work(device: Device, driver: Driver) -> None:
        await fabric.ask(device, driver, mtu=True)
        fabric.states[device.name] = await workflow.present(driver, PLATFORMS[device.platform])

    return on_devices.every_device(fabric.intent, devices, options, work)


def _read(fabric: Fabric, devices: Sequence[Device], options: argparse.Namespace) -> Outcome:
    outcome = Outcome()
    for device in devices:
        try:
            file = saved_configuration(options.present, device)
            fabric.states[device.name] = state(PLATFORMS[device.platform], file)
        except SwitchcfgError as exc:
            outcome.failed[device.name] = exc
        else:
            outcome.done.append(device.name)
    return outcome
