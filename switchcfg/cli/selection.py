"""Which devices of an intent a command is about: --only and --skip."""

import argparse
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from switchcfg.errors import BadIntent, BadPlan, BadUsage
from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.table import among
from switchcfg.plan.plan import Plan

SHOWN: Final = 12  # names that an error repeats


def devices(intent: Intent, options: argparse.Namespace) -> list[Device]:
    """In the intent's order.

    Raises: BadIntent for a name that is in it nowhere, and where none is left; BadUsage.
    """
    names = [each.name for each in intent.devices]
    only, skip = _patterns(options.only), _patterns(options.skip)
    for pattern in (*only, *skip):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise BadIntent(f"no device {pattern!r} in this intent{among(pattern, names)}")
    chosen = [
        each
        for each in intent.devices
        if (not only or _matches(each.name, only)) and not _matches(each.name, skip)
    ]
    if not chosen:
        raise BadIntent("--skip leaves no device")
    return chosen


def plans(intent: Intent, found: Iterable[Plan], options: argparse.Namespace) -> dict[str, Plan]:
    """Those of the devices that are meant, by name.

    Raises: BadIntent as above, and for a plan of a device that is in no intent; BadPlan where
    --only names one that has no plan.
    """
    by_name = {each.device: each for each in found}
    for name in by_name:
        intent.device(name)
    for pattern in _patterns(options.only):
        if not any(fnmatchcase(name, pattern) for name in by_name):
            devices(intent, options)  # a name in no intent is the better error
            raise BadPlan(f"no plan of {pattern!r} (there are: {_some(list(by_name))})")
    meant = {each.name for each in devices(intent, options)}
    chosen = {name: each for name, each in by_name.items() if name in meant}
    if not chosen:
        raise BadPlan(f"--only and --skip leave none of the plans of {_some(list(by_name))}")
    return chosen


def _patterns(values: Sequence[str] | None) -> list[str]:
    """Of options that may be repeated, and hold several with commas between."""
    found = [part.strip() for value in values or () for part in value.split(",")]
    if not all(found):  # a script's variable that is empty must not mean every device
        raise BadUsage("--only and --skip need names, with one comma between two of them")
    return found


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f", and {rest} more" if rest > 0 else "")
