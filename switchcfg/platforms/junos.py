"""Juniper Junos and Junos EVO: `set` lines, as `show configuration | display set` has them. Pure.

Junos colours by DSCP (loss priority), and its thresholds are fill levels in percent of a
queue's buffer. Only one level is certain to starve those below it (strict-high); what follows is
said as degraded. Source: Junos class-of-service guides for QFX and PTX.
"""

import re
from collections.abc import Iterator, Mapping
from html import escape, unescape
from typing import Final

from switchcfg.intent.intent import Intent, PortGroup
from switchcfg.plan.queues import Abilities, Band, Layout, Queue
from switchcfg.plan.state import Place
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.platform import Netconf, group_name

ABLE: Final = Abilities(curves=3, own_mark=False, spray=("hash", "packet"))
LOSS: Final = ("low", "medium-high", "high")  # by drop rank
LEVELS: Final = ("strict-high", "high", "medium-high", "medium-low", "low")  # by order of queues

_COS: Final = "class-of-service"
_MAP: Final = f"{_COS} schedulers {{scheduler}} drop-profile-map"
_HASH: Final = "policy-options policy-statement {policy} then load-balance per-packet"


def _rule(kind: str, line: str, undo: str = "") -> Rule:
    """`undo` where a line is taken back by less than the line itself."""
    return Rule(kind, (f"set {line}",), f"delete {undo or line}")


GRAMMAR: Final = Grammar(
    rules=(
        _rule("class queue", f"{_COS} forwarding-classes class {{class}} queue-num <queue>",
              f"{_COS} forwarding-classes class {{class}}"),
        _rule("classifier",
              f"{_COS} classifiers dscp {{name}} forwarding-class {{class}} loss-priority {{loss}} "
              "code-points {bits}"),
        _rule("drop profile",
              f"{_COS} drop-profiles {{profile}} interpolate fill-level {{percent}}"),
        _rule("drop probability",
              f"{_COS} drop-profiles {{profile}} interpolate drop-probability {{percent}}"),
        _rule("scheduler priority", f"{_COS} schedulers {{scheduler}} priority <level>",
              f"{_COS} schedulers {{scheduler}} priority"),
        _rule("scheduler buffer",
              f"{_COS} schedulers {{scheduler}} buffer-size percent <percent>",
              f"{_COS} schedulers {{scheduler}} buffer-size"),
        _rule("scheduler drop",
              f"{_MAP} loss-priority {{loss}} protocol any drop-profile <profile>",
              f"{_MAP} loss-priority {{loss}} protocol any"),
        _rule("scheduler ecn", f"{_COS} schedulers {{scheduler}} explicit-congestion-notification"),
        _rule("scheduler map",
              f"{_COS} scheduler-maps {{map}} forwarding-class {{class}} scheduler <scheduler>",
              f"{_COS} scheduler-maps {{map}} forwarding-class {{class}}"),
        _rule("interface map", f"{_COS} interfaces {{port}} scheduler-map <map>",
              f"{_COS} interfaces {{port}} scheduler-map"),
        _rule("interface classifier", f"{_COS} interfaces {{port}} unit 0 classifiers dscp <name>",
              f"{_COS} interfaces {{port}} unit 0 classifiers dscp"),
        _rule("balance policy", _HASH, "policy-options policy-statement {policy}"),
        _rule("balance export", "routing-options forwarding-table export {policy}"),
        _rule("balance mode", "forwarding-options enhanced-hash-key ecmp-dlb <mode>",
              "forwarding-options enhanced-hash-key ecmp-dlb"),
    ),
    comment="#",
)  # fmt: skip


class Junos(CommandPlatform):
    """Junos 22 and later on QFX, Junos EVO on PTX and QFX: one candidate, committed as a whole."""

    name, able, grammar, mode = "junos", ABLE, GRAMMAR, "configure private"
    binds = ("interface map", "interface classifier")
    degraded = (
        "strict order: only the first queue is strict-high; a chip without the levels below it "
        "shares what is left by buffer size",
        "thresholds become percents of each queue's buffer",
    )

    def netconf(self) -> Netconf:
        return Netconf(
            '<get-configuration database="committed" format="set"/>',
            _lines,
            lambda step: (
                '<load-configuration action="set"><configuration-set>'
                f"{escape(step.payload, quote=False)}</configuration-set></load-configuration>"
            ),
            '<load-configuration rollback="1"/>',
        )

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        classes, ports = _classes(intent, layout), _ports(intent, group, layout)
        return dict([*classes, *ports, *_balance(intent)])


def _class(intent: Intent, queue: int) -> str:
    return f"{intent.prefix}-Q{queue}"


def _classes(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Of the whole switch."""
    colour = layout.rank_of()
    for dscp, queue in layout.queue_of(intent).items():
        where = (intent.prefix, _class(intent, queue), LOSS[colour.get(dscp, 0)], f"{dscp:06b}")
        yield Place("classifier", SEPARATOR.join(where), ""), ""
    for queue in sorted({*layout.queue_of(intent).values()}):
        yield Place("class queue", _class(intent, queue), ""), str(queue)


def _ports(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    map_ = group_name(intent, group)
    for order, queue in enumerate(layout.queues):
        scheduler = f"{map_}-Q{queue.index}"
        where = f"{map_}{SEPARATOR}{_class(intent, queue.index)}"
        yield Place("scheduler map", where, ""), scheduler
        yield Place("scheduler priority", scheduler, ""), LEVELS[min(order, len(LEVELS) - 1)]
        percent = max(round(queue.share * 100), 1)
        yield Place("scheduler buffer", scheduler, ""), str(percent)
        if queue.mark:
            yield Place("scheduler ecn", scheduler, ""), ""
        yield from _drops(intent, scheduler, queue)
    for port in group.ports:
        yield Place("interface map", port, ""), map_
        yield Place("interface classifier", port, ""), intent.prefix


def _drops(intent: Intent, scheduler: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    """A profile per drop rank. What is ECT is marked by its profile, so it needs one too."""
    for band in queue.bands:
        begin, certain = _percents(band, queue)
        if begin >= 100:
            continue
        profile = f"{intent.prefix}-{begin}-{certain}"
        where = f"{scheduler}{SEPARATOR}{LOSS[band.rank]}"
        yield Place("scheduler drop", where, ""), profile
        for fill, probability in ((begin, 0), (certain, 100)):
            yield Place("drop profile", f"{profile}{SEPARATOR}{fill}", ""), ""
            yield Place("drop probability", f"{profile}{SEPARATOR}{probability}", ""), ""


def _percents(band: Band, queue: Queue) -> tuple[int, int]:
    ect_protected = queue.mark and band.rank == 0
    begin, certain = queue.mark if ect_protected and queue.mark else (band.begin, band.certain)
    low = 100 * begin // queue.limit
    return low, max(100 * certain // queue.limit, low + 1)


def _balance(intent: Intent) -> Iterator[tuple[Place, str]]:
    if intent.spray == "keep":
        return
    policy = f"{intent.prefix}-ECMP"  # "per-packet" there means per flow on today's hardware
    yield Place("balance policy", policy, ""), ""
    yield Place("balance export", policy, ""), ""
    if intent.spray == "packet":
        yield Place("balance mode", "", ""), "per-packet"


def _lines(reply: str) -> str:
    """The `set` lines in a reply to get-configuration."""
    found = re.search(r"<configuration-set[^>]*>(.*?)</configuration-set>", reply, re.DOTALL)
    return unescape(found[1]) if found else ""
