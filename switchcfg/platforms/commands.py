"""What platforms have in common whose configuration is command lines. Pure."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.kept import kept, lossless
from switchcfg.plan.queues import Abilities, Layout
from switchcfg.plan.state import Change, Owns, Place, State, after
from switchcfg.platforms.grammar import SEPARATOR, Grammar
from switchcfg.platforms.platform import (
    Fit,
    Rendered,
    Step,
    Taken,
    foreign,
    is_ours,
    render_groups,
)


class CommandPlatform(ABC):
    """Names of ours are parts of places, but for interfaces: those are bound by their value."""

    name: str
    able: Abilities
    grammar: Grammar
    mode: str  # in which the lines are typed
    degraded: tuple[str, ...] = ()  # whatever the intent
    binds: tuple[str, ...] = ()  # kinds of lines that bind a profile of ours to a port
    # Kinds of lines that say on all of the switch which class a code point has, which queue a class
    points: str = ""
    classes: str = ""
    said: str = ""  # what a device is asked to tell of itself
    signs: str = ""  # one of its lines matches this, in every answer; "": any text is read
    strange: str = "(?!)"  # no line matches this, or the answer is another platform's

    @abstractmethod
    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        """The state that one port group needs, on its ports and on the switch."""

    def disrupts(self, changes: Sequence[Change]) -> tuple[str, ...]:
        """What traffic notices of them."""
        return ()

    def render(self, intent: Intent, device: Device) -> Rendered:
        found = render_groups(intent, device, self.able, self.group)
        return replace(found, degraded=(*found.degraded, *self.degraded))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            bound = place.kind.startswith("interface")
            return is_ours(intent, value if bound else place.name.split(SEPARATOR)[0])

        return owns

    def queues(self, present: State) -> Mapping[int, tuple[int, int]]:
        """Code point -> its traffic class and queue, of lines of the kind `points`."""
        found: dict[int, tuple[int, int]] = {}
        for place, value in present.items():
            tc = value.split(" ")[0]
            if place.kind == self.points and place.name.isdecimal() and tc.isdecimal():
                queue = present.get(Place(self.classes, tc, ""), tc)
                if queue.isdecimal():
                    found[int(place.name)] = int(tc), int(queue)
        return found

    def flow_controlled(self, present: State, port: str) -> Iterable[int]:
        """Queues of a port that have flow control."""
        return ()

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        keeps, problems = kept(intent, device.name, self.queues(present))
        state = dict(rendered)
        state |= {Place(self.points, str(dscp), ""): str(queue) for dscp, queue in keeps.items()}
        for port in device.ports:
            for queue in self.flow_controlled(present, port):
                problems += lossless(intent, port, queue)
            for kind in self.binds:
                theirs = present.get(Place(kind, port, ""))
                if theirs and not is_ours(intent, theirs) and theirs not in intent.keep.replaces:
                    problems.append(
                        f"kept: {port} has {theirs!r}, which ours would replace with all that it "
                        f"does (PFC, ECN): name it in [keep] replaces, or the port in [keep] ports"
                    )
        return Fit(state, frozenset(), tuple(dict.fromkeys(problems)))

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        return Taken((), ())

    def write(self, state: State) -> str:
        return self.grammar.write(state)

    def recognises(self, text: str) -> bool:
        """Is this what such a device says of itself? One without a line of ours says much else."""
        own, other = (re.search(each, text, re.MULTILINE) for each in (self.signs, self.strange))
        document = text.lstrip().startswith(("<", "{", "["))
        return own is not None and other is None and not document

    def read(self, text: str) -> State:
        if not self.recognises(text):
            raise foreign(self.name, self.said, text)
        return self.grammar.read(text)

    def check(self, state: State, device: Device) -> Sequence[str]:
        return ()

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return ""

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        """One: these devices take a candidate as a whole, or a script without a gap."""
        lines = self.grammar.commands(changes, after(present, changes))
        payload = "".join(f"{line}\n" for line in lines)
        return (Step(self.mode, payload, self.disrupts(changes)),)
