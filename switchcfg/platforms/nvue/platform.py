"""Platform NVIDIA Cumulus Linux: `nv set` lines of `nv config show -o commands`. Pure.

One WRED curve per traffic class. ECN without `red` has only tail drop, so both are on, except for
lossless classes. Source: Cumulus Linux 5.x documentation, "Quality of Service" and "RDMA over
Converged Ethernet".

`nv config show -o commands` prints no defaults, and one line for equal settings: `swp1-2,32`,
`dscp 0-7`. Each is read, set and unset separately.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from switchcfg.intent.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.plan.kept import left_out
from switchcfg.plan.queues import Abilities, Layout
from switchcfg.plan.state import Change, Place, State
from switchcfg.platforms.commands import CommandPlatform, number_of
from switchcfg.platforms.nvue import lossless as nvue_lossless
from switchcfg.platforms.nvue.grammar import GLOBAL, GRAMMAR
from switchcfg.platforms.platform import Fit, GivenBack, Rendered, group_name, is_ours
from switchcfg.platforms.rule import SEPARATOR
from switchcfg.platforms.weighted import UNMARKED

# Cumulus hashes layer 4 by default, and has one lossless priority group (its reference, "QoS").
ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",), lossless=1)
# (share of the buffer, shared-alpha): a queue gets the first row whose share is not below its own
ALPHAS: Final = ((0.06, "alpha_1_8"), (0.12, "alpha_1_4"), (0.25, "alpha_1_2"), (1.0, "alpha_1"))
_THERE: Final = "which overrides the settings that switchcfg makes for the whole switch"
ELSEWHERE: Final = {
    "interface mapping": _THERE,
    "interface scheduler": _THERE,
    "interface pause": "which pauses all of its queues",
}

BUFFERS: Final = ("buffer alpha", "pool", "pfc", "pfc cable", "interface pfc")


class Nvue(CommandPlatform):
    """Cumulus Linux 5.9 and later."""

    name, able, grammar, mode = "nvue", ABLE, GRAMMAR, "nv set"
    binds, points, classes = ("interface profile",), "mapping dscp", "queue mapping"
    said, signs = "nv config show -o commands", r"^nv set \S"
    strange = (
        r"^(hostname |interface |(class|policy)-map |set (system|interfaces|class-of-service) )"
    )
    shared = (
        "mapping trust", points, classes, "scheduler mode", "scheduler weight", "buffer alpha",
        "pool",
    )  # fmt: skip
    marks = "curve ecn"
    degraded = ("shares of the buffer become alphas: steps of a factor of two",)

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        name = group_name(intent, group)
        lossless = nvue_lossless.settings(name, layout, group.ports)
        return dict([*_global(intent, layout), *_profile(name, group, layout), *lossless])

    def render(self, intent: Intent, device: Device) -> Rendered:
        found = super().render(intent, device)
        more: tuple[str, ...] = (nvue_lossless.HALF,) if intent.lossless else ()
        more += tuple(UNMARKED.format(e.name) for e in intent.lossless if e.priority == 0)
        return replace(found, degraded=(*found.degraded, *more))

    def defaults(self, present: State) -> State:
        if present.get(Place("mapping trust", "", "")) not in {"l3", "both"}:
            return {}  # the switch does not classify by code point
        return {Place("mapping dscp", str(dscp), ""): str(dscp >> 3) for dscp in range(64)}

    def flow_controlled(self, present: State, port: str = "") -> Iterator[int]:
        profile = present.get(Place("interface pfc", port, ""), GLOBAL)
        for place in present:
            if place.kind == "pfc":
                owner, priority = place.name.split(SEPARATOR)
                if not port or owner == profile:
                    yield number_of(present.get(Place("queue mapping", priority, ""), priority))

    def protected(self, intent: Intent, present: State, port: str) -> Iterator[int]:
        if not is_ours(intent, present.get(Place("interface pfc", port, ""), GLOBAL)):
            yield from self.flow_controlled(present, port)

    def conflicts(self, intent: Intent, device: Device, present: State) -> Iterator[str]:
        if _roce(present):
            yield (
                f"roce: {device.name} has `nv set qos roce`, which makes its own default-global "
                f"on all ports: configure its parts one by one, or remove {device.name} from the "
                "intent"
            )
        theirs = set[int]()  # on any port: the code-point map is that of the whole switch
        for place in present:
            if place.kind == "pfc" and not is_ours(intent, place.name.split(SEPARATOR)[0]):
                number = place.name.split(SEPARATOR)[1]
                theirs.add(number_of(present.get(Place("queue mapping", number, ""), number)))
        for port in device.ports:
            theirs -= set(self.protected(intent, present, port))
        ways = self.queues(present).items()
        yield from left_out(intent, device.name, {dscp: q for dscp, (_, q) in ways if q in theirs})
        yield from _by_other_priority(intent, device.name, present)
        yield from _by_vlan_priority(intent, device.name, present)
        for port in device.ports:
            for kind, why in ELSEWHERE.items():
                if profile := present.get(Place(kind, port, "")):
                    yield f"profile: {port} has {profile!r} ({kind.split()[1]}), {why}"
        yield from _of_bonds(device, present)

    def near(self, device: Device, present: State) -> Collection[str]:
        """As the base class, with the bonds of the ports."""
        bonds = (bond for bond, _ in _bonds(device, present))
        return self.grammar.near([*device.ports, *bonds], present)

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        """As the base class. A port has one profile: the settings of its kept queues are copied
        from the present profile into switchcfg's."""
        found = super().fit(intent, device, rendered, present)
        kept: dict[Place, str] = {}
        problems = list(found.problems)
        for group in device.groups:
            for port in group.ports:
                bound = Place("interface profile", port, "")
                if bound not in rendered:
                    continue
                theirs = present.get(bound, GLOBAL)
                for place, value in _curves(present, theirs, intent.keep.queues):
                    tc = place.name.split(SEPARATOR)[1]
                    ours = place._replace(name=f"{rendered[bound]}{SEPARATOR}{tc}")
                    if kept.setdefault(ours, value) != value:
                        problems.append(
                            f"kept: queue {tc} is kept, and ports of {rendered[bound]!r} differ "
                            f"in its {place.kind}: give {port} its own `group`"
                        )
        fitted = nvue_lossless.coexist(intent, device, {**found.state, **kept}, present)
        return replace(fitted, problems=tuple(dict.fromkeys([*problems, *fitted.problems])))

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """As the base class. Memory for lossless traffic stays if there is foreign PFC, or if the
        pools differ from switchcfg's."""
        found = super().given_back(intent, device, present)
        if nvue_lossless.memory_is_ours(intent, present):
            return found
        pools = [place for place in found.values if place.kind == "pool"]
        stays = {place: f"pool {place.name} = {present[place]}" for place in pools}
        back = {place: value for place, value in found.values.items() if place not in pools}
        return GivenBack(back, {**found.stays, **stays})

    def lost(self, intent: Intent, theirs: str, present: State) -> str:
        return ""  # `fit` copies the settings of kept queues

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        if any(change.place.kind in BUFFERS for change in changes):
            return ("buffers change: forwarding can pause on all ports",)
        return ()


