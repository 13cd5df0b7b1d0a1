"""Platform Junos and Junos EVO: `set` lines of `show configuration | display set`. Pure.

Junos sets the drop precedence (loss priority) by DSCP; its thresholds are fill levels in percent of
a queue's buffer. Only strict-high is certain to be served before the levels below it, and it has no
ECN; plans list both as degraded. Sources: docs/switches-platforms.md names Juniper's pages.

A lossless class is a forwarding class with `no-loss`. A congestion notification profile turns on
PFC for its code points on a port, and holds the cable length.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape, unescape
from typing import Final

from switchcfg.errors import BadState, CannotExpress
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.intent.lossless import Lossless
from switchcfg.plan.queues import Abilities, Layout, Queue, lay_out
from switchcfg.plan.state import Change, Owns, Place, State, after
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.junos import text as junos_text
from switchcfg.platforms.junos.existing import (
    BINDS,
    CLASSIFIERS,
    Present,
    beside,
    left_without,
    mixed,
    problems,
    unread,
)
from switchcfg.platforms.platform import Fit, Netconf, Rendered, Step, Taken, group_name
from switchcfg.platforms.weighted import in_words, percents

ABLE: Final = Abilities(curves=3, own_mark=False, spray=("hash", "packet"), lossless=6)
LOSS: Final = ("low", "medium-high", "high")  # by drop precedence
PER_PACKET: Final = "per-packet"
LEVELS: Final = ("strict-high", "high", "medium-high", "medium-low", "low")  # by order of queues
STRICT: Final = len(LEVELS) - 1  # queues of traffic classes above the level of lossless classes
# Queues of Junos' own lossy classes: the classes of a queue must be all lossy or all lossless.
DROPPING: Final = {0: "best-effort", 7: "network-control"}

_COS: Final = "class-of-service"
_PFC: Final = f"{_COS} congestion-notification-profile {{name}}"
_MAP: Final = f"{_COS} schedulers {{scheduler}} drop-profile-map"
_HASH: Final = "policy-options policy-statement {policy} then load-balance per-packet"


def _rule(kind: str, line: str, undo: str = "") -> Rule:
    """A rule of one line. `undo`: the deleted part, if it is less than the whole line."""
    return Rule(kind, (f"set {line}",), f"delete {undo or line}")


GRAMMAR: Final = Grammar(
    rules=(
        _rule(
            "class queue",
            f"{_COS} forwarding-classes class {{class}} queue-num <queue>",
            f"{_COS} forwarding-classes class {{class}}",
        ),
        _rule("class no-loss", f"{_COS} forwarding-classes class {{class}} no-loss"),
        _rule(
            "class priority",
            f"{_COS} forwarding-classes class {{class}} pfc-priority <priority>",
            f"{_COS} forwarding-classes class {{class}} pfc-priority",
        ),
        _rule("pfc tagged", f"{_PFC} input ieee-802.1 code-point {{bits}} pfc"),  # foreign
        _rule("pfc input", f"{_PFC} input dscp code-point {{bits}} pfc"),
        _rule("pfc cable", f"{_PFC} input cable-length <metres>", f"{_PFC} input cable-length"),
        _rule(
            "pfc output", f"{_PFC} output ieee-802.1 code-point {{bits}} flow-control-queue <queue>"
        ),
        _rule(
            "interface pfc", f"{_COS} interfaces {{port}} congestion-notification-profile <profile>"
        ),
        _rule(
            "classifier",
            f"{_COS} classifiers dscp {{name}} forwarding-class {{class}} loss-priority {{loss}} "
            "code-points {bits}",
        ),
        _rule(
            "classifier ipv6",
            f"{_COS} classifiers dscp-ipv6 {{name}} forwarding-class {{class}} "
            "loss-priority {loss} code-points {bits}",
        ),
        _rule(
            "drop profile", f"{_COS} drop-profiles {{profile}} interpolate fill-level {{percent}}"
        ),
        _rule(
            "drop probability",
            f"{_COS} drop-profiles {{profile}} interpolate drop-probability {{percent}}",
        ),
        _rule(
            "scheduler priority",
            f"{_COS} schedulers {{scheduler}} priority <level>",
            f"{_COS} schedulers {{scheduler}} priority",
        ),
        _rule(
            "scheduler rate",
            f"{_COS} schedulers {{scheduler}} transmit-rate percent <percent>",
            f"{_COS} schedulers {{scheduler}} transmit-rate",
        ),
        _rule(
            "scheduler buffer",
            f"{_COS} schedulers {{scheduler}} buffer-size percent <percent>",
            f"{_COS} schedulers {{scheduler}} buffer-size",
        ),
        _rule(
            "scheduler drop",
            f"{_MAP} loss-priority {{loss}} protocol any drop-profile <profile>",
            f"{_MAP} loss-priority {{loss}} protocol any",
        ),
        _rule("scheduler ecn", f"{_COS} schedulers {{scheduler}} explicit-congestion-notification"),
        _rule(
            "scheduler map",
            f"{_COS} scheduler-maps {{map}} forwarding-class {{class}} scheduler <scheduler>",
            f"{_COS} scheduler-maps {{map}} forwarding-class {{class}}",
        ),
        _rule(
            "interface map",
            f"{_COS} interfaces {{port}} scheduler-map <map>",
            f"{_COS} interfaces {{port}} scheduler-map",
        ),
        _rule(
            "interface classifier",
            f"{_COS} interfaces {{port}} unit 0 classifiers dscp <name>",
            f"{_COS} interfaces {{port}} unit 0 classifiers dscp",
        ),
        _rule(
            "interface classifier ipv6",
            f"{_COS} interfaces {{port}} unit 0 classifiers dscp-ipv6 <name>",
            f"{_COS} interfaces {{port}} unit 0 classifiers dscp-ipv6",
        ),
        _rule("balance policy", _HASH, "policy-options policy-statement {policy}"),
        _rule("balance export", "routing-options forwarding-table export {policy}"),
        _rule(
            "balance mode",
            "forwarding-options enhanced-hash-key ecmp-dlb <mode>",
            "forwarding-options enhanced-hash-key ecmp-dlb",
        ),
    ),
    comment="#",
)


# Entries of lists: a device keeps an empty entry, so each is deleted with its last line.
_WORD: Final = r"[^ ]+"
_ENTRY: Final = re.compile(
    f"{_COS} ("
    f"classifiers dscp(-ipv6)? {_WORD}( forwarding-class {_WORD}( loss-priority {_WORD})?)?|"
    f"congestion-notification-profile {_WORD}( (input dscp|output ieee-802.1) code-point {_WORD})?|"
    f"forwarding-classes class {_WORD}|"
    f"drop-profiles {_WORD}|"
    f"schedulers {_WORD}( drop-profile-map loss-priority {_WORD} protocol any)?|"
    f"scheduler-maps {_WORD}( forwarding-class {_WORD})?|"
    f"interfaces {_WORD}( unit 0)?)"
)


class Junos(CommandPlatform):
    """Junos 22 and later on QFX, Junos EVO on PTX and QFX. A candidate is committed as a whole."""

    name, able, grammar, mode = "junos", ABLE, GRAMMAR, "configure private"
    binds = BINDS
    degraded = (
        "strict order: only the first queue is strict-high, which some routers serve beside high; "
        "a chip without the levels below it shares what is left by buffer size",
        "thresholds become percents of each queue's buffer",
    )

    def render(self, intent: Intent, device: Device) -> Rendered:
        for each in intent.lossless:
            if own := DROPPING.get(each.priority):
                raise CannotExpress(
                    f"{device.name}: lossless: {each.name}: junos: queue {each.priority} is that "
                    f"of its class {own}, which drops: give this device an intent without it"
                )
        found = super().render(intent, device)
        said = list(found.degraded)
        for group in device.groups:
            first, *others = lay_out(intent, group, self.able).queues
            if first.mark:
                said.append(f"{first.name}: no ECN: Junos has none on strict-high queues")
            if any(queue.mark and len(queue.bands) > 1 for queue in others):
                said.append(
                    "drop precedences of queues with ECN: "
                    "some chips drop Not-ECT from a full queue only"
                )
        state = found.state
        if device.dscp_ipv6:
            said.append("IPv6: a classifier of its own; dscp_ipv6 = false for chips without")
        else:
            only = "classifier ipv6"
            state = {p: state[p] for p in state if p.kind not in (only, CLASSIFIERS[only])}
            said.append("IPv6: classified as the chip does by the classifier of IPv4")
        return Rendered(state, tuple(dict.fromkeys(said)))

    def lacking(self, intent: Intent, device: Device) -> Iterator[str]:
        cables = {each.cable for each in intent.lossless}
        for group in device.groups:
            layout = lay_out(intent, group, self.able)
            yield from in_words(layout, layout.queues[STRICT:], "Junos has five levels")
            for each in layout.lossless:
                yield f"{each.name}: PFC by code point: for traffic without VLAN tags"
                if each.mark:
                    low, high = _between(*each.mark, group.buffer)
                    yield (
                        f"{each.name}: ECN from {low}% to {high}% of its queue, taken for one of "
                        f"{group.buffer} bytes: Junos has no bytes, and the chip sizes it"
                    )
        if len(cables) > 1:
            yield f"cable: {max(cables)}m for all lossless classes of a port"

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        if any(each.place.kind.startswith(("pfc ", "interface pfc")) for each in changes):
            return ("ports with PFC pass nothing until a change of it is done",)
        return ()

    def owns(self, intent: Intent) -> Owns:
        named = super().owns(intent)

        def owns(place: Place, value: str) -> bool:
            if place.kind == "balance mode":  # has no name: the value identifies it
                return value == PER_PACKET and intent.spray != "keep"
            return named(place, value)

        return owns

    def read(self, text: str) -> State:
        return junos_text.read(text, self.grammar)

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        there = Present.of(present)
        found = [*mixed(intent, device, there)]
        found += [each for port in device.ports for each in problems(intent, port, there)]
        state, wrong = beside(intent, device, rendered, there)
        return Fit(state, frozenset(), tuple(dict.fromkeys([*found, *wrong])))

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        there = Present.of(present)
        return Taken((*left_without(there, changes), *unread(there, changes)), ())

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """One step: the candidate."""
        then = after(present, changes)
        # A port has one PFC profile, named in the line's path: a new line does not replace it.
        named = {change.place for change in changes if change.place.kind == "interface pfc"}
        gone = [
            change
            for change in changes
            if change.after is None or (change.place in named and change.before is not None)
        ]
        lines = [*self._deletes(gone, then)]
        lines += self.grammar.commands([each for each in changes if each.after is not None], {})
        payload = "".join(f"{line}\n" for line in lines)
        return (Step(self.mode, payload, self.disrupts(changes)),)

    def _deletes(self, gone: Sequence[Change], then: State) -> Iterator[str]:
        """Commands that delete each line, or the outermost entry that becomes empty."""
        left: set[str] = set()
        for place, value in then.items():
            if place.kind == junos_text.UNREAD:
                continue
            if place.kind == junos_text.OTHER:
                line = f"{_COS} interfaces {place.name.replace(SEPARATOR, ' ', 1)}"
            else:
                line = self.grammar.write({place: value}).strip().removeprefix("set ")
            words = line.split(" ")
            left |= {" ".join(words[:end]) for end in range(1, len(words))}
        lines = self.grammar.undone([(each.place, each.before or "") for each in gone])
        told: dict[str, None] = {}
        for line in lines:
            words = line.removeprefix("delete ").split(" ")
            heads = (" ".join(words[:end]) for end in range(1, len(words) + 1))
            entries = (each for each in heads if _ENTRY.fullmatch(each) and each not in left)
            told[f"delete {next(entries, ' '.join(words))}"] = None
        yield from told

    def netconf(self) -> Netconf:
        return Netconf(
            '<get-configuration database="committed" format="set"/>',
            _lines,
            lambda step: (
                '<load-configuration action="set"><configuration-set>'
                f"{escape(step.payload, quote=False)}</configuration-set></load-configuration>"
            ),
            '<load-configuration rollback="1"/>',
            '<get-configuration compare="rollback" rollback="0" format="text"/>',
            _compared,
        )

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        classes, ports = _classes(intent, layout), _ports(intent, group, layout)
        return dict([*classes, *ports, *_balance(intent)])


def _class(intent: Intent, queue: int) -> str:
    return f"{intent.prefix}-Q{queue}"


def _classes(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
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
        frames = f"{intent.prefix}{SEPARATOR}{each.priority:03b}"
        yield Place("pfc output", frames, ""), str(each.priority)
    if cable := max((each.cable for each in layout.lossless), default=0):
        yield Place("pfc cable", intent.prefix, ""), str(cable)


def _ports(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
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
        yield from _drop(intent, scheduler, LOSS[0], _between(*each.mark, group.buffer))


def _drops(intent: Intent, scheduler: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    """A profile per drop precedence; the ECT packets need one, too, because it marks them."""
    for band in queue.bands:
        marks = queue.mark if band.rank == 0 else None
        if band.begin >= queue.limit and not marks:
            continue  # tail drop needs no profile
        levels = _between(*(marks or (band.begin, band.certain)), queue.limit)
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


def _between(begin: int, certain: int, limit: int) -> tuple[int, int]:
    """The nearest fill levels in percent; the second is above the first. Only 0 bytes give 0."""
    low = min(max(_nearest(begin, limit), 1 if begin else 0), 99)
    return low, min(max(_nearest(certain, limit), low + 1), 100)


def _nearest(part: int, whole: int) -> int:
    return (200 * part + whole) // (2 * whole)


def _balance(intent: Intent) -> Iterator[tuple[Place, str]]:
    if intent.spray == "keep":
        return
    policy = f"{intent.prefix}-ECMP"  # its "per-packet" means per flow on current hardware
    yield Place("balance policy", policy, ""), ""
    yield Place("balance export", policy, ""), ""
    if intent.spray == "packet":
        yield Place("balance mode", "", ""), PER_PACKET


def _compared(reply: str) -> str:
    """The output of `show | compare` in a reply to get-configuration. Raises: BadState."""
    found = re.search(
        r"<configuration-output[^>]*?(?:/>|>(.*?)</configuration-output>)", reply, re.DOTALL
    )
    if found is None:
        raise BadState("its answer to a comparison holds no <configuration-output>")
    return unescape(found[1] or "").strip("\n")


def _lines(reply: str) -> str:
    """The `set` lines in a reply to get-configuration. A reply with configuration in another form
    is returned unchanged, any other reply as ""."""
    found = re.search(r"<configuration-set[^>]*>(.*?)</configuration-set>", reply, re.DOTALL)
    if found:
        return unescape(found[1])
    return reply if re.search(r"<configuration(-text|-information)?[ >]", reply) else ""
