"""A Linux switch: htb with a FIFO per class, classified and marked by nftables. Pure.

Every kernel since 5.16 has these parts; `prio`, `ets` and `red` many builds leave out. htb is
strict where a class is guaranteed next to nothing, may borrow all, and has a priority of its own.
Queues have no names, so ours are told by the handle of the root; rules are in a table of our own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from switchcfg.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.platforms import linux_text
from switchcfg.platforms.grammar import SEPARATOR
from switchcfg.platforms.linux_text import (
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
from switchcfg.platforms.platform import Rendered, Shell, Step, is_ours, render_groups
from switchcfg.queues import Abilities, Layout, Queue
from switchcfg.state import Change, Owns, Place, State, after

ABLE: Final = Abilities(curves=1, own_mark=True, spray=("hash",))
SHAPED: Final = 0.98  # of the port's rate; at 1.0 the driver's own queue fills instead
MARKED: Final = 0.94  # of the port's rate: where a queue that marks is taken to drain
GUARANTEED: Final = 8000  # bit/s: what a class is guaranteed is served before any priority
HASH: Final = "net.ipv4.fib_multipath_hash_policy"
PACKET: Final = 1514  # bytes; nft's byte buckets hold a second at least, so it counts packets
SMALL: Final = 300  # bytes; acknowledgements are not what fills a queue
RELEASE: Final = 32  # packets in the mean until a full queue's mark is taken back
FINE, COARSE = 8_000, 1_000_000  # bit/s; tc shows rates from 1 Gbit/s on as whole megabits
DEGRADED: Final = (
    f"rate: ports are shaped to {SHAPED:.0%} of theirs, so that the queue is here",
    "marks: all at once, in the middle of the ramp, and counted in packets of 1514 bytes",
)
KEPT: Final = "keep: a port of Linux has no queues of others: what is kept goes where the rest goes"


class Linux:
    """Linux 5.16 and later, with tc and nft."""

    name = "linux"

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
        """A script that makes it, where nothing of it is there yet."""
        changes = [Change(place, None, state[place]) for place in sorted(state)]
        return "#!/bin/sh\nset -eu\n" + "".join(step.payload for step in self.steps({}, changes))

    def read(self, text: str) -> State:
        return linux_text.read(text)

    def check(self, state: State, device: Device) -> Sequence[str]:
        there = {place.name for place in state if place.kind == PORT}
        absent = [port for port in device.ports if there and port not in there]
        taken = {place.name: value for place, value in state.items() if place.kind == FOREIGN}
        return [
            *(f"port: {port} is not there" for port in absent),
            *(
                f"root queue: {port} has {taken[port]}, which somebody else has set; "
                f"`tc qdisc del dev {port} root` gives it back to the kernel"
                for port in device.ports
                if port in taken
            ),
        ]

    def shell(self, intent: Intent, device: Device) -> Shell:
        snapshot = linux_text.snapshot(intent.prefix, device.ports)
        return Shell(snapshot, ("tc", "nft", "sysctl"), lambda step: step.payload)

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return linux_text.restore(before, changes)

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """Queues are made before rules point at them, and removed after none does."""
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
    """Bit/s that a port of this rate is held to, such that tc shows it as it was set."""
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
    """Lines of a port's chain. A queue waits behind those before it, and their packets count."""
    first, rest = layout.queues[0], layout.rest
    yield f"meta priority set {_classid(rest)}"
    # Address resolution or LACP that starves behind data would cut the link.
    yield f"meta protocol != {{ 2048, 34525 }} meta priority set {_classid(first.index)}"
    for queue in layout.queues:
        if queue.index != rest:
            for family in ("ip", "ip6"):
                yield f"{family} dscp {_set(queue.dscps)} meta priority set {_classid(queue.index)}"
    before: list[str] = []
    for queue in layout.queues:
        before.append(_classid(queue.index))
        if queue.mark:
            yield from _marks(intent, group, queue, _set(sorted(before)))


def _marks(intent: Intent, group: PortGroup, queue: Queue, fed: str) -> Iterator[str]:
    """A token bucket that is as full as the queue is; while it is, ECT packets are marked."""
    assert queue.mark is not None  # noqa: S101  # the caller asked
    over = f"@{intent.prefix}-{_minor(queue.index)}-{group.name or 'over'}"
    rate = max(int(group.rate * MARKED / 8 / PACKET), 1)
    burst = max(sum(queue.mark) // 2 // PACKET, 2)
    yield f"meta priority {fed} numgen random mod {RELEASE} < 1 delete {over} {{ oif }}"
    yield (
        f"meta priority {fed} meta length > {SMALL} limit rate over {rate}/second "
        f"burst {burst} packets update {over} {{ oif }}"
    )
    for family in ("ip", "ip6"):
        mine = f"meta priority {_classid(queue.index)} {family} ecn {{ 1, 2 }}"
        yield f"{mine} oif {over} {family} ecn set 3 counter"


def _minor(index: int) -> str:
    return f"1{index}"


def _classid(index: int) -> str:
    return f"{HANDLE}:{_minor(index)}"


def _set(values: Sequence[object]) -> str:
    """As nft prints it: braces from two on."""
    if len(values) == 1:
        return str(values[0])
    return "{ " + ", ".join(map(str, values)) + " }"
