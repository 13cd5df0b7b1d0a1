"""Changes the intent of an import until `plan` accepts it. Pure.

A class gets other code points where a kept queue has its own. Ports that a refusal names, or
without which fewer problems remain, are left as they are. Without any port, nothing is planned,
and the intent is accepted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from switchcfg.errors import Refused, SwitchcfgError
from switchcfg.intent.classes import MAX_DSCP, TrafficClass
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.plan import plan
from switchcfg.plan.state import State
from switchcfg.platforms.platform import Platform

ROUNDS: Final = 32  # plans by problems; each takes code points from a class, or a port
# Code points for local use come first (RFC 2474 section 6, pools 2 and 3).
FREE: Final = tuple(
    sorted(range(MAX_DSCP + 1), key=lambda dscp: (dscp & 3 != 3, dscp & 1 == 0, dscp))
)
_TAKEN: Final = re.compile(r"code points? ([\d, ]+) go(?:es)? to queue \d.* class '(\w+)' sends")
_NAME: Final = re.compile(r"[\w/.:-]+")


@dataclass(frozen=True, slots=True)
class Accepted:
    """An intent that `plan` accepts, unless there are problems."""

    intent: Intent
    left: Mapping[str, Sequence[str]]  # port -> why it is left as it is
    problems: Sequence[str]
    changes: int  # values that the plan changes


def accepted(intent: Intent, platform: Platform, present: State) -> Accepted:
    """The intent of one device, with as many of its ports as a plan can have."""
    classes = intent.classes
    left: dict[str, list[str]] = {}
    spent: set[int] = set()
    for _ in range(ROUNDS):
        problems, changes = _planned(intent, platform, present)
        if not problems:
            break
        if found := _taken(intent, problems):
            spent |= {dscp for points in found.values() for dscp in points}
            if (other := _with_other_points(intent, found, spent)) is not None:
                intent = other
                continue
        why = _of_ports(intent.devices[0], problems) or _of_a_group(
            intent, platform, present, problems
        )
        intent = without(intent, why)
        left |= why
    else:
        problems, changes = _planned(intent, platform, present)
    own = replace(intent, classes=classes)
    if intent.classes != classes and not problems:  # without the ports that stay, perhaps
        wrong, count = _planned(own, platform, present)
        intent, changes = (intent, changes) if wrong else (own, count)
    return Accepted(intent, left, problems, changes)


def without(intent: Intent, ports: Mapping[str, object]) -> Intent:
    """The intent with these ports under `[keep] ports`, and not among those of its device."""
    [device] = intent.devices
    fewer = [
        replace(group, ports=tuple(port for port in group.ports if port not in ports))
        for group in device.groups
    ]
    groups = tuple(group for group in fewer if group.ports)
    kept = tuple(port for port in device.ports if port in ports)
    keep = replace(intent.keep, ports=(*intent.keep.ports, *kept))
    return replace(intent, keep=keep, devices=(replace(device, groups=groups),))


def _planned(intent: Intent, platform: Platform, present: State) -> tuple[Sequence[str], int]:
    """(problems of a plan, or none; values that it changes)."""
    try:
        made = plan(intent, intent.devices[0], platform, present)
    except Refused as exc:
        return exc.problems, 0
    except SwitchcfgError as exc:
        return [str(exc)], 0
    return (), len(made.changes)


def _taken(intent: Intent, problems: Sequence[str]) -> dict[str, set[int]]:
    """Class -> its code points that a kept queue has."""
    found: dict[str, set[int]] = {}
    names = {each.name for each in intent.classes}
    for hit in filter(None, map(_TAKEN.search, problems)):
        if hit[2] in names:
            found.setdefault(hit[2], set()).update(map(int, re.findall(r"\d+", hit[1])))
    return found


def _with_other_points(
    intent: Intent, taken: Mapping[str, set[int]], spent: set[int]
) -> Intent | None:
    """The intent with other code points in the place of those; None: there are not enough."""
    used = {dscp for each in intent.classes for dscp in each.dscp} | spent | {*intent.keep.dscp}
    free = (dscp for dscp in FREE if dscp not in used)
    classes: list[TrafficClass] = []
    for each in intent.classes:
        gone = taken.get(each.name, set())
        points = tuple(next(free, None) if dscp in gone else dscp for dscp in each.dscp)
        if None in points:
            return None
        classes.append(replace(each, dscp=tuple(dscp for dscp in points if dscp is not None)))
    return replace(intent, classes=tuple(classes))


def _of_ports(device: Device, problems: Sequence[str]) -> dict[str, list[str]]:
    """Port -> the problems that name it."""
    found: dict[str, list[str]] = {}
    for text in problems:
        words = {each.rstrip(":.") for each in _NAME.findall(text)}
        for port in words.intersection(device.ports):
            found.setdefault(port, []).append(text)
    return {port: found[port] for port in device.ports if port in found}


def _of_a_group(
    intent: Intent, platform: Platform, present: State, problems: Sequence[str]
) -> dict[str, list[str]]:
    """The ports of the group without which the fewest problems remain, and those that go."""
    [device] = intent.devices
    tries: list[tuple[int, PortGroup, set[str]]] = []
    for group in device.groups:
        rest, _ = _planned(without(intent, dict.fromkeys(group.ports)), platform, present)
        tries.append((len(rest), group, set(rest)))
    _, group, stay = min(tries, key=lambda each: each[0])
    why = [text for text in problems if text not in stay]
    return dict.fromkeys(group.ports, why or list(problems))
