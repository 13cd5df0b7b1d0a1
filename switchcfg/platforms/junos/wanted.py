"""Intent to the lines of a Junos device: classes of the switch, and the queues of its ports. Pure.

Places are those of the rules in grammar.py. A queue's thresholds are fill levels in percent.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from switchcfg.intent.intent import Intent, PortGroup
from switchcfg.intent.lossless import Lossless
from switchcfg.plan.queues import Layout, Queue
from switchcfg.plan.state import Place
from switchcfg.platforms.junos.present import CLASSIFIERS
from switchcfg.platforms.platform import group_name
from switchcfg.platforms.rule import SEPARATOR
from switchcfg.platforms.weighted import percents

LOSS: Final = ("low", "medium-high", "high")  # by drop precedence
PER_PACKET: Final = "per-packet"
LEVELS: Final = ("strict-high", "high", "medium-high", "medium-low", "low")  # by order of queues
STRICT: Final = len(LEVELS) - 1  # queues of traffic classes above the level of lossless classes


def _class(intent: Intent, queue: int) -> str:
    return f"{intent.prefix}-Q{queue}"


def classes(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Lines of the whole switch: classifiers, forwarding classes and the PFC profile."""
    colour = layout.rank_of()
    for dscp, queue in layout.queue_of(intent).items():
        where = (intent.prefix, _class(intent, queue), LOSS[colour.get(dscp, 0)], f"{dscp:06b}")
        for kind in CLASSIFIERS:
            yield Place(kind, SEPARATOR.join(where), ""), ""
    for queue in sorted({*layout.queue_of(intent).values()}):
        yield Place("class queue", _class(intent, queue), ""), str(queue)
    for each in layout.lossless:
        yield Place("class no-loss", _class(intent, each.priority), ""), ""
        yield Place("class priority", _class(intent, each.priority), ""), str(each.priority)
        for dscp in each.dscp:
            yield Place("pfc input", f"{intent.prefix}{SEPARATOR}{dscp:06b}", ""), ""
        frames = SEPARATOR.join((intent.prefix, f"{each.priority:03b}", str(each.priority)))
        yield Place("pfc output", frames, ""), ""
    if cable := max((each.cable for each in layout.lossless), default=0):
        yield Place("pfc cable", intent.prefix, ""), str(cable)


def ports(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Lines of a port group: schedulers, scheduler map, drop profiles, and their interfaces."""
    map_ = group_name(intent, group)
    turns = percents(layout, layout.queues[STRICT:])
    for index, percent in turns.items():
        yield Place("scheduler rate", f"{map_}-Q{index}", ""), str(percent)
    for each in layout.lossless:
        yield from _lossless(intent, group, each)
    for order, queue in enumerate(layout.queues):
        scheduler = f"{map_}-Q{queue.index}"
        where = f"{map_}{SEPARATOR}{_class(intent, queue.index)}"
        yield Place("scheduler map", where, ""), scheduler
        yield Place("scheduler priority", scheduler, ""), LEVELS[min(order, STRICT)]
        percent = max(int(queue.share * 100 + 1e-9), 1)  # rounded down: the sum is at most 100
        yield Place("scheduler buffer", scheduler, ""), str(percent)
        marks = replace(queue, mark=None) if order == 0 else queue
        if marks.mark:
            yield Place("scheduler ecn", scheduler, ""), ""
        yield from _drops(intent, scheduler, marks)
    for port in group.ports:
        yield Place("interface map", port, ""), map_
        if layout.lossless:
            yield Place("interface pfc", port, ""), intent.prefix
        for kind in CLASSIFIERS.values():
            yield Place(kind, port, ""), intent.prefix


def _lossless(intent: Intent, group: PortGroup, each: Lossless) -> Iterator[tuple[Place, str]]:
    """Scheduler of a lossless class. No buffer size: lossless traffic uses a shared pool."""
    map_ = group_name(intent, group)
    scheduler = f"{map_}-Q{each.priority}"
    where = f"{map_}{SEPARATOR}{_class(intent, each.priority)}"
    yield Place("scheduler map", where, ""), scheduler
    yield Place("scheduler priority", scheduler, ""), LEVELS[STRICT]
    if each.mark:
        yield Place("scheduler ecn", scheduler, ""), ""
        yield from _drop(intent, scheduler, LOSS[0], fill_levels(*each.mark, group.buffer))


def _drops(intent: Intent, scheduler: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    """A profile per drop precedence; the ECT packets need one, too, because it marks them."""
    for band in queue.bands:
        marks = queue.mark if band.rank == 0 else None
        if band.begin >= queue.limit and not marks:
            continue  # tail drop needs no profile
        levels = fill_levels(*(marks or (band.begin, band.certain)), queue.limit)
        yield from _drop(intent, scheduler, LOSS[band.rank], levels)


def _drop(
    intent: Intent, scheduler: str, loss: str, levels: tuple[int, int]
) -> Iterator[tuple[Place, str]]:
    """A drop profile and its use for one loss priority. Its name has its fill levels (percent)."""
    begin, certain = levels
    profile = f"{intent.prefix}-{begin}-{certain}"
    yield Place("scheduler drop", f"{scheduler}{SEPARATOR}{loss}", ""), profile
    for fill, probability in ((begin, 0), (certain, 100)):
        yield Place("drop profile", f"{profile}{SEPARATOR}{fill}", ""), ""
        yield Place("drop probability", f"{profile}{SEPARATOR}{probability}", ""), ""


def fill_levels(begin: int, certain: int, limit: int) -> tuple[int, int]:
    """The nearest fill levels in percent; the second is above the first. Only 0 bytes give 0."""
    low = min(max(_nearest(begin, limit), 1 if begin else 0), 99)
    return low, min(max(_nearest(certain, limit), low + 1), 100)


def _nearest(part: int, whole: int) -> int:
    return (200 * part + whole) // (2 * whole)


def balance(intent: Intent) -> Iterator[tuple[Place, str]]:
    """Lines that spread traffic over paths of equal cost; none for `spray = "keep"`."""
    if intent.spray == "keep":
        return
    policy = f"{intent.prefix}-ECMP"  # its "per-packet" means per flow on current hardware
    yield Place("balance policy", policy, ""), ""
    yield Place("balance export", policy, ""), ""
    if intent.spray == "packet":
        yield Place("balance mode", "", ""), PER_PACKET
