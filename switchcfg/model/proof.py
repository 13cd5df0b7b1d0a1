"""Judges a plan by models of the switch before and after it. Pure.

A code point is kept if `[keep]` says so: it is in `[keep.dscp]`, or it goes to a queue of `[keep]
queues` today. A code point that foreign flow control protects today is kept, too, unless
`[[lossless]]` names it, or `[keep] replaces` names the object that pauses it. Treatments with flow
control that switchcfg set are not kept. A plan must not change a kept code point in any respect,
except for the headroom of a cable whose length `replaces` names.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.model.values import (
    EITHER,
    POINTS,
    UNKNOWN,
    Difference,
    Point,
    PortModel,
    SwitchModel,
    Treatment,
    between,
    grouped,
    listed,
)
from switchcfg.plan.masking import masked
from switchcfg.platforms.platform import is_ours

RULE: Final = "kept-treatment"


def problems(
    intent: Intent,
    device: Device,
    before: SwitchModel,
    after: SwitchModel,
    *,
    removing: bool = False,
    whole: bool = False,
) -> list[str]:
    """Changes of kept code points, and kept code points that a model does not understand; each
    begins with the rule's name.

    `removing`: a removal moves the code points that switchcfg sends to kept queues, but not those
    with foreign flow control. `whole`: the platform's plans set something for all ports; on other
    platforms, ports that the intent does not name and that switchcfg never had are kept.
    """
    found: list[Difference] = []
    named = _named(intent)
    for port in dict.fromkeys((*before.ports, *after.ports)):
        was, then = before.port(port), after.port(port)
        if was is then:
            continue
        foreign = not (whole or port in device.ports) and _is_foreign(intent, was)
        for point, old, new in zip(POINTS, was, then, strict=True):
            if old == new and not (old.unknown and port in device.ports):
                continue
            kept = _kept(intent, old, point, named=point in named)
            if foreign or (kept and not (removing and not old.pfc)):
                longer = not old.cables.isdisjoint(intent.keep.replaces)
                violations = _violations(port, point, old, new)
                found += [e for e in violations if not (longer and e.respect == "headroom")]
            elif port in device.ports and not removing:
                found += _misplaced(intent, port, point, new)
    return [*_by_vlan_priority(found), *(f"{RULE}: {line}" for line in grouped(found))]


def _by_vlan_priority(found: Sequence[Difference]) -> Iterator[str]:
    """The reason, where VLAN priorities would not classify packets any more."""
    for port in dict.fromkeys(each.port for each in found):
        numbers = [
            each.point.number
            for each in found
            if (each.port, each.point.kind, each.respect) == (port, "PCP", "by")
        ]
        if numbers:
            yield (
                f"kept-pcp: {port}: VLAN priority {listed(numbers)} chooses a kept queue or has "
                "flow control today, and the plan would trust code points: name the port in [keep] "
                "ports"
            )


def _kept(intent: Intent, old: Treatment, point: Point, *, named: bool) -> bool:
    """Whether a plan must preserve a treatment. `named`: the intent names the code point."""
    queues = set(old.queue.split(EITHER))
    if any(UNKNOWN in each for each in queues):
        return bool(intent.keep.queues)
    if old.pfc and old.pausing and all(is_ours(intent, name) for name in old.pausing):
        return False
    if queues.intersection(map(str, intent.keep.queues)):
        # By default, every VLAN priority and every code point goes to some queue.
        if point.kind == "PCP":
            return not old.default or bool(old.pfc)
        return not (old.default and named and not (old.pfc or old.mark))
    if not old.pfc or named or is_ours(intent, old.classifier):
        return False
    return old.pausing.isdisjoint(intent.keep.replaces)


def _is_foreign(intent: Intent, port: PortModel) -> bool:
    """Whether switchcfg made no part of a port's treatments."""
    names = {name for each in set(port) for name in (each.classifier, *each.pausing)}
    return not any(is_ours(intent, name) for name in names)


def _named(intent: Intent) -> set[Point]:
    """Code points that the intent names as switchcfg's, besides the rest."""
    dscps = {dscp for each in intent.classes for dscp in each.dscp}
    for each in intent.lossless:
        dscps |= {*each.dscp, *([] if each.cnp is None else [each.cnp])}
    priorities = {each.priority for each in intent.lossless}
    return {*(Point("DSCP", n) for n in dscps), *(Point("PCP", n) for n in priorities)}


def _violations(port: str, point: Point, old: Treatment, new: Treatment) -> Iterator[Difference]:
    if old.unknown:
        yield Difference(port, point, "not understood", masked(old.unknown), masked(new.unknown))
    else:
        yield from between(port, point, old, new)


def _misplaced(intent: Intent, port: str, point: Point, new: Treatment) -> Iterator[Difference]:
    """A code point of [keep.dscp] that goes elsewhere today and would not go to its queue."""
    queue = intent.keep.dscp.get(point.number) if point.kind == "DSCP" else None
    if queue is not None and new.queue != str(queue) and ":" not in new.queue:  # not a class of tc
        yield Difference(port, point, "queue", f"{queue} by [keep.dscp]", new.queue)
