"""The queues of a port, as lines for `tc -batch`. Pure.

One FIFO, or with `Plan.classes` one per traffic class in strict priority. htb is strict if each
class has the least guaranteed rate and may borrow the rest: it serves guaranteed rates before
priorities.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from dlcp_lab.emulation.plan import MIN_BUFFER, Plan, bits_per_second
from dlcpd.contract.traffic import TrafficClass, traffic_classes

BURST_TIME: Final = 0.00026  # seconds of link rate that htb passes at once: 32 KiB of 1 Gb/s
MIN_BURST: Final = 4096  # bytes; less than two packets would throttle a slow link below its rate
GUARANTEED: Final = "8kbit"  # per class: the least rate of htb
QUANTUM: Final = 1514  # bytes; one packet per round among classes of equal priority
ONLY: Final = "all"  # name of the queue without classes


@dataclass(frozen=True, slots=True)
class Queue:
    """One FIFO of a port."""

    name: str
    classid: str
    limit: int  # bytes
    dscps: tuple[int, ...]  # its DSCPs; the last queue takes all others as well
    dropped_first: tuple[int, ...]  # of these DSCPs under congestion: the last drop precedence
    dropped_next: tuple[int, ...]  # the drop precedences between the first and the last


def queues(plan: Plan) -> tuple[Queue, ...]:
    """The FIFOs of every port, in order of service; none if `bare`."""
    if plan.bare:
        return ()
    known = tuple(traffic_classes().values())
    if not plan.classes:
        return (_queue(ONLY, "1:1", plan.buffer_bytes, known),)
    # Later queues wait longer and get less room: a queue that starves holds less stale data.
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
    """Two lengths of a queue in bytes: above the first it marks and drops the last drop precedence,
    above the second it drops the middle ones as well."""
    lower = min(plan.ecn_bytes, queue.limit // 2)  # half of a shallow queue, before tail drops
    return lower, (lower + queue.limit) // 2


def queue_lines(plan: Plan, device: str, rate: str) -> Iterator[str]:
    """Lines for `tc -batch` that give a device its queues."""
    made = queues(plan)
    default = made[-1].classid.partition(":")[2]
    yield f"qdisc add dev {device} root handle 1: htb default {default}"
    yield from rate_lines(plan, device, rate)
    for queue in made:
        yield f"qdisc add dev {device} parent {queue.classid} bfifo limit {queue.limit}"
    if not plan.classes:
        return
    to = f"filter add dev {device} parent 1: protocol"
    # First of all, because ARP that starves behind data would cut the link.
    yield f"{to} arp prio 2 u32 match u32 0 0 flowid {made[0].classid}"
    for queue in made:
        for dscp in queue.dscps:
            match = f"match ip dsfield {dscp << 2:#04x} 0xfc"
            yield f"{to} ip prio 3 u32 {match} flowid {queue.classid}"


def rate_lines(plan: Plan, device: str, rate: str) -> Iterator[str]:
    """Lines that set the rate of a device with a root queue; works while traffic flows."""
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
