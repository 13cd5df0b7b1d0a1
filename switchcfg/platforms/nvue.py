"""NVIDIA Cumulus Linux: `nv set` lines, as `nv config show -o commands` has them. Pure.

One WRED curve per traffic class; ECN without `red` drops by tail alone, so both are on.
Source: Cumulus Linux 5.x documentation, "Quality of Service".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import QUEUES, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout
from switchcfg.plan.state import Change, Place
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import SEPARATOR, Grammar, Rule
from switchcfg.platforms.platform import group_name

ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",))  # it hashes layer 4 by itself
# shared-alpha of a queue by its share of the buffer, the first that is not below it
ALPHAS: Final = ((0.06, "alpha_1_8"), (0.12, "alpha_1_4"), (0.25, "alpha_1_2"), (1.0, "alpha_1"))

_QOS: Final = "qos"
_GLOBAL: Final = "default-global"
_CURVE: Final = f"{_QOS} congestion-control {{profile}} traffic-class {{tc}}"


def _rule(kind: str, line: str) -> Rule:
    undo = line.rpartition(" <")[0] if line.endswith(">") else line
    return Rule(kind, (f"nv set {line}",), f"nv unset {undo}")


GRAMMAR: Final = Grammar(
    rules=(
        _rule("mapping trust", f"{_QOS} mapping {_GLOBAL} trust <what>"),
        _rule("mapping dscp", f"{_QOS} mapping {_GLOBAL} dscp {{dscp}} switch-priority <priority>"),
        _rule(
            "queue mapping",
            f"{_QOS} egress-queue-mapping {_GLOBAL} switch-priority {{priority}} "
            "traffic-class <tc>",
        ),
        _rule(
            "scheduler mode", f"{_QOS} egress-scheduler {_GLOBAL} traffic-class {{tc}} mode <mode>"
        ),
        _rule("curve min", f"{_CURVE} min-threshold <bytes>"),
        _rule("curve max", f"{_CURVE} max-threshold <bytes>"),
        _rule("curve probability", f"{_CURVE} probability <percent>"),
        _rule("curve red", f"{_CURVE} red <state>"),
        _rule("curve ecn", f"{_CURVE} ecn <state>"),
        _rule(
            "buffer alpha",
            f"{_QOS} advance-buffer-config {_GLOBAL} egress-lossy-buffer traffic-class {{tc}} "
            "shared-alpha <alpha>",
        ),
        _rule("interface profile", "interface {port} qos congestion-control profile <profile>"),
    ),
    comment="#",
)


class Nvue(CommandPlatform):
    """Cumulus Linux 5.9 and later."""

    name, able, grammar, mode = "nvue", ABLE, GRAMMAR, "nv set"
    binds, points, classes = ("interface profile",), "mapping dscp", "queue mapping"
    said, signs = "nv config show -o commands", r"^nv set \S"
    degraded = ("shares of the buffer become alphas: steps of a factor of two",)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        return dict([*_global(intent, layout), *_profile(intent, group, layout)])

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        if any(change.place.kind == "buffer alpha" for change in changes):
            return ("buffers change: forwarding can pause on all ports",)
        return ()


def _global(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Of the whole switch. Switch priority = traffic class = queue."""
    yield Place("mapping trust", "", ""), "l3"
    for dscp, index in sorted(layout.queue_of(intent).items()):
        yield Place("mapping dscp", str(dscp), ""), str(index)
    for priority in range(QUEUES):
        yield Place("queue mapping", str(priority), ""), str(priority)
    for queue in layout.queues:
        yield Place("scheduler mode", str(queue.index), ""), "strict"
        alpha = next(alpha for share, alpha in ALPHAS if queue.share <= share)
        yield Place("buffer alpha", str(queue.index), ""), alpha


def _profile(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    name = group_name(intent, group)
    for queue in layout.queues:
        if not queue.mark:
            continue
        where = f"{name}{SEPARATOR}{queue.index}"
        begin, certain = queue.mark
        yield Place("curve min", where, ""), str(begin)
        yield Place("curve max", where, ""), str(certain)
        yield Place("curve probability", where, ""), "100"
        yield Place("curve red", where, ""), "enable"
        yield Place("curve ecn", where, ""), "enable"
    if any(queue.mark for queue in layout.queues):
        for port in group.ports:
            yield Place("interface profile", port, ""), name
