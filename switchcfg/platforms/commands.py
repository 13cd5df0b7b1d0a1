"""What platforms have in common whose configuration is command lines. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from switchcfg.intent.intent import Device, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout
from switchcfg.plan.state import Change, Owns, Place, State, after
from switchcfg.platforms.grammar import SEPARATOR, Grammar
from switchcfg.platforms.platform import Rendered, Step, is_ours, render_groups


class CommandPlatform(ABC):
    """Names of ours are parts of places, but for interfaces: those are bound by their value."""

    name: str
    able: Abilities
    grammar: Grammar
    mode: str  # in which the lines are typed
    degraded: tuple[str, ...] = ()  # whatever the intent

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

    def write(self, state: State) -> str:
        return self.grammar.write(state)

    def read(self, text: str) -> State:
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
