"""Intent to the lines of an NX-OS device: code points, queues, and the network-qos policy. Pure."""

from collections.abc import Iterator
from typing import Final

from switchcfg.intent.intent import QUEUES, Intent, PortGroup
from switchcfg.plan.queues import Layout, Queue
from switchcfg.plan.state import Place
from switchcfg.platforms.platform import group_name
from switchcfg.platforms.rule import SEPARATOR
from switchcfg.platforms.weighted import below, percents

MTU: Final = 9216  # bytes; a port's maximum, as in all of Cisco's RoCE guides
SYSTEM: Final = Place("system network", "", "")


def marking(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """DSCP -> qos-group = queue. All other packets fall through to the system's last class."""
    points: dict[int, list[int]] = {}
    for dscp, queue in sorted(layout.queue_of(intent).items()):
        if queue != layout.rest:
            points.setdefault(queue, []).append(dscp)
    last = f"{intent.prefix}{SEPARATOR}class-default"
    yield Place("mark group", last, ""), str(layout.rest)
    for queue, dscps in points.items():
        name = f"{intent.prefix}-Q{queue}"
        yield Place("class match", name, ""), ",".join(map(str, dscps))
        yield Place("mark group", f"{intent.prefix}{SEPARATOR}{name}", ""), str(queue)


def queuing(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    """The queuing policy of a port group, and its interfaces."""
    name = f"{group_name(intent, group)}-OUT"
    turns = percents(layout, below(layout))
    for queue in layout.queues:
        yield from _queue(f"{name}{SEPARATOR}{_class(queue.index)}", queue, turns.get(queue.index))
    for each in layout.lossless:
        where = f"{name}{SEPARATOR}{_class(each.priority)}"
        yield Place("queue bandwidth", where, ""), str(turns[each.priority])
        yield from _marks(where, each.mark)
    for port in group.ports:
        yield Place("interface mark", port, ""), intent.prefix
        yield Place("interface queue", port, ""), name


def _class(index: int) -> str:
    """The system's name of a queue."""
    return f"c-out-8q-q{index}" if index else "c-out-8q-q-default"


def _queue(name: str, queue: Queue, percent: int | None) -> Iterator[tuple[Place, str]]:
    """Lines of one queue. `percent`: share of the rate that strict queues leave; None: strict."""
    if queue.index and percent is None:
        yield Place("queue priority", name, ""), str(QUEUES - queue.index)
    else:
        yield Place("queue bandwidth", name, ""), str(percent or 100)
    yield from _marks(name, queue.mark)
    bare = queue.bands[-1]
    if queue.mark and len(queue.bands) > 1 and (bare.begin, bare.certain) != queue.mark:
        yield Place("queue bare", name, ""), f"{bare.begin} {bare.certain} 100"
    yield Place("queue limit", name, ""), str(queue.limit)


def _marks(name: str, mark: tuple[int, int] | None) -> Iterator[tuple[Place, str]]:
    if mark:
        yield Place("queue detect", name, ""), f"{mark[0]} {mark[1]} 100 0 ecn"


def network(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    """The network-qos policy of the whole switch, and flow control of the group's ports."""
    if not layout.lossless:
        return
    policy = f"{intent.prefix}-NETWORK"
    yield Place("class mtu", f"{policy}{SEPARATOR}c-8q-nq-default", ""), str(MTU)
    for each in layout.lossless:
        where = f"{policy}{SEPARATOR}c-8q-nq{each.priority}"
        yield Place("class mtu", where, ""), str(MTU)
        yield Place("class pause", where, ""), str(each.priority)
    yield SYSTEM, policy
    for port in group.ports:
        yield Place("interface pfc", port, ""), "on"
