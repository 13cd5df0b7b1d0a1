"""Selects the devices of a command: --only and --skip."""

import argparse
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from switchcfg.errors import BadIntent, BadPlan, BadUsage
from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.table import among
from switchcfg.plan.plan import Plan

SHOWN: Final = 12  # names that an error lists


def devices(intent: Intent, options: argparse.Namespace) -> list[Device]:
    """The selected devices, in the intent's order.

    Raises: BadIntent for a pattern that matches no device, and if no device is left; BadUsage.
    """
    names = [each.name for each in intent.devices]
    only, skip = _patterns(options.only), _patterns(options.skip)
    for pattern in (*only, *skip):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise BadIntent(f"the intent has no device {pattern!r}{among(pattern, names)}")
    chosen = [
        each
        for each in intent.devices
        if (not only or _matches(each.name, only)) and not _matches(each.name, skip)
    ]
    if not chosen:
        raise BadIntent("--skip excludes every device")
    return chosen


def plans(intent: Intent, found: Iterable[Plan], options: argparse.Namespace) -> dict[str, Plan]:
    """The plans of the selected devices, by name.

    Raises: BadIntent as `devices`, and for a plan of a device that is not in the intent; BadPlan
    if a pattern of --only matches no plan, and if no plan is left.
    """
    by_name = {each.device: each for each in found}
    for name in by_name:
        intent.device(name)
    for pattern in _patterns(options.only):
        if not any(fnmatchcase(name, pattern) for name in by_name):
            devices(intent, options)  # first report a name that is not in the intent
            raise BadPlan(f"no plan for {pattern!r} (there are plans for: {_some(list(by_name))})")
    meant = {each.name for each in devices(intent, options)}
    chosen = {name: each for name, each in by_name.items() if name in meant}
    if not chosen:
        raise BadPlan(
            f"--only and --skip exclude every plan (there are plans for: {_some(list(by_name))})"
        )
    return chosen


def _patterns(values: Sequence[str] | None) -> list[str]:
    """The patterns of a repeatable option with comma-separated values. Raises: BadUsage."""
    found = [part.strip() for value in values or () for part in value.split(",")]
    if not all(found):  # an empty variable in a script must not select all devices
        raise BadUsage("--only and --skip need names of devices, separated by single commas")
    return found


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f", and {rest} more" if rest > 0 else "")