def _by_other_priority(intent: Intent, name: str, present: State) -> Iterator[str]:
    """Problems of kept queues that another switch priority goes to."""
    for place, queue in present.items():
        other = place.kind == Nvue.classes and queue != place.name
        if other and number_of(queue) in intent.keep.queues:
            yield (
                f"kept-tc: {name}: switch priority {place.name} goes to queue {queue}, which is "
                "kept: to keep the queue, its switch priority must have the queue's number"
            )


def _bonds(device: Device, present: State) -> Iterator[tuple[str, str]]:
    """(bond, port) of the device's ports that are members of a bond."""
    for place in present:
        if place.kind == "interface bond":
            bond, port = place.name.split(SEPARATOR)
            if port in device.ports:
                yield bond, port


def _of_bonds(device: Device, present: State) -> Iterator[str]:
    """Problems of profiles of bonds, which count for the packets of their members."""
    for bond, port in _bonds(device, present):
        for kind in (*ELSEWHERE, "interface profile", "interface pfc"):
            if profile := present.get(Place(kind, bond, "")):
                yield (
                    f"bond: {port} is a member of {bond}, which has {profile!r} "
                    f"({kind.split()[1]}): configure the members instead"
                )


def _by_vlan_priority(intent: Intent, name: str, present: State) -> Iterator[str]:
    """Problems of kept queues with flow control that packets reach by VLAN priority, or by port,
    today. Without `trust`, Cumulus Linux trusts l2: VLAN priority = switch priority."""
    trust = present.get(Place("mapping trust", "", ""), "l2")
    if trust == "l3":
        return
    paused = {
        place.name.split(SEPARATOR)[1]
        for place in present
        if place.kind == "pfc" and not is_ours(intent, place.name.split(SEPARATOR)[0])
    }
    for pcp in map(str, range(QUEUES)):
        kind = Place("mapping port", "", "") if trust == "port" else Place("mapping pcp", pcp, "")
        priority = present.get(kind, "0" if trust == "port" else pcp)
        queue = number_of(present.get(Place("queue mapping", priority, ""), priority))
        if queue in intent.keep.queues and (priority in paused or kind in present):
            how = "every packet" if trust == "port" else f"VLAN priority {pcp}"
            yield (
                f"kept-pcp: {name}: {how} goes to queue {queue} today, which is kept, by `trust "
                f"{trust}`, and the plan would trust code points (l3)"
            )


