"""Lossless classes on Cumulus Linux: PFC profiles per port, other settings per switch. Pure.

A port has one PFC profile, by default `default-global`. A foreign profile stays if it matches the
intent. It is replaced if [keep] replaces names it and all its PFC is in the intent. Memory for
lossless traffic must be reserved ("Flow Control Buffers" of "Quality of Service"): by default, all
memory is for lossy traffic.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.queues import Layout
from switchcfg.plan.state import Place, State
from switchcfg.platforms.platform import Fit, is_ours
from switchcfg.platforms.rule import SEPARATOR

GLOBAL: Final = "default-global"
POOLS: Final = {"default-lossless": "50", "default-lossy": "50"}  # as in the vendor's example
HALF: Final = (
    "memory: half of the buffer goes to lossless traffic (traffic-pool default-lossless), "
    "unless its part is configured"
)


def settings(name: str, layout: Layout, ports: Sequence[str]) -> Iterator[tuple[Place, str]]:
    """Lines for lossless classes on a switch without PFC."""
    for each in layout.lossless:
        tc = str(each.priority)
        yield Place("scheduler mode", tc, ""), "dwrr"
        yield Place("scheduler weight", tc, ""), str(each.share)
        yield Place("pfc", f"{name}{SEPARATOR}{tc}", ""), ""
        if each.cable:
            yield Place("pfc cable", name, ""), str(each.cable)
    if layout.lossless:
        yield Place("pfc rx", name, ""), "enable"
        yield Place("pfc tx", name, ""), "enable"
        for port in ports:
            yield Place("interface pfc", port, ""), name
        for pool, percent in POOLS.items():
            yield Place("pool", pool, ""), percent


def pfc_of_others(intent: Intent, present: State) -> bool:
    """Whether there is a foreign PFC profile with priorities."""
    return any(
        place.kind == "pfc" and not is_ours(intent, place.name.split(SEPARATOR)[0])
        for place in present
    )


def memory_is_ours(intent: Intent, present: State) -> bool:
    """Whether the pools are as switchcfg sets them, and no foreign PFC needs them."""
    there = {place.name: value for place, value in present.items() if place.kind == "pool"}
    return there == POOLS and not pfc_of_others(intent, present)


def coexist(intent: Intent, device: Device, state: State, present: State) -> Fit:
    """The wanted state, adapted to a switch's PFC."""
    return _NvueCoexistence(intent, device, state, present).fit()


