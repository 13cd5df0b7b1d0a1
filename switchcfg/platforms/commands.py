"""Base class of platforms that are configured by command lines. Pure."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from switchcfg.errors import BadState, CannotExpress
from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.intent.known import KNOWN
from switchcfg.plan.account import Reading
from switchcfg.plan.kept import kept, left_out, lossless
from switchcfg.plan.masking import masked
from switchcfg.plan.queues import Abilities, Layout
from switchcfg.plan.state import Change, Owns, Place, State, after, natural
from switchcfg.platforms.grammar import CHANNEL, Grammar
from switchcfg.platforms.platform import (
    Fit,
    GivenBack,
    Rendered,
    Step,
    Taken,
    foreign,
    is_ours,
    render_groups,
)
from switchcfg.platforms.rule import SEPARATOR

SHOWN: Final = 4  # ports that an error lists
SHOWN_TEXT: Final = 40  # characters of a line in an error
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
# Lines that no platform of command lines prints: JSON, and sections of a Linux switch's answer
_ELSEWHERE: Final = r"^(\{.*|\}|@@ \w.*)$"


def member(port: str, platform: str, present: State) -> list[str]:
    """The problem of a port that is a member of a port-channel, to which the platform binds
    queues."""
    words = present.get(Place(CHANNEL, port, ""), "").split(" ")
    number = re.sub(r"\D", "", words[0])
    if not number:
        return []
    channels = KNOWN[platform].ports.channels
    channel = f"{channels.name if channels else ''}{number}"
    return [
        f"channel: {port} is a member of {channel}, which has the queues of its members: name "
        f"{channel} instead of its members"
    ]


def refuse_controls(text: str, said: str) -> None:
    """Raises: BadState for control characters, which a terminal writes into its log: they hide the
    line that they are in."""
    if found := _CONTROL.search(text):
        number = text.count("\n", 0, found.start()) + 1
        raise BadState(
            f"line {number} has the control character {found[0]!r}: save the output of `{said}`, "
            "and not the log of a terminal"
        )


def number_of(name: str) -> int:
    """The number in a queue's name: 3 for `c-out-8q-q3` or `3`; 0 if there is none."""
    found = re.search(r"(\d+)$", name)
    return int(found[1]) if found else 0