def _roce(present: State) -> bool:
    """Whether the RoCE mode of the whole switch is on."""
    said = [value for place, value in present.items() if place.kind == "roce"]
    return bool(said) and not {"off", "disabled"} & set(said)


def _curves(present: State, profile: str, queues: Sequence[int]) -> Iterator[tuple[Place, str]]:
    """The curve settings of a profile for some queues."""
    for place, value in present.items():
        if place.kind.startswith("curve "):
            name, tc = place.name.split(SEPARATOR)
            if name == profile and number_of(tc) in queues:
                yield place, value


def _global(intent: Intent, layout: Layout) -> Iterator[tuple[Place, str]]:
    """Lines of the whole switch. Switch priority = traffic class = queue."""
    yield Place("mapping trust", "", ""), "l3"
    for dscp, index in sorted(layout.queue_of(intent).items()):
        yield Place("mapping dscp", str(dscp), ""), str(index)
    for priority in range(QUEUES):
        yield Place("queue mapping", str(priority), ""), str(priority)
    for queue in layout.queues:
        yield Place("scheduler mode", str(queue.index), ""), "strict"
        alpha = next(alpha for share, alpha in ALPHAS if queue.share <= share)
        yield Place("buffer alpha", str(queue.index), ""), alpha


def _profile(name: str, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    marks = {queue.index: (queue.mark, "enable") for queue in layout.queues}
    marks |= {each.priority: (each.mark, "disable") for each in layout.lossless}
    for index, (mark, red) in marks.items():
        if not mark:
            continue
        where = f"{name}{SEPARATOR}{index}"
        begin, certain = mark
        yield Place("curve min", where, ""), str(begin)
        yield Place("curve max", where, ""), str(certain)
        yield Place("curve probability", where, ""), "100"
        yield Place("curve red", where, ""), red
        yield Place("curve ecn", where, ""), "enable"
    if any(mark for mark, _ in marks.values()):
        for port in group.ports:
            yield Place("interface profile", port, ""), name