class _NvueCoexistence:
    """The parts of a `Fit` while they are made."""

    def __init__(self, intent: Intent, device: Device, state: State, present: State) -> None:
        self.intent, self.device, self.present = intent, device, present
        self.state = dict(state)
        self.problems: list[str] = []
        self.gives_way: frozenset[Place] = frozenset()

    def fit(self) -> Fit:
        """All ports, then what the whole switch has."""
        self.gives_way = frozenset([*self._weightless(), *self._memory()])
        if self.intent.lossless:
            for port in self.device.ports:
                self._port(port)
            self._scheduler()
            self._pools()
            self._unused()
        return Fit(self.state, self.gives_way, tuple(self.problems))

    def _weightless(self) -> Iterator[Place]:
        """Weights to remove: of queues that become strict, and of former lossless classes, which
        switchcfg's PFC profiles on the switch still name."""
        lossless = {str(each.priority) for each in self.intent.lossless}
        for place in self.present:
            name, *tc = place.name.split(SEPARATOR)
            mode = self.state.get(place._replace(kind="scheduler mode"))
            if place.kind == "scheduler weight" and mode == "strict":
                yield place
            if place.kind == "pfc" and is_ours(self.intent, name) and tc[0] not in lossless:
                yield Place("scheduler weight", tc[0], "")
                yield Place("scheduler mode", tc[0], "")

    def _memory(self) -> Iterator[Place]:
        """Pools to remove with the last lossless class, unless foreign PFC needs them."""
        had = any(p.kind == "pfc rx" and is_ours(self.intent, p.name) for p in self.present)
        if had and not self.intent.lossless and memory_is_ours(self.intent, self.present):
            yield from (Place("pool", pool, "") for pool in POOLS)

    def _port(self, port: str) -> None:
        bound = Place("interface pfc", port, "")
        theirs = self.present.get(bound, GLOBAL)
        priorities = self._priorities(theirs)
        if is_ours(self.intent, theirs) or not priorities:
            return
        wanted = {each.priority for each in self.intent.lossless}
        self._marks(port)
        why = self._differs(theirs, priorities)
        if not why:
            del self.state[bound]
        elif more := sorted(priorities - wanted):
            self.problems.append(
                f"lossless: {port} has PFC by {theirs!r} on {_list(sorted(priorities))}, {why}: "
                f"the plan would replace it and end PFC on {_list(more)}"
            )
        elif theirs not in self.intent.keep.replaces:
            self.problems.append(
                f"kept: {port} has PFC by {theirs!r}, {why}: change it, or name it in [keep] "
                f"replaces"
            )

    def _marks(self, port: str) -> None:
        """A port without its own congestion profile marks by `default-global` until it gets
        switchcfg's. Report ECN of queues with foreign PFC that would change by that."""
        own = self.present.get(Place("interface profile", port, ""))
        if own is not None or GLOBAL in self.intent.keep.replaces:
            return  # `fit` checks a port's own profile
        for each in self.intent.lossless:
            where = f"{GLOBAL}{SEPARATOR}{each.priority}"
            kinds = ("curve min", "curve max")
            there = tuple(self.present.get(Place(kind, where, ""), "by default") for kind in kinds)
            if Place("curve ecn", where, "") not in self.present:
                continue
            if each.mark is None or there != tuple(map(str, each.mark)):
                marks = "none" if each.mark is None else " to ".join(map(str, each.mark))
                self.problems.append(
                    f"kept: {port} marks in queue {each.priority} from {there[0]} to {there[1]} "
                    f"by {GLOBAL!r}, and the intent says {marks}: change the intent, or name "
                    f"{GLOBAL!r} in [keep] replaces"
                )

    def _priorities(self, profile: str) -> set[int]:
        parts = [place.name.split(SEPARATOR) for place in self.present if place.kind == "pfc"]
        return {int(number) for name, number in parts if name == profile and number.isdecimal()}

    def _differs(self, profile: str, priorities: set[int]) -> str:
        """How a PFC profile differs from the intent; "": not at all."""
        for each in self.intent.lossless:
            if each.priority not in priorities:
                return f"not on {each.priority}"
            cable = self.present.get(Place("pfc cable", profile, ""))
            if each.cable and cable != str(each.cable):
                return f"with cable-length {cable or 'by default'}, not {each.cable}"
        for kind in ("pfc rx", "pfc tx"):
            said = self.present.get(Place(kind, profile, ""), "")
            if not said.startswith("enable"):  # 5.15 and later say `enabled`
                return f"with {kind.split()[1]} {said or 'by default'}, not enable"
        return ""

    def _scheduler(self) -> None:
        """Report scheduler settings of the whole switch that would change while there is foreign
        PFC, and weights above 100 % in total."""
        for each in self.intent.lossless:
            tc = str(each.priority)
            mode = self.present.get(Place("scheduler mode", tc, ""))
            weight = self.present.get(Place("scheduler weight", tc, ""), "")
            there = f"{mode} {weight}".strip() if mode else ""
            if (
                there not in {"", f"dwrr {each.share}"}
                and GLOBAL not in self.intent.keep.replaces
                and pfc_of_others(self.intent, self.present)
            ):
                self.problems.append(
                    f"kept: {self.device.name}: traffic class {tc} is served by {there}, and the "
                    f"intent says dwrr {each.share}: change the intent, or name {GLOBAL!r} in "
                    "[keep] replaces"
                )
        after = {p: v for p, v in self.present.items() if p not in self.gives_way}
        weights = {p: v for p, v in {**after, **self.state}.items() if p.kind == "scheduler weight"}
        total = sum(int(value) for value in weights.values() if value.isdecimal())
        if total > 100:  # percent
            parts = ", ".join(f"{place.name}: {value}" for place, value in sorted(weights.items()))
            self.problems.append(
                f"share: {self.device.name}: the bw-percent of all traffic classes sum to "
                f"{total} ({parts}), and at most 100 is possible"
            )

    def _pools(self) -> None:
        there = {p.name: v for p, v in self.present.items() if p.kind == "pool"}
        if not there:
            return
        for pool in POOLS:
            del self.state[Place("pool", pool, "")]
        if there.get("default-lossless", "0") == "0":
            self.problems.append(
                f"memory: {self.device.name} has traffic pools ({_pairs(there)}), and none for "
                f"lossless traffic: give default-lossless a memory-percent"
            )

    def _unused(self) -> None:
        """Leave out switchcfg's profiles that no port uses."""
        bound = {value for place, value in self.state.items() if place.kind == "interface pfc"}
        for place in [each for each in self.state if each.kind.startswith("pfc")]:
            if place.name.split(SEPARATOR)[0] not in bound:
                del self.state[place]


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}%" for name, value in sorted(values.items()))
