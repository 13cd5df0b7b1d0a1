"""Judges a plan by models of the switch before and after it. Pure.

A code point is kept if `[keep]` says so: it is in `[keep.dscp]`, or it goes to a queue of `[keep]
queues` today. A code point that foreign flow control protects today is kept, too, unless
`[[lossless]]` names it, or `[keep] replaces` the object that pauses it. A plan must not change a
kept code point in any respect, but the headroom for a cable whose length `replaces` names.
"""

from collections.abc import Iterator
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.model.values import (
    EITHER,
    POINTS,
    UNKNOWN,
    Difference,
    Point,
    SwitchModel,
    Treatment,
    between,
    grouped,
)
from switchcfg.platforms.platform import is_ours

RULE: Final = "kept-treatment"


def problems(
    intent: Intent,
    device: Device,
    before: SwitchModel,
    after: SwitchModel,
    *,
    removing: bool = False,
) -> list[str]:
    """Changes of kept code points, and kept code points that a model does not understand; each
    begins with the rule's name. `removing`: a removal moves the code points that switchcfg sends to
    kept queues, but not those with foreign flow control."""
    found: list[Difference] = []
    for port in dict.fromkeys((*before.ports, *after.ports)):
        was, then = before.port(port), after.port(port)
        if was is then:
            continue
        for point, old, new in zip(POINTS, was, then, strict=True):
            if old == new and not (old.unknown and port in device.ports):
                continue
            if _kept(intent, point, old) and not (removing and not old.pfc):
                longer = not old.cables.isdisjoint(intent.keep.replaces)
                violations = _violations(port, point, old, new)
                found += [e for e in violations if not (longer and e.respect == "headroom")]
            elif port in device.ports and not removing:
                found += _misplaced(intent, port, point, new)
    return [f"{RULE}: {line}" for line in grouped(found)]


def _kept(intent: Intent, point: Point, old: Treatment) -> bool:
    named = point.kind == "DSCP" and point.number in _named(intent)
    queues = set(old.queue.split(EITHER))
    if UNKNOWN in queues:
        return bool(intent.keep.queues)
    if old.pfc and old.pausing and all(is_ours(intent, name) for name in old.pausing):
        return False
    if queues.intersection(map(str, intent.keep.queues)):
        idle = not (old.pfc or old.mark)
        return not (old.default and idle and (named or point.kind == "PCP"))
    if not old.pfc or named or is_ours(intent, old.classifier):
        return False
    return old.pausing.isdisjoint(intent.keep.replaces)


def _named(intent: Intent) -> set[int]:
    """DSCPs that the intent names as switchcfg's, besides the rest."""
    found = {dscp for each in intent.classes for dscp in each.dscp}
    for each in intent.lossless:
        found |= {*each.dscp, *([] if each.cnp is None else [each.cnp])}
    return found


def _violations(port: str, point: Point, old: Treatment, new: Treatment) -> Iterator[Difference]:
    if old.unknown:
        yield Difference(port, point, "not understood", old.unknown, new.unknown)
    else:
        yield from between(port, point, old, new)


def _misplaced(intent: Intent, port: str, point: Point, new: Treatment) -> Iterator[Difference]:
    """A code point of [keep.dscp] that goes elsewhere today and would not go to its queue."""
    queue = intent.keep.dscp.get(point.number) if point.kind == "DSCP" else None
    if queue is not None and new.queue != str(queue):
        yield Difference(port, point, "queue", f"{queue} by [keep.dscp]", new.queue)
