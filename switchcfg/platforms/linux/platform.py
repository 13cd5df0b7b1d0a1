"""Platform Linux: htb with a FIFO per class; nftables classifies, marks and drops early. Pure.

Every kernel since 5.16 has these parts (why not ets and red: docs/decisions.md). htb is strict
if each class has a negligible guaranteed rate, may borrow all, and has a distinct priority.
Queues have no names, so the root's handle identifies switchcfg's; rules are in its own table.

Every queue has virtual queues, one per threshold: a token bucket that drains slightly slower than
the link, and is as full as the queue that its packets wait in. While it is full, its port is in a
set, and stays there for some packets on average: ECT packets are marked, those of a drop precedence
are dropped. Lower virtual queues drain more slowly and release later, so that the last drop
precedence does not take the space that other drops freed. Measurements: docs/decisions.md.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from switchcfg.intent.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.plan.account import SWITCH, Reading
from switchcfg.plan.queues import Abilities, Layout, Queue
from switchcfg.plan.state import Change, Owns, Place, State, after
from switchcfg.platforms.linux import accounting
from switchcfg.platforms.linux import text as linux_text
from switchcfg.platforms.linux.text import (
    CLASS,
    FIFO,
    FOREIGN,
    HANDLE,
    PORT,
    ROOT,
    RULE,
    SETTING,
    TOP,
)
from switchcfg.platforms.platform import GivenBack, Rendered, Shell, Step, is_ours, render_groups
from switchcfg.platforms.rule import SEPARATOR

ABLE: Final = Abilities(
    curves=3, own_mark=True, spray=("hash",), no_lossless="its queues are in software, without PFC"
)
SHAPED: Final = 0.98  # of the port's rate; at 1.0 the driver's own queue fills instead
DRAIN: Final = (0.94, 0.98)  # fraction of the port's rate: lowest and highest virtual queue
GUARANTEED: Final = 8000  # bit/s: small, as guaranteed rates are served before any priority
HASH: Final = "net.ipv4.fib_multipath_hash_policy"
PACKET: Final = 1514  # bytes; buckets count packets: nft's byte buckets hold at least one second
SMALL: Final = 300  # bytes; shorter packets, such as acknowledgements, do not fill a queue
RELEASE: Final = (32, 16)  # mean packets until a port leaves the set; in the order of DRAIN
FINE, COARSE = 8_000, 1_000_000  # bit/s; tc shows rates from 1 Gbit/s on as whole megabits
DEGRADED: Final = (
    f"rate: ports are shaped to {SHAPED:.0%} of their rate, so that packets queue in Linux and "
    "not below it",
    (
        "marks and early drops: at one threshold, the middle of the ramp, counted in packets of "
        f"{PACKET} bytes"
    ),
)
KEPT: Final = (
    "keep: ports of Linux have no foreign queues: kept code points go to the class of `rest`"
)


class Linux:
    """Linux 5.16 and later, with tc and nft."""

    name, able = "linux", ABLE

    def render(self, intent: Intent, device: Device) -> Rendered:
        found = render_groups(intent, device, ABLE, _group)
        state = dict(found.state)
        if intent.spray == "hash":
            state[Place(SETTING, HASH, "")] = "1"
        kept = (KEPT,) if intent.keep.queues else ()
        return replace(found, state=state, degraded=(*found.degraded, *DEGRADED, *kept))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            if place.kind == RULE:
                return is_ours(intent, place.name.split(SEPARATOR)[0])
            return place.kind in {ROOT, CLASS, FIFO}

        return owns

    def write(self, state: State) -> str:
        """A script that sets up the state on a switch that has none of it."""
        changes = [Change(place, None, state[place]) for place in sorted(state)]
        return "#!/bin/sh\nset -eu\n" + "".join(step.payload for step in self.steps({}, changes))

    def read(self, text: str) -> State:
        return Reading.from_text(accounting.read(text), text)

    def near(self, device: Device, present: State) -> Collection[str]:
        return {SWITCH, *device.ports}

    def check(self, state: State, device: Device) -> Sequence[str]:
        there = {place.name for place in state if place.kind == PORT}
        absent = [port for port in device.ports if there and port not in there]
        taken = {place.name: value for place, value in state.items() if place.kind == FOREIGN}
        return [
            *(f"port: the device has no port {port}" for port in absent),
            *(
                f"root queue: {port} has the foreign root qdisc {taken[port]}; `tc qdisc del dev "
                f"{port} root` removes it"
                for port in device.ports
                if port in taken
            ),
        ]

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """A setting of the whole switch has no name of switchcfg: it stays."""
        place = Place(SETTING, HASH, "")
        set_ = intent.spray == "hash" and present.get(place) == "1"
        return GivenBack({}, {place: f"{HASH} = 1"} if set_ else {})

    def shell(self, intent: Intent, device: Device) -> Shell:
        snapshot = accounting.snapshot(intent.prefix, device.ports)
        return Shell(snapshot, ("tc", "nft", "sysctl"), lambda step: step.payload)

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return linux_text.restore(before, changes)

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """Queues are made before the rules that use them, and removed after those rules."""
        then = after(present, changes)
        made, removed, disrupts = linux_text.queue_commands(changes, then)
        steps = [
            Step("make queues", linux_text.batch("tc -batch -", made), tuple(disrupts)),
            Step("set rules", "".join(linux_text.rule_commands(changes, then))),
            Step("remove queues", linux_text.batch("tc -batch -", removed)),
        ]
        return [step for step in steps if step.payload]


def _group(intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
    state: dict[Place, str] = {}
    for port in group.ports:
        state |= _queues(port, group, layout)
        rules = _rules(intent, group, layout)
        state |= {
            Place(RULE, SEPARATOR.join((intent.prefix, port, f"{n:03}")), ""): rule
            for n, rule in enumerate(rules)
        }
    return state


def shaped(rate: int) -> int:
    """Shaping rate (bit/s) of a port of this rate, rounded so that tc prints it as it was set."""
    unit = COARSE if rate >= 1000 * COARSE else FINE
    return max(int(rate * SHAPED) // unit, 1) * unit


def _queues(port: str, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    rate = shaped(group.rate)
    yield Place(ROOT, port, ""), _minor(layout.rest)
    yield Place(CLASS, SEPARATOR.join((port, TOP)), ""), f"{rate} {rate} 0"
    for queue in layout.queues:
        name = SEPARATOR.join((port, _minor(queue.index)))
        yield Place(CLASS, name, ""), f"{GUARANTEED} {rate} {QUEUES - 1 - queue.index}"
        yield Place(FIFO, name, ""), str(queue.limit)


def _rules(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[str]:
    """Lines of a port's chain. A queue waits for the queues before it, so their packets count."""
    first, rest = layout.queues[0], layout.rest
    yield f"meta priority set {_classid(rest)}"
    # If data starved ARP or LACP, the link would go down.
    yield f"meta protocol != {{ 2048, 34525 }} meta priority set {_classid(first.index)}"
    for queue in layout.queues:
        if queue.index != rest:
            for family in ("ip", "ip6"):
                yield f"{family} dscp {_set(queue.dscps)} meta priority set {_classid(queue.index)}"
    before: list[str] = []
    for queue in layout.queues:
        before.append(_classid(queue.index))
        yield from _congestion(intent, group, queue, _set(sorted(before)))


