"""The queues of a port, as lines for `tc -batch`. Pure.

One FIFO, or with `Plan.classes` one per traffic class in strict priority. htb is strict when
a class is guaranteed next to nothing and may borrow everything: a guaranteed rate would be
served before any priority.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from dlcp_lab.emulation.plan import MIN_BUFFER, Plan, bits_per_second
from dlcpd.contract.traffic import TrafficClass, traffic_classes

BURST_TIME: Final = 0.00026  # seconds of link rate that htb passes at once: 32 KiB of 1 Gb/s
MIN_BURST: Final = 4096  # bytes; less than two packets would throttle a slow link below its rate
GUARANTEED: Final = "8kbit"  # per class: the least that htb reckons with
QUANTUM: Final = 1514  # bytes; one packet per round among what htb thinks equal
ONLY: Final = "all"  # name of the queue where there are no classes


@dataclass(frozen=True, slots=True)
class Queue:
    """One FIFO of a port."""

    name: str
    classid: str
    limit: int  # bytes
    dscps: tuple[int, ...]  # what it takes; the last queue takes the rest as well
    dropped_first: tuple[int, ...]  # of these DSCPs under congestion: the last drop precedence
    dropped_next: tuple[int, ...]  # the drop precedences between the first and the last


def queues(plan: Plan) -> tuple[Queue, ...]:
    """The FIFOs of every port, the first served first; none where others make them."""
    if plan.bare:
        return ()
    known = tuple(traffic_classes().values())
    if not plan.classes:
        return (_queue(ONLY, "1:1", plan.buffer_bytes, known),)
    # What is served last waits longest: less room means less stale data in a queue that starves.
    return tuple(
        _queue(
            each.name,
            f"1:1{each.rank}",
            max(MIN_BUFFER, plan.buffer_bytes * (len(known) - each.rank) // len(known)),
            (each,),
        )
        for each in known
    )


def thresholds(plan: Plan, queue: Queue) -> tuple[int, int]:
    """Bytes in a queue above which it drops the last drop precedence and marks, and above which it
    drops the middle ones as well."""
    lower = min(plan.ecn_bytes, queue.limit // 2)  # of a shallow queue half, or it would tail-drop
    return lower, (lower + queue.limit) // 2


def queue_lines(plan: Plan, device: str, rate: str) -> Iterator[str]:
    """Give a device its queues."""
    made = queues(plan)
    default = made[-1].classid.partition(":")[2]
    yield f"qdisc add dev {device} root handle 1: htb default {default}"
    yield from rate_lines(plan, device, rate)
    for queue in made:
        yield f"qdisc add dev {device} parent {queue.classid} bfifo limit {queue.limit}"
    if not plan.classes:
        return
    to = f"filter add dev {device} parent 1: protocol"
    # Address resolution that starves behind data would cut the link.
    yield f"{to} arp prio 2 u32 match u32 0 0 flowid {made[0].classid}"
    for queue in made:
        for dscp in queue.dscps:
            match = f"match ip dsfield {dscp << 2:#04x} 0xfc"
            yield f"{to} ip prio 3 u32 {match} flowid {queue.classid}"


def rate_lines(plan: Plan, device: str, rate: str) -> Iterator[str]:
    """Set the rate of a device that has its root queue; works while traffic flows."""
    burst = max(MIN_BURST, int(bits_per_second(rate) / 8 * BURST_TIME))
    to, most = f"class replace dev {device} parent", f"ceil {rate} burst {burst} cburst {burst}"
    yield f"{to} 1: classid 1:1 htb rate {rate} {most} quantum {QUANTUM}"
    if plan.classes:
        for priority, queue in enumerate(queues(plan)):
            share = f"rate {GUARANTEED} ceil {rate} burst 1600 cburst {burst}"
            yield f"{to} 1:1 classid {queue.classid} htb {share} prio {priority} quantum {QUANTUM}"


def _queue(name: str, classid: str, limit: int, members: tuple[TrafficClass, ...]) -> Queue:
    droppable = [each.dscp for each in members if len(each.dscp) > 1]
    return Queue(
        name,
        classid,
        limit,
        dscps=tuple(chain.from_iterable(each.dscp for each in members)),
        dropped_first=tuple(points[-1] for points in droppable),
        dropped_next=tuple(chain.from_iterable(points[1:-1] for points in droppable)),
    )
