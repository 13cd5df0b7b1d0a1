"""Marks and early drops on a switch output, as nft rules. Pure.

Every queue has two virtual queues: token buckets that drain a little slower than the link. Packets
of the queue's class and of all classes served before it fill them, so their length is the backlog
ahead of the queue's packets. While the lower one is full, ECT packets are marked and packets of the
last drop precedence are dropped; while the upper one is full, the middle drop precedence is dropped
too. Packets of drop precedence 0 are dropped only if the real buffer is full. Packets with a DSCP
outside the table are never dropped early.

A full bucket alone would refuse packets of all drop precedences, in order of arrival. So a refusal
puts the port into a set, where it stays for `release` packets on average, and for as long as an
overload lasts. Counting packets works at every rate. The lower virtual queue drains more slowly, is
full while the upper one is, and is released later, so that the last drop precedence does not take
the room that dropping the others has freed. The upper one does not count the last drop precedence.

nft counts bytes only with a bucket of at least one second, so these buckets count packets: each
above SMALL bytes as a full one. A full bucket does not know how much more the queue holds: bursts
of protected packets reach the end of the buffer, a seventh of them at 2:1. early_drop.py does not
have this limit; where it can run, only the marks are made here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dlcp_lab.emulation.plan import Plan, bits_per_second
from dlcp_lab.emulation.queues import Queue, queues, thresholds

FULL: Final = 1514  # bytes of a full packet with its Ethernet header
SMALL: Final = 300  # bytes; smaller packets (control, acknowledgements) do not fill a queue
# Fractions of the link rate at which the virtual queues drain, below 1 so that they fill before the
# real one, and packets until a refusal is released. Measured at 2:1 with equal shares of three drop
# precedences: 96, 46 and 6 % arrive; at 1.1:1 100, 100 and 44 %. An earlier release lets droppable
# packets pass; a later one leaves the link idle after a short burst.
LOWER_DRAIN: Final = 0.94
UPPER_DRAIN: Final = 0.98
LOWER_RELEASE: Final = 32
UPPER_RELEASE: Final = 16
IDLE: Final = "20ms"  # no packet for this time ends an overload; several ticks of a 250 Hz kernel
STEPS: Final = 1_000_000  # resolution of `chance`


@dataclass(frozen=True, slots=True)
class VirtualQueue:
    """One token bucket of a queue, and the DSCPs that are dropped while it is full."""

    name: str  # of the nft set of the ports on which it is full
    size: int  # bytes
    drops: tuple[int, ...]
    drain: float  # fraction of the link rate
    release: int  # mean packets until a refusal is released


def virtual_queues(plan: Plan) -> list[VirtualQueue]:
    """The virtual queues of all queues of a port."""
    return [virtual for queue in queues(plan) for virtual in _of(plan, queue)]


def congestion_rules(plan: Plan, port: str, rate: str) -> Iterator[str]:
    """Rules for the packets that leave through a port; its counters end in `port`."""
    if not plan.ecn_bytes:
        return
    made = queues(plan)
    packets = bits_per_second(rate) / 8 / FULL
    for rank, queue in enumerate(made):
        last = rank == len(made) - 1
        # The last queue takes all packets whose DSCP no other queue has.
        fed = "" if last else _among(made[: rank + 1])
        own = _among(made[:rank], but=True) if last else _among([queue])
        yield from _rules(plan, queue, f"meta length > {SMALL} {fed}", packets, port)
        yield (
            f"{own} ip ecn {{ ect0, ect1 }} meta oif @{_of(plan, queue)[0].name} "
            f"ip ecn set ce counter name marked_{port}_{queue.name}"
        )


def chance(fraction: float) -> str:
    """An nft match that is true for this fraction of packets, at random."""
    return f"numgen random mod {STEPS} < {round(fraction * STEPS)}"


def _of(plan: Plan, queue: Queue) -> tuple[VirtualQueue, VirtualQueue]:
    lower, upper = thresholds(plan, queue)
    name, first, later = f"over_{queue.name}", queue.dropped_first, queue.dropped_next
    if plan.early_drop == "bpf":
        first = later = ()
    return (
        VirtualQueue(f"{name}_lower", lower, first, LOWER_DRAIN, LOWER_RELEASE),
        VirtualQueue(f"{name}_upper", upper, later, UPPER_DRAIN, UPPER_RELEASE),
    )


def _rules(plan: Plan, queue: Queue, fed: str, packets: float, port: str) -> Iterator[str]:
    lower, upper = _of(plan, queue)
    # While the upper one is full, so is the lower one.
    forget = f"{fed} meta oif != @{upper.name} {chance(1.0 / lower.release)}"
    yield f"{forget} delete @{lower.name} {{ meta oif }}"
    yield f"{fed} {chance(1.0 / upper.release)} delete @{upper.name} {{ meta oif }}"
    # Before the buckets: dropped packets must not fill them.
    for virtual in (lower, upper):
        if virtual.drops:
            early = f"counter name early_{port}_{queue.name} drop"
            yield f"ip dscp {_set(virtual.drops)} meta oif @{virtual.name} {early}"
    yield _bucket(fed, lower, packets)
    kept = f"ip dscp != {_set(lower.drops)}" if lower.drops else ""
    yield _bucket(f"{fed} {kept}", upper, packets)


def _bucket(fed: str, virtual: VirtualQueue, packets: float) -> str:
    rate = max(1, int(packets * virtual.drain))
    over = f"limit rate over {rate}/second burst {max(2, virtual.size // FULL)} packets"
    return f"{fed} {over} update @{virtual.name} {{ meta oif }}"


def _among(made: Sequence[Queue], *, but: bool = False) -> str:
    """Match of the DSCPs of these queues; with `but`, of all other DSCPs."""
    dscps = [dscp for queue in made for dscp in queue.dscps]
    return f"ip dscp {'!= ' if but else ''}{_set(dscps)}" if dscps else ""


def _set(values: Sequence[int]) -> str:
    return "{ " + ", ".join(map(str, values)) + " }"