@dataclass(frozen=True, slots=True)
class VirtualQueue:
    """One threshold of a queue, and the actions above it."""

    size: int  # packets
    marks: bool
    drops: tuple[int, ...]  # DSCPs


def virtual_queues(queue: Queue) -> list[VirtualQueue]:
    """Virtual queues, the lowest first. A ramp becomes its middle; equal thresholds are merged."""
    marks = _packets(*queue.mark) if queue.mark else 0
    drops: dict[int, tuple[int, ...]] = {}
    for band in queue.bands:
        if band.begin < queue.limit:  # else tail drop, which needs no rule
            size = _packets(band.begin, band.certain)
            drops[size] = drops.get(size, ()) + band.dscps
    sizes = sorted({*drops, *([marks] if marks else [])})
    return [VirtualQueue(size, size == marks, drops.get(size, ())) for size in sizes]


def _packets(begin: int, certain: int) -> int:
    return max((begin + certain) // 2 // PACKET, 2)


def _congestion(intent: Intent, group: PortGroup, queue: Queue, fed: str) -> Iterator[str]:
    """Rules of a queue. `fed`: the class ids of its own packets and of those served before it."""
    found = virtual_queues(queue)
    before = f"@{intent.prefix}-{_minor(queue.index)}"
    names = [f"{before}{'abcd'[n]}-{group.name or 'over'}" for n in range(len(found))]
    mine = f"meta priority {_classid(queue.index)}"
    for number, name in enumerate(names):
        # While a higher virtual queue is full, this one is full, too.
        unless = f" oif != {names[number + 1]}" if number + 1 < len(names) else ""
        mod = round(_between(RELEASE, number, len(names)))
        yield f"meta priority {fed}{unless} numgen random mod {mod} < 1 delete {name} {{ oif }}"
    # Before the buckets: dropped packets must not fill them.
    for virtual, name in zip(found, names, strict=True):
        if virtual.drops:
            for family in ("ip", "ip6"):
                yield f"{mine} {family} dscp {_set(sorted(virtual.drops))} oif {name} counter drop"
    for number, (virtual, name) in enumerate(zip(found, names, strict=True)):
        rate = max(int(group.rate * _between(DRAIN, number, len(names)) / 8 / PACKET), 1)
        yield (
            f"meta priority {fed} meta length > {SMALL} limit rate over {rate}/second "
            f"burst {virtual.size} packets update {name} {{ oif }}"
        )
        if virtual.marks:
            for family in ("ip", "ip6"):
                yield f"{mine} {family} ecn {{ 1, 2 }} oif {name} {family} ecn set 3 counter"


def _between(ends: tuple[float, float], number: int, count: int) -> float:
    """Linear interpolation: `ends[0]` for number 0, `ends[1]` for number count - 1."""
    first, last = ends
    return first + (last - first) * number / max(count - 1, 1)


def _minor(index: int) -> str:
    return f"1{index}"


def _classid(index: int) -> str:
    return f"{HANDLE}:{_minor(index)}"


def _set(values: Sequence[object]) -> str:
    """Values as nft prints them: in braces if there are two or more."""
    if len(values) == 1:
        return str(values[0])
    return "{ " + ", ".join(map(str, values)) + " }"