class CommandPlatform(ABC):
    """A platform of command lines. A place's name begins with the name of switchcfg's object; for
    interfaces and the system, the value has that name."""

    name: str
    able: Abilities
    grammar: Grammar
    mode: str  # configuration mode of the lines
    degraded: tuple[str, ...] = ()  # deviations for every intent
    binds: tuple[str, ...] = ()  # kinds of lines that bind a profile to a port
    # Kinds of lines, for the whole switch: code point -> traffic class, traffic class -> queue
    points: str = ""
    classes: str = ""
    shared: tuple[str, ...] = ()  # kinds of all lines of the whole switch
    marks: str = ""  # kind of a profile's lines that turn on ECN in a queue
    names_ports: str = "(?!)"  # a line with the name of a port, or a list of them, as its group
    lists_ports = False  # whether the configuration lists all ports, as kind `port`
    said: str = ""  # the command that prints the configuration
    signs: str = ""  # matches a line of every answer; "": any text is read
    strange: str = "(?!)"  # a line that matches shows the answer of another platform
    message: str = "(?!)"  # matches a text for people, whose lines are no commands: a banner

    @abstractmethod
    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        """The state that one port group needs, on its ports and on the switch."""

    def lacking(self, intent: Intent, device: Device) -> Iterable[str]:
        """Deviations of the lossless classes, in words."""
        return ()

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """Effects of the changes on traffic."""
        return ()

    def render(self, intent: Intent, device: Device) -> Rendered:
        found = render_groups(intent, device, self.able, self.group)
        degraded = dict.fromkeys((*found.degraded, *self.lacking(intent, device)))
        return replace(found, degraded=(*degraded, *self.degraded))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            bound = place.kind.startswith(("interface", "system"))
            return is_ours(intent, value if bound else place.name.split(SEPARATOR)[0])

        return owns

    def defaults(self, present: State) -> State:
        """Default values of lines of the whole switch that the configuration lacks."""
        return {}

    def queues(self, present: State) -> Mapping[int, tuple[int, int]]:
        """Code point -> (traffic class, queue), from lines of the kind `points`."""
        found: dict[int, tuple[int, int]] = {}
        every = {**self.defaults(present), **present}
        for place, value in every.items():
            tc = value.split(" ")[0]
            if place.kind == self.points and place.name.isdecimal() and tc.isdecimal():
                queue = every.get(Place(self.classes, tc, ""), tc)
                if queue.isdecimal():
                    found[int(place.name)] = int(tc), int(queue)
        return found

    def flow_controlled(self, present: State, port: str = "") -> Iterable[int]:
        """Queues with flow control, of one port or (port "") of any."""
        return ()

    def protected(self, intent: Intent, present: State, port: str) -> Iterable[int]:
        """Queues of a port with foreign flow control."""
        return self.flow_controlled(present, port)

    def marked(self, present: State, profile: str) -> Iterable[int]:
        """Queues in which a profile marks (ECN)."""
        for place in present:
            name, *queue = place.name.split(SEPARATOR)
            if place.kind == self.marks and name == profile:
                yield number_of(queue[0])

    def conflicts(self, intent: Intent, device: Device, present: State) -> Iterable[str]:
        """Problems of foreign configuration that can neither coexist nor be replaced."""
        return ()

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        through = self._kept_points(intent, device, present)
        keeps, problems = kept(intent, device.name, through)
        state = dict(rendered)
        state |= {Place(self.points, str(dscp), ""): str(queue) for dscp, queue in keeps.items()}
        problems += self.conflicts(intent, device, present)
        ports = {place.name for place in present if place.kind == "port"}
        for port in device.ports:
            if self.lists_ports and port not in ports:
                some = ", ".join(sorted(ports, key=natural)[:SHOWN]) or "none"
                problems.append(f"port: {device.name} has no port {port}; its ports are {some} ...")
            problems += member(port, self.name, present)
            theirs = set(self.protected(intent, present, port))
            for queue in sorted(theirs):
                problems += lossless(intent, port, queue)
            today = {dscp: queue for dscp, (_, queue) in through.items() if queue in theirs}
            problems += left_out(intent, port, today)
            problems += self._replaced(intent, port, present)
        return Fit(state, frozenset(), tuple(dict.fromkeys(problems)))

    def _kept_points(
        self, intent: Intent, device: Device, present: State
    ) -> Mapping[int, tuple[int, int]]:
        """Code point -> (traffic class, queue) that must be preserved. Code points of classes
        may move if their queue is the default and has no foreign flow control or ECN."""
        default = self.defaults(present)
        mine = {dscp for each in intent.classes for dscp in each.dscp}
        used = set(self.flow_controlled(present))
        for place in present:
            if place.kind == self.marks and not is_ours(intent, place.name.split(SEPARATOR)[0]):
                used.add(number_of(place.name.split(SEPARATOR)[1]))

        def free(dscp: int, queue: int) -> bool:
            place = Place(self.points, str(dscp), "")
            by_default = present.get(place, default.get(place)) == default.get(place)
            return by_default and dscp in mine and queue not in used

        today = self.queues(present)
        return {dscp: way for dscp, way in today.items() if not free(dscp, way[1])}

    def _replaced(self, intent: Intent, port: str, present: State) -> Iterator[str]:
        """Problems of a port's foreign profiles, which switchcfg's would replace."""
        for kind in self.binds:
            theirs = present.get(Place(kind, port, "")) or self.inherited(present, kind)
            if not theirs or is_ours(intent, theirs):
                continue
            if theirs not in intent.keep.replaces:
                yield (
                    f"kept: {port} has {theirs!r}, and the plan would replace it and end its "
                    "functions (PFC, ECN): name it in [keep] replaces, or the port in [keep] "
                    "ports"
                )
            elif lost := self.lost(intent, theirs, present):
                yield (
                    f"kept: {port} has {theirs!r}, and the plan would replace it and lose {lost}: "
                    "name the port in [keep] ports"
                )

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """Lines of the whole switch have no name of switchcfg: those with the intent's value count
        as switchcfg's, unless the intent keeps them."""
        back: dict[Place, str | None] = {}
        stays: dict[Place, str] = {}
        default = self.defaults({})
        for place, value in self._shared(intent, device).items():
            there = present.get(place)
            keeps = intent.keep.dscp if place.kind == self.points else intent.keep.queues
            stay = number_of(place.name) in keeps if place.name else bool(keeps)
            if there is None or there == default.get(place) or (stay and place.name):
                continue
            if there == value and not stay:
                back[place] = default.get(place)
            else:
                stays[place] = f"{place.kind} {place.name}".strip() + f" = {there}"
        return GivenBack(back, stays)

    def _shared(self, intent: Intent, device: Device) -> State:
        """The values of the whole switch that the intent sets."""
        try:
            state = self.render(intent, device).state
        except CannotExpress:
            return {}  # then it was never applied
        return {place: value for place, value in state.items() if place.kind in self.shared}

    def inherited(self, present: State, kind: str) -> str:
        """The profile that a port inherits if none is bound to it; "": none."""
        return ""

    def lost(self, intent: Intent, theirs: str, present: State) -> str:
        """Functions of a foreign profile that its replacement must not end, in words; "": none."""
        found = sorted(set(intent.keep.queues) & set(self.marked(present, theirs)))
        return f"ECN in kept queue {found[0]}" if found else ""

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        return Taken((), ())

    def write(self, state: State) -> str:
        return self.grammar.write(state)

    def near(self, device: Device, present: State) -> Collection[str]:
        return self.grammar.near(device.ports, present)

    def read(self, text: str) -> State:
        document = text.lstrip().startswith(("<", "{", "["))
        if document or not re.search(self.signs, text, re.MULTILINE):
            raise foreign(self.name, self.said, text)
        refuse_controls(text, self.said)
        blank = re.compile(self.message, re.MULTILINE)
        text = blank.sub(lambda found: "\n" * found[0].count("\n"), text)
        if found := re.search(f"{self.strange}|{_ELSEWHERE}", text, re.MULTILINE):
            number = text.count("\n", 0, found.start()) + 1
            line = masked(text.split("\n")[number - 1])[:SHOWN_TEXT]
            raise BadState(
                f"line {number} ({line!r}) is of another platform: save the output of "
                f"`{self.said}` alone"
            )
        return Reading.from_text(self.grammar.read(text), text)

    def check(self, state: State, device: Device) -> Sequence[str]:
        return ()

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return ""

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """One step: these devices take a whole candidate, or one script."""
        lines = self.grammar.commands(changes, after(present, changes))
        payload = "".join(f"{line}\n" for line in lines)
        return (Step(self.mode, payload, self.disrupts(changes)),)
