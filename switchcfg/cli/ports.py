"""`switchcfg ports`: queues and thresholds of each port of an intent, without a device.

Bytes are those of the intent; `plan` reports platforms that round them or that support less.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.intent.known import KNOWN
from switchcfg.intent.lossless import Lossless
from switchcfg.intent.port_names import in_words
from switchcfg.intent.port_ranges import compact
from switchcfg.model.headroom import CABLE, FRAME, Headroom
from switchcfg.plan.queues import Layout, Queue, lay_out
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import group_name, not_to_be_had

COLUMNS: Final = ("queue", "class", "code points", "limit", "ECN marks", "drops")


def lines(intent: Intent, device: Device) -> Iterator[str]:
    """Text output: a table per port group."""
    yield f"{device.name} ({device.platform}):"
    if why := not_to_be_had(intent, device, PLATFORMS[device.platform].able):
        yield f"  refused: {why}"
        return
    for group in device.groups:
        layout = lay_out(intent, group, PLATFORMS[device.platform].able)
        ports = ", ".join(compact(group.ports))
        rate, buffer = in_words(group.rate), _bytes(group.buffer)
        yield f"  {ports}: {_profile(intent, device, group)}, {rate}, buffer {buffer}"
        rows = [COLUMNS, *(_row(intent, device, queue, layout) for queue in layout.queues)]
        rows += [_lossless_row(intent, group, each) for each in layout.lossless]
        widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
        for row in rows:
            cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            yield f"    {'  '.join(cells)}".rstrip()
        yield from (f"    degraded: {each}" for each in layout.degraded)
    kept = ", ".join(map(str, intent.keep.queues))
    if kept:
        yield f"  kept queues: {kept}"


def document(intent: Intent, devices: Sequence[Device]) -> dict[str, Any]:
    """JSON output: device -> port -> its profile and queues."""
    return {
        "devices": {
            device.name: {
                "platform": device.platform,
                "refused": not_to_be_had(intent, device, PLATFORMS[device.platform].able) or None,
                "ports": {
                    port: _port(intent, device, group)
                    for group in device.groups
                    for port in group.ports
                },
            }
            for device in devices
        }
    }


def _profile(intent: Intent, device: Device, group: PortGroup) -> str:
    """The name of a port group's profile on the device, or the beginning of its name."""
    return group_name(intent, group).replace("-", KNOWN[device.platform].joint)


def _row(intent: Intent, device: Device, queue: Queue, layout: Layout) -> tuple[str, ...]:
    rest = ", and all others" if queue.index == layout.rest else ""
    drops = [
        f"{','.join(map(str, dscps))}: {_between(begin, certain)}"
        for dscps, begin, certain in _drops(intent, device, queue)
    ]
    return (
        str(queue.index),
        queue.name,
        ",".join(map(str, queue.dscps)) + rest,
        _bytes(queue.limit),
        _between(*queue.mark) if queue.mark else "-",
        "; ".join(drops) or "when full",
    )


def _headroom(intent: Intent, group: PortGroup, each: Lossless) -> Headroom:
    return Headroom(group.rate, intent.cable or each.cable or CABLE, FRAME)


def _lossless_row(intent: Intent, group: PortGroup, each: Lossless) -> tuple[str, ...]:
    room = _headroom(intent, group, each)
    cable = f", cable {room.metres}m, headroom {room.least}-{room.most}"
    share = f"share {each.share}%"
    return (
        str(each.priority),
        each.name,
        ",".join(map(str, each.dscp)),
        "-",
        _between(*each.mark) if each.mark else "-",
        f"never: PFC, {share}{cable}",
    )


def _drops(
    intent: Intent, device: Device, queue: Queue
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """(code points, begin, certain): bytes of queue where drops begin, and where all are dropped,
    for drops before the queue is full."""
    able = PLATFORMS[device.platform].able
    if queue.mark and not able.own_mark and len(queue.bands) == 1:
        ect = {
            dscp: sent
            for each in intent.classes
            for dscp, sent in zip(each.dscp, each.ect, strict=True)
        }
        bare = tuple(dscp for dscp in queue.dscps if not ect.get(dscp, False))
        if bare:  # one curve for both: it marks ECT packets and drops Not-ECT packets
            yield bare, *queue.mark
        return
    for band in queue.bands:
        if band.begin < queue.limit:
            yield band.dscps, band.begin, band.certain


def _port(intent: Intent, device: Device, group: PortGroup) -> dict[str, Any]:
    layout = lay_out(intent, group, PLATFORMS[device.platform].able)
    return {
        "profile": _profile(intent, device, group),
        "rate": group.rate,
        "buffer": group.buffer,
        "rest": layout.rest,
        "queues": [
            {
                "queue": queue.index,
                "class": queue.name,
                "dscp": list(queue.dscps),
                "limit": queue.limit,
                "ecn": list(queue.mark) if queue.mark else None,
                "drops": [
                    {"dscp": list(dscps), "begin": begin, "certain": certain}
                    for dscps, begin, certain in _drops(intent, device, queue)
                ],
            }
            for queue in layout.queues
        ],
        "lossless": [
            {
                "queue": each.priority,
                "class": each.name,
                "dscp": list(each.dscp),
                "share": each.share,
                "cable": each.cable or None,
                "headroom": [room.least, room.most],
                "ecn": list(each.mark) if each.mark else None,
            }
            for each in layout.lossless
            for room in (_headroom(intent, group, each),)
        ],
        "degraded": list(layout.degraded),
    }


def _between(begin: int, certain: int) -> str:
    return f"{begin}-{certain}"


def _bytes(number: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor and number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)
