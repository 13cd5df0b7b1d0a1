"""The plan of a device, by the options of a command: of the intent, or of its removal."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from switchcfg.cli import records, sonic_yang
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.before import before
from switchcfg.plan.plan import Plan, plan, refused, removal
from switchcfg.plan.state import State, after
from switchcfg.platforms.platform import Platform
from switchcfg.platforms.sonic.config_db import document
from switchcfg.platforms.sonic.platform import Sonic

UNKNOWN: Final = (
    "values that an apply replaced do not come back: this host has no record of all applies to the "
    "device (--records)"
)


def planner(options: argparse.Namespace) -> Callable[[Intent, Device, Platform, State], Plan]:
    """`plan`, or `removal` with --remove; with --yang, the result is checked by the models."""

    def removing(intent: Intent, device: Device, platform: Platform, present: State) -> Plan:
        done = records.applied(options.records, device.name)
        made = removal(intent, device, platform, present, before(done or (), present))
        unknown = (UNKNOWN,) if done is None and made.changes else ()
        return replace(made, degraded=(*made.degraded, *unknown))

    make = removing if options.remove else plan
    if options.yang is None:
        return make

    def checked(intent: Intent, device: Device, platform: Platform, present: State) -> Plan:
        made = make(intent, device, platform, present)
        if platform.name == Sonic.name:
            problems = sonic_yang.check(document(after(present, made.changes)), options.yang)
            if problems:
                raise refused(device, problems, f" by the models in {options.yang}")
        return made

    return checked
